package cli

func benchFrappe() benchmark {
	return benchmark{
		name: "frappe", short: "Measure how long a real model takes to be good", long: `Measure how many seconds DeepFM takes on the Frappe data set (202,000 examples, 10 fields) to a validation AUC of .984, with seeds 1 to --rounds: the job of examples/frappe/deepfm.yaml, from
reading its files to the evaluation that says so, twice with each seed, which is the control. Beside it, where it is installed, PyTorch trains the same model with the published settings; it has its
rows in memory before its time begins. Figures are seconds, and a ratio below 1 means that ours is sooner.

The environment variable MONOLITH_DATA names the folder that has datasets/frappe; examples/frappe/README.md says where the files are from. A seed takes one to two minutes:

  MONOLITH_DATA=$HOME/data monolith bench frappe --rounds 4 --with torch=$HOME/torch/bin/python3`,
		with: []string{"torch"},
	}
}

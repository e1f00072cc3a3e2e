package cli

func benchLarge() benchmark {
	return benchmark{name: "large", short: "Measure the life of a large table", long: `Measure a table of --rows (50 million) of dim 8 with Adagrad on two shards of this process: its memory, how fast it is filled and looked up by one worker, a whole snapshot and one when a percent of the rows
has changed, going back to that, and beginning again from it. Rows are compared after each. 50 million take 6 GB of memory, a little more where the disk's files stay in it, and 5 GB of --dir, which is the disk that is measured.`}
}

package cli

func benchSnapshot() benchmark {
	return benchmark{name: "snapshot", short: "Measure training while a snapshot is written", long: `Measure pushes of two workers to a table of --rows (10 million) while a snapshot of it is written, against the time before and after: rows a second, the
longest push, the longest wait for the snapshot itself, and how fast it is written. Then snapshots of what has changed since the one before, when .1, 1
and 10 % of the rows have, against whole ones, while nobody pushes, of rows that may expire, whose times have to be looked at, and of rows that stay; and pushes while changes are tracked against pushes while they are not. --dir is the
disk that is measured.

Then jobs of two workers in this process, LR, FM and DeepFM, whose tables have --rows rows, while a snapshot of them is written, against the time before and after: examples a second, and the longest time between two batches. A snapshot of 10 million rows
takes a minute and more beside a job, because its writer leaves it the processors, and six are taken: some ten minutes.

--only chooses between the three parts (pushes, changed, trains), and of the last one between jobs.

  monolith bench snapshot --only pushes
  monolith bench snapshot --only 'while lr.*trains' --rows 1000000`}
}

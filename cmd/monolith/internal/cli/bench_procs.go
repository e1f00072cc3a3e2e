package cli

func benchProcs() benchmark {
	return benchmark{name: "procs", short: "Measure shards in processes of their own", long: `Measure whole jobs whose two shards are processes on this machine, behind unix sockets, against the same jobs with both shards in the process that trains:
the demo's model and DeepFM over 39 fields, each with one worker and with two, in one process.`, with: []string{"monolith"}}
}

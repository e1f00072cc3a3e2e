package cli

func benchWAL() benchmark {
	return benchmark{name: "wal", short: "Measure pushes to shards with a write-ahead log", long: `Measure pushes of 2,000 rows to one and four shards of this process that keep write-ahead logs, against the same without a log and with one
that is not synced: rows a second. One worker waits for the disk at each push; eight share what they wait for. Snapshots are taken in between, as in a job, and not measured. --dir is the disk that is measured.

Each case has two more lines: how many bytes of the log become durable at a time, and how many do a second beside the disk's own rate, of a file that is written over in pieces as
large, one after the other, each durable before the next (O_DIRECT and O_DSYNC, where there are such). So the first line's ratio says what a log costs, and the last how much of that is the disk.`}
}

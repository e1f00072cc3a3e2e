package cli

func benchWAL() benchmark {
	return benchmark{name: "wal", short: "Measure pushes to shards with a write-ahead log", long: `Measure pushes of 2,000 rows to one and four shards of this process that keep write-ahead logs, against the same without a log and with one
that is not synced: rows a second. One worker waits for the disk at each push; eight share what they wait for. Snapshots are taken in between, as in a job, and not measured. --dir is the disk that is measured.`}
}

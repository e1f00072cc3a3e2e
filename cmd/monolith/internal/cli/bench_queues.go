package cli

func benchQueues() benchmark {
	return benchmark{name: "queues", short: "Measure look-ups ahead of the step and pushes behind it", long: `Measure whole jobs with queues of two batches around the step (train.prefetch.lookup, train.prefetch.push) against the same jobs without, with one worker
and with two: logistic regression, a factorization machine and DeepFM over 39 fields, and the demo's model, the last two also with a log (durability: wal).`}
}

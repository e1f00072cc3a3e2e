package cli

func benchSize() benchmark {
	return benchmark{name: "size", short: "Measure steps on small and on large tables", long: `Measure how fast one worker trains once its tables have 50 million ids (--rows), against a million: a factorization machine and DeepFM (dim 16, 400x3) over 39 fields,
with the ids of a batch drawn uniformly. 50 million take about 12 GiB of memory, and a minute or two to fill for each model. Nothing is stored.`}
}

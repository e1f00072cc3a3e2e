package cli

func benchStep() benchmark {
	return benchmark{"step", "Measure whole training jobs", `Measure jobs from Parquet files to the last snapshot, with the parameter server in this process: logistic regression, a factorization machine and
DeepFM (dim 16, 400x3) over 39 fields of 25,600 ids each.`}
}

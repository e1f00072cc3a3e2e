package cli

func benchServe() benchmark {
	return benchmark{
		name: "serve", short: "Measure answers to requests for predictions", long: `Measure requests of 256 examples, of one user each, to DeepFM (dim 16, 400x3) over 39 fields on two cores: requests a second in this process, over gRPC and
over REST on loopback, where client and server share the cores; the time of an answer at half of that load, p99 beside p50, and that of a loop that takes as long and does nothing else; and how often memory is allocated for a request, by client and
server together.

Beside them, where they are installed, onnxruntime and TensorFlow predict with the same model, exported for them, in processes of their own that have the requests in memory: one request at a
time on two threads, and two at a time. Their predictions are compared with ours.

Then requests in this process whose rows are read of two row shards (monolith serve --shard, --rows) over gRPC on loopback, beside those whose rows are all here: with a cache of the rows, and without.

  monolith bench serve --with onnxruntime=$HOME/onnx/bin/python3 --with tensorflow=$HOME/tf/bin/python3
  monolith bench serve --only 'row shards'`,
		with: []string{"onnxruntime", "tensorflow"},
	}
}

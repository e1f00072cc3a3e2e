package cli

func benchStep() benchmark {
	return benchmark{
		name: "step", short: "Measure whole training jobs", long: `Measure jobs from Parquet files to the last snapshot, with the parameter server in this process: logistic regression, a factorization machine and
DeepFM (dim 16, 400x3) over 39 fields of 25,600 ids each, the last also with train.precision: bf16, beside PyTorch with autocast to bfloat16. Jobs on two cores have a worker for each, and some one worker, the default, which uses both.

Beside them, where they are installed, PyTorch, TorchRec and TensorFlow train the same DeepFM, and xLearn the others, on the same rows, as many of them, on as
many cores. They have the rows in memory before their time begins, and neither parse nor store anything within it; our time includes both. PyTorch trains one table with sparse
gradients (Adagrad, and fused Adam for the rest), once eagerly and once with its head compiled; TorchRec its fused tables; TensorFlow one tf.function; xLearn by its defaults, without the
first epoch. What is not installed is left out, with a line that says why.

The interpreter is python3 on PATH, and xLearn the program xlearn_train. Others are named, PyTorch's environment apart from TensorFlow's where they are two:

  monolith bench step --with torch=$HOME/torch/bin/python3 --with tensorflow=$HOME/tf/bin/python3 --with xlearn=$HOME/xlearn/build/xlearn_train`,
		with: []string{"torch", "tensorflow", "xlearn"},
	}
}

package cli

func benchPredict() benchmark {
	return benchmark{name: "predict", short: "Measure predictions against evaluating and training", long: `Measure what DeepFM over 39 fields predicts on two cores, from loading the snapshot to the last file, with the label and two columns carried through, in
each of the formats of files, against evaluating the same rows, which writes nothing, and training on them.`}
}

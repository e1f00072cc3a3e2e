package cli

func benchMonth() benchmark {
	return benchmark{name: "month", short: "Train on a month of drifting ids, in limited memory", long: `Train logistic regression on a month of --rows events (3 million) whose ids drift, so that most that there ever were are never seen again: with rows that expire and a
limit of memory (retention), and beside it on the same events without either. Shown are the AUC of both over the second half of the month, predicted before training, the rows and the memory of their tables at the end against the
middle of the month, and how many events a second both took together. All but the last is a function of --rows; --rounds and --each do not matter. 300 million take some 3 GB of memory.`}
}

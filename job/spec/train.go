package spec

import "github.com/monolith-go/monolith/internal/conf"

// Train is how batches are made and run.
type Train struct {
	// Batch is the number of examples of a training batch.
	Batch int `yaml:"batch" default:"512" min:"1" max:"1048576"`
	// Workers is how many batches are trained at once, each worker reading splits of its own. With more than one the
	// order of updates depends on timing.
	Workers int `yaml:"workers" default:"1" min:"1" max:"1024"`
	// Prefetch is how far the stages run ahead of each other.
	Prefetch Prefetch `yaml:"prefetch"`
	// OnBadRow says what happens to records that cannot be used: fail, skip (counted by reason), or dead_letter.
	OnBadRow string `yaml:"on_bad_row" default:"fail" enum:"fail|skip|dead_letter"`
	// MaxBadShare ends the run with an error when more than this share of 1,000 records or more are bad under skip or
	// dead_letter: of the first 1,000 and of each 1,000 after them. A wrong format or a mistyped label is not something to
	// go on from. 1 never ends it.
	MaxBadShare float64 `yaml:"max_bad_share" default:"0.5" min:"0" max:"1"`
	// DeadLetter is where bad records are written with the reason, under on_bad_row: dead_letter.
	DeadLetter *DeadLetter `yaml:"dead_letter"`
	// MaxExamples ends training early, in examples; 0: at the source's end.
	MaxExamples int64 `yaml:"max_examples" default:"0" min:"0"`
	// MaxBatchDelay lets an incomplete batch go when its first example has waited this long, whether more comes or not; 0:
	// never. It keeps a slow stream fresh, and makes batch borders depend on the clock. Absent: 5s for a source without
	// end, 0 for one that ends and in deterministic mode.
	MaxBatchDelay *Duration `yaml:"max_batch_delay" min:"0"`
	// Plateau lowers the learning rates when an evaluation metric stops getting better.
	Plateau *Plateau `yaml:"plateau"`
	// EarlyStop ends training when an evaluation metric stops getting better, and keeps the best snapshot.
	EarlyStop *EarlyStop `yaml:"early_stop"`
}

// Prefetch is the depth of the queues between stages, in batches. Deeper queues hide waiting and use more memory. 0 makes
// a stage run in step with the next. In deterministic mode lookup and push must be 0.
//
// Queues between look-up and push make gradients stale: they are computed with weights that lack the updates of the batches
// under way, of all workers. The first steps are the largest, and stale ones add up in one direction, so it costs most where
// batches are few and large.
type Prefetch struct {
	// Parse is how many parsed batches wait for their look-up.
	Parse int `yaml:"parse" default:"4" min:"0" max:"1024"`
	// Lookup is how many looked-up batches may wait for their step. Above 0, weights of a batch may miss the updates of one
	// more than so many batches before it, for each worker. It hides the time of look-ups, which matters where shards are
	// far away, and costs accuracy: with 500,000 rows, batches of 4096 and two workers, lookup 1 took the AUC from .736 to
	// .640 where 0 left it; in MovieLens with batches of 512 and one worker, lookup 2 and push 2 from .813 to .810.
	Lookup int `yaml:"lookup" default:"0" min:"0" max:"1024"`
	// Push is how many batches may be on their way to the shards while the next is computed. It hides the time of pushes
	// (with a log, that of the disk) and costs staleness like lookup, mostly of one batch a worker.
	Push int `yaml:"push" default:"0" min:"0" max:"1024"`
}

// DeadLetter is exactly one place for bad records.
type DeadLetter struct {
	// File is a file of JSON lines.
	File *DeadLetterFile `yaml:"file"`
	// Kafka is a topic.
	Kafka *DeadLetterKafka `yaml:"kafka"`
}

// DeadLetterFile is a file of JSON lines. Short form: the path alone.
type DeadLetterFile struct {
	// Path is the file; it is appended to. {worker} in it stands for the worker's name.
	Path string `yaml:"path" short:"true" required:"true"`
	// MaxBytes is the size at which the file is renamed and a new one begun; 0: never.
	MaxBytes Size `yaml:"max_bytes" default:"0" min:"0"`
}

// DeadLetterKafka is a topic for bad records; the reason is in the message.
type DeadLetterKafka struct {
	// Brokers are host:port addresses to begin with.
	Brokers []string `yaml:"brokers" required:"true"`
	// Topic must exist.
	Topic string `yaml:"topic" required:"true"`
	// TLS encrypts the connections; absent: plain text.
	TLS *TLS `yaml:"tls"`
	// SASL logs in; absent: no log-in.
	SASL *SASL `yaml:"sasl"`
}

// Plateau lowers the learning rates when an evaluation metric stops getting better.
type Plateau struct {
	// Factor is what the learning rates are multiplied by.
	Factor float64 `yaml:"factor" default:"0.1" above:"0" max:"0.999"`
	// Patience is how many evaluations in a row may be no better before that happens.
	Patience int `yaml:"patience" default:"1" min:"0"`
	// Metric is what must get better.
	Metric string `yaml:"metric" default:"auc" enum:"auc|log_loss"`
	// MinLR is the lowest the factor gets, as a share of the configured rates.
	MinLR float64 `yaml:"min_lr" default:"0.000001" min:"0" max:"1"`
	// MinDelta is how much better counts as better.
	MinDelta float64 `yaml:"min_delta" default:"0.000001" min:"0"`
}

// EarlyStop ends training when an evaluation metric stops getting better. The snapshot of the best evaluation is marked and
// kept until there is a better one; eval reads it.
type EarlyStop struct {
	// Patience is how many evaluations in a row may be no better than the best so far.
	Patience int `yaml:"patience" default:"2" min:"0"`
	// Metric is what must get better.
	Metric string `yaml:"metric" default:"auc" enum:"auc|log_loss"`
	// MinDelta is how much better counts as better.
	MinDelta float64 `yaml:"min_delta" default:"0.000001" min:"0"`
}

// Optimizers are the update rules of the three kinds of parameters.
type Optimizers struct {
	// Dense is the rule of layers' weights.
	Dense Optimizer `yaml:"dense" default:"adam"`
	// Sparse is the rule of embedding vectors.
	Sparse Optimizer `yaml:"sparse" default:"adagrad"`
	// Bias is the rule of the linear weight of each id.
	Bias Optimizer `yaml:"bias" default:"ftrl"`
}

// Optimizer is exactly one update rule. Short form: the name alone, as in `sparse: adagrad`.
type Optimizer struct {
	// Adam is the rule of Kingma and Ba (2015).
	Adam *Adam `yaml:"adam"`
	// Adagrad is the rule of Duchi, Hazan and Singer (2011).
	Adagrad *Adagrad `yaml:"adagrad"`
	// SGD is stochastic gradient descent.
	SGD *SGD `yaml:"sgd"`
	// FTRL is the rule of McMahan et al. (2013).
	FTRL *FTRL `yaml:"ftrl"`
}

// Adam are the settings of Adam, with the paper's defaults (the Go rule's zero value has those of the original Monolith).
type Adam struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" default:"0.001" above:"0"`
	// Beta1 is the decay of the mean.
	Beta1 float64 `yaml:"beta1" default:"0.9" above:"0" max:"0.999999"`
	// Beta2 is the decay of the mean square.
	Beta2 float64 `yaml:"beta2" default:"0.999" above:"0" max:"0.999999"`
	// Epsilon is added to the root of the mean square.
	Epsilon float64 `yaml:"epsilon" default:"1e-8" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" default:"0" min:"0"`
	// Nesterov looks ahead by the newest gradient.
	Nesterov bool `yaml:"nesterov" default:"false"`
}

// Adagrad are the settings of Adagrad.
type Adagrad struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" default:"0.05" above:"0"`
	// InitialAccumulator is the sum of squares before the first gradient; larger means smaller first steps. Gradients are
	// means over a batch, so that of a rare id falls with the batch: what suits grows as 1/batch², from 1e-6 at 4096 rows
	// to 1e-4 at 256. Too small a value makes the first steps of a stale gradient large, too large a one keeps rare ids from
	// learning.
	InitialAccumulator float64 `yaml:"initial_accumulator" default:"0.000001" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" default:"0" min:"0"`
}

// SGD are the settings of stochastic gradient descent.
type SGD struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" default:"0.01" above:"0"`
}

// FTRL are the settings of FTRL-Proximal.
type FTRL struct {
	// LR is the learning rate, the paper's alpha.
	LR float64 `yaml:"lr" default:"0.05" above:"0"`
	// Beta smooths the first steps.
	Beta float64 `yaml:"beta" default:"0" min:"0"`
	// L1 sets weights that matter little to 0.
	L1 float64 `yaml:"l1" default:"0" min:"0"`
	// L2 pulls weights towards 0.
	L2 float64 `yaml:"l2" default:"0" min:"0"`
	// InitialAccumulator is the sum of squares before the first gradient.
	InitialAccumulator float64 `yaml:"initial_accumulator" default:"0.000001" above:"0"`
}

// Name is the chosen rule: "adam", "adagrad", "sgd" or "ftrl"; empty when none is.
func (o *Optimizer) Name() string { return conf.Chosen(o) }

func (*DeadLetter) OneOf() {}
func (*Optimizer) OneOf()  {}

package spec

import (
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Train is how batches are made and run.
type Train struct {
	// Batch is the number of examples of a training batch.
	Batch int `yaml:"batch" default:"512" min:"1" max:"1048576"`
	// ReferenceBatch is what gradients of rows (embedding vectors and linear weights of ids) are sums over a batch's examples divided by, so that what one example
	// changes of its ids does not depend on how many others are in its batch: not where train.batch changes, nor where a stream lets incomplete
	// batches go. Those of layers are means over each batch. 0: 512, or what the job, or that of restore.from, began with; snapshots have it.
	ReferenceBatch int `yaml:"reference_batch" default:"0" min:"0" max:"1048576"`
	// Workers is how many batches are trained at once, each worker reading splits of its own. With more than one the
	// order of updates depends on timing.
	Workers int `yaml:"workers" default:"1" min:"1" max:"1024"`
	// Threads is how many threads the model of each worker uses, and its rows' lookups and updates in shards of the same process; results have the same bits with any number. 0: this process's cores shared
	// among its workers, and 1 on runners other than local, whose executors share them.
	Threads int `yaml:"threads" default:"0" min:"0" max:"1024"`
	// Precision is what the operands of the model's products are rounded to, float32 (not at all) or bf16, in training, evaluation and predictions: activations,
	// weights and gradients of layers of two outputs or more, just for the product. Sums, parameters and their optimizers' state are float32. What products alone take is kept in 16 bits. It is part of the
	// plan. It pays on processors with instructions for bf16 (AMX on Xeons since 2023, AVX512-BF16 on EPYCs since 2022), and nowhere else.
	Precision string `yaml:"precision" default:"float32" enum:"float32|bf16"`
	// Interleave is how many files, or parts of files, a worker reads side by side, some rows of each in turn; when one has ended the next
	// begins in its place. More mixes better and needs more memory: Parquet about the size of a row group each. Partitions of a topic are
	// all read at once. With deterministic, runs are the same only with the same value.
	Interleave int `yaml:"interleave" default:"8" min:"1" max:"65536"`
	// Prefetch is how far the stages run ahead of each other.
	Prefetch Prefetch `yaml:"prefetch"`
	// MaxStaleness is how many updates of other workers a batch may lack that prefetch.lookup has fetched ahead, beside those of
	// the batches that the others are just training; one that lacks more is fetched again before its step. A worker's own updates
	// are never lacking, so with one worker this changes nothing.
	MaxStaleness int64 `yaml:"max_staleness" default:"0" min:"0"`
	// OnBadRow chooses what happens to records that cannot be used: fail, skip (counted by reason), or dead_letter.
	OnBadRow string `yaml:"on_bad_row" default:"fail" enum:"fail|skip|dead_letter"`
	// MaxBadShare ends the run with an error when more than this share of 1,000 records or more are bad under skip or
	// dead_letter: of the first 1,000 and of each 1,000 after them. A wrong format or a mistyped label is not something to
	// continue from. 1 never ends it.
	MaxBadShare float64 `yaml:"max_bad_share" default:"0.5" min:"0" max:"1"`
	// DeadLetter is where bad records are written with the reason, under on_bad_row: dead_letter. Each is there at least once: a run that
	// was killed or rolled back, and one that evaluates or reads the source again in another epoch, writes what it meets again; source, split and position
	// of a letter tell those that are the same.
	DeadLetter *DeadLetter `yaml:"dead_letter"`
	// MaxExamples ends training after exactly that many examples of the source, earlier runs included; 0: at the source's end. The last
	// batch is cut there, so a job that continues with a higher limit has other batches than one that never stopped, unless the limit
	// falls between two batches. All workers of a process share the count. Several processes learn the common count from the shards about once a
	// second; each may add what it trains in that time.
	MaxExamples int64 `yaml:"max_examples" default:"0" min:"0"`
	// MaxBatchDelay lets an incomplete batch go when its first example has waited this long, whether more comes or not; 0:
	// never. It keeps a slow stream fresh, and makes batch borders depend on the clock. Absent: 5s for a source without
	// end, 0 for one that ends and in deterministic mode.
	MaxBatchDelay *Duration `yaml:"max_batch_delay" min:"0"`
	// Schedule is a factor on all learning rates that goes by how many examples the model was trained on.
	Schedule Schedule `yaml:"schedule"`
	// Plateau lowers the learning rates when an evaluation metric stops getting better.
	Plateau *Plateau `yaml:"plateau"`
	// EarlyStop ends training when an evaluation metric stops getting better, and has eval and predict read the best snapshot.
	EarlyStop *EarlyStop `yaml:"early_stop"`
}

// Prefetch is the depth of the queues between stages, in batches. Deeper queues hide waiting and use more memory. 0 makes
// a stage run in step with the next. With one worker the depths change no bit of the result: what a batch looked up before the
// batches in front of it were pushed is brought up to date before its step, with the worker's own gradients. With several
// workers train.max_staleness says what may be lacking of the others.
type Prefetch struct {
	// Parse is how many parsed batches wait for their lookup.
	Parse int `yaml:"parse" default:"2" min:"0" max:"1024"`
	// Lookup is how many looked-up batches may wait for their step. It hides the time of lookups, which matters most where
	// shards are far away. Rows are then read with their optimizers' state.
	Lookup int `yaml:"lookup" default:"0" min:"0" max:"1024"`
	// Push is how many batches may be on their way to the shards while the next is computed. It hides the time of pushes, with a
	// log that of the disk.
	Push int `yaml:"push" default:"0" min:"0" max:"1024"`
}

// Schedule is a factor on all learning rates, those of rows and of dense weights alike, by how many examples the model was trained on: those that all shards have
// applied of the job's source and of its backfill, however often the job was started. Each optimizer's own lr is the rate at a factor of 1. With several workers
// processes count their own exactly and hear of the others' from time to time. It is part of the plan; train.plateau lowers what it gives further.
type Schedule struct {
	// Kind is how the factor continues from 1, after the warm-up: constant, polynomial (to end, over so many examples), exponential (times rate every so many) or cosine (to end).
	Kind string `yaml:"kind" default:"constant" enum:"constant|polynomial|exponential|cosine"`
	// WarmUp is how many examples the factor rises over to 1, linearly, before kind begins to count; 0: none. Use it for
	// large rates of layers. Several workers and large batches do not need it: rows learn more slowly meanwhile, and one worker leads
	// the others in any case.
	WarmUp int64 `yaml:"warm_up" default:"0" min:"0"`
	// WarmUpFrom is the factor that the warm-up begins with.
	WarmUpFrom float64 `yaml:"warm_up_from" default:"0" min:"0" max:"1"`
	// Over is how many examples polynomial and cosine take to end, and after how many exponential has been multiplied by rate once.
	Over int64 `yaml:"over" default:"0" min:"0"`
	// End is the least factor. 0 lets a model stop learning, which a stream must not.
	End float64 `yaml:"end" default:"0.01" min:"0" max:"1"`
	// Power is the exponent of polynomial; 1 is a straight line.
	Power float64 `yaml:"power" default:"1" above:"0" max:"100"`
	// Rate is what exponential multiplies the factor by.
	Rate float64 `yaml:"rate" default:"0.5" above:"0" max:"1"`
	// Staircase makes exponential move every so many examples at once, not smoothly.
	Staircase bool `yaml:"staircase" default:"false"`
	// Cycle lets polynomial rise again where it has ended, to what is left of twice, three times, ... as many examples, and cosine begin again at 1. Without it they
	// stay at end.
	Cycle bool `yaml:"cycle" default:"false"`
}

// Factor is the schedule as a formula. With a constant factor it is the zero value.
func (s *Schedule) Factor() optim.Schedule {
	if s.Kind == optim.ConstantSchedule && s.WarmUp == 0 {
		return optim.Schedule{}
	}
	return optim.Schedule{
		Kind: s.Kind, WarmUp: s.WarmUp, WarmUpFrom: s.WarmUpFrom, Over: s.Over, End: s.End, Power: s.Power, Rate: s.Rate, Staircase: s.Staircase, Cycle: s.Cycle,
	}
}

// Plateau lowers the learning rates when an evaluation metric stops getting better.
type Plateau struct {
	// Factor is what the learning rates are multiplied by.
	Factor float64 `yaml:"factor" default:"0.1" above:"0" max:"0.999"`
	// Patience is how many evaluations in a row may be no better before that happens.
	Patience int `yaml:"patience" default:"1" min:"0"`
	// Metric is what must get better: one of eval.metrics, or with heads HEAD.METRIC, such as price.rmse. What is better
	// follows from the metric. Default: auc, or the first metric of the first head.
	Metric string `yaml:"metric"`
	// MinLR is the lowest the factor gets, as a share of the configured rates.
	MinLR float64 `yaml:"min_lr" default:"0.000001" min:"0" max:"1"`
	// MinDelta is how much better counts as better.
	MinDelta float64 `yaml:"min_delta" default:"0.000001" min:"0"`
}

// EarlyStop ends training when an evaluation metric stops getting better. The snapshot of the best evaluation is marked and
// kept until there is a better one, as without it where several epochs are evaluated; with it eval and predict read that one by default.
type EarlyStop struct {
	// Patience is how many evaluations in a row may be no better than the best so far.
	Patience int `yaml:"patience" default:"2" min:"0"`
	// Metric is what must get better: one of eval.metrics, or with heads HEAD.METRIC, such as price.rmse. What is better
	// follows from the metric. Default: auc, or the first metric of the first head.
	Metric string `yaml:"metric"`
	// MinDelta is how much better counts as better.
	MinDelta float64 `yaml:"min_delta" default:"0.000001" min:"0"`
}

// ReferenceBatch is what gradients of rows are sums over a batch divided by where neither train.reference_batch nor a snapshot says
// otherwise. The rates of rows are made for it.
const ReferenceBatch = 512

// InterceptNewton is the optimizer.intercept that gives intercepts a rule of their own.
const InterceptNewton = "newton"

// Optimizers are the update rules of the three kinds of parameters.
type Optimizers struct {
	// Dense is the rule of layers' weights.
	Dense Optimizer `yaml:"dense" default:"adam"`
	// Sparse is the rule of embedding vectors. auto: adagrad, with a rate of 0.05, or less from 8 sparse features on in
	// factorization machines and from 20 on in other models. `monolith model describe JOB`
	// shows the rule.
	Sparse Optimizer `yaml:"sparse" default:"auto"`
	// Bias is the rule of the linear weight of each id. auto: ftrl, with a rate of 2 by the number of sparse features, 0.25 at
	// most, and an l2 of a thousandth of that number, 0.03 at most.
	Bias Optimizer `yaml:"bias" default:"auto"`
	// Intercept is the rule of the bias of a head that learns by cross entropy or squares. newton moves the mean
	// prediction to the mean label within a few batches, also where positives are rare. l1, delay_compensation and schedules
	// pass it over. dense: the rule of layers.
	Intercept string `yaml:"intercept" default:"newton" enum:"newton|dense"`
	// DelayCompensation makes up for what other workers changed of a row or of layers' weights while a gradient of them was computed. Tables may have their own of rows.
	DelayCompensation Delays `yaml:"delay_compensation"`
	// L1 adds l1·sign(w) to the gradient of each weight that a batch touches, beside the L2 of the model's section: weights that matter little are drawn towards 0. Weights that are exactly 0
	// come from the l1 of ftrl and group_ftrl.
	L1 L1 `yaml:"l1"`
	// Clip bounds what one batch may change of one id. Tables may have their own.
	Clip Clips `yaml:"clip"`
	// Schedules are factors on the rates of one rule each, times train.schedule's, by how many examples the model was trained on. Tables may have their own of rows.
	Schedules Schedules `yaml:"schedules"`
	// Compress is what the model reads of embedding vectors in place of them, for a table that is to be served in few bits. Tables may have their own.
	Compress Compress `yaml:"compress"`
}

// Compress is what the model reads of embedding vectors, in training, evaluation and predictions alike, so that it learns to do with that. Shards keep, train and store the vectors themselves.
type Compress struct {
	// Kind is none; fixed_r8, 8 bits of fixed point from -range to range, through which gradients pass as they are; or one_bit, plus or minus amplitude by the sign (HashNet): training reads amplitude·tanh(β·w), and
	// β = √(1 + ⌊examples/every⌋), at most 10,000, draws that to the sign.
	Kind string `yaml:"kind" default:"none" enum:"none|fixed_r8|one_bit"`
	// Range is the largest magnitude of fixed_r8; a 128th of it is its step.
	Range float64 `yaml:"range" default:"1" above:"0" max:"1000000"`
	// Amplitude is the magnitude of one_bit.
	Amplitude float64 `yaml:"amplitude" default:"0.05" above:"0" max:"1000000"`
	// Every is after how many examples β of one_bit changes.
	Every int64 `yaml:"every" default:"100000" min:"1"`
}

// Compressor is the compressor with its settings; the zero value for none.
func (c *Compress) Compressor() param.Compressor {
	switch c.Kind {
	case param.CompressFixedR8:
		return param.Compressor{Kind: c.Kind, Range: float32(c.Range)}
	case param.CompressOneBit:
		return param.Compressor{Kind: c.Kind, Amplitude: float32(c.Amplitude), Every: c.Every}
	}
	return param.Compressor{}
}

// Delays are the λ of g + λ·g²·(w - s), which takes the place of the gradient g: w is what the row or tensor is when g is applied, s what it was when g was computed (Zheng et al., 2017, "Asynchronous
// Stochastic Gradient Descent with Delay Compensation", algorithm 2; λ is 0.04 there for losses of classes). It is for several workers whose gradients are late: with one worker w is s. A push then
// has twice as many numbers for those parameters, and shards do one more pass over them. Not with deterministic, nor with ps.precision.
type Delays struct {
	// Dense is that of layers' weights; 0: none.
	Dense     float64 `yaml:"dense" default:"0" min:"0" max:"1000000"`
	RowDelays `yaml:",inline"`
}

// RowDelays are those of rows.
type RowDelays struct {
	// Sparse is that of embedding vectors; 0: none.
	Sparse float64 `yaml:"sparse" default:"0" min:"0" max:"1000000"`
	// Bias is that of linear weights; 0: none.
	Bias float64 `yaml:"bias" default:"0" min:"0" max:"1000000"`
}

// L1 are the factors of sign(w).
type L1 struct {
	// Dense is that of layers' weights, biases and normalisation's included, but not of intercepts under intercept: newton; 0: none.
	Dense float64 `yaml:"dense" default:"0" min:"0"`
	// Sparse is that of embedding vectors; 0: none.
	Sparse float64 `yaml:"sparse" default:"0" min:"0"`
	// Bias is that of linear weights; 0: none.
	Bias float64 `yaml:"bias" default:"0" min:"0"`
}

// Clips are the largest Euclidean norms of gradients of single ids: a longer one is scaled down to it, before L2 is added. Gradients are sums over a batch divided by train.reference_batch. model.*.clip_norm bounds those of a batch together.
type Clips struct {
	// Sparse is that of an embedding vector's gradient; 0: none.
	Sparse float64 `yaml:"sparse" default:"0" min:"0"`
	// Bias is that of a linear weight's; 0: none.
	Bias float64 `yaml:"bias" default:"0" min:"0"`
}

// RowSchedules are factors on the rates of rows.
type RowSchedules struct {
	// Sparse is that of embedding vectors.
	Sparse Schedule `yaml:"sparse"`
	// Bias is that of the linear weight of each id.
	Bias Schedule `yaml:"bias"`
}

// Schedules are factors on the rates of the three kinds of parameters.
type Schedules struct {
	// Dense is that of layers' weights.
	Dense        Schedule `yaml:"dense"`
	RowSchedules `yaml:",inline"`
}

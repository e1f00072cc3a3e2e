package components

import "github.com/monolith-go/monolith/model/optim"

// LazyAdagradW are the settings of Adagrad with weight decay by the time that passes.
type LazyAdagradW struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// InitialAccumulator is the sum of squares before the first gradient; larger means smaller first steps. What is said of
	// adagrad's applies.
	InitialAccumulator float64 `yaml:"initial_accumulator" above:"0"`
	// WeightDecay is the share of a weight, times the learning rate, that is taken away for each Every examples, whether batches have the id or not.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// Every is for how many examples the model is trained on that happens once.
	Every int64 `yaml:"every" min:"1"`
}

// Defaults implements [conf.Defaulted].
func (*LazyAdagradW) Defaults() map[string]string { return ruleDefaults(optim.LazyAdagradW{}) }

// Rule implements [component.OptimizerConfig].
func (a *LazyAdagradW) Rule() optim.Optimizer {
	return optim.LazyAdagradW{
		LR: float32(a.LR), InitialAccumulator: float32(a.InitialAccumulator), WeightDecay: float32(a.WeightDecay), Every: a.Every,
	}
}

package components

import "github.com/monolith-go/monolith/model/optim"

// RowAdagrad are the settings of Adagrad with one accumulator for a vector.
type RowAdagrad struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// InitialAccumulator is the sum of mean squares before the first gradient; larger means smaller first steps. What is said of
	// adagrad's applies.
	InitialAccumulator float64 `yaml:"initial_accumulator" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*RowAdagrad) Defaults() map[string]string { return ruleDefaults(optim.RowAdagrad{}) }

// Rule implements [component.OptimizerConfig].
func (a *RowAdagrad) Rule() optim.Optimizer {
	return optim.RowAdagrad{
		LR: float32(a.LR), InitialAccumulator: float32(a.InitialAccumulator), WeightDecay: float32(a.WeightDecay),
	}
}

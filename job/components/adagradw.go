package components

import "github.com/monolith-go/monolith/model/optim"

// AdagradW are the settings of Adagrad with decoupled weight decay.
type AdagradW struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// InitialAccumulator is the sum of squares before the first gradient; larger means smaller first steps. What is said of
	// adagrad's applies.
	InitialAccumulator float64 `yaml:"initial_accumulator" above:"0"`
	// WeightDecay is the share of a weight, times the learning rate, that each update takes away.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*AdagradW) Defaults() map[string]string { return ruleDefaults(optim.AdagradW{}) }

// Rule implements [component.OptimizerConfig].
func (a *AdagradW) Rule() optim.Optimizer {
	return optim.AdagradW{
		LR: float32(a.LR), InitialAccumulator: float32(a.InitialAccumulator), WeightDecay: float32(a.WeightDecay),
	}
}

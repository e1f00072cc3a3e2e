package components

import "github.com/monolith-go/monolith/model/optim"

// GroupAdagrad are the settings of Adagrad with a penalty of lengths.
type GroupAdagrad struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Beta smooths the first steps.
	Beta float64 `yaml:"beta" min:"0"`
	// InitialAccumulator is the sum of the largest squares before the first gradient; larger means smaller first steps. What is said of
	// adagrad's applies.
	InitialAccumulator float64 `yaml:"initial_accumulator" above:"0"`
	// L2 pulls the length of a vector towards 0, and sets vectors that matter little to 0.
	L2 float64 `yaml:"l2" min:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*GroupAdagrad) Defaults() map[string]string { return ruleDefaults(optim.GroupAdagrad{}) }

// Rule implements [component.OptimizerConfig].
func (a *GroupAdagrad) Rule() optim.Optimizer {
	return optim.GroupAdagrad{
		LR: float32(a.LR), Beta: float32(a.Beta), InitialAccumulator: float32(a.InitialAccumulator), L2: float32(a.L2), WeightDecay: float32(a.WeightDecay),
	}
}

package components

import "github.com/monolith-go/monolith/model/optim"

// GroupFTRL are the settings of FTRL-Proximal with a penalty of lengths.
type GroupFTRL struct {
	// LR is the learning rate, FTRL's alpha.
	LR float64 `yaml:"lr" above:"0"`
	// Beta smooths the first steps.
	Beta float64 `yaml:"beta" min:"0"`
	// L1 sets vectors that matter little to 0, by their length.
	L1 float64 `yaml:"l1" min:"0"`
	// L2 pulls weights towards 0.
	L2 float64 `yaml:"l2" min:"0"`
	// InitialAccumulator is the sum of squares before the first gradient.
	InitialAccumulator float64 `yaml:"initial_accumulator" above:"0"`
}

// Defaults implements [conf.Defaulted].
func (*GroupFTRL) Defaults() map[string]string { return ruleDefaults(optim.GroupFTRL{}) }

// Rule implements [component.OptimizerConfig].
func (a *GroupFTRL) Rule() optim.Optimizer {
	return optim.GroupFTRL{
		LR: float32(a.LR), Beta: float32(a.Beta), L1: float32(a.L1), L2: float32(a.L2), InitialAccumulator: float32(a.InitialAccumulator),
	}
}

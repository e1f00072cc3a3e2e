package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// LAMB are the settings of LAMB. A dense tensor, or a vector of a row, takes steps that are as long as it is, times the learning rate.
type LAMB struct {
	// LR is the learning rate: the share of its length that a tensor moves by.
	LR float64 `yaml:"lr" above:"0"`
	// Beta1 is the decay of the mean.
	Beta1 float64 `yaml:"beta1" above:"0" max:"0.999999"`
	// Beta2 is the decay of the mean square.
	Beta2 float64 `yaml:"beta2" above:"0" max:"0.999999"`
	// Epsilon is added to the root of the mean square.
	Epsilon float64 `yaml:"epsilon" above:"0"`
	// WeightDecay times the weights is added to the step, before its length is set.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*LAMB) Defaults() map[string]string { return ruleDefaults(optim.LAMB{}) }

// Rule implements [component.OptimizerConfig].
func (l *LAMB) Rule() optim.Optimizer {
	return optim.LAMB{
		LR: float32(l.LR), Beta1: float32(l.Beta1), Beta2: float32(l.Beta2), Epsilon: float32(l.Epsilon), WeightDecay: float32(l.WeightDecay),
	}
}

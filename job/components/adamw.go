package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// AdamW are the settings of Adam with decoupled weight decay.
type AdamW struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Beta1 is the decay of the mean.
	Beta1 float64 `yaml:"beta1" above:"0" max:"0.999999"`
	// Beta2 is the decay of the mean square.
	Beta2 float64 `yaml:"beta2" above:"0" max:"0.999999"`
	// Epsilon is added to the root of the mean square.
	Epsilon float64 `yaml:"epsilon" above:"0"`
	// WeightDecay is the share of a weight, times the learning rate, that each update takes away.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// Nesterov looks ahead by the newest gradient.
	Nesterov bool `yaml:"nesterov"`
}

// Defaults implements [conf.Defaulted].
func (*AdamW) Defaults() map[string]string { return ruleDefaults(optim.AdamW{}) }

// Rule implements [component.OptimizerConfig].
func (a *AdamW) Rule() optim.Optimizer {
	return optim.AdamW{
		LR: float32(a.LR), Beta1: float32(a.Beta1), Beta2: float32(a.Beta2), Epsilon: float32(a.Epsilon),
		WeightDecay: float32(a.WeightDecay), Nesterov: a.Nesterov,
	}
}

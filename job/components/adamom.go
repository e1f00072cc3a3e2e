package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// Adamom are the settings of bytedance/monolith's rule for dense parameters.
type Adamom struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Momentum is the decay of the mean.
	Momentum float64 `yaml:"momentum" above:"0" max:"0.999999"`
	// Decay is that of the mean square.
	Decay float64 `yaml:"decay" above:"0" max:"0.999999"`
	// Epsilon is added to the mean square.
	Epsilon float64 `yaml:"epsilon" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*Adamom) Defaults() map[string]string { return ruleDefaults(optim.Adamom{}) }

// Rule implements [component.OptimizerConfig].
func (a *Adamom) Rule() optim.Optimizer {
	return optim.Adamom{
		LR: float32(a.LR), Momentum: float32(a.Momentum), Decay: float32(a.Decay), Epsilon: float32(a.Epsilon), WeightDecay: float32(a.WeightDecay),
	}
}

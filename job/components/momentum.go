package components

import "github.com/monolith-go/monolith/model/optim"

// Momentum are the settings of gradient descent with momentum.
type Momentum struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Momentum is the share of the former step that is made again.
	Momentum float64 `yaml:"momentum" above:"0" max:"0.999999"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// Nesterov looks ahead by the newest gradient.
	Nesterov bool `yaml:"nesterov"`
}

// Defaults implements [conf.Defaulted].
func (*Momentum) Defaults() map[string]string { return ruleDefaults(optim.Momentum{}) }

// Rule implements [component.OptimizerConfig].
func (a *Momentum) Rule() optim.Optimizer {
	return optim.Momentum{
		LR: float32(a.LR), Momentum: float32(a.Momentum), WeightDecay: float32(a.WeightDecay), Nesterov: a.Nesterov,
	}
}

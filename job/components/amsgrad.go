package components

import "github.com/monolith-go/monolith/model/optim"

// AMSGrad are the settings of AMSGrad.
type AMSGrad struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Beta1 is the decay of the mean.
	Beta1 float64 `yaml:"beta1" above:"0" max:"0.999999"`
	// Beta2 is the decay of the mean square.
	Beta2 float64 `yaml:"beta2" above:"0" max:"0.999999"`
	// Epsilon is added to the root of the largest mean square.
	Epsilon float64 `yaml:"epsilon" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// Nesterov looks ahead by the newest gradient.
	Nesterov bool `yaml:"nesterov"`
}

// Defaults implements [conf.Defaulted].
func (*AMSGrad) Defaults() map[string]string { return ruleDefaults(optim.AMSGrad{}) }

// Rule implements [component.OptimizerConfig].
func (a *AMSGrad) Rule() optim.Optimizer {
	return optim.AMSGrad{
		LR: float32(a.LR), Beta1: float32(a.Beta1), Beta2: float32(a.Beta2), Epsilon: float32(a.Epsilon), WeightDecay: float32(a.WeightDecay), Nesterov: a.Nesterov,
	}
}

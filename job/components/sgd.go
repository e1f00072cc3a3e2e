package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// SGD are the settings of stochastic gradient descent.
type SGD struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
}

// Defaults implements [conf.Defaulted].
func (*SGD) Defaults() map[string]string { return ruleDefaults(optim.SGD{}) }

// Rule implements [component.OptimizerConfig].
func (a *SGD) Rule() optim.Optimizer {
	return optim.SGD{LR: float32(a.LR)}
}

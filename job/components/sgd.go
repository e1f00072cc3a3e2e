package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// SGD are the settings of stochastic gradient descent.
type SGD struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" default:"0.01" above:"0"`
}

// Rule implements [component.OptimizerConfig].
func (a *SGD) Rule() optim.Optimizer {
	return optim.SGD{LR: float32(a.LR)}
}

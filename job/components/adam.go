package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// Adam are the settings of Adam, with the paper's defaults (the Go rule's zero value has those of the original Monolith).
type Adam struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" default:"0.001" above:"0"`
	// Beta1 is the decay of the mean.
	Beta1 float64 `yaml:"beta1" default:"0.9" above:"0" max:"0.999999"`
	// Beta2 is the decay of the mean square.
	Beta2 float64 `yaml:"beta2" default:"0.999" above:"0" max:"0.999999"`
	// Epsilon is added to the root of the mean square.
	Epsilon float64 `yaml:"epsilon" default:"1e-8" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" default:"0" min:"0"`
	// Nesterov looks ahead by the newest gradient.
	Nesterov bool `yaml:"nesterov" default:"false"`
}

// Rule implements [component.OptimizerConfig].
func (a *Adam) Rule() optim.Optimizer {
	return optim.Adam{
		LR: float32(a.LR), Beta1: float32(a.Beta1), Beta2: float32(a.Beta2), Epsilon: float32(a.Epsilon),
		WeightDecay: float32(a.WeightDecay), Nesterov: a.Nesterov,
	}
}

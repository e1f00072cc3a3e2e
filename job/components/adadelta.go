package components

import "github.com/monolith-go/monolith/model/optim"

// Adadelta are the settings of Adadelta.
type Adadelta struct {
	// LR multiplies the rule's own steps.
	LR float64 `yaml:"lr" above:"0"`
	// Decay is the decay of both mean squares.
	Decay float64 `yaml:"decay" above:"0" max:"0.999999"`
	// Epsilon is added to both mean squares. Its root is the size of the first steps.
	Epsilon float64 `yaml:"epsilon" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*Adadelta) Defaults() map[string]string { return ruleDefaults(optim.Adadelta{}) }

// Rule implements [component.OptimizerConfig].
func (a *Adadelta) Rule() optim.Optimizer {
	return optim.Adadelta{
		LR: float32(a.LR), Decay: float32(a.Decay), Epsilon: float32(a.Epsilon), WeightDecay: float32(a.WeightDecay),
	}
}

package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// Adagrad are the settings of Adagrad.
type Adagrad struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// InitialAccumulator is the sum of squares before the first gradient; larger means smaller first steps. Gradients of rows
	// are sums over a batch divided by train.reference_batch, 512 in a new job, and those of vectors near 0 are small: for
	// models of products auto takes 3e-8. Too large a value keeps rare ids from learning, too small a one makes the first
	// steps of a stale gradient large.
	InitialAccumulator float64 `yaml:"initial_accumulator" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
}

// Defaults implements [conf.Defaulted].
func (*Adagrad) Defaults() map[string]string { return ruleDefaults(optim.Adagrad{}) }

// Rule implements [component.OptimizerConfig].
func (a *Adagrad) Rule() optim.Optimizer {
	return optim.Adagrad{LR: float32(a.LR), InitialAccumulator: float32(a.InitialAccumulator), WeightDecay: float32(a.WeightDecay)}
}

package components

import (
	"github.com/monolith-go/monolith/model/optim"
)

// Adagrad are the settings of Adagrad.
type Adagrad struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// InitialAccumulator is the sum of squares before the first gradient; larger means smaller first steps. Gradients are
	// means over a batch, so that of a rare id falls with the batch: what suits grows as 1/batch², from 1e-6 at 4096 rows
	// to 1e-4 at 256. Too small a value makes the first steps of a stale gradient large, too large a one keeps rare ids from
	// learning.
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

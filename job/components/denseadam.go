package components

import "github.com/monolith-go/monolith/model/optim"

// DenseAdam are the settings of Adam whose rows continue between the batches that have them.
type DenseAdam struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Beta1 is the decay of the mean.
	Beta1 float64 `yaml:"beta1" above:"0" max:"0.999999"`
	// Beta2 is the decay of the mean square.
	Beta2 float64 `yaml:"beta2" above:"0" max:"0.999999"`
	// Epsilon is added to the root of the mean square.
	Epsilon float64 `yaml:"epsilon" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient of every step, whether batches have the id or not; the L2 of the model's section is of the ids of a batch.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// Every is how many examples a step has: train.batch, where the rule is to be as in programs whose gradients of embeddings are dense.
	Every int64 `yaml:"every" min:"1"`
	// CatchUp is how many steps without the id are made up for at most when a batch has it again; of further ones the means fade and the weights stay. Each costs as much as an update of the row.
	CatchUp int `yaml:"catch_up" min:"1"`
}

// Defaults implements [conf.Defaulted].
func (*DenseAdam) Defaults() map[string]string { return ruleDefaults(optim.DenseAdam{}) }

// Rule implements [component.OptimizerConfig].
func (a *DenseAdam) Rule() optim.Optimizer {
	return optim.DenseAdam{
		LR: float32(a.LR), Beta1: float32(a.Beta1), Beta2: float32(a.Beta2), Epsilon: float32(a.Epsilon),
		WeightDecay: float32(a.WeightDecay), Every: a.Every, CatchUp: a.CatchUp,
	}
}

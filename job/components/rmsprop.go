package components

import "github.com/monolith-go/monolith/model/optim"

// RMSprop are the settings of RMSprop.
type RMSprop struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Decay is the decay of the mean square.
	Decay float64 `yaml:"decay" above:"0" max:"0.999999"`
	// Epsilon is added to the root of the mean square. ByteDance Monolith's dense Rmsprop adds it inside the root, unless use_v2
	// is set: give the root of its epsilon here, 1e-4 for 1e-8. Its rules of rows have an epsilon of 1.
	Epsilon float64 `yaml:"epsilon" above:"0"`
	// WeightDecay adds WeightDecay·w to the gradient.
	WeightDecay float64 `yaml:"weight_decay" min:"0"`
	// Sum adds squares of gradients whole, in place of the share 1-decay of them.
	Sum bool `yaml:"sum"`
	// Momentum is the share of the last step that the next one has too; 0: none. With it the rule keeps twice as much state.
	Momentum float64 `yaml:"momentum" default:"0" min:"0" max:"0.999999"`
}

// Defaults implements [conf.Defaulted].
func (*RMSprop) Defaults() map[string]string { return ruleDefaults(optim.RMSprop{}) }

// Rule implements [component.OptimizerConfig].
func (a *RMSprop) Rule() optim.Optimizer {
	return optim.RMSprop{
		LR: float32(a.LR), Decay: float32(a.Decay), Epsilon: float32(a.Epsilon), WeightDecay: float32(a.WeightDecay), Sum: a.Sum, Momentum: float32(a.Momentum),
	}
}

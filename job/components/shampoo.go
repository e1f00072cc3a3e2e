package components

import "github.com/monolith-go/monolith/model/optim"

// Shampoo are the settings of Shampoo, a rule of dense tensors. An update costs multiplications of matrices as large as a layer and its two sides; it pays where steps are few and large.
type Shampoo struct {
	// LR is the learning rate.
	LR float64 `yaml:"lr" above:"0"`
	// Beta1 is the decay of the means of gradients.
	Beta1 float64 `yaml:"beta1" above:"0" max:"0.999999"`
	// Beta2 is the decay of the statistics of both sides for each update; 1 sums them up.
	Beta2 float64 `yaml:"beta2" above:"0" max:"1"`
	// WarmUp is how many updates have steps of Adagrad with momentum, and over how many more the preconditioned ones take their place.
	WarmUp int `yaml:"warm_up" min:"1" max:"2147483647"`
	// Refresh is after how many updates the preconditioners are made again, which takes time by the cube of a layer's longer side.
	Refresh int `yaml:"refresh" min:"1" max:"2147483647"`
	// Every is after how many updates a gradient is added to the statistics.
	Every int `yaml:"every" min:"1" max:"2147483647"`
	// Damping is the least eigenvalue of the statistics that is believed.
	Damping float64 `yaml:"damping" above:"0"`
	// MaxDim is the longest side of a layer with statistics of all pairs, whose memory goes by its square; of a longer one each row or column has a number.
	MaxDim int `yaml:"max_dim" min:"1" max:"8192"`
}

// Defaults implements [conf.Defaulted].
func (*Shampoo) Defaults() map[string]string { return ruleDefaults(optim.Shampoo{}) }

// Rule implements [component.OptimizerConfig].
func (s *Shampoo) Rule() optim.Optimizer {
	return optim.Shampoo{
		LR: float32(s.LR), Beta1: float32(s.Beta1), Beta2: float32(s.Beta2), WarmUp: s.WarmUp, Refresh: s.Refresh, Every: s.Every, Damping: float32(s.Damping), MaxDim: s.MaxDim,
	}
}

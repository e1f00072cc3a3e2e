package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// MMoE are the options of a multi-gate mixture of experts.
type MMoE struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention int `yaml:"attention" min:"1" max:"65536"`
	// Experts is the number of perceptrons that all heads share; each has the layers of hidden.
	Experts int `yaml:"experts" min:"1" max:"1024"`
	// TopExperts is how many experts a head takes for an example, those that its gate gives most; 0: all. All are computed anyway: it is for what experts become, not for time.
	TopExperts int `yaml:"top_experts" default:"0" min:"0" max:"1024"`
	// GateNoise adds noise to the gates in training, of a deviation that is learned, so that other experts are tried; with top_experts.
	GateNoise bool `yaml:"gate_noise" default:"false"`
	// Balance is what it costs that some experts get more than others, as a share of the loss (Shazeer et al., 2017); with top_experts. 0: nothing.
	Balance float64 `yaml:"balance" default:"0" min:"0"`
	// Tower are the widths of the layers of each head's own perceptron behind the experts; empty: none.
	Tower          []int `yaml:"tower" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*MMoE) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"attention": written(c.Attention), "experts": written(c.Experts), "tower": written(c.Tower)}
}

// Build implements [component.ModelConfig].
func (m *MMoE) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.MMoE, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.Attention, c.Experts, c.Tower = m.Attention, m.Experts, m.Tower
		c.TopExperts, c.GateNoise, c.Balance = m.TopExperts, m.GateNoise, float32(m.Balance)
	}))
}

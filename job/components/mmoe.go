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
	return build(zoo.MMoE, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Attention, c.Experts, c.Tower = m.Attention, m.Experts, m.Tower }))
}

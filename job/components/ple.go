package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// PLE are the options of progressive layered extraction.
type PLE struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention int `yaml:"attention" min:"1" max:"65536"`
	// Experts is the number of perceptrons that all heads share; each has the layers of hidden.
	Experts int `yaml:"experts" min:"1" max:"1024"`
	// OwnExperts is the number of perceptrons that each head has for itself in each level.
	OwnExperts int `yaml:"own_experts" min:"1" max:"1024"`
	// Levels is how many levels of experts there are; 1: customized gate control.
	Levels int `yaml:"levels" min:"1" max:"32"`
	// Tower are the widths of the layers of each head's own perceptron behind the experts; empty: none.
	Tower          []int `yaml:"tower" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*PLE) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"attention": written(c.Attention), "experts": written(c.Experts), "own_experts": written(c.OwnExperts), "levels": written(c.Levels), "tower": written(c.Tower)}
}

// Build implements [component.ModelConfig].
func (m *PLE) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.PLE, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.Attention, c.Experts, c.OwnExperts, c.Levels, c.Tower = m.Attention, m.Experts, m.OwnExperts, m.Levels, m.Tower
	}))
}

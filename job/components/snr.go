package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// SNR are the options of sub-network routing.
type SNR struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention int `yaml:"attention" min:"1" max:"65536"`
	// Experts is the number of perceptrons of each level; each has the layers of hidden.
	Experts int `yaml:"experts" min:"1" max:"1024"`
	// Levels is how many levels of them there are.
	Levels int `yaml:"levels" min:"1" max:"32"`
	// L0 is what each connection costs that is open, as a share of the loss; 0: connections are closed where that makes predictions better.
	L0 float64 `yaml:"l0" default:"0" min:"0"`
	// Average leaves out the matrices of connections: what a gate lets through is what the perceptron before it says (SNR-Aver).
	Average bool `yaml:"average" default:"false"`
	// Tower are the widths of the layers of each head's own perceptron behind the levels; empty: none.
	Tower          []int `yaml:"tower" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*SNR) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"attention": written(c.Attention), "experts": written(c.Experts), "levels": written(c.Levels), "tower": written(c.Tower)}
}

// Build implements [component.ModelConfig].
func (m *SNR) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.SNR, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.Attention, c.Experts, c.Levels, c.L0, c.Average, c.Tower = m.Attention, m.Experts, m.Levels, float32(m.L0), m.Average, m.Tower
	}))
}

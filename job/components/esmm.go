package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// ESMM are the options of heads of which each presupposes the one before.
type ESMM struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention      int `yaml:"attention" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*ESMM) Defaults() map[string]string {
	return map[string]string{"attention": written(zoo.Config{}.WithDefaults().Attention)}
}

// Build implements [component.ModelConfig].
func (m *ESMM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.ESMM, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Attention = m.Attention }))
}

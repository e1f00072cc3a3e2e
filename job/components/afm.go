package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// AFM are the options of an attentional factorization machine.
type AFM struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the pairs of vectors. Memory grows with it and with the square of the number of features.
	Attention      int `yaml:"attention" min:"1" max:"65536"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*AFM) Defaults() map[string]string {
	return map[string]string{"attention": written(zoo.Config{}.WithDefaults().Attention)}
}

// Build implements [component.ModelConfig].
func (m *AFM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.AFM, in, &m.Embedding, &m.Regularisation, own(func(c *zoo.Config) { c.Attention = m.Attention }))
}

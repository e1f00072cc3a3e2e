package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DIN are the options of a deep interest network.
type DIN struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention      int `yaml:"attention" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*DIN) Defaults() map[string]string {
	return map[string]string{"attention": written(zoo.Config{}.WithDefaults().Attention)}
}

// Build implements [component.ModelConfig].
func (m *DIN) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DIN, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Attention = m.Attention }))
}

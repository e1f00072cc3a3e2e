package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DLRM are the options of DLRM.
type DLRM struct {
	Embedding `yaml:",inline"`
	// Bottom are the widths of the layers that make a vector of all dense features, but for the last, which is as wide as a vector; empty: that one alone.
	Bottom         []int `yaml:"bottom" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*DLRM) Defaults() map[string]string {
	return map[string]string{"bottom": written(zoo.Config{}.WithDefaults().Bottom)}
}

// Build implements [component.ModelConfig].
func (m *DLRM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DLRM, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Bottom = m.Bottom }))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// XDeepFM are the options of xDeepFM.
type XDeepFM struct {
	Embedding `yaml:",inline"`
	// Maps are how many weighted sums of products of vectors each layer of the compressed interaction network makes. Time grows with
	// the products of neighbouring ones and with the number of features.
	Maps           []int `yaml:"maps" min:"1" max:"4096"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*XDeepFM) Defaults() map[string]string {
	return map[string]string{"maps": written(zoo.Config{}.WithDefaults().Maps)}
}

// Build implements [component.ModelConfig].
func (m *XDeepFM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.XDeepFM, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Maps = m.Maps }))
}

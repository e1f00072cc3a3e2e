package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DCN are the options of DCN.
type DCN struct {
	Embedding `yaml:",inline"`
	// CrossLayers is the number of cross layers: the highest degree of feature products less one.
	CrossLayers int `yaml:"cross_layers" min:"1" max:"32"`
	// CrossDropout is the share of what each cross layer says that is set to 0 while training.
	CrossDropout   float64 `yaml:"cross_dropout" default:"0" min:"0" max:"0.99"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*DCN) Defaults() map[string]string {
	return map[string]string{"cross_layers": written(zoo.Config{}.WithDefaults().CrossLayers)}
}

// Build implements [component.ModelConfig].
func (m *DCN) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DCN, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.CrossLayers, c.CrossDropout = m.CrossLayers, m.CrossDropout }))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DSSM are the options of two towers.
type DSSM struct {
	Embedding `yaml:",inline"`
	// Item names the features of the item's tower; the others are those of the user's. Empty: the last feature.
	Item []string `yaml:"item"`
	// Vector is the number of floats that each tower ends with, whose cosine is the score.
	Vector         int `yaml:"vector" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*DSSM) Defaults() map[string]string {
	return map[string]string{"vector": written(zoo.Config{}.WithDefaults().Vector)}
}

// Build implements [component.ModelConfig].
func (m *DSSM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DSSM, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Item, c.Vector = m.Item, m.Vector }))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DSSM are the options of two towers.
type DSSM struct {
	Embedding `yaml:",inline"`
	// Item names the features of the item's tower; the others are those of the user's. Empty: the last feature. With the loss batch_softmax the first one is the item's id, and
	// has a table of its own, which counts how often items occur too.
	Item []string `yaml:"item"`
	// Vector is the number of floats that each tower ends with, whose cosine is the score.
	Vector int `yaml:"vector" min:"1" max:"65536"`
	// Temperature is what the cosine is divided by with the loss batch_softmax: the lower, the more the items that are nearest to the user's count. Other losses learn a factor.
	Temperature    float64 `yaml:"temperature" above:"0"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*DSSM) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"vector": written(c.Vector), "temperature": written(c.Temperature)}
}

// Build implements [component.ModelConfig].
func (m *DSSM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DSSM, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Item, c.Vector, c.Temperature = m.Item, m.Vector, m.Temperature }))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// SharedBottom are the options of heads over one perceptron.
type SharedBottom struct {
	Embedding      `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *SharedBottom) Build(in component.ModelInputs) (model.Model, error) {
	c := inputs(zoo.SharedBottom, in)
	m.Embedding.put(&c)
	m.MLP.put(&c)
	m.Regularisation.put(&c)
	return zoo.New(c)
}

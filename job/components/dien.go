package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DIEN are the options of a deep interest evolution network.
type DIEN struct {
	Embedding      `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *DIEN) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DIEN, in, &m.Embedding, &m.MLP, &m.Regularisation)
}

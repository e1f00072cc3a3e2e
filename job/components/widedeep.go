package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// WideDeep are the options of Wide & Deep.
type WideDeep struct {
	Embedding      `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *WideDeep) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.WideDeep, in, &m.Embedding, &m.MLP, &m.Regularisation)
}

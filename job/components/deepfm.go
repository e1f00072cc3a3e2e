package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DeepFM are the options of DeepFM.
type DeepFM struct {
	Embedding      `yaml:",inline"`
	Interaction    `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *DeepFM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DeepFM, in, &m.Embedding, &m.Interaction, &m.MLP, &m.Regularisation)
}

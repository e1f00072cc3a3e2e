package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// FwFM are the options of a factorization machine with weights of pairs of fields.
type FwFM struct {
	Embedding      `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *FwFM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.FwFM, in, &m.Embedding, &m.Regularisation)
}

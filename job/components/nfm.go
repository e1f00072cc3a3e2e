package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// NFM are the options of a neural factorization machine.
type NFM struct {
	Embedding      `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*NFM) Defaults() map[string]string {
	return map[string]string{"embedding_init": uniform(zoo.ProductSpread)}
}

// Build implements [component.ModelConfig].
func (m *NFM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.NFM, in, &m.Embedding, &m.MLP, &m.Regularisation)
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// FFM are the options of a field-aware factorization machine. Its dim is that of each of the vectors that an id has, one for each other feature.
type FFM struct {
	Embedding      `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*FFM) Defaults() map[string]string {
	return map[string]string{"dim": written(zoo.Config{Name: zoo.FFM}.WithDefaults().Dim)}
}

// Build implements [component.ModelConfig].
func (m *FFM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.FFM, in, &m.Embedding, &m.Regularisation)
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// LR are the options of logistic regression.
type LR struct {
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *LR) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.LR, in, &m.Regularisation)
}

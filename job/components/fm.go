package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// FM are the options of a factorization machine.
type FM struct {
	Embedding      `yaml:",inline"`
	Interaction    `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *FM) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.FM, in, &m.Embedding, &m.Interaction, &m.Regularisation)
}

// CheckInputs implements [component.InputChecker]: a factorization machine whose vectors never meet would be logistic
// regression in silence.
func (m *FM) CheckInputs(in []component.Input, _ []component.Head, report component.Report) {
	if len(in) != 1 || in[0].Dense && in[0].Width > 1 {
		return
	}
	switch f := in[0]; {
	case f.First > 1: // which are fields
	case !f.Dense && m.Interactions == "fields":
		report("interactions", "is fields, but there is one feature, so nothing meets and the model is logistic regression; set it to entries, or choose lr")
	case f.Dense, !f.Many:
		report("", "has one feature with one value a row, so no two vectors meet and the model is logistic regression; add features, split its values (split), or choose lr")
	}
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DBMTL are the options of heads that depend on each other, in their order.
type DBMTL struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention int `yaml:"attention" min:"1" max:"65536"`
	// Tower are the widths of the layers of each head's own perceptron behind the layers of hidden, which all share; empty: none.
	Tower []int `yaml:"tower" min:"1" max:"65536"`
	// Relation are the widths of the layers that join what is known for a head with what is for those before it; empty: none.
	Relation       []int `yaml:"relation" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*DBMTL) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"attention": written(c.Attention), "tower": written(c.Tower), "relation": written(c.Relation)}
}

// Build implements [component.ModelConfig].
func (m *DBMTL) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DBMTL, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Attention, c.Tower, c.Relation = m.Attention, m.Tower, m.Relation }))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// HSTU are the options of hierarchical sequential transduction units over histories.
type HSTU struct {
	Embedding `yaml:",inline"`
	// AttentionLayers is the number of layers that a history goes through with what it attends to behind it.
	AttentionLayers int `yaml:"attention_layers" min:"1" max:"32"`
	// AttentionHeads is how many ways to attend each layer has. They divide attention_width among them.
	AttentionHeads int `yaml:"attention_heads" min:"1" max:"1024"`
	// AttentionWidth is the number of floats that the queries, keys and values of a layer have: a multiple of attention_heads.
	AttentionWidth int `yaml:"attention_width" min:"1" max:"65536"`
	// Positions is how many distances between two values of a history count for themselves; those that are farther count as the farthest. The time of a layer grows with the square of a
	// history's length (`max` of the feature), not with this.
	Positions      int `yaml:"positions" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*HSTU) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{
		"attention_layers": written(c.AttentionLayers), "attention_heads": written(c.AttentionHeads), "attention_width": written(c.AttentionWidth), "positions": written(c.Positions),
	}
}

// Build implements [component.ModelConfig].
func (m *HSTU) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.HSTU, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.AttentionLayers, c.AttentionHeads, c.AttentionWidth, c.Positions = m.AttentionLayers, m.AttentionHeads, m.AttentionWidth, m.Positions
	}))
}

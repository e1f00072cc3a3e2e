package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// AutoInt are the options of AutoInt.
type AutoInt struct {
	Embedding `yaml:",inline"`
	// AttentionLayers is the number of layers in which the vectors attend to each other.
	AttentionLayers int `yaml:"attention_layers" min:"1" max:"32"`
	// AttentionHeads is how many ways to attend each layer has. They divide attention_width among them.
	AttentionHeads int `yaml:"attention_heads" min:"1" max:"1024"`
	// AttentionWidth is the number of floats that each vector has after a layer: a multiple of attention_heads.
	AttentionWidth int `yaml:"attention_width" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*AutoInt) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"attention_layers": written(c.AttentionLayers), "attention_heads": written(c.AttentionHeads), "attention_width": written(c.AttentionWidth)}
}

// Build implements [component.ModelConfig].
func (m *AutoInt) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.AutoInt, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.AttentionLayers, c.AttentionHeads, c.AttentionWidth = m.AttentionLayers, m.AttentionHeads, m.AttentionWidth
	}))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// FinalMLP are the options of FinalMLP.
type FinalMLP struct {
	Embedding `yaml:",inline"`
	// Second are the widths of the layers of the second perceptron; those of the first are hidden.
	Second []int `yaml:"second" min:"1" max:"65536"`
	// FusionHeads is in how many parts the outputs of both perceptrons are cut before they are multiplied part by part; it divides the last
	// widths of both. More are cheaper and say less.
	FusionHeads    int `yaml:"fusion_heads" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*FinalMLP) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"second": written(c.Second), "fusion_heads": written(c.FusionHeads)}
}

// Build implements [component.ModelConfig].
func (m *FinalMLP) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.FinalMLP, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Second, c.FusionHeads = m.Second, m.FusionHeads }))
}

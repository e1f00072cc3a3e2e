package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// PEPNet are the options of a network that is personalised by gates.
type PEPNet struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention int `yaml:"attention" min:"1" max:"65536"`
	// Domain names the features by which a gate weighs the vectors of all features; empty: there is no such gate.
	Domain []string `yaml:"domain"`
	// Personal names the features by which gates weigh the units of each head's perceptron, such as user, item and author; empty: the first feature that does not attend.
	Personal []string `yaml:"personal"`
	// Gate are the widths of the hidden layers of each gate; empty: there are none.
	Gate           []int `yaml:"gate" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*PEPNet) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"attention": written(c.Attention), "gate": written(c.Gate)}
}

// Build implements [component.ModelConfig].
func (m *PEPNet) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.PEPNet, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.Attention, c.Domain, c.Personal, c.Gate = m.Attention, m.Domain, m.Personal, m.Gate
	}))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/zoo"
)

// DIEN are the options of a deep interest evolution network.
type DIEN struct {
	// AGRU has what a movie has to do with the one looked at now in the place of the second unit's update gates; else it weighs them (AUGRU). Both are in the paper, section 4.3.
	AGRU bool `yaml:"agru" default:"false"`
	// CellActivation is the function of what the states of the recurrent units are made of, where activation is that of the perceptron (bytedance/monolith: relu by default).
	CellActivation string `yaml:"cell_activation" default:"tanh" enum:"@cell_activations"`
	Embedding      `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *DIEN) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DIEN, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.AGRU, c.CellActivation = m.AGRU, graph.Function(m.CellActivation) }))
}

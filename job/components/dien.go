package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DIEN are the options of a deep interest evolution network.
type DIEN struct {
	// AGRU has what a movie has to do with the one looked at now in the place of the second unit's update gates; else it weighs them (AUGRU). Both are in the paper, section 4.3.
	AGRU           bool `yaml:"agru" default:"false"`
	Embedding      `yaml:",inline"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Build implements [component.ModelConfig].
func (m *DIEN) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DIEN, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.AGRU = m.AGRU }))
}

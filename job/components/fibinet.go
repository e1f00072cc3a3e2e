package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// FiBiNET are the options of FiBiNET.
type FiBiNET struct {
	Embedding `yaml:",inline"`
	// Reduction is by how much the hidden layer that weighs the vectors is smaller than their number.
	Reduction      int `yaml:"reduction" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*FiBiNET) Defaults() map[string]string {
	return map[string]string{"reduction": written(zoo.Config{}.WithDefaults().Reduction)}
}

// Build implements [component.ModelConfig].
func (m *FiBiNET) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.FiBiNET, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Reduction = m.Reduction }))
}

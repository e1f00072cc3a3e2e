package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// DCNv2 are the options of DCNv2.
type DCNv2 struct {
	Embedding `yaml:",inline"`
	// CrossLayers is the number of cross layers: the highest degree of feature products less one.
	CrossLayers int `yaml:"cross_layers" min:"1" max:"32"`
	// CrossRank is the rank of the cross_experts experts that take the place of the matrix of each cross layer (DCN-Mix): fewer parameters and less time where the vectors together have many more
	// numbers than that. 0: whole matrices.
	CrossRank int `yaml:"cross_rank" default:"0" min:"0" max:"65536"`
	// CrossExperts is how many experts a cross layer mixes by a gate, with a cross_rank.
	CrossExperts int `yaml:"cross_experts" min:"1" max:"1024"`
	// CrossDropout is the share of what each cross layer says that is set to 0 while training.
	CrossDropout   float64 `yaml:"cross_dropout" default:"0" min:"0" max:"0.99"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*DCNv2) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"cross_layers": written(c.CrossLayers), "cross_experts": written(c.CrossExperts)}
}

// Build implements [component.ModelConfig].
func (m *DCNv2) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.DCNv2, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.CrossLayers, c.CrossRank, c.CrossExperts, c.CrossDropout = m.CrossLayers, m.CrossRank, m.CrossExperts, m.CrossDropout
	}))
}

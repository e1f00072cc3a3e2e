package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// Wukong are the options of Wukong.
type Wukong struct {
	Embedding `yaml:",inline"`
	// Blocks is the number of layers; each doubles the highest degree of products.
	Blocks int `yaml:"blocks" min:"1" max:"64"`
	// Products is how many vectors a layer makes of the products of those before it.
	Products int `yaml:"products" min:"1" max:"65536"`
	// Sums is how many vectors a layer makes as weighted sums of those before it.
	Sums int `yaml:"sums" min:"1" max:"65536"`
	// Rank is how many weighted sums of the vectors products are taken with.
	Rank int `yaml:"rank" min:"1" max:"65536"`
	// BlockWidth is the width of the perceptron that makes vectors of products.
	BlockWidth     int `yaml:"block_width" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*Wukong) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{
		"blocks": written(c.Blocks), "products": written(c.Products), "sums": written(c.Sums), "rank": written(c.Rank), "block_width": written(c.BlockWidth),
	}
}

// Build implements [component.ModelConfig].
func (m *Wukong) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.Wukong, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) {
		c.Blocks, c.Products, c.Sums, c.Rank, c.BlockWidth = m.Blocks, m.Products, m.Sums, m.Rank, m.BlockWidth
	}))
}

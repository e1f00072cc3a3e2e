package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// MaskNet are the options of MaskNet.
type MaskNet struct {
	Embedding `yaml:",inline"`
	// Blocks is the number of blocks beside each other.
	Blocks int `yaml:"blocks" min:"1" max:"1024"`
	// BlockWidth is the number of outputs of a block.
	BlockWidth     int `yaml:"block_width" min:"1" max:"65536"`
	MLP            `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*MaskNet) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{"blocks": written(c.Blocks), "block_width": written(c.BlockWidth)}
}

// Build implements [component.ModelConfig].
func (m *MaskNet) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.MaskNet, in, &m.Embedding, &m.MLP, &m.Regularisation, own(func(c *zoo.Config) { c.Blocks, c.BlockWidth = m.Blocks, m.BlockWidth }))
}

package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
)

// RankMixer are the options of RankMixer.
type RankMixer struct {
	Embedding `yaml:",inline"`
	// Attention is the width of the hidden layer that weighs the entries of a sequence, for features that attend.
	Attention int `yaml:"attention" min:"1" max:"65536"`
	// Tokens is the number of vectors that are made of the features, each of a range of their numbers, in the order of the features.
	Tokens int `yaml:"tokens" min:"1" max:"1024"`
	// TokenWidth is the number of floats of each: a multiple of tokens.
	TokenWidth int `yaml:"token_width" min:"1" max:"65536"`
	// Expansion is how many times as wide the hidden layer of a token's perceptron is.
	Expansion int `yaml:"expansion" min:"1" max:"64"`
	// Blocks is how often tokens exchange their parts.
	Blocks         int `yaml:"blocks" min:"1" max:"64"`
	Regularisation `yaml:",inline"`
}

// Defaults implements [conf.Defaulted].
func (*RankMixer) Defaults() map[string]string {
	c := zoo.Config{}.WithDefaults()
	return map[string]string{
		"attention": written(c.Attention), "tokens": written(c.Tokens), "token_width": written(c.TokenWidth), "expansion": written(c.Expansion), "blocks": written(c.Blocks),
	}
}

// Build implements [component.ModelConfig].
func (m *RankMixer) Build(in component.ModelInputs) (model.Model, error) {
	return build(zoo.RankMixer, in, &m.Embedding, &m.Regularisation, own(func(c *zoo.Config) {
		c.Attention, c.Tokens, c.TokenWidth, c.Expansion, c.Blocks = m.Attention, m.Tokens, m.TokenWidth, m.Expansion, m.Blocks
	}))
}

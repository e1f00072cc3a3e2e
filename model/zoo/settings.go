package zoo

import (
	"fmt"
	"slices"
	"strconv"
)

// setting is one that few models have: a number or some, from 1 up.
type setting struct {
	name    string
	number  *int
	numbers *[]int
	usual   []int
	// one has a list of one number be written as the number alone.
	one bool
}

// own are those of c, in the order of [Config.String].
func (c *Config) own() []setting {
	return []setting{
		{name: "cross_layers", number: &c.CrossLayers, usual: []int{3}},
		{name: "attention", number: &c.Attention, usual: []int{36}},
		{name: "attention_layers", number: &c.AttentionLayers, usual: []int{3}},
		{name: "attention_heads", number: &c.AttentionHeads, usual: []int{2}},
		{name: "attention_width", number: &c.AttentionWidth, usual: []int{32}},
		{name: "positions", number: &c.Positions, usual: []int{64}},
		{name: "maps", numbers: &c.Maps, usual: []int{16, 16}},
		{name: "reduction", number: &c.Reduction, usual: []int{3}},
		{name: "bottom", numbers: &c.Bottom, usual: []int{64}},
		{name: "blocks", number: &c.Blocks, usual: []int{3}},
		{name: "block_width", number: &c.BlockWidth, usual: []int{64}},
		{name: "second", numbers: &c.Second, usual: []int{64}},
		{name: "fusion_heads", number: &c.FusionHeads, usual: []int{1}},
		{name: "experts", number: &c.Experts, usual: []int{4}},
		{name: "own_experts", number: &c.OwnExperts, usual: []int{2}},
		{name: "levels", number: &c.Levels, usual: []int{2}},
		{name: "tower", numbers: &c.Tower, usual: []int{32}},
		{name: "relation", numbers: &c.Relation, usual: []int{32}},
		{name: "vector", number: &c.Vector, usual: []int{32}},
		{name: "gate", numbers: &c.Gate, usual: []int{32}, one: true},
		{name: "products", number: &c.Products, usual: []int{8}},
		{name: "sums", number: &c.Sums, usual: []int{8}},
		{name: "rank", number: &c.Rank, usual: []int{8}},
		{name: "tokens", number: &c.Tokens, usual: []int{4}},
		{name: "token_width", number: &c.TokenWidth, usual: []int{64}},
		{name: "expansion", number: &c.Expansion, usual: []int{4}},
	}
}

// fill gives a setting that has no value the usual one.
func (s setting) fill() {
	switch {
	case s.number != nil && *s.number == 0:
		*s.number = s.usual[0]
	case s.numbers != nil:
		if *s.numbers = slices.Clone(*s.numbers); *s.numbers == nil { // a list that is empty has no layers
			*s.numbers = s.usual
		}
	}
}

func (s setting) values() []int {
	if s.number != nil {
		return []int{*s.number}
	}
	return *s.numbers
}

func (s setting) String() string {
	if s.number != nil {
		return strconv.Itoa(*s.number)
	}
	if s.one && len(*s.numbers) == 1 {
		return strconv.Itoa((*s.numbers)[0])
	}
	return fmt.Sprint(*s.numbers)
}

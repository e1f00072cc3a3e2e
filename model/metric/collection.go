package metric

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model/score"
)

// Collection gathers scored batches of one model in the order in which they are added, for metrics over all of them. It
// costs 8 bytes an example and head, 4 where examples have weights, and 4 and the different values for each key. The zero
// value is empty. Not for concurrent use.
type Collection struct {
	rows    int
	heads   []score.Head
	weights []float32 // nil when no batch had any
	numbers [][]int32 // of each key: which value each row has
	values  []Grouper
}

// Add takes a batch, of the same heads and keys as those before. The caller keeps it.
func (c *Collection) Add(b *score.Batch) {
	if b.Rows == 0 {
		return
	}
	if c.rows == 0 {
		c.heads = make([]score.Head, len(b.Heads))
		c.numbers, c.values = make([][]int32, len(b.Keys)), make([]Grouper, len(b.Keys))
	}
	if len(b.Heads) != len(c.heads) || len(b.Keys) != len(c.numbers) {
		panic(fmt.Sprintf("metric: a batch of %d heads and %d keys among those of %d and %d", len(b.Heads), len(b.Keys), len(c.heads), len(c.numbers)))
	}
	for i := range b.Heads {
		h, to := &b.Heads[i], &c.heads[i]
		to.Width, to.NumLabels = h.Width, h.NumLabels
		to.Predictions, to.Labels = append(to.Predictions, h.Predictions...), append(to.Labels, h.Labels...)
		if h.Mask != nil && to.Mask == nil {
			to.Mask = slices.Repeat([]bool{true}, c.rows)
		}
		switch {
		case h.Mask != nil:
			to.Mask = append(to.Mask, h.Mask...)
		case to.Mask != nil:
			to.Mask = append(to.Mask, slices.Repeat([]bool{true}, b.Rows)...)
		}
	}
	if b.Weights != nil && c.weights == nil {
		c.weights = ones(nil, c.rows)
	}
	switch {
	case b.Weights != nil:
		c.weights = append(c.weights, b.Weights...)
	case c.weights != nil:
		c.weights = ones(c.weights, b.Rows)
	}
	for i := range b.Keys {
		for row := range b.Rows {
			c.numbers[i] = append(c.numbers[i], c.values[i].Number(b.Keys[i].Value(row)))
		}
	}
	c.rows += b.Rows
}

// Rows is the number of examples.
func (c *Collection) Rows() int { return c.rows }

// Batch is all that was added, as one batch without keys. It belongs to the collection.
func (c *Collection) Batch() *score.Batch {
	return &score.Batch{Rows: c.rows, Heads: c.heads, Weights: c.weights}
}

// Set is the examples of a head that have a label, grouped by a key, or not where key is below 0. It is empty for a head
// whose outputs and labels do not pair. It may share memory with the collection and belongs to it.
func (c *Collection) Set(head, key int) Set {
	if c.rows == 0 || c.heads[head].Width != c.heads[head].NumLabels {
		return Set{}
	}
	h := &c.heads[head]
	var s Set
	if h.Mask == nil && (c.weights == nil || h.Width == 1) {
		s = Set{Predictions: h.Predictions, Labels: h.Labels, Weights: c.weights}
	} else {
		s.Add(h.Width, h.Predictions, h.Labels, c.weights, h.Mask)
	}
	if key < 0 {
		return s
	}
	s.NumGroups = c.values[key].Len()
	s.Groups = make([]int32, 0, s.Len())
	for row, n := range c.numbers[key] {
		if h.Mask == nil || h.Mask[row] {
			for range h.Width {
				s.Groups = append(s.Groups, n)
			}
		}
	}
	return s
}

// Slice is the examples of a head with one value of a key.
type Slice struct {
	// Value is the key's; of all values after the most frequent ones together it is empty and Rest is how many these are.
	Value string
	Rest  int
	Set   Set
}

// Slices cuts the examples of a head by the values of a key: the most frequent ones, equally frequent ones in alphabetical
// order, and as one slice all others when there are more than most.
func (c *Collection) Slices(head, key, most int) []Slice {
	all := c.Set(head, key)
	counts := make([]int, all.NumGroups)
	for _, g := range all.Groups {
		counts[g]++
	}
	values := []string{}
	if all.Groups != nil {
		values = c.values[key].Values()
	}
	order := make([]int, 0, len(counts))
	for g, n := range counts {
		if n > 0 {
			order = append(order, g)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(values[a], values[b]))
	})
	var out []Slice
	at := make([]int, len(counts)) // of each value: its slice
	for i, g := range order {
		switch {
		case i < most:
			out = append(out, Slice{Value: values[g]})
		case i == most:
			out = append(out, Slice{Rest: len(order) - most})
		}
		at[g] = len(out) - 1
	}
	for i, g := range all.Groups {
		s := &out[at[g]].Set
		var weights []float32
		if all.Weights != nil {
			weights = all.Weights[i : i+1]
		}
		s.Add(1, all.Predictions[i:i+1], all.Labels[i:i+1], weights, nil)
	}
	return out
}

package metric

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
)

// Place is where the examples of a batch come from.
type Place struct {
	// Split names the split of the source, From is the position that its batch begins at.
	Split string
	From  int64
	// Positions [Rows] are the positions after each example; nil: they follow From one by one.
	Positions []int64
}

// Collection gathers scored batches of one model for metrics over all of them. It keeps every example, so nothing is estimated:
// 8 bytes an example for each head, 4 where examples have weights, 4 and the different values for each key, and 8 where examples are
// identified. [Collection.Arrange] puts the examples into the order of their places, so that figures do not depend on the order in which
// batches came, to the last digit. The zero value is empty. Not for concurrent use.
type Collection struct {
	rows    int
	heads   []score.Head
	weights []float32 // nil when no batch had any
	known   bool      // rows are identified
	ids     []uint64  // of each row: a hash of its place
	numbers [][]int32 // of each key: which value each row has
	values  []Grouper
	parts   []part
}

// part is the rows of one batch.
type part struct {
	split    string
	from, to int64 // positions before its first and after its last row
	at, rows int
}

// Identify makes the collection keep what identifies examples, which [Set.Bootstrap] and [Collection.SameRows] need. It comes before
// the first batch.
func (c *Collection) Identify() { c.known = true }

// Arrange orders the examples by split and position. Metrics that add up numbers are then the same whatever the order of the
// batches was; it takes the memory of one more column meanwhile. Where examples are identified, those that have come in an earlier batch
// too, because a part of a split was read again, are left out.
func (c *Collection) Arrange() {
	byPlace := func(a, b part) int { return cmp.Or(strings.Compare(a.split, b.split), cmp.Compare(a.from, b.from)) }
	sorted := slices.IsSortedFunc(c.parts, byPlace)
	if !sorted {
		slices.SortStableFunc(c.parts, byPlace)
	}
	if again := c.again(); sorted && !again {
		return
	}
	for i := range c.heads {
		h := &c.heads[i]
		h.Predictions, h.Labels = arranged(h.Predictions, h.Width, c.parts), arranged(h.Labels, h.NumLabels, c.parts)
		h.Mask = arranged(h.Mask, 1, c.parts)
	}
	c.weights, c.ids = arranged(c.weights, 1, c.parts), arranged(c.ids, 1, c.parts)
	for i := range c.numbers {
		c.numbers[i] = arranged(c.numbers[i], 1, c.parts)
		c.values[i].renumber(c.numbers[i])
	}
	c.rows = 0
	for i := range c.parts {
		c.parts[i].at = c.rows
		c.rows += c.parts[i].rows
	}
}

// again takes the examples out of the parts, which are in order, that parts before have too, and reports whether there were any.
func (c *Collection) again() (found bool) {
	if !c.known {
		return false
	}
	var kept []part
	for from := 0; from < len(c.parts); {
		to, reach, twice := from, c.parts[from].from, false
		for ; to < len(c.parts) && c.parts[to].split == c.parts[from].split; to++ {
			twice = twice || c.parts[to].from < reach
			reach = max(reach, c.parts[to].to)
		}
		if !twice {
			kept = append(kept, c.parts[from:to]...)
			from = to
			continue
		}
		seen := map[uint64]bool{}
		for _, p := range c.parts[from:to] {
			rest := p // what is not cut off yet
			for row := p.at; row < p.at+p.rows; row++ {
				if !seen[c.ids[row]] {
					continue
				}
				found = true
				if n := row - rest.at; n > 0 {
					kept = append(kept, part{p.split, rest.from, rest.to, rest.at, n})
				}
				rest.at, rest.rows = row+1, p.at+p.rows-row-1
			}
			if rest.rows > 0 {
				kept = append(kept, rest)
			}
			for _, id := range c.ids[p.at : p.at+p.rows] { // a record may have several rows
				seen[id] = true
			}
		}
		from = to
	}
	c.parts = kept
	return found
}

// arranged is a column of the given width with the parts in their order; nil stays nil.
func arranged[T any](column []T, width int, parts []part) []T {
	if column == nil {
		return nil
	}
	out := make([]T, 0, len(column))
	for _, p := range parts {
		out = append(out, column[p.at*width:(p.at+p.rows)*width]...)
	}
	return out
}

// Add takes a batch, of the same heads and keys as those before. The caller keeps it.
func (c *Collection) Add(from Place, b *score.Batch) {
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
	if c.known {
		split := param.HashName(from.Split)
		for row := range b.Rows {
			at := from.From + int64(row) + 1
			if from.Positions != nil {
				at = from.Positions[row]
			}
			c.ids = append(c.ids, param.Mix(split, uint64(at)))
		}
	}
	to := from.From + int64(b.Rows)
	if from.Positions != nil {
		to = from.Positions[b.Rows-1]
	}
	c.parts = append(c.parts, part{from.Split, from.From, to, c.rows, b.Rows})
	c.rows += b.Rows
}

// SameRows reports whether another collection has examples of the same places in the same order. Both identify their examples.
func (c *Collection) SameRows(o *Collection) bool {
	return c.rows == o.rows && slices.Equal(c.ids, o.ids)
}

// Blank reports whether no example has a value of a key.
func (c *Collection) Blank(key int) bool {
	return c.rows > 0 && c.values[key].Len() == 1 && c.values[key].Values()[0] == ""
}

// Keys is the number of keys.
func (c *Collection) Keys() int { return len(c.numbers) }

// Rows is the number of examples.
func (c *Collection) Rows() int { return c.rows }

// Batch is all that was added, as one batch without keys. It belongs to the collection.
func (c *Collection) Batch() *score.Batch {
	return &score.Batch{Rows: c.rows, Heads: c.heads, Weights: c.weights}
}

// Set is the examples of a head that have a label, grouped by a key, or not where key is below 0. It is empty for a head
// whose outputs and labels do not pair. It may share memory with the collection and belongs to it.
func (c *Collection) Set(head, key int) Set {
	if c.rows == 0 || c.heads[head].Width != c.heads[head].NumLabels && c.heads[head].NumLabels != 1 {
		return Set{}
	}
	h := &c.heads[head]
	var s Set
	if h.Mask == nil && (c.weights == nil || h.NumLabels == 1) {
		s = Set{Predictions: h.Predictions, Labels: h.Labels, Weights: c.weights}
		if h.Width > h.NumLabels {
			s.Classes = h.Width
		}
	} else {
		s.Add(h.Width, h.Predictions, h.Labels, c.weights, h.Mask)
	}
	s.IDs = c.ids
	if c.known && (h.Mask != nil || h.NumLabels > 1) {
		s.IDs = ofExamples(h, c.ids)
	}
	if key >= 0 {
		s.Groups, s.NumGroups = ofExamples(h, c.numbers[key]), c.values[key].Len()
		for _, value := range c.values[key].Values() {
			id := uint64(0) // in no group
			if value != "" {
				id = param.HashName(value)
			}
			s.GroupIDs = append(s.GroupIDs, id)
		}
	}
	return s
}

// ofExamples gives each example of a head what its row has.
func ofExamples[T any](h *score.Head, ofRows []T) []T {
	out := make([]T, 0, len(h.Labels))
	for row, v := range ofRows {
		if h.Mask == nil || h.Mask[row] {
			for range h.NumLabels {
				out = append(out, v)
			}
		}
	}
	return out
}

// Slice is the examples of a head with one value of a key, or one of each of several keys.
type Slice struct {
	// Values are those of the keys; of all values after the most frequent ones together they are empty and Rest is how many these
	// are.
	Values []string
	Rest   int
	Set    Set
}

// Slices cuts the examples of a head by the values of keys, every combination of them that there is: the most frequent ones, equally
// frequent ones in alphabetical order, and as one slice all others when there are more than most. Slices are grouped by the
// key group, or not if it is below 0.
func (c *Collection) Slices(head int, keys []int, group, most int) []Slice {
	all := c.Set(head, group)
	if all.Len() == 0 {
		return nil
	}
	numbers, values := c.combined(keys)
	numbers = ofExamples(&c.heads[head], numbers)
	counts := make([]int, len(values))
	for _, n := range numbers {
		counts[n]++
	}
	order := make([]int, 0, len(counts))
	for n, count := range counts {
		if count > 0 {
			order = append(order, n)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), slices.Compare(values[a], values[b]))
	})
	var out []Slice
	var sizes []int
	at := make([]int, len(counts)) // of each combination: its slice
	per := max(1, all.Classes)
	for i, n := range order {
		switch {
		case i < most:
			out, sizes = append(out, Slice{Values: values[n]}), append(sizes, 0)
		case i == most:
			out, sizes = append(out, Slice{Values: make([]string, len(keys)), Rest: len(order) - most}), append(sizes, 0)
		}
		at[n] = len(out) - 1
		sizes[len(out)-1] += counts[n]
	}
	for i, size := range sizes {
		s := &out[i].Set
		s.Predictions, s.Labels, s.Classes = make([]float32, 0, size*per), make([]float32, 0, size), all.Classes
		if all.IDs != nil {
			s.IDs = make([]uint64, 0, size)
		}
		if all.Groups != nil {
			s.Groups, s.NumGroups, s.GroupIDs = make([]int32, 0, size), all.NumGroups, all.GroupIDs
		}
		if all.Weights != nil {
			s.Weights = make([]float32, 0, size)
		}
	}
	for i, n := range numbers {
		s := &out[at[n]].Set
		s.Predictions, s.Labels = append(s.Predictions, all.Predictions[i*per:(i+1)*per]...), append(s.Labels, all.Labels[i])
		if all.IDs != nil {
			s.IDs = append(s.IDs, all.IDs[i])
		}
		if all.Groups != nil {
			s.Groups = append(s.Groups, all.Groups[i])
		}
		if all.Weights != nil {
			s.Weights = append(s.Weights, all.Weights[i])
		}
	}
	return out
}

// combined numbers the combinations of the values of keys that rows have, and lists them by their numbers.
func (c *Collection) combined(keys []int) (numbers []int32, values [][]string) {
	for _, v := range c.values[keys[0]].Values() {
		values = append(values, []string{v})
	}
	numbers = c.numbers[keys[0]]
	for _, key := range keys[1:] {
		added := c.values[key].Values()
		known := map[uint64]int32{}
		next, before := make([]int32, 0, len(numbers)), values
		values = nil
		for row, n := range numbers {
			v := c.numbers[key][row]
			both, ok := known[uint64(n)<<32|uint64(v)]
			if !ok {
				both = int32(len(values))
				known[uint64(n)<<32|uint64(v)] = both
				values = append(values, append(slices.Clone(before[n]), added[v]))
			}
			next = append(next, both)
		}
		numbers = next
	}
	return numbers, values
}

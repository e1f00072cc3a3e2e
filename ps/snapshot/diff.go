package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/monolith-go/monolith/ps/table"
)

// Difference is what two snapshots, a and b, have that is not the same.
type Difference struct {
	// Tables are those of either, by name.
	Tables []TableDifference
	// Tensors are the dense tensors that differ or that only one of them has, by name.
	Tensors []TensorDifference
	// Positions are the splits that are not where they were.
	Positions []PositionDifference
	// State are the keys of worker state that differ, sorted.
	State []string
}

// TableDifference is what the rows of a table have that is not the same.
type TableDifference struct {
	Name string
	// Added are the rows that only b has, Removed those that only a has, Changed those of which a weight, the optimizer's state, count or
	// time is another, Same the others.
	Added, Removed, Changed, Same int64
	// Shape says that the table has other segments, so that the rows of both are not compared but by fid.
	Shape bool
}

// TensorDifference is a dense tensor that is not the same.
type TensorDifference struct {
	Name string
	// Only is "a" or "b" where the other has none of this name and shape.
	Only string
	// Weights is the largest difference of a weight; 0 where the optimizer's state alone differs.
	Weights float64
}

// PositionDifference is a split that is not where it was; nil where a snapshot does not know it.
type PositionDifference struct {
	Source, Split string
	A, B          *Progress
}

// Compare reads two snapshots side by side. Errors: [ErrCorrupt], the context's.
func Compare(ctx context.Context, a, b *Snapshot) (*Difference, error) {
	d := &Difference{}
	for i, t := range a.info.Tables {
		j := slices.IndexFunc(b.info.Tables, func(o Table) bool { return o.Name == t.Name })
		one := TableDifference{Name: t.Name, Removed: t.Rows}
		if j >= 0 {
			one = TableDifference{Name: t.Name, Shape: !slices.Equal(t.Segments, b.info.Tables[j].Segments)}
			if err := one.compare(ctx, a, b, i, j); err != nil {
				return nil, err
			}
		}
		d.Tables = append(d.Tables, one)
	}
	for _, t := range b.info.Tables {
		if !slices.ContainsFunc(a.info.Tables, func(o Table) bool { return o.Name == t.Name }) {
			d.Tables = append(d.Tables, TableDifference{Name: t.Name, Added: t.Rows})
		}
	}
	if err := d.tensors(a, b); err != nil {
		return nil, err
	}
	d.positions(a.info.Positions, b.info.Positions)
	for key, value := range a.info.State {
		if other, ok := b.info.State[key]; !ok || !slices.Equal(value, other) {
			d.State = append(d.State, key)
		}
	}
	for key := range b.info.State {
		if _, ok := a.info.State[key]; !ok {
			d.State = append(d.State, key)
		}
	}
	slices.Sort(d.State)
	return d, nil
}

// compare reads the rows of a table of both, in the order of [table.Hash].
func (d *TableDifference) compare(ctx context.Context, a, b *Snapshot, i, j int) error {
	left, right := &rowCursor{s: a, tbl: i}, &rowCursor{s: b, tbl: j}
	if err := errors.Join(left.next(ctx), right.next(ctx)); err != nil {
		return err
	}
	for left.rows != nil || right.rows != nil {
		var err error
		switch {
		case right.rows == nil || left.rows != nil && left.hash < right.hash:
			d.Removed++
			err = left.next(ctx)
		case left.rows == nil || right.hash < left.hash:
			d.Added++
			err = right.next(ctx)
		default:
			if !d.Shape && left.same(right) {
				d.Same++
			} else {
				d.Changed++
			}
			err = errors.Join(left.next(ctx), right.next(ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rowCursor is at one row of a table after the other, through all shards.
type rowCursor struct {
	s     *Snapshot
	tbl   int
	shard int // the next
	r     *RowReader
	rows  *table.Rows // nil at the end
	at    int
	hash  uint64
	begun bool
}

func (c *rowCursor) next(ctx context.Context) (err error) {
	last := c.hash
	if c.rows != nil {
		c.at++
	}
	for c.rows == nil || c.at == len(c.rows.Keys) {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		c.rows, c.at = nil, 0
		if c.r != nil {
			if c.rows, _, err = c.r.Next(); err == nil {
				continue
			}
			if c.r = nil; !errors.Is(err, io.EOF) {
				return err
			}
		}
		if c.shard == c.s.info.Shards {
			c.rows = nil
			return nil
		}
		if c.r, err = c.s.reader(c.tbl, c.shard); err != nil {
			return err
		}
		c.shard++
	}
	if c.hash = table.Hash(c.rows.Keys[c.at]); c.begun && c.hash <= last {
		return fmt.Errorf("snapshot: %s: the rows of table %d are not in the order of their hashes: %w", c.s.info.Path, c.tbl, ErrCorrupt)
	}
	c.begun = true
	return nil
}

// same reports whether two rows have the same bits.
func (c *rowCursor) same(o *rowCursor) bool {
	if c.rows.Times[c.at] != o.rows.Times[o.at] || c.rows.Counts[c.at] != o.rows.Counts[o.at] {
		return false
	}
	t := c.s.info.Tables[c.tbl]
	dim, stateDim := t.Dim(), t.StateDim()
	return sameBits(c.rows.Weights[c.at*dim:][:dim], o.rows.Weights[o.at*dim:][:dim]) &&
		sameBits(c.rows.State[c.at*stateDim:][:stateDim], o.rows.State[o.at*stateDim:][:stateDim])
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

func (d *Difference) tensors(a, b *Snapshot) error {
	left, err := a.Tensors()
	if err != nil {
		return err
	}
	right, err := b.Tensors()
	if err != nil {
		return err
	}
	find := func(in []Tensor, t Tensor) int {
		return slices.IndexFunc(in, func(o Tensor) bool { return o.Name == t.Name && slices.Equal(o.Shape, t.Shape) })
	}
	for _, t := range left {
		i := find(right, t)
		switch {
		case i < 0:
			d.Tensors = append(d.Tensors, TensorDifference{Name: t.Name, Only: "a"})
		case !sameBits(t.Weights, right[i].Weights) || !sameBits(t.State, right[i].State):
			one := TensorDifference{Name: t.Name}
			for k, w := range t.Weights {
				one.Weights = max(one.Weights, math.Abs(float64(w)-float64(right[i].Weights[k])))
			}
			d.Tensors = append(d.Tensors, one)
		}
	}
	for _, t := range right {
		if find(left, t) < 0 {
			d.Tensors = append(d.Tensors, TensorDifference{Name: t.Name, Only: "b"})
		}
	}
	slices.SortFunc(d.Tensors, func(x, y TensorDifference) int {
		if x.Name < y.Name || x.Name == y.Name && x.Only < y.Only {
			return -1
		}
		return 1
	})
	return nil
}

func (d *Difference) positions(a, b map[string]map[string]Progress) {
	seen := map[[2]string]*PositionDifference{}
	note := func(source, split string) *PositionDifference {
		key := [2]string{source, split}
		if seen[key] == nil {
			seen[key] = &PositionDifference{Source: source, Split: split}
		}
		return seen[key]
	}
	for source, splits := range a {
		for split, p := range splits {
			note(source, split).A = &p
		}
	}
	for source, splits := range b {
		for split, p := range splits {
			note(source, split).B = &p
		}
	}
	for _, p := range seen {
		if p.A == nil || p.B == nil || *p.A != *p.B {
			d.Positions = append(d.Positions, *p)
		}
	}
	slices.SortFunc(d.Positions, func(x, y PositionDifference) int {
		if x.Source < y.Source || x.Source == y.Source && x.Split < y.Split {
			return -1
		}
		return 1
	})
}

// Package pstest holds conformance suites for parameter servers and tables, and the faults and oracles they need: the
// same tests hold for shards in the process and behind a network.
package pstest

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// Counting is a rule for exactly-once tests: w = w + lr·g. With the number of examples as gradient a weight counts them.
// Its state counts updates.
type Counting struct{}

var _ optim.Optimizer = Counting{}

// Name implements [optim.Optimizer].
func (Counting) Name() string { return "counting" }

// String implements [optim.Optimizer].
func (Counting) String() string { return "counting()" }

// StateDim implements [optim.Optimizer].
func (Counting) StateDim(int) int { return 1 }

// Init implements [optim.Optimizer].
func (Counting) Init(_, state []float32) { clear(state) }

// Update implements [optim.Optimizer].
func (Counting) Update(w, state, grad []float32, lr float32) {
	state[0]++
	for i := range w {
		w[i] += lr * grad[i]
	}
}

// MapTable is the obvious [table.Table]: a Go map of rows, copied whole for a cut. It is the oracle of the others.
type MapTable struct {
	spec param.Table
	seed uint64
	rows map[int64]*mapRow
}

type mapRow struct {
	time    int64
	count   uint64
	weights []float32
	state   []float32
}

var _ table.Table = (*MapTable)(nil)

// NewMapTable makes an empty table.
func NewMapTable(spec param.Table, seed uint64) *MapTable {
	return &MapTable{spec: spec, seed: seed, rows: map[int64]*mapRow{}}
}

// Len implements [table.Table].
func (t *MapTable) Len() int { return len(t.rows) }

// Bytes implements [table.Table].
func (t *MapTable) Bytes() int64 {
	return int64(len(t.rows) * (32 + 4*(t.spec.Dim()+t.spec.StateDim())))
}

func (t *MapTable) fresh(key int64) *mapRow {
	r := &mapRow{weights: make([]float32, t.spec.Dim()), state: make([]float32, t.spec.StateDim())}
	w, s := 0, 0
	for _, seg := range t.spec.Segments {
		n := seg.Optimizer.StateDim(seg.Dim)
		seg.Init.Fill(r.weights[w:w+seg.Dim], t.seed, param.HashName(t.spec.Name, seg.Name), uint64(key))
		seg.Optimizer.Init(r.weights[w:w+seg.Dim], r.state[s:s+n])
		w, s = w+seg.Dim, s+n
	}
	return r
}

// Lookup implements [table.Table].
func (t *MapTable) Lookup(keys []int64, dst []float32) (found int) {
	dim := t.spec.Dim()
	for i, k := range keys {
		r, ok := t.rows[k]
		if ok {
			found++
		} else {
			r = t.fresh(k)
		}
		copy(dst[i*dim:], r.weights)
	}
	return found
}

// LookupFound implements [table.Table]: it notes nothing.
func (t *MapTable) LookupFound(keys []int64, dst []float32, f *param.Found) (found int) {
	f.In = nil
	return t.Lookup(keys, dst)
}

// LookupState implements [table.Table].
func (t *MapTable) LookupState(keys []int64, dst, state []float32) (found int) {
	n := t.spec.StateDim()
	for i, k := range keys {
		r, ok := t.rows[k]
		if !ok {
			r = t.fresh(k)
		}
		copy(state[i*n:], r.state)
	}
	return t.Lookup(keys, dst)
}

// Reserve implements [table.Table].
func (t *MapTable) Reserve(int) error { return nil }

// Apply implements [table.Table].
func (t *MapTable) Apply(u table.Update) {
	dim, width := t.spec.Dim(), t.spec.Width(u.Op)
	for i, k := range u.Keys {
		r, ok := t.rows[k]
		if !ok {
			r = t.fresh(k)
			t.rows[k] = r
		}
		w, s, seen := 0, 0, i*width+dim
		for _, seg := range t.spec.Segments {
			n := seg.Optimizer.StateDim(seg.Dim)
			if u.Op == param.Train {
				g := slices.Clone(u.Grads[i*width+w : i*width+w+seg.Dim])
				if seg.Delay > 0 {
					for j := range g {
						g[j] += float32(float32(g[j]*seg.Delay) * float32(g[j]*(r.weights[w+j]-u.Grads[seen+j])))
					}
					seen += seg.Dim
				}
				if f := seg.ClipFactor(g); f != 1 {
					for j := range g {
						g[j] *= f
					}
				}
				for j := range g {
					g[j] += float32(seg.L2 * r.weights[w+j])
					if v := r.weights[w+j]; v != 0 {
						g[j] += float32(math.Copysign(float64(seg.L1), float64(v)))
					}
				}
				optim.Apply(seg.Optimizer, r.weights[w:w+seg.Dim], r.state[s:s+n], g, float32(u.LR*float32(seg.Schedule.Factor(u.Examples))), u.Examples)
			} else {
				for j := w; j < w+seg.Dim; j++ {
					switch u.Op {
					case param.Assign, param.AssignState:
						r.weights[j] = u.Grads[i*width+j]
					case param.AssignAdd:
						r.weights[j] += u.Grads[i*width+j]
					}
				}
				if u.Op == param.AssignState {
					copy(r.state[s:s+n], u.Grads[i*width+dim+s:])
				}
				optim.ValuesOf(seg.Optimizer).Round(r.weights[w : w+seg.Dim])
			}
			w, s = w+seg.Dim, s+n
		}
		if u.Op == param.Reinitialize {
			r = t.fresh(k)
			t.rows[k] = r
		}
		r.count += uint64(u.Counts[i])
		r.time = max(r.time, u.Time)
	}
}

// Remove implements [table.Table].
func (t *MapTable) Remove(keys []int64) (removed int) {
	before := len(t.rows)
	for _, k := range keys {
		delete(t.rows, k)
	}
	return before - len(t.rows)
}

// Put implements [table.Table].
func (t *MapTable) Put(rows *table.Rows) error {
	dim, stateDim := t.spec.Dim(), t.spec.StateDim()
	for i, k := range rows.Keys {
		if _, ok := t.rows[k]; ok {
			return fmt.Errorf("pstest: fid %d: %w", k, table.ErrDuplicate)
		}
		t.rows[k] = &mapRow{
			rows.Times[i], rows.Counts[i],
			slices.Clone(rows.Weights[i*dim:][:dim]), slices.Clone(rows.State[i*stateDim:][:stateDim]),
		}
	}
	return nil
}

// Get implements [table.Table].
func (t *MapTable) Get(key int64, dst *table.Rows) bool {
	r, ok := t.rows[key]
	if ok {
		dst.Keys = append(dst.Keys, key)
		dst.Times = append(dst.Times, r.time)
		dst.Counts = append(dst.Counts, r.count)
		dst.Weights = append(dst.Weights, r.weights...)
		dst.State = append(dst.State, r.state...)
	}
	return ok
}

// Cut implements [table.Table].
func (t *MapTable) Cut() table.Cut {
	c := &mapCut{copy: NewMapTable(t.spec, t.seed)}
	var all table.Rows
	for k := range t.rows {
		c.keys = append(c.keys, k)
		t.Get(k, &all)
	}
	if err := c.copy.Put(&all); err != nil {
		panic(err) // keys of a map do not repeat
	}
	slices.SortFunc(c.keys, func(a, b int64) int { return cmp.Compare(table.Hash(a), table.Hash(b)) })
	c.n = len(c.keys)
	return c
}

// Close implements [table.Table].
func (t *MapTable) Close() { t.rows = map[int64]*mapRow{} }

type mapCut struct {
	copy *MapTable
	keys []int64
	n    int
}

// Len implements [table.Cut].
func (c *mapCut) Len() int { return c.n }

// Next implements [table.Cut].
func (c *mapCut) Next(_ sync.Locker, dst *table.Rows, limit int) bool {
	n := min(limit, len(c.keys))
	for _, k := range c.keys[:n] {
		c.copy.Get(k, dst)
	}
	c.keys = c.keys[n:]
	return n > 0
}

// Err implements [table.Cut].
func (c *mapCut) Err() error { return nil }

// Close implements [table.Cut].
func (c *mapCut) Close(sync.Locker) { c.keys = nil }

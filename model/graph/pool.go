package graph

import (
	"fmt"
	"strings"

	"github.com/monolith-go/monolith/model"
)

// pool gathers a segment of the embedding rows of each fid and adds them up by feature.
type pool struct {
	table, segment string
	tableID        int
	// lo is where the segment begins in a row of stride weights; dim is its width.
	lo, dim, stride int
	features        []Sparse
	names           []string
}

// Pool looks up one segment of a table for the fids of several features, multiplies by the entries' values and pools each
// feature by its combiner: offsets [rows+1], index [nnz], values [nnz] -> [rows, len(features)·segment dim], the features
// side by side. A row without fids gives zeros.
func (b *Builder) Pool(t Table, segment string, features ...Sparse) Node {
	if t.b != b {
		b.fault("pool: a table of another graph, or none")
		return b.broken(1)
	}
	table := b.tables[t.id]
	o := &pool{table: table.Name, segment: segment, tableID: t.id, stride: table.Dim(), features: features}
	lo := 0
	for _, s := range table.Segments {
		if s.Name == segment {
			o.lo, o.dim = lo, s.Dim
		}
		lo += s.Dim
	}
	if o.dim < 1 {
		b.fault("pool: table %q has no segment %q of at least one weight", table.Name, segment)
		return b.broken(len(features))
	}
	if len(features) == 0 {
		b.fault("pool: no features for table %q", table.Name)
		return b.broken(o.dim)
	}
	sparse := make([]string, 0, b.numSparse)
	for _, f := range b.features {
		if f.Kind == model.Sparse {
			sparse = append(sparse, f.Name)
		}
	}
	for _, f := range features {
		if f.b != b {
			b.fault("pool: a feature of another graph, or none")
			return b.broken(o.dim * len(features))
		}
		o.names = append(o.names, sparse[f.index])
	}
	return b.add(o, o.dim*len(features), true)
}

func (o *pool) String() string {
	return fmt.Sprintf("pool[%s.%s: %s]", o.table, o.segment, strings.Join(o.names, " "))
}

func (o *pool) forward(s *Session, n *node) {
	out, values := s.vals[n.id], s.in.Values[o.tableID]
	for f, feature := range o.features {
		ragged := &s.in.Sparse[feature.index]
		for r := range s.rows {
			dst := out[r*n.dim+f*o.dim:][:o.dim]
			from, to := ragged.Offsets[r], ragged.Offsets[r+1]
			index := ragged.Index[from:to]
			if ragged.Values == nil && len(index) > 0 {
				copy(dst, values[int(index[0])*o.stride+o.lo:][:len(dst)])
				for _, i := range index[1:] {
					add(dst, values[int(i)*o.stride+o.lo:][:len(dst)])
				}
			} else {
				clear(dst)
				for k, i := range index {
					addScaled(dst, values[int(i)*o.stride+o.lo:][:len(dst)], ragged.Values[int(from)+k])
				}
			}
			if feature.combiner == model.Mean && len(index) > 1 {
				scale(dst, 1/float32(len(index)))
			}
		}
	}
}

// backward runs through the rows in order, so each fid's gradient is summed in row order.
func (o *pool) backward(s *Session, n *node) {
	dout, dvalues := s.grads[n.id], s.tableGrads[o.tableID]
	for f, feature := range o.features {
		ragged := &s.in.Sparse[feature.index]
		for r := range s.rows {
			src := dout[r*n.dim+f*o.dim:][:o.dim]
			from, to := ragged.Offsets[r], ragged.Offsets[r+1]
			index := ragged.Index[from:to]
			factor := feature.factor(len(index))
			if ragged.Values != nil {
				for k, x := range ragged.Values[from:to] {
					addScaled(dvalues[int(index[k])*o.stride+o.lo:][:o.dim], src, factor*x)
				}
				continue
			}
			for _, i := range index {
				dst := dvalues[int(i)*o.stride+o.lo:][:len(src)]
				if factor == 1 {
					add(dst, src)
				} else {
					addScaled(dst, src, factor)
				}
			}
		}
	}
}

// addScaled adds factor·x to y. Embedding vectors are too short for a call of a BLAS.
func addScaled(y, x []float32, factor float32) {
	x = x[:len(y)]
	for k := range y {
		y[k] += factor * x[k]
	}
}

// factor is what the combiner weighs each of n entries of a row by.
func (f Sparse) factor(n int) float32 {
	if f.combiner == model.Mean && n > 1 {
		return 1 / float32(n)
	}
	return 1
}

func (o *pool) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for f, feature := range o.features {
		for r := range e.in.NumRows {
			for _, v := range o.entries(e, feature, r) {
				for k, x := range v {
					out[r*n.dim+f*o.dim+k] += x
				}
			}
		}
	}
	return out
}

// entries are the vectors xᵢ·vᵢ of a row of a feature, its combiner's share multiplied in.
func (o *pool) entries(e *evaluation, feature Sparse, r int) [][]float64 {
	ragged := e.in.Sparse[feature.index]
	from, to := ragged.Offsets[r], ragged.Offsets[r+1]
	var out [][]float64
	for at := from; at < to; at++ {
		x := 1.0
		if ragged.Values != nil {
			x = float64(ragged.Values[at])
		}
		if feature.combiner == model.Mean {
			x /= float64(to - from)
		}
		v := make([]float64, o.dim)
		for k := range v {
			v[k] = x * e.values[o.tableID][int(ragged.Index[at])*o.stride+o.lo+k]
		}
		out = append(out, v)
	}
	return out
}

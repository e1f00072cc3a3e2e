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

// Pool looks up one segment of a table for the fids of several features and pools each feature by its combiner:
// offsets [rows+1], index [nnz] -> [rows, len(features)·segment dim], the features side by side. A row without fids
// gives zeros.
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
			index := ragged.Index[ragged.Offsets[r]:ragged.Offsets[r+1]]
			if len(index) == 0 {
				clear(dst)
				continue
			}
			copy(dst, values[int(index[0])*o.stride+o.lo:][:o.dim])
			for _, i := range index[1:] {
				src := values[int(i)*o.stride+o.lo:][:o.dim]
				for k, v := range src {
					dst[k] += v
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
			index := ragged.Index[ragged.Offsets[r]:ragged.Offsets[r+1]]
			factor := float32(1)
			if feature.combiner == model.Mean && len(index) > 1 {
				factor /= float32(len(index))
			}
			for _, i := range index {
				dst := dvalues[int(i)*o.stride+o.lo:][:o.dim]
				for k, v := range src {
					dst[k] += factor * v
				}
			}
		}
	}
}

func (o *pool) reference(e *evaluation, n *node) []float64 {
	out := make([]float64, e.in.NumRows*n.dim)
	for f, feature := range o.features {
		ragged := e.in.Sparse[feature.index]
		for r := range e.in.NumRows {
			index := ragged.Index[ragged.Offsets[r]:ragged.Offsets[r+1]]
			for k := range o.dim {
				sum := 0.0
				for _, i := range index {
					sum += e.values[o.tableID][int(i)*o.stride+o.lo+k]
				}
				if feature.combiner == model.Mean && len(index) > 0 {
					sum /= float64(len(index))
				}
				out[r*n.dim+f*o.dim+k] = sum
			}
		}
	}
	return out
}

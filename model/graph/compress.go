package graph

import (
	"slices"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
)

// compressors reports whether a segment of a table is read as something else.
func compressors(t *param.Table) bool {
	return slices.ContainsFunc(t.Segments, func(s param.Segment) bool { return s.Compressor.Kind != "" })
}

// compress returns the batch as the model reads it: what compressors leave of the tables' values is in the place of those.
func (s *Session) compress(in *model.Inputs, train bool) *model.Inputs {
	out := in
	for t := range s.g.layout.Tables {
		table := &s.g.layout.Tables[t]
		if !compressors(table) {
			continue
		}
		if out == in {
			values := s.read.Values
			s.read = *in
			s.read.Values = append(values[:0], in.Values...)
			out = &s.read
		}
		s.compressed[t] = append(s.compressed[t][:0], in.Values[t]...)
		out.Values[t] = s.compressed[t]
		eachSegment(table, len(in.Values[t]), func(c param.Compressor, lo, hi int) {
			c.Read(s.compressed[t][lo:hi], in.Values[t][lo:hi], train, in.Examples)
		})
	}
	return out
}

// decompress makes the gradients of what was read those of the tables' values.
func (s *Session) decompress() {
	for t := range s.g.layout.Tables {
		table := &s.g.layout.Tables[t]
		if !compressors(table) {
			continue
		}
		eachSegment(table, len(s.tableGrads[t]), func(c param.Compressor, lo, hi int) {
			c.Back(s.tableGrads[t][lo:hi], s.compressed[t][lo:hi], s.in.Examples)
		})
	}
}

// eachSegment calls f for each segment with a compressor in each row of n values.
func eachSegment(t *param.Table, n int, f func(c param.Compressor, lo, hi int)) {
	for row, dim := 0, t.Dim(); row < n; row += dim {
		lo := row
		for i := range t.Segments {
			s := &t.Segments[i]
			if s.Compressor.Kind != "" {
				f(s.Compressor, lo, lo+s.Dim)
			}
			lo += s.Dim
		}
	}
}

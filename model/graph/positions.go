package graph

import "fmt"

// positions gives each entry of a feature the vector of its place in the row's list.
type positions struct {
	plain
	Feature string `json:"feature"`
	Vectors string `json:"vectors"`
	// Back counts places from the last entry.
	Back bool `json:"back,omitzero"`

	vectors, places int
}

// Positions gives each entry of a feature the vector of its place in its row's list: vectors [places, dim] -> [entries, dim]. The first entry has the first vector, with back the last entry does. Entries behind all
// places have the last one's.
func (b *Builder) Positions(f Sparse, vectors Tensor, back bool) Node {
	if f.b != b || !b.ownsTensors("positions", vectors) {
		if f.b != b {
			b.fault("positions: a feature of another graph, or none")
		}
		return b.broken(1)
	}
	name := b.tensorName(vectors)
	return b.apply(&positions{Feature: b.features[f.feature].Name, Vectors: name, Back: back}, b.columnsOf(name))
}

func (*positions) name() string       { return "positions" }
func (*positions) readsBack(int) bool { return false }
func (o *positions) String() string   { return fmt.Sprintf("positions[%q, back %t]", o.Feature, o.Back) }
func (*positions) learns() bool       { return true }

func (o *positions) bind(b *Builder, in []Node) (Shape, error) {
	if err := arity(in, 0); err != nil {
		return Shape{}, err
	}
	_, index, err := b.sparseNamed(o.Feature)
	if err != nil {
		return Shape{}, err
	}
	dim := b.columnsOf(o.Vectors)
	o.places = b.rowsOf(o.Vectors)
	o.vectors, err = b.tensorNamed(o.Vectors, false, o.places, dim)
	return Shape{Kind: PerEntry, Dim: dim, Feature: o.Feature, list: index}, err
}

func (*positions) flops(*Graph, *node, float64) float64 { return 0 }

// place is that of entry i of count.
func (o *positions) place(i, count int) int {
	if o.Back {
		i = count - 1 - i
	}
	return min(i, o.places-1)
}

func (o *positions) forward(s *Session, n *node) {
	y, vectors, offsets := s.vals[n.id], s.tensor(o.vectors), s.lists(n.id)
	for r := range s.rows {
		from, to := int(offsets[r]), int(offsets[r+1])
		for at := from; at < to; at++ {
			copy(y[at*n.dim:][:n.dim], vectors[o.place(at-from, to-from)*n.dim:])
		}
	}
}

func (o *positions) backward(s *Session, n *node) {
	dy, dvectors, offsets := s.grads[n.id], s.tensorGrad(o.vectors), s.lists(n.id)
	for r := range s.rows {
		from, to := int(offsets[r]), int(offsets[r+1])
		for at := from; at < to; at++ {
			add(dvectors[o.place(at-from, to-from)*n.dim:][:n.dim], dy[at*n.dim:][:n.dim])
		}
	}
}

func (o *positions) reference(e *evaluation, n *node) []float64 {
	var out []float64
	offsets, vectors := e.in.Sparse[n.shape.list].Offsets, e.tensor(o.vectors)
	for r := range e.in.NumRows {
		count := int(offsets[r+1] - offsets[r])
		for i := range count {
			place := i
			if o.Back {
				place = count - i - 1
			}
			if place >= o.places {
				place = o.places - 1
			}
			out = append(out, vectors[place*n.dim:(place+1)*n.dim]...)
		}
	}
	return out
}

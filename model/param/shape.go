package param

import (
	"errors"
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model/optim"
)

// Shape is what of a layout must fit for parameters to be taken over: names, dimensions and what their optimizers keep.
// It is JSON in a snapshot's manifest. The order of tables, segments and tensors is that of the layout.
type Shape struct {
	Tables []TableShape  `json:"tables"`
	Dense  []TensorShape `json:"dense"`
}

// TableShape is the shape of a table's rows.
type TableShape struct {
	Name     string         `json:"name"`
	Segments []SegmentShape `json:"segments"`
}

// SegmentShape is the shape of a segment.
type SegmentShape struct {
	Name string `json:"name"`
	// Dim is the number of weights.
	Dim int `json:"dim"`
	// Optimizer names the rule whose state lies beside the weights, StateDim float32 of it.
	Optimizer string `json:"optimizer"`
	StateDim  int    `json:"state_dim"`
}

// TensorShape is the shape of a dense tensor.
type TensorShape struct {
	Name  string `json:"name"`
	Shape []int  `json:"shape"`
	// Optimizer names the rule whose state lies beside the weights, StateDim float32 of it.
	Optimizer string `json:"optimizer"`
	StateDim  int    `json:"state_dim"`
}

// Dim is the number of weights of a row.
func (t TableShape) Dim() int {
	n := 0
	for _, s := range t.Segments {
		n += s.Dim
	}
	return n
}

// StateDim is the number of float32 of optimizer state of a row.
func (t TableShape) StateDim() int {
	n := 0
	for _, s := range t.Segments {
		n += s.StateDim
	}
	return n
}

// Len is the number of elements.
func (t TensorShape) Len() int {
	n := 1
	for _, d := range t.Shape {
		n *= d
	}
	return n
}

// Shape returns what of the layout must fit.
func (l *Layout) Shape() Shape {
	var s Shape
	for _, t := range l.Tables {
		u := TableShape{Name: t.Name}
		for _, g := range t.Segments {
			u.Segments = append(u.Segments, SegmentShape{g.Name, g.Dim, g.Optimizer.Name(), g.Optimizer.StateDim(g.Dim)})
		}
		s.Tables = append(s.Tables, u)
	}
	for _, t := range l.Dense {
		s.Dense = append(s.Dense, TensorShape{t.Name, slices.Clone(t.Shape), t.Optimizer.Name(), t.Optimizer.StateDim(t.Len())})
	}
	return s
}

// Frozen returns the layout as readers have it: the same weights under [optim.Frozen], which keeps no state.
func (l *Layout) Frozen() *Layout {
	out := &Layout{Seed: l.Seed}
	for _, t := range l.Tables {
		t.Segments = slices.Clone(t.Segments)
		for i := range t.Segments {
			s := &t.Segments[i]
			s.Optimizer, s.Clip, s.L2, s.L1, s.Schedule = optim.Frozen{Values: optim.ValuesOf(s.Optimizer)}, 0, 0, 0, optim.Schedule{}
		}
		out.Tables = append(out.Tables, t)
	}
	for _, t := range l.Dense {
		t.Optimizer, t.L2, t.L1, t.Delay, t.Schedule = optim.Frozen{}, 0, 0, 0, optim.Schedule{}
		out.Dense = append(out.Dense, t)
	}
	return out
}

// The bounds of a shape that was read: far above what a model has, and low enough that no sum of them overflows.
const (
	maxTables, maxSegments, maxTensors = 1 << 14, 1 << 10, 1 << 20
	maxNameBytes, maxDims              = 1 << 12, 16
	maxDim, maxLen                     = 1 << 24, 1 << 40
)

// Validate refuses a shape that no writer writes, so that readers may trust its numbers and names: all faults at once.
func (s Shape) Validate() error {
	if len(s.Tables) > maxTables || len(s.Dense) > maxTensors {
		return fmt.Errorf("param: %d tables and %d dense tensors: at most %d and %d are possible", len(s.Tables), len(s.Dense), maxTables, maxTensors)
	}
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf("param: "+format, args...)) }
	names := func(what string) func(string) {
		seen := map[string]bool{}
		return func(name string) {
			if name == "" || len(name) > maxNameBytes || seen[name] {
				bad("%s name %.80q is empty, too long or used twice", what, name)
			}
			seen[name] = true
		}
	}
	table, tensor := names("table"), names("dense tensor")
	for _, t := range s.Tables {
		table(t.Name)
		if len(t.Segments) == 0 || len(t.Segments) > maxSegments {
			bad("table %.80q has %d segments", t.Name, len(t.Segments))
			continue
		}
		segment := names("segment")
		for _, g := range t.Segments {
			segment(g.Name)
			if g.Dim < 1 || g.Dim > maxDim || g.StateDim < 0 || g.StateDim > 4*maxDim || len(g.Optimizer) > maxNameBytes {
				bad("table %.80q segment %.80q has dim %d and %d of state", t.Name, g.Name, g.Dim, g.StateDim)
			}
		}
	}
	for _, t := range s.Dense {
		tensor(t.Name)
		n, ok := 1, len(t.Shape) <= maxDims
		for _, d := range t.Shape {
			if ok = ok && d >= 1 && d <= maxLen/n; !ok {
				break
			}
			n *= d
		}
		if !ok || t.StateDim < 0 || t.StateDim > 4*maxLen || len(t.Optimizer) > maxNameBytes {
			bad("dense tensor %.80q has shape %v and %d of state", t.Name, t.Shape, t.StateDim)
		}
	}
	return errors.Join(faults...)
}

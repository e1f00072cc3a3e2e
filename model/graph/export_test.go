package graph

import (
	"math"

	"github.com/monolith-go/monolith/model"
)

// Unfused leaves everything as it is declared: the reference of what Build takes together.
func (b *Builder) Unfused() { b.unfused = true }

// Gathered reports whether no live lookup writes its vectors down.
func (g *Graph) Gathered() bool {
	for i := range g.nodes {
		if _, ok := g.nodes[i].op.(*lookup); ok && g.nodes[i].live {
			return false
		}
	}
	return true
}

// OperatorNames lists the operators that can be written.
func OperatorNames() []string {
	var names []string
	for _, create := range operators() {
		names = append(names, create().name())
	}
	return names
}

// FusedLinears counts the linear operators that end with a relu.
func (g *Graph) FusedLinears() (n int) {
	for i := range g.nodes {
		if _, ok := g.nodes[i].op.(linearRelu); ok && g.nodes[i].live {
			n++
		}
	}
	return n
}

// Overwritten counts the dense tensors whose gradients are overwritten.
func Overwritten(g *Graph) (n int) {
	for _, t := range g.tensors {
		if t.alone {
			n++
		}
	}
	return n
}

// Unshared gives each value and gradient a buffer of its own: the reference of the plans.
func (b *Builder) Unshared() { b.unshared = true }

// StepForgetting is a step in which each value that nobody reads on the way back is NaN by then, in a graph whose values have a buffer each.
func (s *Session) StepForgetting(in *model.Inputs, seed uint64) (predictions [][]float32, forgotten int) {
	s.begin(in, true, seed)
	s.forward()
	for i, span := range keptSpans(s.g.nodes, s.g.outputs) {
		if s.g.nodes[i].live && !s.gathered[i] && span.to < len(s.g.nodes) {
			forgotten++
			for k := range s.vals[i] {
				s.vals[i][k] = float32(math.NaN())
			}
		}
	}
	predictions, _ = s.back(in)
	return predictions, forgotten
}

// Overwriting adds the operators that compute a value in the place of their input, in prediction.
func (g *Graph) Overwriting(names map[string]bool) {
	for i := range g.nodes {
		if n := &g.nodes[i]; n.live && len(n.inputs) > 0 && g.values[i] == g.values[n.inputs[0]] && inPlace(g.nodes)(i, n.inputs[0]) {
			names[n.op.name()] = true
		}
	}
}

// Overwrite lists the operators that can do so.
func Overwrite() (names []string) {
	for _, create := range operators() {
		if o := create(); o.overwrites() {
			names = append(names, o.name())
		}
	}
	return names
}

// Unhalved is the graph where no step keeps values in halves: the reference of those that do.
func (g *Graph) Unhalved() *Graph {
	out := *g
	out.unhalved = true
	return &out
}

// Halves counts the values that are kept so where products are rounded.
func (g *Graph) Halves() (n int) {
	for _, stored := range g.halves.stored {
		if stored {
			n++
		}
	}
	return n
}

// Buffers counts those of the values in prediction, of those in training and of the gradients, and the values and gradients that are in them.
func (g *Graph) Buffers() (ofValues, ofKept, values, ofGrads, grads int) {
	for i := range g.nodes {
		n := &g.nodes[i]
		if !n.live {
			continue
		}
		values++
		if g.values[i] == i {
			ofValues++
		}
		if g.kept[i] == i {
			ofKept++
		}
		if !n.needsGrad {
			continue
		}
		grads++
		if g.grads[i] == i {
			ofGrads++
		}
	}
	return ofValues, ofKept, values, ofGrads, grads
}

// Run counts the operators that are run.
func (g *Graph) Run() (n int) {
	for i := range g.nodes {
		if g.nodes[i].live {
			n++
		}
	}
	return n
}

// RunOf counts the operators of a name that are run.
func (g *Graph) RunOf(name string) (n int) {
	for i := range g.nodes {
		if g.nodes[i].live && g.nodes[i].op.name() == name {
			n++
		}
	}
	return n
}

// Bytes is what the buffers of a session take.
func (s *Session) Bytes() int64 {
	n := len(s.dense) + len(s.denseGrad)
	for i := range s.valBuffers {
		n += len(s.valBuffers[i]) + len(s.gradBuffers[i])
	}
	return 4 * int64(n)
}

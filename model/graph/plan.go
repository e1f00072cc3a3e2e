package graph

import (
	"fmt"
	"slices"

	"github.com/monolith-go/monolith/model/param"
)

// merge gives who takes a value the first node that computes it, where several compute the same of the same values (common subexpressions); the others are then taken by nobody but
// heads. What an operator draws or observes for itself is among its settings, as the number of a mask or the name of a tensor.
func merge(nodes []node) {
	first, stands := map[string]int{}, make([]int, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		n.inputs = slices.Clone(n.inputs)
		for k, in := range n.inputs {
			n.inputs[k] = stands[in]
		}
		key := fmt.Sprintf("%s%v%s", n.op.name(), n.inputs, settingsOf(n.op))
		if _, known := first[key]; !known {
			first[key] = i
		}
		stands[i] = first[key]
	}
}

// plan is in whose buffers values lie: what node i computes is in that of node plan[i], which is the widest of those that share it. Two share one when they are of one kind and never
// needed at the same time.
type plan []int

// own gives each node a buffer of its own.
func own(nodes []node) plan {
	p := make(plan, len(nodes))
	for i := range p {
		p[i] = i
	}
	return p
}

// valuePlan is that of values in prediction: each is needed from when it is computed until the last of those that take it has run, and that of a head until the end.
func valuePlan(nodes []node, outputs []output) plan {
	return share(nodes, aheadSpans(nodes, outputs), func(n *node) bool { return n.live }, inPlace(nodes))
}

// trainPlan is that of values in training, where also who reads a value on the way back needs it.
func trainPlan(nodes []node, outputs []output) plan {
	return share(nodes, keptSpans(nodes, outputs), func(n *node) bool { return n.live }, inPlace(nodes))
}

// aheadSpans are when values are needed on the way ahead, on which node i runs at i.
func aheadSpans(nodes []node, outputs []output) []span {
	needed := make([]span, len(nodes))
	for i, by := range takers(nodes, outputs) {
		needed[i] = span{i, slices.Max(append(by, i))}
		if slices.Contains(by, head) {
			needed[i].to = 2 * len(nodes)
		}
	}
	return needed
}

// keptSpans are when they are needed in training. On the way back node i runs at 2n - i, n being how many there are.
func keptSpans(nodes []node, outputs []output) []span {
	needed := aheadSpans(nodes, outputs)
	for i := range nodes {
		n := &nodes[i]
		if !n.live || !n.needsGrad {
			continue
		}
		back := 2*len(nodes) - i
		if n.op.readsBack(ownValue) {
			needed[i].to = max(needed[i].to, back)
		}
		for k, in := range n.inputs {
			if n.op.readsBack(k) {
				needed[in].to = max(needed[in].to, back)
			}
		}
	}
	return needed
}

// inPlace reports whether node i may compute its value in the place of that of node in, if nobody needs that any more.
func inPlace(nodes []node) func(i, in int) bool {
	return func(i, in int) bool {
		n := &nodes[i]
		return n.op.overwrites() && n.inputs[0] == in && !slices.Contains(n.inputs[1:], in) && n.shape == nodes[in].shape
	}
}

// gradPlan is that of gradients, on the way back from the last node to the first: each is needed from when the last of those that take the value adds to it, or a head does before
// all of them, until its own node has run back.
func gradPlan(nodes []node, outputs []output) plan {
	needed, last := make([]span, len(nodes)), len(nodes)-1
	for i, by := range takers(nodes, outputs) {
		needed[i] = span{last - slices.Max(append(by, i)), last - i}
		if slices.Contains(by, head) {
			needed[i].from = -1
		}
	}
	return share(nodes, needed, func(n *node) bool { return n.live && n.needsGrad }, func(int, int) bool { return false })
}

// span is from when until when something is needed, both of them included.
type span struct{ from, to int }

// share gives the nodes that want one buffers, in the order in which they need them: that of the value which they overwrite, then the narrowest free one that is wide enough, otherwise the widest, which becomes
// wider. over reports whether a node may have the place of another that is needed until it runs.
func share(nodes []node, needed []span, wants func(*node) bool, over func(i, in int) bool) plan {
	p := own(nodes)
	type buffer struct {
		nodes []int // the last has it
		width int   // of the widest, which is nodes[widest]
		widest,
		to int
	}
	var buffers []*buffer
	var order []int
	for i := range nodes {
		if wants(&nodes[i]) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return needed[a].from - needed[b].from })
	for _, i := range order {
		shape := nodes[i].shape
		var best *buffer
		for _, b := range buffers {
			if b.to == needed[i].from && over(i, b.nodes[len(b.nodes)-1]) {
				best = b
				break
			}
			if b.to >= needed[i].from || nodes[b.widest].shape.with(0) != shape.with(0) {
				continue
			}
			wide, bestWide := b.width >= shape.Dim, best != nil && best.width >= shape.Dim
			if best == nil || wide && (!bestWide || b.width < best.width) || !wide && !bestWide && b.width > best.width {
				best = b
			}
		}
		if best == nil {
			best = &buffer{width: -1}
			buffers = append(buffers, best)
		}
		best.nodes, best.to = append(best.nodes, i), needed[i].to
		if shape.Dim > best.width {
			best.width, best.widest = shape.Dim, i
		}
	}
	for _, b := range buffers {
		for _, i := range b.nodes {
			p[i] = b.widest
		}
	}
	return p
}

// Memory estimates the bytes that a session keeps for a batch of so many rows, where each list of a sparse feature has so many entries: the values between the operators to predict, and
// what is kept of these and their gradients to train. What operators keep for themselves, the parameters and their gradients are not counted.
func (g *Graph) Memory(rows int, entries float64) (predict, train int64) {
	of := func(s Shape) float64 {
		switch s.Kind {
		case PerRow:
			return float64(s.Dim) * float64(rows)
		case PerEntry:
			return float64(s.Dim) * float64(rows) * entries
		case PerBatch:
			return float64(s.Dim)
		case PerPair:
			return float64(rows) * float64(rows)
		}
		return 0
	}
	const size = 4
	for i := range g.nodes {
		n := &g.nodes[i]
		if !n.live {
			continue
		}
		bytes := int64(size * of(n.shape))
		if g.values[i] == i {
			predict += bytes
		}
		kept, stored := g.kept, false
		if g.precision == param.BF16 {
			kept, stored = g.halves.plan, g.halves.stored[i]
		}
		if kept[i] == i {
			train += bytes
		}
		if stored {
			train += bytes / 2
		}
		if n.needsGrad && g.grads[i] == i {
			train += bytes
		}
	}
	return predict, train
}

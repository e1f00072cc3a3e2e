package graph

import (
	"encoding/json"
	"fmt"
	"strings"
)

// op is the maths of one operator. Its exported fields are its settings, which are written with a graph; what bind finds
// out lies in the others. After bind an operator is immutable; what belongs to a session is in the session. Everything
// that others want to know of an operator it answers itself. Each is in the list of operators.
type op interface {
	// name is the operator's in a written graph.
	name() string
	// String is the operator's name and settings, for people.
	String() string
	// bind checks inputs and settings, finds the parameters, and returns the shape of the value; a fault says what does not
	// fit. It is called once, with inputs that are the builder's.
	bind(b *Builder, in []Node) (Shape, error)
	// learns reports whether the operator has parameters of its own.
	learns() bool
	// differs reports whether the operator computes something else in training than in prediction.
	differs() bool
	// flops are the additions and multiplications forward for one vector of the value (of a row, of an entry), where a list
	// has so many entries.
	flops(g *Graph, n *node, entries float64) float64
	// forward writes the value of n.
	forward(s *Session, n *node)
	// backward adds to the gradients of n's inputs and parameters, given the gradient of n. The gradient is nobody's after it.
	backward(s *Session, n *node)
	// readsBack reports whether backward reads the numbers of a value: of input i of the operator, or of [ownValue]. What nobody does is not kept until then.
	readsBack(value int) bool
	// overwrites reports whether forward may be given one place for its value and for its first input: it reads each number of that before it writes the one in its place, and no
	// other after.
	overwrites() bool
	// reference is the slow reference of forward, in float64.
	reference(e *evaluation, n *node) []float64
}

// stateful operators keep something between forward and backward in each session.
type stateful interface {
	newState() any
}

// compiler operators run in another form than they were declared in: compile returns what is run, with its inputs. before
// are the nodes before it, already compiled; with fuse false nothing is taken together.
type compiler interface {
	compile(before []node, n *node, fuse bool) (o op, inputs []int)
}

// gatherer operators can read what a pool would give them from the tables themselves, so that it is never written down.
type gatherer interface {
	// gathers reports whether the operator can do so with this pool, all of whose parts are lookups, at all; it is asked when a graph
	// is built, if nothing else takes the pool's value.
	gathers(p *pool) bool
	// gathersNow reports whether it does with the batch at hand.
	gathersNow(s *Session, p *pool) bool
}

// ownValue is the operator's own among the values of readsBack.
const ownValue = -1

// plain is what most operators answer; it is embedded.
type plain struct{}

func (plain) learns() bool       { return false }
func (plain) differs() bool      { return false }
func (plain) readsBack(int) bool { return true }
func (plain) overwrites() bool   { return false }

// operators is the list of all there are. Adding one is a line here.
func operators() []func() op {
	return []func() op{
		func() op { return &denseInput{} },
		func() op { return &lookup{} },
		func() op { return &pool{} },
		func() op { return &first{} },
		func() op { return &expand{} },
		func() op { return &softmax{} },
		func() op { return &topGates{} },
		func() op { return &weightedSum{} },
		func() op { return &gru{} },
		func() op { return &last{} },
		func() op { return &linear{} },
		func() op { return &kernelNorm{} },
		func() op { return &addBias{} },
		func() op { return &relu{} },
		func() op { return &sigmoidOp{} },
		func() op { return &prelu{} },
		func() op { return &activation{} },
		func() op { return &affine{} },
		func() op { return &stopGradient{} },
		func() op { return &addOp{} },
		func() op { return &mulOp{} },
		func() op { return &maxOp{} },
		func() op { return &concat{} },
		func() op { return &rowSum{} },
		func() op { return &embedNumbers{} },
		func() op { return &fm{} },
		func() op { return &fmEntries{} },
		func() op { return &batchNorm{} },
		func() op { return &standardise{} },
		func() op { return &dropout{} },
		func() op { return &layerNorm{} },
		func() op { return &columns{} },
		func() op { return &scaleOp{} },
		func() op { return &fold{} },
		func() op { return &vectorSums{} },
		func() op { return &unit{} },
		func() op { return &transpose{} },
		func() op { return &rowProduct{} },
		func() op { return &hardConcrete{} },
		func() op { return &razor{} },
		func() op { return &positions{} },
		func() op { return &gradNorm{} },
		func() op { return &pairProducts{} },
		func() op { return &pairDots{} },
		func() op { return &fieldDots{} },
		func() op { return &biInteraction{} },
		func() op { return &selfAttention{} },
		func() op { return &pointwise{} },
		func() op { return &cin{} },
		func() op { return &both{} },
		func() op { return &batchSoftmax{} },
		func() op { return &similarity{} },
		func() op { return &diagonal{} },
		func() op { return &batchMean{} },
		func() op { return &broadcast{} },
	}
}

// Operator is what is known of one operator of a graph.
type Operator struct {
	// ID is its place among all declared; Inputs are the IDs of the values it takes.
	ID     int
	Inputs []int
	// Name is that of the list of operators, Text has the settings too.
	Name, Text string
	Shape      Shape
	// Differs reports whether it computes something else in training than in prediction.
	Differs bool
	// Settings are the operator's as [Graph.Marshal] writes them, a JSON object.
	Settings []byte
}

// Operators lists the operators that a head depends on, as they were declared, inputs before those who take them.
func (g *Graph) Operators() []Operator {
	var out []Operator
	for i := range g.declared {
		n := &g.declared[i]
		if !n.live {
			continue
		}
		out = append(out, Operator{
			ID: n.id, Inputs: n.inputs, Name: n.op.name(), Text: n.op.String(), Shape: n.shape, Differs: n.op.differs(), Settings: settingsOf(n.op),
		})
	}
	return out
}

// settingsOf are the settings of an operator as they are written.
func settingsOf(o op) []byte {
	settings, err := json.Marshal(o)
	if err != nil {
		panic(fmt.Sprintf("graph: the settings of %s: %v", o, err)) // they are numbers and names
	}
	return settings
}

// Outputs are the IDs of the values that the heads learn through, before their losses' links, in the order of [Graph.Heads].
func (g *Graph) Outputs() []int {
	var out []int
	for _, o := range g.outputs {
		out = append(out, o.node)
	}
	return out
}

// FLOPs estimates the additions and multiplications of one prediction of one row, where each list of a sparse feature has
// so many entries. Functions like the exponential count as one; what a batch shares (pairs of rows) is not counted.
func (g *Graph) FLOPs(entries float64) float64 {
	sum := 0.0
	for i := range g.nodes {
		if g.nodes[i].live {
			sum += g.flopsOf(&g.nodes[i], entries)
		}
	}
	return sum
}

// OperatorFLOPs is what the operator with an ID of [Graph.Operators] has of that, as it was declared. Some are run in another form that takes
// less, so that the sum over all may be above [Graph.FLOPs].
func (g *Graph) OperatorFLOPs(id int, entries float64) float64 {
	return g.flopsOf(&g.declared[id], entries)
}

// flopsOf is what a node takes for one row.
func (g *Graph) flopsOf(n *node, entries float64) float64 {
	f := n.op.flops(g, n, entries)
	switch n.shape.Kind {
	case PerRow:
		return f
	case PerEntry:
		return f * entries
	case PerBatch, PerPair:
	}
	return 0
}

// Text draws the graph as it was declared, an operator a line: "%3 = relu(%2) [rows 400]".
func (g *Graph) Text() string {
	var b strings.Builder
	for _, o := range g.Operators() {
		fmt.Fprintf(&b, "%%%d = %s(", o.ID, o.Text)
		for k, in := range o.Inputs {
			if k > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "%%%d", in)
		}
		fmt.Fprintf(&b, ") [%s]\n", o.Shape)
	}
	for _, o := range g.outputs {
		fmt.Fprintf(&b, "head %q = %s(%%%d)", o.head.Name, o.head.Loss, o.node)
		if o.head.Weight != 1 {
			fmt.Fprintf(&b, " weight %g", o.head.Weight)
		}
		if o.head.SampleRate != 1 {
			fmt.Fprintf(&b, " sample rate %g", o.head.SampleRate)
		}
		if o.head.LogitClip != 0 {
			fmt.Fprintf(&b, " logit clip %g", o.head.LogitClip)
		}
		b.WriteString(o.head.Text())
		if o.head.Group != "" {
			fmt.Fprintf(&b, " by %s", o.head.Group)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

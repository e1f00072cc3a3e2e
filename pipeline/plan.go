package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/failure"
)

// Plan is a checked graph, cut into segments. It is immutable and may be run more than once.
//
// Segments are the parts of a graph that have nothing to do with each other, so that each can be run by itself, but for
// shuffles: a [Shuffle] is the end of one segment and the beginning of another, which runs when the first has ended.
type Plan struct {
	Name     string
	Segments []*Segment
}

// Segment is a part of a plan in which no data changes hands between workers: sources, the stages downstream of them and sinks. A
// runner runs it, whole or for some of its splits, with [Segment.Run].
type Segment struct {
	nodes []*node // in the order of building, which is one of the stream's
	shape shape
}

// PlanError lists everything that is wrong with a graph. Each fault begins with the file:line that made the node.
type PlanError struct {
	Graph  string
	Faults []error
}

// Error renders one fault a line.
func (e *PlanError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph %q has %d fault(s)", e.Graph, len(e.Faults))
	for _, f := range e.Faults {
		b.WriteString("\n  " + f.Error())
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As every fault.
func (e *PlanError) Unwrap() []error { return e.Faults }

// Plan checks the graph and cuts it into segments. It does no I/O. Errors: [*PlanError] with every fault.
func (g *Graph) Plan() (*Plan, error) {
	c := checker{names: map[string]*node{}}
	hasSource := false
	for _, n := range g.nodes { // in building order, so what comes in has been looked at
		c.check(n)
		hasSource = hasSource || n.kind == sourceNode
	}
	if !hasSource {
		c.faults = append(c.faults, fmt.Errorf("graph %q has no source: %w", g.name, ErrConfig))
	}
	if len(c.faults) > 0 {
		return nil, &PlanError{g.name, c.faults}
	}
	p := &Plan{Name: g.name}
	for _, nodes := range g.parts() {
		p.Segments = append(p.Segments, &Segment{nodes, newShape(nodes)})
	}
	p.entitle()
	for _, s := range p.Shuffles() {
		if s.From == s.To {
			n := p.Segments[s.To].source(s.Name)
			c.fault(n, "what is grouped is merged with the stream it is made of, which it would have to wait for: %w", ErrConfig)
		}
	}
	if len(c.faults) > 0 {
		return nil, &PlanError{g.name, c.faults}
	}
	return p, nil
}

// parts are the nodes of the graph, by what they are joined to, in the order of building.
func (g *Graph) parts() [][]*node {
	part := make([]int, len(g.nodes)) // of each node; a union by renaming, as graphs are small
	for i := range part {
		part[i] = i
	}
	for _, n := range g.nodes {
		for _, in := range n.in {
			from, to := part[in.n.index], part[n.index]
			for i := range part {
				if part[i] == from {
					part[i] = to
				}
			}
		}
	}
	var out [][]*node
	at := map[int]int{}
	for i, n := range g.nodes {
		k, ok := at[part[i]]
		if !ok {
			k = len(out)
			at[part[i]] = k
			out = append(out, nil)
		}
		out[k] = append(out[k], n)
	}
	return out
}

// checker collects the faults of a graph.
type checker struct {
	names  map[string]*node
	faults []error
}

func (c *checker) fault(n *node, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s: %s %q: %w", n.site, n.kind, n.name, fmt.Errorf(format, args...)))
}

func (c *checker) check(n *node) {
	if n.name == "" {
		c.fault(n, "has no name: %w", ErrConfig)
	} else if first := c.names[n.name]; first != nil {
		c.fault(n, "the name is used at %s already: %w", first.site, ErrConfig)
	} else {
		c.names[n.name] = n
	}
	for _, err := range n.faults {
		c.fault(n, "%w", err)
	}
	c.consumers(n)
	switch {
	case n.kind == sourceNode && n.source == nil, n.kind == stageNode && n.stage == nil, n.kind == sinkNode && n.sink == nil:
		c.fault(n, "is nil: %w", ErrConfig)
		return
	case n.kind == queueNode && n.depth < 0:
		c.fault(n, "depth %d is below 0: %w", n.depth, ErrConfig)
	case n.kind == sourceNode && (n.read.Lateness < 0 || n.read.Idle < 0):
		c.fault(n, "lateness %v or idle %v is below 0: %w", n.read.Lateness, n.read.Idle, ErrConfig)
	}
	c.origins(n)
	c.schemas(n)
}

// consumers makes sure that each stream of a node is read once.
func (c *checker) consumers(n *node) {
	streams := 1
	switch n.kind {
	case sinkNode:
		return
	case teeNode:
		streams = max(n.branches, 1)
	default:
	}
	for port := range streams {
		what := "its stream"
		if n.kind == teeNode {
			what = fmt.Sprintf("branch %d", port)
		}
		var by []*node
		for i, next := range n.next {
			if n.ports[i] == port {
				by = append(by, next)
			}
		}
		switch {
		case len(by) == 0 && n.kind == teeNode:
			c.fault(n, "nothing reads branch %d; end it with Into: %w", port, ErrConfig)
		case len(by) == 0:
			c.fault(n, "nothing reads its stream; end it with Into: %w", ErrConfig)
		case len(by) > 1:
			c.fault(n, "%s is read %d times, at %s and %s; Tee gives it to several: %w", what, len(by), by[0].site, by[1].site, ErrConfig)
		}
	}
}

// origins finds out which sources a node's stream comes from, and by way of which queue.
func (c *checker) origins(n *node) {
	if n.kind == sourceNode {
		n.sources = []*node{n}
		return
	}
	for _, in := range n.in {
		for _, source := range in.n.sources {
			if slices.Contains(n.sources, source) {
				c.fault(n, "source %q comes by way of two of its streams, so its rows would come twice: %w", source.name, ErrConfig)
				continue
			}
			n.sources = append(n.sources, source)
		}
		if q := in.n.queued; q != nil {
			n.queued = q
			if n.kind == mergeNode {
				c.fault(n, "stream of %s %q has passed queue %q; merge first and queue what comes out: %w", in.n.kind, in.n.name, q.name, ErrConfig)
			}
		}
		if n.kind == mergeNode {
			c.nested(n, in.n)
		}
	}
	slices.SortFunc(n.sources, func(a, b *node) int { return cmp.Compare(a.index, b.index) })
	if n.kind == queueNode && n.queued == nil {
		n.queued = n
	}
}

// nested looks for a merge with weights in front of another.
func (c *checker) nested(outer, n *node) {
	if n.kind == mergeNode && slices.ContainsFunc(n.in, func(in input) bool { return in.pref.set }) {
		c.fault(n, "has weights or priorities, and is merged again by %q: give them there: %w", outer.name, ErrConfig)
	}
	for _, in := range n.in {
		c.nested(outer, in.n)
	}
}

// schemas finds the schema of a node's output. That of what comes in is known unless it was at fault.
func (c *checker) schemas(n *node) {
	if n.kind == sourceNode {
		if n.schema = n.source.schema(); n.schema == nil && n.shuffle == nil { // else it is at fault already
			c.fault(n, "has no schema: %w", ErrSchema)
		}
		return
	}
	if len(n.in) == 0 || n.in[0].n.schema == nil && n.kind != sideNode {
		return
	}
	first := n.in[0].n
	switch n.kind {
	case mergeNode:
		n.schema = first.schema
		for _, in := range n.in[1:] {
			if s := in.n.schema; s != nil && !s.Equal(n.schema) {
				c.fault(n, "%s %q has columns %s, %s %q has %s: %w", first.kind, first.name, schemaText(n.schema), in.n.kind, in.n.name, schemaText(s), ErrSchema)
			}
		}
	case stageNode:
		out, err := n.stage.schema(first.schema)
		if err != nil {
			for _, e := range failure.Flatten(err) {
				c.fault(n, "%w", e)
			}
			return
		}
		n.schema = out
	case sideNode:
		c.side(n, first)
	case sinkNode:
		if n.shuffle != nil {
			n.shuffle.check(c, n, first.schema)
		}
	default:
		n.schema = first.schema
	}
}

// side finds the schema of a side output of a stage.
func (c *checker) side(n, stage *node) {
	if stage.kind != stageNode {
		c.fault(n, "%s %q has no side outputs, only stages do: %w", stage.kind, stage.name, ErrConfig)
		return
	}
	if stage.stage == nil || stage.schema == nil { // at fault already
		return
	}
	sides, err := stage.stage.sides(stage.in[0].n.schema)
	if err != nil {
		c.fault(n, "%w", err)
		return
	}
	if n.schema = sides[n.output]; n.schema == nil {
		c.fault(n, "stage %q has no side output %q, but %q: %w", stage.name, n.output, slices.Sorted(maps.Keys(sides)), ErrConfig)
	}
}

// Hash names what the plan does: its parts with their fingerprints, how they are joined, and the schemas between them; not
// where in a program it was built. A worker that rebuilds a graph from its recipe compares hashes before it runs a segment,
// and workers that share a parameter server have equal ones.
func (p *Plan) Hash() string {
	var b strings.Builder
	for _, s := range p.Segments {
		for _, n := range s.nodes {
			fmt.Fprintf(&b, "%s\x00%s\x00%s\x00%s\x00%d\x00%d\x00%d\x00", n.kind, n.name, n.full, n.elem, n.depth, n.read.Lateness, n.read.Idle)
			for _, in := range n.in {
				fmt.Fprintf(&b, "%s\x00%d\x00%d\x00%d\x00", in.n.name, in.n.portOf(n), in.pref.weight, in.pref.priority)
			}
			if n.schema != nil {
				fmt.Fprintf(&b, "%s\x00", n.schema)
			}
			b.WriteByte(2)
		}
		b.WriteByte(1)
	}
	h := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(h[:8])
}

// portOf returns which stream of n a consumer reads.
func (n *node) portOf(consumer *node) int {
	if i := slices.Index(n.next, consumer); i >= 0 {
		return n.ports[i]
	}
	return 0 // a side output
}

// SourceNode is a source of a plan, as it was given to [Read], to be asked for optional interfaces such as [Acknowledger].
type SourceNode struct {
	// Name is that of the node, under which positions are kept.
	Name string
	// Source is the source itself.
	Source any
}

// Sources returns the sources of all segments, in the order of building.
func (p *Plan) Sources() []SourceNode {
	var out []SourceNode
	for _, s := range p.Segments {
		out = append(out, s.Sources()...)
	}
	return out
}

// Splits lists the splits of all sources, sorted by source and name, as [RunOptions].Splits takes them.
func (p *Plan) Splits(ctx context.Context) ([]Split, error) {
	var out []Split
	for _, s := range p.Segments {
		splits, err := s.Splits(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, splits...)
	}
	return sorted(out), nil
}

// Deal returns, for each segment, those of the given splits that are of its sources, sorted; a segment may have none. A split
// that names no source is that of the plan's only one. Errors: [ErrConfig] for a split that could be of several sources, and
// when no split is left.
func (p *Plan) Deal(splits []Split) ([][]Split, error) {
	out, found := make([][]Split, len(p.Segments)), 0
	for i, s := range p.Segments {
		for _, sp := range splits {
			if sp.Source == "" && len(p.Segments) > 1 {
				return nil, fmt.Errorf("split %q does not say which source it is of: %w", sp.Name, ErrConfig)
			}
		}
		own, err := s.own(splits)
		if err != nil {
			return nil, err
		}
		out[i], found = own, found+len(own)
	}
	if found == 0 {
		return nil, fmt.Errorf("plan %q: no splits to read: %w", p.Name, ErrConfig)
	}
	return out, nil
}

// Bounded reports whether all segments end.
func (p *Plan) Bounded() bool {
	return !slices.ContainsFunc(p.Segments, func(s *Segment) bool { return !s.Bounded() })
}

// Sources returns the segment's sources, in the order of building.
func (s *Segment) Sources() []SourceNode {
	out := make([]SourceNode, len(s.shape.sources))
	for i, n := range s.shape.sources {
		out[i] = SourceNode{n.name, n.source.value()}
	}
	return out
}

// Splits lists the splits of the segment's sources, sorted by source and name, as [RunOptions].Splits takes them. Every
// source must have one. Errors: [ErrConfig], and those of [Source].Splits.
func (s *Segment) Splits(ctx context.Context) ([]Split, error) {
	var out []Split
	for _, n := range s.shape.sources {
		var splits []Split
		err := Guard(n.name, func() (err error) {
			splits, err = n.source.splits(ctx)
			return err
		})
		if err != nil {
			return nil, inPart(n.name, err)
		}
		if len(splits) == 0 {
			return nil, fmt.Errorf("%s: no splits to read: %w", n.name, ErrConfig)
		}
		for _, sp := range splits {
			sp.Source = n.name
			out = append(out, sp)
		}
	}
	return sorted(out), nil
}

func sorted(splits []Split) []Split {
	slices.SortFunc(splits, func(a, b Split) int { return a.ID().Compare(b.ID()) })
	return splits
}

// own returns those of the given splits that are of the segment's sources, sorted. A split that names no source is that of
// the only one. Errors: [ErrConfig] for one that could be of several.
func (s *Segment) own(splits []Split) ([]Split, error) {
	var out []Split
	for _, sp := range splits {
		if sp.Source == "" {
			if len(s.shape.sources) > 1 {
				return nil, fmt.Errorf("split %q does not say which source it is of: %w", sp.Name, ErrConfig)
			}
			sp.Source = s.shape.sources[0].name
		}
		if s.source(sp.Source) != nil {
			out = append(out, sp)
		}
	}
	return sorted(out), nil
}

// source finds a source by its name, or nil.
func (s *Segment) source(name string) *node {
	for _, n := range s.shape.sources {
		if n.name == name {
			return n
		}
	}
	return nil
}

// Bounded reports whether all of the segment's sources end.
func (s *Segment) Bounded() bool {
	return !slices.ContainsFunc(s.shape.sources, func(n *node) bool { return !n.source.bounded() })
}

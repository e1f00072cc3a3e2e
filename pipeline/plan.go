package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Plan is a checked graph, cut into segments. It is immutable and may be run more than once.
type Plan struct {
	Name     string
	Segments []*Segment
}

// Segment is a part of a plan in which no data changes hands between workers: one source, the stages behind it and one
// sink. A runner runs it, whole or for some of its splits, with [Segment.Run].
type Segment struct {
	chain []*node // source, stages and queues, sink
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
	var faults []error
	fault := func(n *node, format string, args ...any) {
		faults = append(faults, fmt.Errorf("%s: %s %q: %w", n.site, n.kind, n.name, fmt.Errorf(format, args...)))
	}
	names := map[string]*node{}
	sources := 0
	for _, n := range g.nodes {
		if n.name == "" {
			fault(n, "has no name: %w", ErrConfig)
		} else if first := names[n.name]; first != nil {
			fault(n, "the name is used at %s already: %w", first.site, ErrConfig)
		} else {
			names[n.name] = n
		}
		if n.kind != sinkNode {
			switch len(n.next) {
			case 0:
				fault(n, "nothing reads its stream; end it with Into: %w", ErrConfig)
			case 1:
			default:
				fault(n, "its stream is read %d times, at %s and %s: %w", len(n.next), n.next[0].site, n.next[1].site, ErrConfig)
			}
		}
		switch {
		case n.kind == sourceNode && n.source == nil, n.kind == stageNode && n.stage == nil, n.kind == sinkNode && n.sink == nil:
			fault(n, "is nil: %w", ErrConfig)
			continue
		case n.kind == queueNode && n.depth < 0:
			fault(n, "depth %d is below 0: %w", n.depth, ErrConfig)
		}
		// The nodes stand in building order, so the schema of what comes in is known here unless it was at fault.
		switch n.kind {
		case sourceNode:
			sources++
			if n.schema = n.source.schema(); n.schema == nil {
				fault(n, "has no schema: %w", ErrSchema)
			}
		case queueNode:
			n.schema = n.in.schema
		case stageNode:
			if n.in.schema == nil {
				continue
			}
			out, err := n.stage.schema(n.in.schema)
			if err != nil {
				for _, e := range split(err) {
					fault(n, "%w", e)
				}
				continue
			}
			n.schema = out
		case sinkNode:
		}
	}
	if sources == 0 {
		faults = append(faults, fmt.Errorf("graph %q has no source: %w", g.name, ErrConfig))
	}
	if len(faults) > 0 {
		return nil, &PlanError{g.name, faults}
	}
	p := &Plan{Name: g.name}
	for _, n := range g.nodes {
		if n.kind != sourceNode {
			continue
		}
		s := &Segment{}
		for at := n; ; at = at.next[0] {
			s.chain = append(s.chain, at)
			if at.kind == sinkNode {
				break
			}
		}
		p.Segments = append(p.Segments, s)
	}
	return p, nil
}

// split takes joined errors apart, so that each fault is a line of its own. What joins and says something itself (a
// *DataError, fmt.Errorf with several %w) stays whole.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, split(e)...)
	}
	return out
}

// Hash names what the plan does: its parts with their fingerprints and the schemas between them, not where in a program it
// was built. A worker that rebuilds a graph from its recipe compares hashes before it runs a segment, and workers that
// share a parameter server have equal ones.
func (p *Plan) Hash() string {
	var b strings.Builder
	for _, s := range p.Segments {
		for _, n := range s.chain {
			fmt.Fprintf(&b, "%s\x00%s\x00%s\x00%s\x00%d\x00", n.kind, n.name, n.full, n.elem, n.depth)
			if n.schema != nil {
				fmt.Fprintf(&b, "%s\x00", n.schema)
			}
		}
		b.WriteByte(1)
	}
	h := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(h[:8])
}

// Source returns the segment's source as it was given to [Read], to be asked for optional interfaces such as
// [Acknowledger], and the name of its node.
func (s *Segment) Source() (name string, source any) {
	return s.chain[0].name, s.chain[0].source.value()
}

// Splits lists the splits of the segment's source, as [RunOptions].Splits takes them.
func (s *Segment) Splits(ctx context.Context) ([]Split, error) {
	name, _ := s.Source()
	splits, err := s.chain[0].source.splits(ctx)
	if err != nil {
		return nil, err
	}
	if len(splits) == 0 {
		return nil, fmt.Errorf("%s: no splits to read: %w", name, ErrConfig)
	}
	return splits, nil
}

// Bounded tells whether the segment's source ends.
func (s *Segment) Bounded() bool { return s.chain[0].source.bounded() }

func (s *Segment) sink() *node { return s.chain[len(s.chain)-1] }

// sections cuts the chain into what runs for each split and, for each worker, the groups of stages that share a
// goroutine with the queues between them: queues[i] lies before groups[i+1]. merge is the queue at which splits come
// together, nil when the graph has none. A queue of depth 0 joins its two sides into one group.
func (s *Segment) sections() (perSplit []*node, merge *node, groups [][]*node, queues []*node) {
	rest := s.chain[1 : len(s.chain)-1]
	i := slices.IndexFunc(rest, func(n *node) bool { return n.kind == queueNode })
	if i < 0 {
		return rest, nil, [][]*node{nil}, nil
	}
	perSplit, merge, groups = rest[:i], rest[i], [][]*node{nil}
	for _, n := range rest[i+1:] {
		switch {
		case n.kind != queueNode:
			groups[len(groups)-1] = append(groups[len(groups)-1], n)
		case n.depth > 0:
			groups, queues = append(groups, nil), append(queues, n)
		}
	}
	return perSplit, merge, groups, queues
}

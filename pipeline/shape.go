package pipeline

import (
	"slices"
)

// shape is what running needs to know of a segment's nodes.
//
//	per split                      │ per worker
//	source ─> stages ─> merge ─>   ╫ ─> stages ─> tee ─╫─> ... ─> sink
//	                    └ side ─>  ╫ ───────────────────────────> sink
//	                             exits
type shape struct {
	sources, sinks []*node
	// exits are the nodes that a split's own part ends in: its first queue, or a sink without one before it. What a split
	// gives carries the number of the exit it goes to.
	exits []*node
	// gather is the queue at which splits come together, where that is the only exit; otherwise nil, and each split has
	// a queue of depth 1 to the goroutine that hands out what comes to the exits.
	gather *node
	// mainSink is, for each source, the first sink that it leads to, and mainExit the way there.
	mainSink map[*node]*node
	mainExit map[*node]int
	// main are the nodes on the way to a main sink: what is held or dropped there counts as rows left.
	main map[*node]bool
	// units share in what is taken ([Stream.Weight]); unit says which a source belongs to.
	units []preference
	unit  map[*node]int
}

func newShape(nodes []*node) shape {
	s := shape{mainSink: map[*node]*node{}, mainExit: map[*node]int{}, main: map[*node]bool{}, unit: map[*node]int{}}
	for _, n := range nodes {
		switch n.kind {
		case sourceNode:
			s.sources = append(s.sources, n)
		case sinkNode:
			s.sinks = append(s.sinks, n)
			for _, source := range n.sources {
				if s.mainSink[source] == nil {
					s.mainSink[source] = n
				}
			}
		default:
		}
		if n.kind == queueNode && n.queued == n || n.kind == sinkNode && n.queued == nil {
			s.exits = append(s.exits, n)
		}
	}
	if len(s.exits) == 1 && s.exits[0].kind == queueNode {
		s.gather = s.exits[0]
	}
	units := map[input]int{}
	for _, source := range s.sources {
		way := path(source, s.mainSink[source])
		last := input{n: source} // what the source shares in, unless a merge says otherwise
		pref := preference{weight: 1}
		for i, n := range way {
			s.main[n] = true
			if k := slices.Index(s.exits, n); k >= 0 {
				s.mainExit[source] = k
			}
			if n.kind == mergeNode {
				k := slices.IndexFunc(n.in, func(in input) bool { return in.n == way[i-1] })
				last, pref = n.in[k], n.in[k].pref
			}
		}
		u, ok := units[last]
		if !ok {
			u = len(s.units)
			units[last] = u
			s.units = append(s.units, pref)
		}
		s.unit[source] = u
	}
	return s
}

// path is the way of a stream from one node to another, both included; nil when there is none. There is at most one,
// because a merge reads streams of different sources.
func path(from, to *node) []*node {
	if from == to {
		return []*node{from}
	}
	for _, n := range from.outputs() {
		if way := path(n, to); way != nil {
			return append([]*node{from}, way...)
		}
	}
	return nil
}

// outputs are the nodes that read what n gives, side outputs last.
func (n *node) outputs() []*node { return slices.Concat(n.next, n.sides) }

// below are the nodes that a stream from n reaches, n included, those in front first.
func (n *node) below() []*node {
	out := []*node{n}
	for _, next := range n.outputs() {
		for _, b := range next.below() {
			if !slices.Contains(out, b) {
				out = append(out, b)
			}
		}
	}
	return out
}

// reads reports whether the stream of a node comes from a source.
func (n *node) reads(source *node) bool { return slices.Contains(n.sources, source) }

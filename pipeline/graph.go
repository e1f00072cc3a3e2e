package pipeline

import (
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Graph is a description of what flows from where to where: streams that begin at sources, pass through stages, are
// merged, shared and queued, and end in sinks.
//
//	Read ─> Via ─> Prefetch ─> Via ─> Into          a chain
//
//	Read ─> Via ─┐                ┌─> Via ─> Into
//	Read ─> Via ─┴─ Merge ─> Tee ─┤
//	         └─ Side ─> Into      └─> Into          a graph: two sources, three sinks
//
//	Read ─> Via ─> Shuffle ═> Via ─> Into           rows by key, when the stream has ended
//
// Building it does no I/O; what is wrong is reported by [Graph.Plan]. It is not for concurrent use.
type Graph struct {
	name  string
	nodes []*node
}

// New starts an empty graph. The name appears in plans, logs and metrics.
func New(name string) *Graph { return &Graph{name: name} }

// Stream is an edge of a graph that carries elements of type T. It is to be consumed exactly once, by [Via], [Prefetch],
// [Merge], [Tee] or [Into].
type Stream[T Element] struct {
	g    *Graph
	n    *node
	port int // which of the streams that the node gives
	pref preference
}

// preference is how a stream is treated by the merge that reads it.
type preference struct {
	weight, priority int
	set              bool // by the user, so a merge must follow
}

// Weight describes how many rows of the stream are taken for one row of a stream of weight 1, where a [Merge] has both ready.
// At least 1, which is the default.
func (s Stream[T]) Weight(rows int) Stream[T] {
	s.pref.weight, s.pref.set = rows, true
	return s
}

// Priority has a [Merge] take from the stream before those of a lower priority. Default 0.
func (s Stream[T]) Priority(p int) Stream[T] {
	s.pref.priority, s.pref.set = p, true
	return s
}

type nodeKind uint8

const (
	sourceNode nodeKind = iota
	stageNode
	queueNode
	sinkNode
	mergeNode
	teeNode
	sideNode
)

func (k nodeKind) String() string {
	return [...]string{"source", "stage", "queue", "sink", "merge", "tee", "side output"}[k]
}

// node is one part of a graph with its types erased.
type node struct {
	kind   nodeKind
	index  int // in the order of building
	name   string
	desc   string // what the part says of itself, for people
	full   string // the part's fingerprint, for the plan's hash
	site   string // file:line of the call that made the node
	elem   string // what the node's output edges carry
	in     []input
	next   []*node // consumers of the node's streams
	ports  []int   // which stream each of next reads
	sides  []*node // side outputs that are read, of a stage
	faults []error // of building

	depth    int    // of a queue
	branches int    // of a tee
	output   string // of a side output: its name within the stage
	read     ReadOptions
	source   anySource
	stage    anyStage
	sink     anySink
	shuffle  *shuffle // that the sink is the beginning of, or the source the end

	// What planning finds out.
	title   string        // what it is drawn as
	schema  *arrow.Schema // of the output
	queued  *node         // the first queue that the stream has passed, or nil
	sources []*node       // where the stream comes from, in the order of building
}

// input is an edge as its end sees it.
type input struct {
	n    *node
	pref preference
}

// ReadOptions are what a graph decides about the event times of a source. The zero value is for splits that are in order of
// time.
//
// The watermark of a split is the newest event time that was read of it, less Lateness. A source whose elements say a
// watermark themselves ([Origin].Watermark) is believed instead. Where splits come together the smallest watermark counts;
// see [EventTimer].
type ReadOptions struct {
	// Lateness is how much older than the newest event of a split a later one may be. Default 0.
	Lateness time.Duration
	// Idle is how long a split may give nothing before it is left out of the watermark, until it gives something again;
	// what it gives then may be late. Default 0: it holds the watermark back for as long as it is silent. In deterministic
	// order silent splits are waited for anyway, and it has no effect.
	Idle time.Duration
}

// Read begins a stream at a source.
func Read[T Element](g *Graph, name string, source Source[T]) Stream[T] {
	return Stream[T]{g: g, n: g.add(readNode(name, source, ReadOptions{}, caller()))}
}

// ReadWith is [Read] with options.
func ReadWith[T Element](g *Graph, name string, source Source[T], opts ReadOptions) Stream[T] {
	return Stream[T]{g: g, n: g.add(readNode(name, source, opts, caller()))}
}

func readNode[T Element](name string, source Source[T], opts ReadOptions, site string) *node {
	n := &node{kind: sourceNode, name: name, site: site, elem: elemName[T](), read: opts}
	if !isNil(source) {
		n.source, n.desc, n.full = erasedSource[T]{source}, source.String(), source.Fingerprint()
	}
	return n
}

// Via sends a stream through a stage.
func Via[In, Out Element](s Stream[In], name string, stage Stage[In, Out]) Stream[Out] {
	n := &node{kind: stageNode, name: name, site: caller(), elem: elemName[Out]()}
	if !isNil(stage) {
		n.stage, n.desc, n.full = erasedStage[In, Out]{stage}, stage.String(), stage.Fingerprint()
	}
	return Stream[Out]{g: s.g, n: s.follow(n)}
}

// Side is a side output of a stage: the stream of what its processors emit beside their main output, under a name that the
// stage gives it ([Sider]). s is the stream that [Via] returned, which is read as well. A side output that no graph reads
// costs nothing.
//
//	parsed := pipeline.Via(blocks, "parse", stage)
//	pipeline.Into(pipeline.Side[*pipeline.Batch](parsed, "bad"), "bad rows", file)
func Side[T, Out Element](s Stream[Out], output string) Stream[T] {
	n := &node{kind: sideNode, name: s.n.name + "." + output, output: output, site: caller(), elem: elemName[T](), in: []input{{n: s.n}}}
	n.desc = n.name
	s.n.sides = append(s.n.sides, n)
	return Stream[T]{g: s.g, n: s.g.add(n)}
}

// Prefetch puts a bounded queue of depth elements into a stream; what is downstream of it runs in a goroutine of its own.
// Depth 0 keeps both sides in one goroutine, in lockstep, except in a chain's first Prefetch: that is also where the
// splits of a worker come together, so each split then holds one element ready.
//
// Downstream of a lookup the depth bounds staleness: so many batches may have been looked up before an earlier one is applied.
func Prefetch[T Element](s Stream[T], name string, depth int) Stream[T] {
	n := &node{kind: queueNode, name: name, site: caller(), elem: elemName[T](), depth: depth}
	n.desc = fmt.Sprintf("%s %d", name, depth)
	return Stream[T]{g: s.g, n: s.follow(n)}
}

// Merge makes one stream of several of one element type and schema. Elements keep their origin: downstream of a Merge a split is
// identified by its source and its name ([SplitID]). The streams must come from different sources, by way of stages alone:
// a Merge lies before the first [Prefetch], which is where the splits of a worker come together.
//
//	clicks   |-c1-|----|-c2-|-c3-|
//	views    |-v1-|-v2-|----|-v3-|
//	out      |-c1-v1-v2-c2-c3-v3-|      order of each split kept
//
// Whichever stream has data continues; where several have, rows are taken in proportion to their weights ([Stream.Weight]),
// and from the highest [Stream.Priority] first. In deterministic order ([RunOptions].Deterministic) weights hold exactly,
// the order is a function of positions alone (stages that hold rows back then belong before the first Prefetch, where each
// sees one split), and a stream of lower priority begins when those above have ended. Weights and priorities are given at
// the last Merge of a stream.
func Merge[T Element](g *Graph, name string, streams ...Stream[T]) Stream[T] {
	n := &node{kind: mergeNode, name: name, desc: "merge " + name, site: caller(), elem: elemName[T]()}
	if len(streams) == 0 {
		n.fault("merges no streams: %w", ErrConfig)
	}
	for _, s := range streams {
		if s.g != g {
			n.fault("stream of %s %q is of another graph: %w", s.n.kind, s.n.name, ErrConfig)
			continue
		}
		if s.pref.set && s.pref.weight < 1 && s.pref.weight != 0 {
			n.fault("weight %d of %s %q is below 1: %w", s.pref.weight, s.n.kind, s.n.name, ErrConfig)
		}
		s.pref.weight = max(s.pref.weight, 1)
		s.n.consumed(n, s.port)
		n.in = append(n.in, input{s.n, s.pref})
	}
	return Stream[T]{g: g, n: g.add(n)}
}

// Tee gives each element of a stream to so many branches, which continue with stages and sinks of their own.
//
//	in         |-e1-|-e2-|-e3-|
//	branch 0   |-e1-|-e2-|-e3-|
//	branch 1   |-e1-|-e2-|-e3-|     the same elements, shared
//
// Nothing is copied: every branch owns a share of the element and only reads it ([Shareable]). Branches get an element one
// after the other, in their order, and the next element comes when all have taken it: the slowest branch bounds the
// others, which is what a [Prefetch] in a branch puts off and never lifts. An error of one branch ends the run. A branch
// whose sinks have stored more than those of the others skips what they have when a run resumes ([Resumer]).
func Tee[T Shareable](s Stream[T], name string, branches int) []Stream[T] {
	n := &node{kind: teeNode, name: name, desc: "tee " + name, site: caller(), elem: elemName[T](), branches: branches}
	if branches < 2 {
		n.fault("has %d branch(es), it takes 2 or more: %w", branches, ErrConfig)
	}
	s.follow(n)
	out := make([]Stream[T], max(branches, 1))
	for i := range out {
		out[i] = Stream[T]{g: s.g, n: n, port: i}
	}
	return out
}

// Into ends a stream in a sink. The first sink that is built of those a source leads to is its main one: rows of a run are
// counted there ([RunStats]).
func Into[T Element](s Stream[T], name string, sink Sink[T]) {
	n := &node{kind: sinkNode, name: name, site: caller()}
	if !isNil(sink) {
		n.sink, n.desc, n.full = erasedSink[T]{sink}, sink.String(), sink.Fingerprint()
	}
	s.follow(n)
}

func (g *Graph) add(n *node) *node {
	n.index = len(g.nodes)
	g.nodes = append(g.nodes, n)
	return n
}

func (n *node) consumed(by *node, port int) {
	n.next, n.ports = append(n.next, by), append(n.ports, port)
}

func (n *node) fault(format string, args ...any) {
	n.faults = append(n.faults, fmt.Errorf(format, args...))
}

func (s Stream[T]) follow(n *node) *node {
	n.in = []input{{n: s.n}}
	if s.pref.set {
		n.fault("stream of %s %q has a weight or a priority, which only a merge heeds: %w", s.n.kind, s.n.name, ErrConfig)
	}
	s.n.consumed(n, s.port)
	return s.g.add(n)
}

// caller returns the file:line outside of this package's builders.
func caller() string {
	_, file, line, ok := runtime.Caller(2)
	if !ok {
		return "unknown"
	}
	return fmt.Sprintf("%s:%d", filepath.Base(file), line)
}

func elemName[T Element]() string {
	t := reflect.TypeFor[T]()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

func isNil(v any) bool {
	if v == nil {
		return true
	}
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Interface, reflect.Slice, reflect.Chan:
		return r.IsNil()
	default:
		return false
	}
}

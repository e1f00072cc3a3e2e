package pipeline

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"runtime"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Graph is a description of one or more chains from a source through stages to a sink. Building it does no I/O. It is
// not for concurrent use.
type Graph struct {
	name  string
	nodes []*node
}

// New starts an empty graph. The name appears in plans, logs and metrics.
func New(name string) *Graph { return &Graph{name: name} }

// Stream is an edge of a graph that carries elements of type T. It is to be consumed exactly once, by [Via], [Prefetch]
// or [Into].
type Stream[T Element] struct {
	g *Graph
	n *node
}

type nodeKind uint8

const (
	sourceNode nodeKind = iota
	stageNode
	queueNode
	sinkNode
)

func (k nodeKind) String() string { return [...]string{"source", "stage", "queue", "sink"}[k] }

// node is one part of a graph with its types erased.
type node struct {
	kind nodeKind
	name string
	desc string // what the part says of itself, for people
	full string // the part's fingerprint, for the plan's hash
	site string // file:line of the call that made the node
	elem string // what the node's output edge carries
	in   *node
	next []*node // more than one is a fault

	depth  int // of a queue
	source anySource
	stage  anyStage
	sink   anySink
	schema *arrow.Schema // of the output, set by planning
}

// Read begins a chain at a source.
func Read[T Element](g *Graph, name string, source Source[T]) Stream[T] {
	n := &node{kind: sourceNode, name: name, site: caller(), elem: elemName[T]()}
	if !isNil(source) {
		n.source, n.desc, n.full = erasedSource[T]{source}, source.String(), source.Fingerprint()
	}
	return Stream[T]{g, g.add(n)}
}

// Via sends a stream through a stage.
func Via[In, Out Element](s Stream[In], name string, stage Stage[In, Out]) Stream[Out] {
	n := &node{kind: stageNode, name: name, site: caller(), elem: elemName[Out](), in: s.n}
	if !isNil(stage) {
		n.stage, n.desc, n.full = erasedStage[In, Out]{stage}, stage.String(), stage.Fingerprint()
	}
	return Stream[Out]{s.g, s.follow(n)}
}

// Prefetch puts a bounded queue of depth elements into a stream; what lies behind it runs in a goroutine of its own.
// Depth 0 keeps both sides in one goroutine, in lockstep, except in a chain's first Prefetch: that is also where the
// splits of a worker come together, so each split then holds one element ready.
//
// Behind a look-up the depth bounds staleness: so many batches may have been looked up before an earlier one is applied.
func Prefetch[T Element](s Stream[T], name string, depth int) Stream[T] {
	n := &node{kind: queueNode, name: name, site: caller(), elem: elemName[T](), in: s.n, depth: depth}
	n.desc = fmt.Sprintf("%s %d", name, depth)
	return Stream[T]{s.g, s.follow(n)}
}

// Into ends a chain in a sink.
func Into[T Element](s Stream[T], name string, sink Sink[T]) {
	n := &node{kind: sinkNode, name: name, site: caller(), in: s.n}
	if !isNil(sink) {
		n.sink, n.desc, n.full = erasedSink[T]{sink}, sink.String(), sink.Fingerprint()
	}
	s.follow(n)
}

func (g *Graph) add(n *node) *node {
	g.nodes = append(g.nodes, n)
	return n
}

func (s Stream[T]) follow(n *node) *node {
	s.n.next = append(s.n.next, n)
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

// The erased forms let one executor run chains of any element types. Each conversion stands in exactly one place; the
// generic builders above make a wrong one impossible.

type anySource interface {
	schema() *arrow.Schema
	bounded() bool
	splits(ctx context.Context) ([]Split, error)
	open(ctx context.Context, env *Env, split Split, from Position) (anyReader, error)
	value() any
}

type anyReader interface {
	next(ctx context.Context) (Element, error)
	position() Position
	lag(at Position) int64
	close() error
}

type anyStage interface {
	schema(in *arrow.Schema) (*arrow.Schema, error)
	open(ctx context.Context, env *Env, emit func(Element) error) (anyProcessor, error)
}

type anyProcessor interface {
	process(ctx context.Context, e Element) error
	flush(ctx context.Context) error
	// drain emits what a [Drainer] holds back, held counts it; ticks tells that there is a [Ticker], due and tick are its.
	drain(ctx context.Context) error
	held() int
	ticks() bool
	due() time.Time
	tick(ctx context.Context, now time.Time) error
	close() error
	value() any
}

type anySink interface {
	open(ctx context.Context, env *Env) (anyWriter, error)
}

type anyWriter interface {
	write(ctx context.Context, e Element) error
	flush(ctx context.Context) error
	close() error
	value() any
}

type erasedSource[T Element] struct{ s Source[T] }

func (e erasedSource[T]) schema() *arrow.Schema { return e.s.Schema() }
func (e erasedSource[T]) bounded() bool         { return e.s.Bounded() }
func (e erasedSource[T]) value() any            { return e.s }
func (e erasedSource[T]) splits(ctx context.Context) ([]Split, error) {
	return e.s.Splits(ctx)
}

func (e erasedSource[T]) open(ctx context.Context, env *Env, split Split, from Position) (anyReader, error) {
	r, err := e.s.Open(ctx, env, split, from)
	if err != nil {
		return nil, err
	}
	return erasedReader[T]{r}, nil
}

type erasedReader[T Element] struct{ r Reader[T] }

func (e erasedReader[T]) next(ctx context.Context) (Element, error) {
	v, err := e.r.Next(ctx)
	if err != nil {
		return nil, err
	}
	return v, nil
}
func (e erasedReader[T]) position() Position { return e.r.Position() }
func (e erasedReader[T]) close() error       { return e.r.Close() }
func (e erasedReader[T]) lag(at Position) int64 {
	if l, ok := e.r.(LagReporter); ok {
		return l.Lag(at)
	}
	return -1
}

type erasedStage[In, Out Element] struct{ s Stage[In, Out] }

func (e erasedStage[In, Out]) schema(in *arrow.Schema) (*arrow.Schema, error) { return e.s.Schema(in) }

func (e erasedStage[In, Out]) open(ctx context.Context, env *Env, emit func(Element) error) (anyProcessor, error) {
	p, err := e.s.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	out := &erasedProcessor[In, Out]{p: p, emit: func(o Out) error { return emit(o) }}
	out.ticker, _ = p.(Ticker[Out])
	out.drainer, _ = p.(Drainer[Out])
	return out, nil
}

type erasedProcessor[In, Out Element] struct {
	p       Processor[In, Out]
	ticker  Ticker[Out]  // nil when p is none
	drainer Drainer[Out] // nil when p is none
	emit    func(Out) error
}

func (e *erasedProcessor[In, Out]) process(ctx context.Context, v Element) error {
	return e.p.Process(ctx, v.(In), e.emit)
}

func (e *erasedProcessor[In, Out]) flush(ctx context.Context) error { return e.p.Flush(ctx, e.emit) }

func (e *erasedProcessor[In, Out]) drain(ctx context.Context) error {
	if e.drainer == nil {
		return nil
	}
	return e.drainer.Drain(ctx, e.emit)
}

func (e *erasedProcessor[In, Out]) held() int {
	if e.drainer == nil {
		return 0
	}
	return e.drainer.Held()
}

func (e *erasedProcessor[In, Out]) ticks() bool { return e.ticker != nil }

func (e *erasedProcessor[In, Out]) due() time.Time {
	if e.ticker == nil {
		return time.Time{}
	}
	return e.ticker.Due()
}

func (e *erasedProcessor[In, Out]) tick(ctx context.Context, now time.Time) error {
	return e.ticker.Tick(ctx, now, e.emit)
}

func (e *erasedProcessor[In, Out]) close() error { return e.p.Close() }
func (e *erasedProcessor[In, Out]) value() any   { return e.p }

type erasedSink[T Element] struct{ s Sink[T] }

func (e erasedSink[T]) open(ctx context.Context, env *Env) (anyWriter, error) {
	w, err := e.s.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	return erasedWriter[T]{w}, nil
}

type erasedWriter[T Element] struct{ w Writer[T] }

func (e erasedWriter[T]) write(ctx context.Context, v Element) error { return e.w.Write(ctx, v.(T)) }
func (e erasedWriter[T]) flush(ctx context.Context) error            { return e.w.Flush(ctx) }
func (e erasedWriter[T]) close() error                               { return e.w.Close() }
func (e erasedWriter[T]) value() any                                 { return e.w }

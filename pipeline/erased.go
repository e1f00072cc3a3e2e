package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// The erased forms let one executor run chains of any element types. Each conversion is in exactly one place; the
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
	sides(in *arrow.Schema) (map[string]*arrow.Schema, error) // nil for a stage without side outputs
	open(ctx context.Context, env *Env, emit func(Element) error) (anyProcessor, error)
}

type anyProcessor interface {
	process(ctx context.Context, e Element) error
	flush(ctx context.Context) error
	// drain emits what a [Drainer] holds back, held counts it; ticks is set if there is a [Ticker], due and tick are its.
	drain(ctx context.Context) error
	held() int
	ticks() bool
	due() time.Time
	tick(ctx context.Context, now time.Time) error
	// timed reports whether there is an [EventTimer], advance is its.
	timed() bool
	advance(ctx context.Context, watermark int64) error
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

// errNothing is that of an Open that gives neither what it is to open nor a reason.
func errNothing(what string) error { return fmt.Errorf("Open returned no %s and no error", what) }

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
	if r == nil {
		return nil, errNothing("reader")
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

func (e erasedStage[In, Out]) sides(in *arrow.Schema) (map[string]*arrow.Schema, error) {
	if s, ok := e.s.(Sider); ok {
		return s.Sides(in)
	}
	return nil, nil
}

func (e erasedStage[In, Out]) open(ctx context.Context, env *Env, emit func(Element) error) (anyProcessor, error) {
	p, err := e.s.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, errNothing("processor")
	}
	out := &erasedProcessor[In, Out]{p: p, emit: func(o Out) error { return emit(o) }}
	out.ticker, _ = p.(Ticker[Out])
	out.drainer, _ = p.(Drainer[Out])
	out.timer, _ = p.(EventTimer[Out])
	return out, nil
}

type erasedProcessor[In, Out Element] struct {
	p       Processor[In, Out]
	ticker  Ticker[Out]  // nil when p is none
	drainer Drainer[Out] // nil when p is none
	timer   EventTimer[Out]
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

func (e *erasedProcessor[In, Out]) timed() bool { return e.timer != nil }

func (e *erasedProcessor[In, Out]) advance(ctx context.Context, watermark int64) error {
	return e.timer.Advance(ctx, watermark, e.emit)
}

func (e *erasedProcessor[In, Out]) close() error { return e.p.Close() }
func (e *erasedProcessor[In, Out]) value() any   { return e.p }

type erasedSink[T Element] struct{ s Sink[T] }

func (e erasedSink[T]) open(ctx context.Context, env *Env) (anyWriter, error) {
	w, err := e.s.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	if w == nil {
		return nil, errNothing("writer")
	}
	return erasedWriter[T]{w}, nil
}

type erasedWriter[T Element] struct{ w Writer[T] }

func (e erasedWriter[T]) write(ctx context.Context, v Element) error { return e.w.Write(ctx, v.(T)) }
func (e erasedWriter[T]) flush(ctx context.Context) error            { return e.w.Flush(ctx) }
func (e erasedWriter[T]) close() error                               { return e.w.Close() }
func (e erasedWriter[T]) value() any                                 { return e.w }

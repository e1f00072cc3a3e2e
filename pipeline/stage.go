package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Stage describes what turns elements into elements. Building a Stage opens nothing; its methods may be called from
// several goroutines at once.
type Stage[In, Out Element] interface {
	// Schema checks the schema that comes in and returns the one that goes out, without I/O. Errors: [ErrSchema], all
	// faults at once.
	Schema(in *arrow.Schema) (*arrow.Schema, error)
	// Open makes a processor. Before the first prefetch queue of a graph there is one for every split, after it one
	// for every worker.
	Open(ctx context.Context, env *Env) (Processor[In, Out], error)
	// String describes the stage in a few words for plans and logs: `batch 512`.
	String() string
	// Fingerprint renders every setting that matters to what the stage does, in one canonical form, without secrets; mostly
	// with [Fingerprint]. It goes into the plan's hash: processes that work on one job compare hashes, so what is left
	// out may differ between them. pipelinetest.TestFingerprint checks it.
	Fingerprint() string
}

// Processor does a stage's work on one ordered stream of elements. It is not for concurrent use.
type Processor[In, Out Element] interface {
	// Process owns in and hands results on through emit, in order, any number of times; emit takes ownership and its
	// error must be returned. What Process emits covers the positions of its input without a gap, now or in a later
	// call. An error fails the run; bad rows go to [Env.BadRow] instead.
	Process(ctx context.Context, in In, emit func(Out) error) error
	// Flush emits what is held back because the input has ended for good. It is not called when a run is merely
	// interrupted: what is held back then is read again by the next run, unless the processor is a [Drainer].
	Flush(ctx context.Context, emit func(Out) error) error
	// Close releases what is held and may be called more than once. What was emitted stays valid until it is released, as with readers.
	Close() error
}

// Ticker is a [Processor] that acts when time passes, with or without input. It is called from the goroutine that
// otherwise calls Process, so on time unless a call is under way or what is downstream has no room.
//
// See [EventTimer] for the time of events. The clock decides what leaves when, so a Ticker makes two runs differ; it is not called in deterministic order.
type Ticker[Out Element] interface {
	// Due is when Tick is to be called next; the zero time: not before more input has come. It is asked after every call
	// of another method.
	Due() time.Time
	// Tick is called at or soon after Due. It emits as Process does.
	Tick(ctx context.Context, now time.Time, emit func(Out) error) error
}

// EventTimer is a [Processor] that acts when event time passes: it ends windows, or stops waiting for what belongs
// together. The watermark of its input is the smallest over the splits that it sees of what each can still have
// ([Origin].Watermark); a split that has ended, or is silent for longer than [ReadOptions].Idle, is left out as soon as
// everything that was read of it has come: what stages in front hold back counts until then. The watermark never falls, and is a
// function of positions where the order of elements is one.
type EventTimer[Out Element] interface {
	// Advance is called whenever the watermark has risen, after the Process of the element that raised it: no element that
	// comes later has an event before watermark (microseconds since 1970), except one that is late. It emits as Process
	// does. It is called from the goroutine of Process, and not at all while the sources say no times; at the end of the
	// input Flush is called instead.
	Advance(ctx context.Context, watermark int64, emit func(Out) error) error
}

// Drainer is a [Processor] that holds rows back between calls.
type Drainer[Out Element] interface {
	// Drain emits what is held back although the input continues, because the run ends early ([RunOptions].Drain). What it
	// keeps is read again by the next run.
	Drain(ctx context.Context, emit func(Out) error) error
	// Held is the number of rows that are held back.
	Held() int
}

// Sider is a [Stage] with side outputs: streams beside the main one that a graph may read ([Side]) or not, such as rows that
// could not be used, rows that a filter took out, samples. Its processors reach them with [OpenSide].
type Sider interface {
	// Sides returns the schemas of the side outputs by name, for the schema that comes in, without I/O. Errors: [ErrSchema].
	Sides(in *arrow.Schema) (map[string]*arrow.Schema, error)
}

// SideOutput is where a processor emits to a side output. Like the processor's emit it takes elements in order, and what
// goes out covers the positions of the processor's input without a gap: an element without rows stands for a range that
// has none. So a sink downstream knows how far the stream is. It is for the processor's goroutine alone.
type SideOutput[T Element] struct{ emit func(Element) error }

// OpenSide returns a side output of the stage that is being opened, by name. Errors: [ErrConfig] when the graph reads
// elements of another type from it.
func OpenSide[T Element](env *Env, output string) (*SideOutput[T], error) {
	if env == nil {
		return &SideOutput[T]{}, nil
	}
	s := env.sides[output]
	if s.elem != "" && s.elem != elemName[T]() {
		return nil, fmt.Errorf("side output %q gives elements of type %s, the graph reads %s from it: %w", output, elemName[T](), s.elem, ErrConfig)
	}
	return &SideOutput[T]{s.emit}, nil
}

// Wanted reports whether anybody reads the side output; if not, there is no need to make elements for it.
func (o *SideOutput[T]) Wanted() bool { return o.emit != nil }

// Emit hands an element on and takes ownership. Its error must be returned by the method that called it. An element that
// nobody wants is released.
func (o *SideOutput[T]) Emit(e T) error {
	if o.emit == nil {
		e.Release()
		return nil
	}
	return o.emit(e)
}

package pipeline

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Stage describes what turns elements into elements. Building a Stage opens nothing; its methods may be called from
// several goroutines at once.
type Stage[In, Out Element] interface {
	// Schema checks the schema that comes in and returns the one that goes out, without I/O. Errors: [ErrSchema], all
	// faults at once.
	Schema(in *arrow.Schema) (*arrow.Schema, error)
	// Open makes a processor. Before the first prefetch queue of a graph there is one for every split, behind it one
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
	// Close releases what is held and may be called more than once.
	Close() error
}

// Ticker is a [Processor] that acts when time passes, with or without input. It is called from the goroutine that
// otherwise calls Process, so on time unless a call is under way or what lies behind the stage has no room.
//
// The clock decides what leaves when, so a Ticker makes two runs differ; it is not called in deterministic order.
type Ticker[Out Element] interface {
	// Due is when Tick is to be called next; the zero time: not before more input has come. It is asked after every call
	// of another method.
	Due() time.Time
	// Tick is called at or soon after Due. It emits as Process does.
	Tick(ctx context.Context, now time.Time, emit func(Out) error) error
}

// Drainer is a [Processor] that holds rows back between calls.
type Drainer[Out Element] interface {
	// Drain emits what is held back although the input goes on, because the run ends early ([RunOptions].Drain). What it
	// keeps is read again by the next run.
	Drain(ctx context.Context, emit func(Out) error) error
	// Held is the number of rows that are held back.
	Held() int
}

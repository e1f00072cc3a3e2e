package pipeline

import "context"

// Sink describes where elements end. Building a Sink opens nothing; its methods may be called from several goroutines
// at once.
type Sink[T Element] interface {
	// Open makes a writer; there is one for every worker.
	Open(ctx context.Context, env *Env) (Writer[T], error)
	// String describes the sink in a few words for plans and logs: `push`.
	String() string
	// Fingerprint renders every setting that matters to what the sink does, in one canonical form, without secrets; mostly
	// with [Fingerprint]. It goes into the plan's hash: processes that work on one job compare hashes, so what is left
	// out may differ between them. pipelinetest.TestFingerprint checks it.
	Fingerprint() string
}

// Writer takes elements. It is not for concurrent use.
type Writer[T Element] interface {
	// Write owns the element. Elements of one split come in order.
	Write(ctx context.Context, e T) error
	// Flush returns when everything written before is as durable as the sink makes it.
	Flush(ctx context.Context) error
	// Close releases what the writer holds, without an implied Flush, and may be called more than once.
	Close() error
}

// Resumer is a [Writer] that stores positions together with what it writes. Before anything is read of a split its
// worker asks where to continue; from then on any earlier owner of the split is refused.
//
// In a graph with several sinks each answers for itself. Reading continues at the smallest position, and the executor gives
// none of them what lies before its own. A Resumer need not know how far the others are.
type Resumer interface {
	// Resume returns how far the given splits of a source are stored; what is not in it begins. It is called once for each
	// source, before any Write.
	Resume(ctx context.Context, source string, splits []Split) (map[string]Progress, error)
}

// BoundaryResumer is a [Resumer] whose parts may be at different positions of a split. A graph with one needs a [Divider].
type BoundaryResumer interface {
	Resumer
	// Boundaries returns, after Resume, the positions after the one that Resume gave that no element of the split may straddle
	// (From < boundary < To is forbidden), so that each part takes an element whole or not at all. Nearly always none.
	Boundaries(source, split string) []Position
}

// Storer is a [Resumer] that stores what it has taken later than Write returns, or Flush: a file that becomes visible when
// it is whole. It says how far it is, so that the state of [Stateful] processors is not stored before what was made of it. A
// Resumer that is none has stored what Write has taken, or stores it in one cut with the state (the parameter server).
type Storer interface {
	// Stored returns the position that Resume would answer with for a split if the worker was killed now. It is asked from
	// the goroutine of Write.
	Stored(split SplitID) Position
}

// Idler is a [Writer] with something to do while no input arrives, such as answering a snapshot's marker. It is called
// about ten times a second from the goroutine that otherwise calls Write.
type Idler interface {
	Idle(ctx context.Context) error
}

package pipeline

import (
	"context"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// Source describes where elements come from. Building a Source opens nothing; its methods may be called from several
// goroutines at once.
type Source[T Element] interface {
	// Schema is the schema of what readers return. It is known without I/O.
	Schema() *arrow.Schema
	// Bounded reports whether every split ends.
	Bounded() bool
	// Splits lists the splits, sorted by name. It may ask files or services. Errors: [ErrUnavailable] when they cannot
	// be reached, [ErrConfig] when what the user named is not there.
	Splits(ctx context.Context) ([]Split, error)
	// Open starts reading split at position from, which is split.Start or one that a reader of the split has returned,
	// in this run or an earlier one, or any ColPosition value of its elements. Errors: [ErrUnavailable], a
	// [*GapError] when from lies outside of what the source still has.
	Open(ctx context.Context, env *Env, split Split, from Position) (Reader[T], error)
	// String describes the source in a few words for plans and logs, without secrets: `kafka ratings`.
	String() string
	// Fingerprint renders every setting that matters to what the source does, in one canonical form, without secrets; mostly
	// with [Fingerprint]. It goes into the plan's hash: processes that work on one job compare hashes, so what is left
	// out may differ between them. pipelinetest.TestFingerprint checks it.
	Fingerprint() string
}

// Reader is one stateful stream of elements of one split. It is not for concurrent use.
type Reader[T Element] interface {
	// Next returns the next element; the caller owns it. io.EOF ends the split and repeats. It blocks until there is
	// data and returns soon after ctx is cancelled, with context.Cause(ctx); it may be called again with another ctx
	// and has then lost nothing. Elements join without a gap (see [Origin]). Errors: [*DataError] for bad input,
	// [*GapError], [ErrUnavailable] when a service stays away longer than the source's own patience.
	Next(ctx context.Context) (T, error)
	// Position is the position after the last element returned; safe to store.
	Position() Position
	// Close ends reading, joins the reader's goroutines and may be called more than once. What the reader gave stays valid until it is
	// released: a split is closed at its end, while its elements are on their way.
	Close() error
}

// LagReporter is a [Reader] that knows how many records its split has.
type LagReporter interface {
	// Lag is the number of records from position at, which is one that the sink has got to, to the newest record; -1 when
	// it is not known, because the source has no end to count to or has not been seen lately. Unlike the other methods
	// it may be called at any time and from any goroutine.
	Lag(at Position) int64
}

// Rememberer is a [Source] whose positions mean something only together with what it found when they were made: which log
// an offset counts in, where «the end» was when a split was first taken up.
//
//	Splits ─> Recall ─> stored with the positions ─> Open ─> Env.Remember ─> stored with the positions
//
// Splits gives each split the [Split].Memory of this moment. The run that stores positions gives Recall what was stored before,
// stores the memories that come back before anything is read, and has those splits opened. Readers replace a memory with
// [Env.Remember].
type Rememberer interface {
	// Recall returns the splits as they are to be read: with Start where they were first taken up, and the Memory to store.
	// known has what is stored of these splits and of others of the source, by name; a split that is not in it is new. It
	// does no I/O. Errors: a [*GapError] when what is stored is about other records than the source has.
	Recall(splits []Split, known map[string]string) ([]Split, error)
}

// Contemporary is a [Source] whose splits are parts of one stream, such as the partitions of a topic: all of them are read at once, although
// they end ([RunOptions].Interleave), because one after the other would be out of time.
type Contemporary interface{ Contemporary() }

// Growing is a [Source] that may get splits while it is read.
type Growing interface {
	// GrowsEvery is how often to ask Splits for new ones; 0: there will be none.
	GrowsEvery() time.Duration
}

// Acknowledger is a [Source] that is notified of the positions that are stored durably, for example to commit them to a
// consumer group so that lag tools see them. It only gets positions that a snapshot contains.
type Acknowledger interface {
	// Acknowledge gets what is stored of each split, by name. Errors: a [*GapError] when that counts other records than the
	// source has now.
	Acknowledge(ctx context.Context, stored map[string]StoredSplit) error
}

// StoredSplit is what a snapshot has of a split.
type StoredSplit struct {
	Position Position
	// Memory says which records Position counts, as [Rememberer] stored it; empty: not known.
	Memory string
}

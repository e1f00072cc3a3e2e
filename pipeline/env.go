package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// Env is what running parts get from their runner. One Env serves one worker; its methods may be called from
// several goroutines at once. The zero value works: it discards logs, fails on bad rows and allocates from the Go heap.
type Env struct {
	// Source is the name of the source's node in the graph, for origins and errors; empty where several come together.
	Source string
	// Worker numbers the workers of a process from 0.
	Worker int
	// Allocator is where Arrow memory comes from; nil: memory.DefaultAllocator.
	Allocator memory.Allocator
	// Logger is never a global; nil: discard.
	Logger *slog.Logger
	// Hooks observes; nil: nothing does.
	Hooks *Hooks
	// BadRows is the job's policy; nil: [FailOnBadRow].
	BadRows BadRowPolicy
	// Memory takes what readers want remembered of their splits; nil: it is forgotten. See [Rememberer].
	Memory func(split SplitID, memory string)
	// State keeps the state of [Stateful] stages; nil: it is forgotten, and every run begins where the splits do.
	State StateStore

	// of is the worker's own Env, which has the resources, where this one is a part's view of it.
	of        *Env
	sides     map[string]side
	exchanges map[string]Exchange // of the run
	leftOut   func(split SplitID, positions []int64)
	badRow    func(reason string, rows int64)
	recycler  arrowx.Recycler

	mu struct {
		sync.Mutex
		resources map[any]io.Closer
		order     []any
		files     map[SplitID]file
	}
}

// file is where the records of a split lie.
type file struct {
	path string
	line func(at int64) int64
}

// side is where elements of a side output go.
type side struct {
	elem string // their type as the graph reads it; empty: any
	emit func(Element) error
}

// view returns an Env for a part of the worker: with the same resources, and fields to be changed.
func (e *Env) view() *Env {
	v := &Env{Source: e.Source, Worker: e.Worker, Allocator: e.Allocator, Logger: e.Logger, Hooks: e.Hooks, BadRows: e.BadRows, Memory: e.Memory, State: e.State, of: e.root(), sides: e.sides, exchanges: e.exchanges, leftOut: e.leftOut, badRow: e.badRow}
	return v
}

func (e *Env) root() *Env {
	if e.of != nil {
		return e.of
	}
	return e
}

// WithSide returns an Env for opening a stage whose side output of that name goes to emit, which takes ownership. It is for
// who runs a stage without a graph, such as tests.
func (e *Env) WithSide(output string, emit func(Element) error) *Env {
	return e.withSide(output, side{emit: emit})
}

func (e *Env) withSide(output string, s side) *Env {
	v := e.view()
	v.sides = maps.Clone(e.sides)
	if v.sides == nil {
		v.sides = map[string]side{}
	}
	v.sides[output] = s
	return v
}

// Mem returns the allocator to use.
func (e *Env) Mem() memory.Allocator {
	if e == nil || e.Allocator == nil {
		return memory.DefaultAllocator
	}
	return e.Allocator
}

// Recycled returns the allocator to use for buffers of which every byte is written before it is read: what a worker has released serves it
// again, with whatever is in there.
func (e *Env) Recycled() memory.Allocator {
	if e == nil || e.Allocator != nil {
		return e.Mem()
	}
	return &e.root().recycler
}

// Log returns the logger to use, never nil.
func (e *Env) Log() *slog.Logger {
	if e == nil || e.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return e.Logger
}

// Observe returns the hooks to call; nil has none.
func (e *Env) Observe() *Hooks {
	if e == nil {
		return nil
	}
	return e.Hooks
}

// Remember replaces what is remembered of a split with the next snapshot. It is quick, so a reader may call it for each
// element. What it says must stay true for positions before and behind the reader's own: it is stored beside positions
// that are applied later, or were applied before.
func (e *Env) Remember(split, memory string) {
	if e != nil && e.Memory != nil {
		e.Memory(SplitID{Source: e.Source, Split: split}, memory)
	}
}

// Locate returns in which file the records of a split lie, for messages about them: names of splits have no folder, because
// positions are stored under them and files may be moved.
func (e *Env) Locate(split, path string) { e.LocateLines(split, path, nil) }

// LocateLines is [Env.Locate] for files of text: line returns the number, from 1, of the line that the record at a position begins in, or 0
// where it is not known. It may be called from any goroutine, also when the split is not being read any more.
func (e *Env) LocateLines(split, path string, line func(at int64) int64) {
	if e == nil {
		return
	}
	id := SplitID{Source: e.Source, Split: split}
	e = e.root()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.files == nil {
		e.mu.files = map[SplitID]file{}
	}
	e.mu.files[id] = file{path, line}
}

// file is what [Env.LocateLines] was given.
func (e *Env) file(split SplitID) file {
	if e == nil {
		return file{}
	}
	e = e.root()
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.mu.files[split]
}

// Resource returns what key stands for in this worker, opening it the first time: stages and the sink of one worker
// share a parameter server session this way. The runner closes resources after the worker's stages, newest first.
func Resource[T io.Closer](ctx context.Context, env *Env, key any, open func(context.Context) (T, error)) (T, error) {
	env = env.root()
	env.mu.Lock()
	defer env.mu.Unlock()
	if r, ok := env.mu.resources[key]; ok {
		t, ok := r.(T)
		if !ok {
			return t, fmt.Errorf("pipeline: resource %v is a %T: %w", key, r, ErrConfig)
		}
		return t, nil
	}
	t, err := open(ctx)
	if err != nil {
		return t, err
	}
	if env.mu.resources == nil {
		env.mu.resources = map[any]io.Closer{}
	}
	env.mu.resources[key] = t
	env.mu.order = append(env.mu.order, key)
	return t, nil
}

// CloseResources closes what [Resource] opened, newest first; the runner calls it once the worker's parts are closed.
func (e *Env) CloseResources() error {
	e = e.root()
	e.mu.Lock()
	defer e.mu.Unlock()
	var errs []error
	for _, key := range slices.Backward(e.mu.order) {
		errs = append(errs, e.mu.resources[key].Close())
	}
	e.mu.resources, e.mu.order = nil, nil
	return errors.Join(errs...)
}

// BadRow reports a record that cannot be used, or several that cannot be separated ([DataError].Records), and says in which file it lies ([Env.Locate]). It returns nil when the policy says to continue without it, and the error
// to fail with otherwise. A run counts those that it continues without ([RunStats].BadRows). payload may be nil; it is only valid during the call.
func (e *Env) BadRow(ctx context.Context, err *DataError, payload []byte) error {
	e.Observe().RowDropped(err.Source, err.Reason, err.Rows())
	if err.Path == "" {
		f := e.file(SplitID{Source: err.Source, Split: err.Split})
		err.Path, err.line = f.path, f.line
	}
	policy := BadRowPolicy(FailOnBadRow{})
	if e != nil && e.BadRows != nil {
		policy = e.BadRows
	}
	if err := policy.BadRow(ctx, err, payload); err != nil {
		return err
	}
	if e != nil && e.badRow != nil {
		e.badRow(err.Reason, err.Rows())
	}
	return nil
}

// LeftOut reports the positions of examples of a split, each just after its record and in order, that a stage leaves out although nothing is wrong with them: they
// are held out, say. They are counted ([RunStats].LeftOut) when the main sink takes what they lie in front of, so each of them once however often it is read.
// The positions are valid during the call.
func (e *Env) LeftOut(split SplitID, positions []int64) {
	if e != nil && e.leftOut != nil {
		e.leftOut(split, positions)
	}
}

// BadRowPolicy decides what becomes of records that cannot be used. Methods may be called from several goroutines.
type BadRowPolicy interface {
	// BadRow returns nil to continue without the record, or the error that fails the run. payload is the undecoded
	// record where there is one, valid during the call.
	BadRow(ctx context.Context, err *DataError, payload []byte) error
}

// GoodRows reports to the policy how many records of a block of a split could be used; the bad ones among them were reported
// before. The error, if any, is to fail with: too many were bad.
func (e *Env) GoodRows(source, split string, rows int) error {
	if e == nil {
		return nil
	}
	if c, ok := e.BadRows.(GoodRowCounter); ok {
		return c.GoodRows(source, split, rows)
	}
	return nil
}

// GoodRowCounter is a [BadRowPolicy] that depends on how many rows are good. Its method may be called from several
// goroutines.
type GoodRowCounter interface {
	// GoodRows is notified of every block of a split whose rows were distinguished. The error fails the run.
	GoodRows(source, split string, rows int) error
}

// FailOnBadRow fails the run at the first bad row.
type FailOnBadRow struct{}

// BadRow implements [BadRowPolicy].
func (FailOnBadRow) BadRow(_ context.Context, err *DataError, _ []byte) error { return err }

// SkipBadRows drops bad rows; they are counted by the hooks and, by reason, here.
type SkipBadRows struct {
	mu sync.Mutex
	n  map[string]int64
}

// BadRow implements [BadRowPolicy].
func (s *SkipBadRows) BadRow(_ context.Context, err *DataError, _ []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == nil {
		s.n = map[string]int64{}
	}
	s.n[err.Reason] += err.Rows()
	return nil
}

// Counts returns the number of rows dropped so far, by reason.
func (s *SkipBadRows) Counts() map[string]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[string]int64, len(s.n))
	maps.Copy(out, s.n)
	return out
}

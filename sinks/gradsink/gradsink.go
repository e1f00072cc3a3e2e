// Package gradsink pushes gradients to the parameter server, which stores the position of each split together with the
// rows the push changes: that is what a run resumes from.
package gradsink

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps"
)

// Store is what the sink needs of a parameter server's client. [*ps.Client] is one.
type Store interface {
	// Push stages an update on all shards; its commit travels with the store's next message.
	Push(ctx context.Context, u *param.Update) error
	// Flush commits what is staged.
	Flush(ctx context.Context) error
	// Idle commits what is staged and answers a waiting snapshot.
	Idle(ctx context.Context) error
	// Resume takes splits over from any earlier owner and returns how far each has been applied.
	Resume(ctx context.Context, source string, splits []string) (map[string]ps.Progress, error)
}

// BoundaryStore is a [Store] whose shards may be at different positions of a split, after one of them was lost.
type BoundaryStore interface {
	Store
	// Boundaries returns, after Resume, the positions of a split after the one that Resume gave that some shard is at: what
	// is pushed must not straddle them, because a shard has an update whole or not at all. Mostly there are none.
	Boundaries(source, split string) []position.Position
}

var _ Store = (*ps.Client)(nil)

// Updater is an element that carries an update.
type Updater interface {
	pipeline.Element
	Update() *param.Update
}

// Sink implements [pipeline.Sink].
type Sink[T Updater] struct {
	open func(ctx context.Context, env *pipeline.Env) (Store, error)
}

// New makes the sink. open gives the worker's store, which is the caller's to close.
func New[T Updater](open func(ctx context.Context, env *pipeline.Env) (Store, error)) *Sink[T] {
	return &Sink[T]{open}
}

// String implements [pipeline.Sink].
func (s *Sink[T]) String() string { return "push" }

// Fingerprint implements [pipeline.Sink]; there are no settings.
func (s *Sink[T]) Fingerprint() string { return "push" }

// Open implements [pipeline.Sink].
func (s *Sink[T]) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[T], error) {
	store, err := s.open(ctx, env)
	if err != nil {
		return nil, err
	}
	return &writer[T]{store}, nil
}

type writer[T Updater] struct{ store Store }

// Write implements [pipeline.Writer].
func (w *writer[T]) Write(ctx context.Context, e T) error {
	defer e.Release()
	if err := w.store.Push(ctx, e.Update()); err != nil {
		return fmt.Errorf("push of %s: %w", e.Origin(), translate(err))
	}
	return nil
}

// Flush implements [pipeline.Writer].
func (w *writer[T]) Flush(ctx context.Context) error { return translate(w.store.Flush(ctx)) }

// Idle implements [pipeline.Idler].
func (w *writer[T]) Idle(ctx context.Context) error { return translate(w.store.Idle(ctx)) }

// Close implements [pipeline.Writer]; the store belongs to the worker.
func (w *writer[T]) Close() error { return nil }

// Resume implements [pipeline.Resumer].
func (w *writer[T]) Resume(ctx context.Context, source string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	names := make([]string, len(splits))
	for i, s := range splits {
		names[i] = s.Name
	}
	progress, err := w.store.Resume(ctx, source, names)
	if err != nil {
		return nil, translate(err)
	}
	return progress, nil
}

// Boundaries implements [pipeline.BoundaryResumer].
func (w *writer[T]) Boundaries(source, split string) []pipeline.Position {
	if store, ok := w.store.(BoundaryStore); ok {
		return store.Boundaries(source, split)
	}
	return nil
}

// translate gives the parameter server's errors the contract's names.
func translate(err error) error {
	if errors.Is(err, ps.ErrFenced) {
		return errors.Join(pipeline.ErrFenced, err)
	}
	return err
}

// Package metricsink collects the predictions of a run with their labels, for metrics over all of them.
package metricsink

import (
	"context"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline"
)

// Scorer is an element that carries predictions.
type Scorer interface {
	pipeline.Element
	// Scores returns them with what they are measured by, valid until Release.
	Scores() *score.Batch
	// Positions are the positions after each of its rows, as of [pipeline.Batch]; nil: they are not known.
	Positions() []int64
}

// Sink implements [pipeline.Sink]. Its writers add to one collection, or write files ([NewIn]).
type Sink[T Scorer] struct {
	files  fsx.FS // nil: writers add to the collection
	folder string

	mu     sync.Mutex
	scores metric.Collection
}

// New makes an empty sink.
func New[T Scorer]() *Sink[T] { return &Sink[T]{} }

// Identify makes the collection identify its examples ([metric.Collection.Identify]). It comes before the run.
func (s *Sink[T]) Identify() *Sink[T] {
	s.scores.Identify()
	return s
}

// String implements [pipeline.Sink].
func (s *Sink[T]) String() string { return "metrics" }

// Fingerprint implements [pipeline.Sink]; there are no settings.
func (s *Sink[T]) Fingerprint() string { return "metrics" }

// Scores returns what has been collected, in the order of splits and positions, whatever the order in which it was written. It must
// not be called while a run continues.
func (s *Sink[T]) Scores() *metric.Collection {
	s.scores.Arrange()
	return &s.scores
}

// Open implements [pipeline.Sink].
func (s *Sink[T]) Open(context.Context, *pipeline.Env) (pipeline.Writer[T], error) {
	if s.files != nil {
		return &filer[T]{s: s}, nil
	}
	return &writer[T]{s}, nil
}

// placeOf is where the rows of an element come from.
func placeOf(e Scorer) metric.Place {
	o := e.Origin()
	return metric.Place{Split: o.Source + "\x00" + o.Split, From: int64(o.From), Positions: e.Positions()}
}

type writer[T Scorer] struct{ s *Sink[T] }

var _ pipeline.Resumer = (*writer[Scorer])(nil)

// Resume implements [pipeline.Resumer]: nothing is stored, so the metrics are over everything, whatever other sinks have.
func (w *writer[T]) Resume(context.Context, string, []pipeline.Split) (map[string]pipeline.Progress, error) {
	return nil, nil
}

// Write implements [pipeline.Writer].
func (w *writer[T]) Write(_ context.Context, e T) error {
	defer e.Release()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.scores.Add(placeOf(e), e.Scores())
	return nil
}

// Flush implements [pipeline.Writer].
func (w *writer[T]) Flush(context.Context) error { return nil }

// Close implements [pipeline.Writer].
func (w *writer[T]) Close() error { return nil }

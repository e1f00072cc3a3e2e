// Package metricsink collects the predictions of a run with their labels, for metrics over all of them.
package metricsink

import (
	"context"
	"sync"

	"github.com/monolith-go/monolith/pipeline"
)

// Scorer is an element that carries predictions.
type Scorer interface {
	pipeline.Element
	// Scores returns one probability, label and weight a row; weights nil: all 1.
	Scores() (probs, labels, weights []float32)
}

// Scores are the rows collected, in the order in which they were written. It costs 8 bytes a row, 12 with weights.
type Scores struct {
	Probs, Labels []float32
	Weights       []float32 // nil when no batch had any
}

// Sink implements [pipeline.Sink]. Its writers add to one set of scores.
type Sink[T Scorer] struct {
	mu     sync.Mutex
	scores Scores
}

// New makes an empty sink.
func New[T Scorer]() *Sink[T] { return &Sink[T]{} }

// String implements [pipeline.Sink].
func (s *Sink[T]) String() string { return "metrics" }

// Fingerprint implements [pipeline.Sink]; there are no settings.
func (s *Sink[T]) Fingerprint() string { return "metrics" }

// Scores returns what has been collected. It must not be called while a run goes on.
func (s *Sink[T]) Scores() Scores { return s.scores }

// Open implements [pipeline.Sink].
func (s *Sink[T]) Open(context.Context, *pipeline.Env) (pipeline.Writer[T], error) {
	return &writer[T]{s}, nil
}

type writer[T Scorer] struct{ s *Sink[T] }

// Write implements [pipeline.Writer].
func (w *writer[T]) Write(_ context.Context, e T) error {
	defer e.Release()
	probs, labels, weights := e.Scores()
	s := w.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if weights != nil && s.scores.Weights == nil {
		s.scores.Weights = ones(nil, len(s.scores.Probs))
	}
	s.scores.Probs = append(s.scores.Probs, probs...)
	s.scores.Labels = append(s.scores.Labels, labels...)
	switch {
	case weights != nil:
		s.scores.Weights = append(s.scores.Weights, weights...)
	case s.scores.Weights != nil:
		s.scores.Weights = ones(s.scores.Weights, len(probs))
	}
	return nil
}

func ones(dst []float32, n int) []float32 {
	for range n {
		dst = append(dst, 1)
	}
	return dst
}

// Flush implements [pipeline.Writer].
func (w *writer[T]) Flush(context.Context) error { return nil }

// Close implements [pipeline.Writer].
func (w *writer[T]) Close() error { return nil }

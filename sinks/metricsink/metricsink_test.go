package metricsink_test

import (
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/metricsink"
)

// scored is a batch of predictions.
type scored struct {
	from                   pipeline.Position
	probs, labels, weights []float32
	released               *atomic.Int64
}

func (s *scored) Origin() pipeline.Origin { return pipeline.Origin{From: s.from} }
func (s *scored) Positions() []int64      { return nil }
func (s *scored) NumRows() int            { return len(s.probs) }
func (s *scored) Release()                { s.released.Add(1) }

func (s *scored) Scores() *score.Batch {
	return &score.Batch{Rows: len(s.probs), Weights: s.weights, Heads: []score.Head{{Width: 1, NumLabels: 1, Predictions: s.probs, Labels: s.labels}}}
}

// TestSink writes batches with and without weights: those without count 1, also when they came first,
// and the order is that of positions.
func TestSink(t *testing.T) {
	var released atomic.Int64
	sink := metricsink.New[*scored]()
	pipelinetest.TestSink(t, pipelinetest.SinkHarness[*scored]{
		New: func(*testing.T) pipeline.Sink[*scored] { return sink },
		Inputs: func(*testing.T, memory.Allocator) []*scored {
			return []*scored{
				{0, []float32{.1, .2}, []float32{0, 1}, nil, &released},
				{0, nil, nil, nil, &released},
				{3, []float32{.4}, []float32{0}, nil, &released},
				{2, []float32{.3}, []float32{1}, []float32{5}, &released},
			}
		},
		Check: func(t *testing.T, rows int) {
			want := &score.Batch{Rows: 4, Weights: []float32{1, 1, 5, 1}, Heads: []score.Head{
				{Width: 1, NumLabels: 1, Predictions: []float32{.1, .2, .3, .4}, Labels: []float32{0, 1, 1, 0}},
			}}
			if diff := cmp.Diff(want, sink.Scores().Batch()); diff != "" || rows != 4 || released.Load() != 4 {
				t.Errorf("%d rows, %d releases, scores (-want +got):\n%s", rows, released.Load(), diff)
			}
		},
	})
}

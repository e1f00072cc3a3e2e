package run

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// scoring is a run of the evaluation graph of a job.
type scoring struct {
	cfg   *spec.Config
	model model.Model
	// open reads the parameters.
	open wiring.OpenClient
	// outs gets the job's outputs; nil: none are written.
	outs *wiring.Outputs
	// workers score in parallel. What is found does not depend on their number; which examples are the first maxExamples, where that is
	// not 0, and the order of outputs would, so that there is one worker for these.
	workers     int
	maxExamples int64
	// identified: examples are, for intervals and comparisons.
	identified bool
	drain      <-chan struct{}
	env        func(int) *pipeline.Env
}

// run scores the examples of the evaluation source.
func (s *scoring) run(ctx context.Context) (*metric.Collection, pipeline.RunStats, error) {
	sink := metricsink.New[*trainstep.Scored]()
	if s.identified {
		sink.Identify()
	}
	reading := wiring.EvalReading(s.cfg)
	plan, err := wiring.EvalGraph(s.cfg, reading, s.model, s.open, s.outs, sink)
	if err != nil {
		return nil, pipeline.RunStats{}, err
	}
	if !plan.Bounded() && s.maxExamples == 0 {
		return nil, pipeline.RunStats{}, fmt.Errorf("job: eval.source does not end: set eval.max_examples, or an end: %w", pipeline.ErrConfig)
	}
	workers := s.workers
	if s.maxExamples > 0 || s.outs != nil {
		workers = 1
	}
	stats, err := local.Run(ctx, plan, pipeline.RunOptions{Workers: workers, MaxRows: s.maxExamples, Drain: s.drain, Deterministic: workers <= 1, Env: s.env})
	if err != nil {
		if _, ok := errors.AsType[*filesplit.NoMatchError](err); ok {
			err = fmt.Errorf("%s: %w", reading.KeyOf(err), err)
		}
		return nil, pipeline.RunStats{}, err
	}
	return sink.Scores(), pipeline.Sum(stats...), nil
}

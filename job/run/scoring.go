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
	// insight is gathered beside; nil: none is.
	insight *trainstep.Insight
	// workers score in parallel. What is found does not depend on their number; which examples are the first maxExamples, where that is
	// not 0, and the order of outputs would, so that there is one worker for these.
	workers     int
	maxExamples int64
	// identified: examples are, for intervals and comparisons.
	identified bool
	drain      <-chan struct{}
	env        func(int) *pipeline.Env
	// on runs the graph on the job's runner; nil: the local one does.
	on *submission
}

// run scores the examples of the evaluation source.
func (s *scoring) run(ctx context.Context) (*metric.Collection, pipeline.RunStats, error) {
	sink := metricsink.New[*trainstep.Scored]()
	if s.identified || s.on != nil { // other runners may read something twice
		sink.Identify()
	}
	reading := wiring.EvalReading(s.cfg)
	if s.env != nil {
		reading.Log = s.env(0).Log()
	}
	plan, err := wiring.EvalGraph(s.cfg, reading, s.model, s.open, s.outs, s.insight, sink)
	if err != nil {
		return nil, pipeline.RunStats{}, err
	}
	if !plan.Bounded() && s.maxExamples == 0 {
		return nil, pipeline.RunStats{}, fmt.Errorf("job: eval.source does not end: set eval.max_examples, or an end: %w", pipeline.ErrConfig)
	}
	workers, ordered := s.workers, s.maxExamples > 0 || s.outs != nil || s.insight != nil
	if ordered {
		workers = 1
	}
	o := pipeline.RunOptions{Workers: workers, MaxRows: s.maxExamples, Drain: s.drain, Deterministic: ordered || s.on == nil && workers <= 1, Env: s.env}
	var stats pipeline.RunStats
	if s.on != nil {
		stats, err = s.on.run(ctx, plan, sink, o)
	} else {
		var all []pipeline.RunStats
		all, err = local.Run(ctx, plan, o)
		stats = pipeline.Sum(all...)
	}
	if err != nil {
		if _, ok := errors.AsType[*filesplit.NoMatchError](err); ok {
			err = fmt.Errorf("%s: %w", reading.KeyOf(err), err)
		}
		return nil, pipeline.RunStats{}, err
	}
	return sink.Scores(), stats, nil
}

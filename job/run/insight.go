package run

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// InsightOptions are what [Insight] can be told beside the job.
type InsightOptions struct {
	Options
	// Snapshot is as of [EvalOptions].
	Snapshot string
	// MaxExamples is how many examples are looked at; 0: as the job says, or all.
	MaxExamples int64
}

// Insight says what the features and the layers of a snapshot's model do on the examples of the job's evaluation source, in one worker of this process. Nothing is changed.
func Insight(ctx context.Context, cfg *spec.Config, opts InsightOptions) (*result.Insight, error) {
	if from, _ := cfg.EvalSource(); from == nil {
		return nil, fmt.Errorf("job: neither eval.source nor eval.holdout is set: say where the examples come from: %w", pipeline.ErrConfig)
	}
	own := *cfg
	own.Runner = spec.RunnerLocal
	e := &evaluation{cfg: &own, opts: EvalOptions{Options: opts.Options, MaxExamples: opts.MaxExamples}, log: opts.Logger}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if e.hooks, err = newTelemetry(opts.Registerer); err != nil {
		return nil, err
	}
	var of model.Model
	var gathered *trainstep.Insight
	e.insight = func(m model.Model) *trainstep.Insight {
		of, gathered = m, trainstep.NewInsight(m, own.Seed)
		return gathered
	}
	began := time.Now()
	found, err := e.score(ctx, &own, opts.Snapshot, false)
	if err != nil {
		return nil, err
	}
	out := &result.Insight{
		Examples: found.rows, Seconds: time.Since(began).Seconds(), BadRows: found.bad, Snapshot: found.path, Which: found.which,
		Metrics: evaluated(&own, found.predictions),
	}
	layout := of.Layout()
	for i, f := range of.Features() {
		g := &gathered.Features[i]
		g.Exchanged.Arrange()
		made := result.FeatureInsight{Name: f.Name, Share: float64(g.Rows) / float64(max(gathered.Rows, 1)), Changes: evaluated(&own, &g.Exchanged)}
		for name := range made.Changes {
			made.Changes[name] -= out.Metrics[name]
		}
		if f.Kind == model.Sparse {
			gradient := root(g.Gradients, g.Entries)
			made.Table, made.Length, made.Gradient = layout.Tables[f.Table].Name, root(g.Squares, g.Entries), result.Finite(gradient)
		} else {
			made.Length = root(g.Squares, gathered.Rows)
		}
		out.Features = append(out.Features, made)
	}
	slices.SortStableFunc(out.Features, func(a, b result.FeatureInsight) int {
		return cmp.Compare(harm(&own, b.Changes), harm(&own, a.Changes))
	})
	for i := range gathered.Tensors {
		t := &gathered.Tensors[i]
		made := result.LayerInsight{
			Name: layout.Dense[t.Index].Name, Shape: layout.Dense[t.Index].Shape, Gradient: result.Finite(root(t.Gradients, gathered.Batches)), Columns: len(t.Moved),
		}
		for _, moved := range t.Moved {
			if !moved {
				made.Idle++
			}
		}
		out.Layers = append(out.Layers, made)
	}
	return out, nil
}

// root is that of the mean of so many squares; 0 of none.
func root(squares float64, count int64) float64 {
	return math.Sqrt(squares / float64(max(count, 1)))
}

// evaluated are the metrics of all heads, as an evaluation has them.
func evaluated(cfg *spec.Config, c *metric.Collection) result.Scores {
	scores, _ := measure(cfg, c, groupKey(cfg))
	return scores
}

// harm says how much worse the first metric of a job is for a change; a change that is no number is none.
func harm(cfg *spec.Config, changes result.Scores) float64 {
	var name string
	var of metric.Metric
	for _, h := range cfg.AllHeads() {
		if all := metricsOf(cfg, &h); name == "" && len(all) > 0 {
			name, of = h.Score(all[0].Name), all[0]
		}
	}
	switch v := changes[name]; {
	case math.IsNaN(v):
		return 0
	case of.Direction == metric.Higher:
		return -v
	default:
		return v
	}
}

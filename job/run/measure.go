package run

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps"
)

// metricsOf are the metrics of a head. Unknown names have been refused.
func metricsOf(cfg *spec.Config, h *spec.Head) []metric.Metric {
	var out []metric.Metric
	for _, name := range h.Metrics {
		if m, ok := cfg.FindMetric(name); ok {
			out = append(out, m)
		}
	}
	return out
}

// usual are the metrics of a head that are looked at while it trains: the first two of those that suit its loss and need no
// groups.
func usual(cfg *spec.Config, h *spec.Head) []metric.Metric {
	var out []metric.Metric
	if l, ok := cfg.FindLoss(h.Loss); ok {
		for _, name := range l.Metrics {
			if m, ok := cfg.FindMetric(name); ok && !m.Grouped && len(out) < 2 {
				out = append(out, m)
			}
		}
	}
	return out
}

// measure computes the metrics of all heads over what was collected, and what speaks against them. group is the key of metrics within groups, or below 0.
func measure(cfg *spec.Config, c *metric.Collection, group int) (result.Scores, []string) {
	var doubted []string
	scores := result.Scores{}
	var w metric.Workspace
	for i, h := range cfg.AllHeads() {
		set := c.Set(i, group)
		for _, m := range metricsOf(cfg, &h) {
			scores[h.Score(m.Name)] = m.Measure(&w, &set)
		}
		doubted = append(doubted, doubts(cfg, &h, &set, heldOut)...)
		doubted = append(doubted, groupDoubts(cfg, &h, &set)...)
	}
	return scores, doubted
}

// traceScores summarises the predictions of the last examples as they were trained on, progressive or not, and counts them:
// those of the parameter server's trace, which is exactly as old as the parameters, and says what speaks against the figures. Of a job without heads
// it has AUC and log loss.
func traceScores(ctx context.Context, cfg *spec.Config, store stored.State, progressive bool) (scores result.Scores, doubted []string, examples int64, err error) {
	trace, err := store.State(ctx, ps.TraceState)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("job: the predictions stored with the parameters: %w", err)
	}
	scores = result.Scores{}
	if len(trace) == 0 {
		return scores, nil, 0, nil
	}
	schema, batch, err := score.Decode(trace)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("job: the predictions stored with the parameters: %w", err)
	}
	prefix := "training_"
	if progressive {
		prefix = "progressive_"
	}
	var c metric.Collection
	c.Add(metric.Place{}, batch)
	group := -1
	if cfg.Eval.Group != "" {
		group = slices.Index(schema.Keys, cfg.Eval.Group)
	}
	var w metric.Workspace
	for i, h := range cfg.AllHeads() {
		at := i
		if h.Name != "" { // a trace of a model with other heads has nothing to say of new ones
			at = slices.IndexFunc(schema.Heads, func(s score.HeadSchema) bool { return s.Name == h.Name })
		}
		if at < 0 || at >= len(batch.Heads) {
			continue
		}
		set, metrics := c.Set(at, group), metricsOf(cfg, &h)
		if h.Name == "" {
			metrics = usual(cfg, &h)
		}
		for _, m := range metrics {
			scores[h.Score(prefix+m.Name)] = m.Measure(&w, &set)
		}
		doubted = append(doubted, doubts(cfg, &h, &set, learnt)...)
	}
	return scores, doubted, int64(batch.Rows), nil
}

// lifetimeScores adds metrics of all examples trained on since the source began, earlier runs included, each predicted before it was learnt from, and
// returns how many these are, of the head that has most. They come from the sums that the parameter server keeps beside the trace; heads of several
// outputs have none.
func lifetimeScores(ctx context.Context, cfg *spec.Config, store stored.State, scores result.Scores) (examples int64, err error) {
	b, err := store.State(ctx, ps.TotalsState)
	if err != nil {
		return 0, fmt.Errorf("job: the sums over what was predicted: %w", err)
	}
	var totals score.Totals
	if err := totals.Set(b); err != nil {
		return 0, fmt.Errorf("job: the sums over what was predicted: %w", err)
	}
	for _, h := range cfg.AllHeads() {
		at := 0 // of a job without heads
		if h.Name != "" {
			at = slices.IndexFunc(totals.Heads(), func(t score.HeadTotals) bool { return t.Name == h.Name })
		}
		if at < 0 || at >= len(totals.Heads()) {
			continue
		}
		t, metrics := &totals.Heads()[at], metricsOf(cfg, &h)
		if h.Name == "" {
			metrics = usual(cfg, &h)
		}
		examples = max(examples, t.Examples)
		for _, m := range metrics {
			if v, ok := lifetime(m.Name, t); ok {
				scores[h.Score("lifetime_"+m.Name)] = v
			}
		}
	}
	return examples, nil
}

// lifetime is a metric of a head's totals; ok is false of one that cannot be computed from sums, or is not defined by these.
func lifetime(name string, t *score.HeadTotals) (v float64, ok bool) {
	if t.Weight == 0 {
		return 0, false
	}
	switch name {
	case "auc":
		return t.AUC()
	case "log_loss":
		v, ok = t.LogLoss/t.Weight, t.Probabilities
	case "calibration":
		v, ok = t.Predicted/t.Happened, t.Happened > 0
	case "rmse":
		v, ok = math.Sqrt(t.SquaredError/t.Weight), true
	}
	return v, ok && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// glance is what a progress line shows of one head.
type glance struct {
	head    string
	metrics []metric.Metric
	window  *metric.Window
}

func glancesOf(cfg *spec.Config) []glance {
	var out []glance
	for _, h := range cfg.AllHeads() {
		out = append(out, glance{h.Name, usual(cfg, &h), metric.NewWindow(glanceWindow)})
	}
	return out
}

package run

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Evaluate scores the job's evaluation source with the parameters of a snapshot. Nothing is changed: the snapshot is
// read into shards of its own.
func Evaluate(ctx context.Context, cfg *spec.Config, opts EvalOptions) (*result.EvalResult, error) {
	began := time.Now()
	m, err := wiring.Model(cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Eval.Source == nil {
		return nil, fmt.Errorf("job: eval.source is not set: say where the examples to evaluate come from: %w", pipeline.ErrConfig)
	}
	log := opts.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	hooks, err := newTelemetry(opts.Registerer)
	if err != nil {
		return nil, err
	}
	bad, err := newBadRows(cfg, stored.WorkerName(), log)
	if err != nil {
		return nil, err
	}
	defer bad.close() //nolint:errcheck // the letter box was flushed with each row
	path, which, err := stored.SnapshotToRead(cfg, opts.Snapshot)
	if err != nil {
		return nil, err
	}
	info, err := snapshot.ReadInfo(path)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	moved, err := stored.Fits(cfg, info)
	if err != nil {
		return nil, err
	}
	if len(moved) > 0 && opts.Notice != nil {
		opts.Notice(fmt.Sprintf("other columns are read than for snapshot %s: %s", path, strings.Join(moved, "; ")))
	}
	cluster, err := coordinator.Open(ctx, coordinator.Options{Layout: m.Layout(), NumShards: cfg.PS.Shards, Restore: path, ReadOnly: true, Logger: log, Hooks: psHooks(hooks), Memory: tableMemory(cfg, opts.Memory)})
	if err != nil {
		return nil, fault.Unavailable(err)
	}
	defer cluster.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written

	mon := newMonitor(cfg, opts.Options, hooks)
	mon.watched, mon.fills = "eval", newFillWatch(cfg, log)
	limit := cfg.Eval.MaxExamples
	if opts.MaxExamples > 0 {
		limit = opts.MaxExamples
	}
	mon.begin(result.Progress{Phase: "eval", Total: limit}, 0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); mon.run(stop) }()
	defer func() { close(stop); <-done }()

	open := func(ctx context.Context, worker int) (*ps.Client, error) {
		return cluster.Client(ctx, fmt.Sprintf("eval-%d", worker))
	}
	found, stats, err := evaluate(ctx, cfg, m, open, limit, opts.Drain, func(worker int) *pipeline.Env {
		return &pipeline.Env{Worker: worker, Logger: log, Hooks: runHooks(mon, hooks), BadRows: bad.policy}
	})
	if err != nil {
		return nil, err
	}
	n := stats.Rows
	if err := bad.guard.nothing(); err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, fmt.Errorf("job: eval.source gave no examples: %w", pipeline.ErrConfig)
	}
	seconds := time.Since(began).Seconds()
	return &result.EvalResult{
		Examples: n, Seconds: seconds, ExamplesPerSecond: float64(n) / max(seconds, 1e-9), Metrics: found.scores,
		Slices:  measureSlices(cfg, found.predictions),
		BadRows: bad.counts(), Features: mon.fills.end(), Snapshot: path, Which: which,
	}, nil
}

package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/trainstep"
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
	var outs *wiring.Outputs
	if len(cfg.Eval.Outputs) > 0 {
		outs = &wiring.Outputs{}
		mon.outputs = outs // before the monitor runs
	}
	mon.begin(result.Status{Phase: "eval", Total: limit}, 0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); mon.run(stop) }()
	defer func() { close(stop); <-done }()

	open := func(ctx context.Context, worker int) (*ps.Client, error) {
		return cluster.Client(ctx, fmt.Sprintf("eval-%d", worker))
	}
	if outs != nil {
		if outs.Part, err = partOf(ctx, cfg, m, info); err != nil {
			return nil, fault.Unavailable(err)
		}
	}
	found, stats, err := evaluate(ctx, cfg, m, open, outs, limit, opts.Drain, func(worker int) *pipeline.Env {
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
	part := ""
	if outs != nil {
		part = outs.Part
	}
	return &result.EvalResult{
		Examples: n, Seconds: seconds, ExamplesPerSecond: float64(n) / max(seconds, 1e-9), Metrics: found.scores,
		Slices:  measureSlices(cfg, found.predictions),
		BadRows: bad.counts(), Features: mon.fills.end(), Snapshot: path, Which: which, Part: part,
	}, nil
}

// partOf names what the outputs of an evaluation write: after the snapshot, its contents, the graph and the splits that are read.
// The same evaluation has the same name, and continues what it has written.
func partOf(ctx context.Context, cfg *spec.Config, m model.Model, of *snapshot.Info) (string, error) {
	plan, err := wiring.EvalGraph(cfg, wiring.EvalReading(cfg), m, nil, nil, metricsink.New[*trainstep.Scored]())
	if err != nil {
		return "", err
	}
	splits, err := plan.Splits(ctx)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %q\n", of.Digest, plan.Hash())
	for _, s := range splits {
		_, _ = fmt.Fprintf(h, "%q %q\n", s.Name, s.Identity)
	}
	return filepath.Base(of.Path) + "-" + hex.EncodeToString(h.Sum(nil)[:4]), nil
}

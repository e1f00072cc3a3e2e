package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/cmd/monolith/internal/ui"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job"
)

// registerBuild registers what says which program runs.
func (a *App) registerBuild(reg prometheus.Registerer) error {
	return telemetry.RegisterBuild(reg, a.buildInfo().telemetry())
}

// askedMetrics are the metrics of a command that reads a job beside the one that trains it. That one listens by the job file; this one only where it is told to
// itself, by --set or the environment.
func askedMetrics(cfg *job.Config) *job.Metrics {
	for _, s := range cfg.Effective() {
		if s.Path == "metrics.listen" && (s.From == "flag" || s.From == "env") {
			return &cfg.Metrics
		}
	}
	return nil
}

// run sets up what a long command needs beside its job: the metrics endpoint, progress, notices, draining. stop must be
// called when the command is done.
func (a *App) run(ctx context.Context, cfg *job.Metrics) (opts job.RunOptions, stop func(), err error) {
	logger := a.logger.Load()
	opts = job.RunOptions{Logger: logger, Notice: a.notice, Drain: a.drain, TakeSnapshot: a.snapshot}
	stop = func() {}
	watch := func(job.Status) {}
	if cfg != nil && cfg.Listen != "" {
		reg := prometheus.NewRegistry()
		training, err := telemetry.NewTraining(reg)
		if err := errors.Join(err, a.registerBuild(reg)); err != nil {
			return opts, stop, err
		}
		watch = func(p job.Status) {
			for _, s := range p.Scores {
				training.Observe(s.Head, s.Metric, s.Value)
			}
		}
		opts.Evaluated = func(_ int, scores job.Scores) {
			for name, v := range scores {
				head, metric := job.SplitScore(name)
				training.Evaluated(head, metric, v)
			}
		}
		server, err := telemetry.Serve(ctx, telemetry.ServerOptions{Listen: cfg.Listen, Pprof: cfg.Pprof, Registry: reg, Logger: logger})
		if err != nil {
			return opts, stop, err
		}
		opts.Registerer, opts.Ready = reg, server.Ready
		stop = func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
			defer cancel()
			if err := server.Close(ctx); err != nil {
				logger.Warn("metrics endpoint did not close", "err", err)
			}
		}
	}
	if !a.json && !a.quiet {
		progress := ui.NewStatusLine(a.screen, logger, nil)
		closeServer, record := stop, watch
		watch = func(p job.Status) {
			record(p)
			progress.Update(p)
		}
		stop = func() {
			progress.Done()
			closeServer()
		}
	}
	opts.Status = watch
	return opts, stop, nil
}

// pairs writes label and value lines.
func pairs(w io.Writer, rows ...[]string) error {
	return ui.Table(w, slices.DeleteFunc(rows, func(r []string) bool { return r == nil }))
}

// scoreRows makes a line of each metric.
func scoreRows(m job.Scores) (rows [][]string) {
	for _, name := range m.Names() {
		rows = append(rows, []string{name, ui.Score(m[name])})
	}
	return rows
}

// badRows makes a line of each reason, or nothing.
func badRows(counts map[string]int64) (rows [][]string) {
	for _, reason := range slices.Sorted(maps.Keys(counts)) {
		rows = append(rows, []string{"left out", fmt.Sprintf("%s (%s)", ui.Count(counts[reason]), reason)})
	}
	return rows
}

func perSecond(rate float64) string { return ui.Short(rate) + " examples/s" }

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

	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/parse"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Evaluate scores the job's evaluation source with the parameters of a snapshot, and with those of another model where one is to be
// compared with. Nothing is changed: the snapshot is read into shards of its own. Figures are those of the examples, to the last
// digit, whatever the number of workers.
func Evaluate(ctx context.Context, cfg *spec.Config, opts EvalOptions) (*result.EvalResult, error) {
	if from, _ := cfg.EvalSource(); from == nil {
		return nil, fmt.Errorf("job: neither eval.source nor eval.holdout is set: say where the examples to evaluate come from: %w", pipeline.ErrConfig)
	}
	if opts.Bootstrap != 0 && opts.Bootstrap < metric.MinReplicates {
		return nil, fault.Config("job: %d replicates are too few for intervals; take %d or more, or 0 for none", opts.Bootstrap, metric.MinReplicates)
	}
	if err := cfg.CheckPlaces(ctx); err != nil {
		return nil, err
	}
	e := &evaluation{cfg: cfg, opts: opts, log: opts.Logger}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	var err error
	if e.hooks, err = newTelemetry(opts.Registerer); err != nil {
		return nil, err
	}
	if err := e.checkRunner(); err != nil {
		return nil, err
	}
	began := time.Now()
	mine, err := e.score(ctx, cfg, opts.Snapshot, true)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	m := measuring{cfg: cfg, replicates: opts.Bootstrap, mine: mine.predictions}
	out := &result.EvalResult{
		Seconds: seconds, ExamplesPerSecond: float64(mine.rows) / max(seconds, 1e-9), Replicates: opts.Bootstrap,
		BadRows: mine.bad, Features: mine.features, Snapshot: mine.path, Which: mine.which, Part: mine.part,
	}
	if opts.Compare != nil {
		if out.ComparedWith, err = e.compare(ctx, &m); err != nil {
			return nil, err
		}
	}
	if err := m.missing(mine.blank, e.notice); err != nil {
		return nil, err
	}
	var replicates []drawn
	if out.Measured, replicates, err = m.all(ctx); err != nil {
		return nil, err
	}
	if out.Slices, err = m.slices(ctx, &out.Measured, replicates); err != nil {
		return nil, err
	}
	if opts.Curves {
		out.Curves = m.curves(m.mine, func(head int) int { return head })
		if m.other != nil {
			out.ComparedWith.Curves = m.curves(m.other, m.otherOf)
		}
	}
	return out, nil
}

// evaluation is what the models of one evaluation share.
type evaluation struct {
	cfg   *spec.Config
	opts  EvalOptions
	log   *slog.Logger
	hooks *telemetry.Metrics
	// insight, if not nil, makes what is gathered beside the predictions for a model.
	insight func(m model.Model) *trainstep.Insight
}

// limit is how many examples are scored at most; 0: all.
func (e *evaluation) limit() int64 {
	if e.opts.MaxExamples > 0 {
		return e.opts.MaxExamples
	}
	return e.cfg.Eval.MaxExamples
}

func (e *evaluation) notice(text string) {
	if e.opts.Notice != nil {
		e.opts.Notice(text)
	}
}

// compare scores the examples with the other model. Its job says what features it makes of them, the evaluated one which examples
// these are.
func (e *evaluation) compare(ctx context.Context, m *measuring) (*result.Compared, error) {
	cfg, out := e.cfg, &result.Compared{}
	if with := e.opts.Compare.Config; with != nil {
		other := *with
		other.Eval, out.Job = e.cfg.Eval, with.Name
		if e.cfg.Eval.Holdout != nil { // which is of the job's own source
			other.Source = e.cfg.Source
			other.Parse.Format, other.Parse.Columns, other.Parse.Header = e.cfg.Parse.Format, e.cfg.Parse.Columns, e.cfg.Parse.Header
			if !e.cfg.SameHoldout(with) {
				e.notice("the model to compare with holds out other examples (eval.holdout): it may have been trained on what both are measured on")
			}
		}
		cfg = &other
	}
	found, err := e.score(ctx, cfg, e.opts.Compare.Snapshot, false)
	if err != nil {
		return nil, fmt.Errorf("the model to compare with: %w", err)
	}
	out.Snapshot, out.Which = found.path, found.which
	return out, m.compare(cfg, found.predictions)
}

// scored is what one model says of the evaluation source.
type scored struct {
	predictions *metric.Collection
	rows        int64
	path, which string // of the snapshot
	part        string // of the outputs
	bad         map[string]int64
	features    []result.FillInfo
	blank       []parse.SeenKey // of the keys of metrics
}

// score runs the evaluation graph of a job over a snapshot, with the job's outputs of the evaluation where outputs is true.
func (e *evaluation) score(ctx context.Context, cfg *spec.Config, asked string, outputs bool) (*scored, error) {
	m, err := wiring.Model(cfg)
	if err != nil {
		return nil, err
	}
	bad, err := newBadRows(cfg, stored.WorkerName(), e.log)
	if err != nil {
		return nil, err
	}
	defer bad.close() //nolint:errcheck // the letter box was flushed with each row
	out := &scored{}
	from, err := stored.ToRead(cfg, asked)
	if err != nil {
		return nil, err
	}
	fits := cfg
	if with := e.opts.Compare; with != nil && with.Config != nil && cfg != e.cfg {
		fits = with.Config // by its own holdout
	}
	var moved []string
	var cluster *coordinator.Cluster // of executors in this process
	var reads snapshot.Verifier
	info, damaged, err := from.Use(func(info *snapshot.Info) (err error) {
		if moved, err = stored.Fits(fits, nil, info); err != nil {
			return err
		}
		if elsewhere(e.cfg) { // executors must not choose, each for itself
			return reads.Verify(ctx, from.FS, info)
		}
		cluster, err = coordinator.Open(ctx, coordinator.Options{Layout: m.Layout(), NumShards: cfg.PS.Shards, Precision: wiring.Precision(&cfg.PS), Restore: info.Path, ReadOnly: true, Logger: e.log, Hooks: psHooks(e.hooks), Memory: readMemory(cfg, e.opts.Memory), Threads: cfg.StepThreads()})
		return fault.Unavailable(err)
	})
	if err != nil {
		return nil, err
	}
	if cluster != nil {
		defer cluster.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	} else {
		e.notice(notCounted)
	}
	out.path, out.which = info.Path, stored.WhichIs(from.FS, info)
	stored.WarnPassedOver(ctx, e.log, damaged, out.path)
	if len(moved) > 0 {
		e.notice(fmt.Sprintf("other columns are read than for snapshot %s: %s", out.path, strings.Join(moved, "; ")))
	}

	e.opts.ready()
	mon := newMonitor(cfg, e.opts.Options, e.hooks)
	mon.watched, mon.fills = "eval", newFillWatch(cfg, e.log)
	mon.fills.watchColumns(cfg.Eval.Keys(), nil)
	limit := e.limit()
	var outs *wiring.Outputs
	if outputs && len(cfg.Eval.Outputs) > 0 {
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
		out.part = outs.Part
	}
	var stats pipeline.RunStats
	var on *submission
	var insight *trainstep.Insight
	if e.insight != nil {
		insight = e.insight(m)
	}
	if e.cfg.Runner != spec.RunnerLocal {
		on = &submission{e, cfg, out.path}
	}
	out.predictions, stats, err = (&scoring{
		cfg: cfg, model: m, open: open, outs: outs, workers: cfg.Train.Workers, insight: insight, maxExamples: limit, drain: e.opts.Drain,
		identified: e.opts.Bootstrap > 0 || e.opts.Compare != nil, on: on,
		env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: e.log, Hooks: runHooks(mon, e.hooks), BadRows: bad.policy}
		},
	}).run(ctx)
	if err != nil {
		return nil, err
	}
	if err := bad.guard.nothing(stats); err != nil {
		return nil, err
	}
	if stats.Rows == 0 {
		if h := cfg.Eval.Holdout; h != nil {
			return nil, fault.Config("job: %s", holdsOutNothing(h))
		}
		return nil, fmt.Errorf("job: eval.source gave no examples: %w", pipeline.ErrConfig)
	}
	out.rows, out.bad = stats.Rows, stats.BadRows
	if cluster != nil {
		out.features, out.blank = mon.fills.end(), mon.fills.blank()
	}
	return out, nil
}

// partOf names what the outputs of an evaluation write: after the snapshot, its contents, the graph and the splits that are read.
// The same evaluation has the same name, and continues what it has written.
func partOf(ctx context.Context, cfg *spec.Config, m model.Model, of *snapshot.Info) (string, error) {
	plan, err := wiring.EvalGraph(cfg, wiring.EvalReading(cfg), m, nil, nil, nil, metricsink.New[*trainstep.Scored]())
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

// holdsOutNothing says that a holdout holds out no example, and what may be wrong with it.
func holdsOutNothing(h *spec.Holdout) string {
	const none = "eval.holdout holds out no example: "
	switch {
	case h.From != "":
		return none + fmt.Sprintf("no record has a value of %q that is %s or above (where from is a number values are compared as numbers, otherwise as text, byte by byte): set from earlier, or see what the records have (monolith inspect)", h.By, h.From)
	case h.By != "":
		return none + fmt.Sprintf("see whether records have a value of %q (monolith inspect); where they have few different ones, set a larger share", h.By)
	}
	return none + "set a larger share"
}

package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sinks/metricsink"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Run trains a job: it goes on from the newest good snapshot in the job's dir where there is one, trains to the end of
// the source (or of the epochs, or of train.max_examples, or until it is drained), and stores a last snapshot.
//
// Errors: [*ConfigError] and [pipeline.ErrConfig] for what the user can mend in the job, [pipeline.ErrUnavailable] for
// what cannot be reached or stored, and what the parts of the graph return.
func Run(ctx context.Context, cfg *Config, opts RunOptions) (*TrainResult, error) {
	t, err := openTrainer(ctx, cfg, opts)
	if err != nil {
		return nil, err
	}
	result, err := t.train(ctx)
	if cerr := t.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// trainer is one run of a job.
type trainer struct {
	cfg     *Config
	opts    RunOptions
	log     *slog.Logger
	hooks   *telemetry.Metrics // nil without a registerer
	model   model.Model
	cluster *ps.Cluster
	monitor *monitor
	state   *trainerState
	bad     *badRows
	lock    *fsx.Lock
	// rows and steps count what this run did.
	rows, steps int64
	began       time.Time
}

// snapshotsIn is where a job's snapshots lie.
func (c *Config) snapshotsIn() string { return filepath.Join(c.Dir, "snapshots") }

func openTrainer(ctx context.Context, cfg *Config, opts RunOptions) (_ *trainer, err error) {
	t := &trainer{cfg: cfg, opts: opts, log: opts.Logger, began: time.Now()}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if t.model, err = cfg.model(); err != nil {
		return nil, err
	}
	// The whole graph is checked before anything is opened.
	plan, err := cfg.trainGraph(t.model, cfg.Epochs, nil, trainstep.StepOptions{Seed: cfg.Seed})
	if err != nil {
		return nil, err
	}
	if err := t.claimDir(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.lock.Close())
		}
	}()
	if err := t.beginAnew(); err != nil {
		return nil, err
	}
	if t.hooks, err = newTelemetry(opts.Registerer); err != nil {
		return nil, err
	}
	t.monitor = newMonitor(opts, pipelineHooks(t.hooks))
	if t.bad, err = cfg.badRows(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.bad.close())
		}
	}()
	t.cluster, err = ps.Open(ctx, ps.Options{
		Layout: t.model.Layout(), NumShards: cfg.PS.Shards, Dir: cfg.snapshotsIn(), Keep: cfg.Snapshot.Keep,
		Every: time.Duration(cfg.Snapshot.Every), MaxStaged: max(cfg.Train.Prefetch.Push, 1),
		Meta:   map[string]string{"job": cfg.Name, "plan": plan.Hash(), "model": t.model.String()},
		Logger: t.log, Hooks: psHooks(t.hooks),
	})
	if err != nil {
		return nil, unavailable(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.cluster.Close(context.WithoutCancel(ctx)))
		}
	}()
	if r := t.cluster.Restored(); r != nil {
		t.notice("going on from snapshot %s (%d rows)", r.Path, r.Rows())
	} else if opts.Resume != nil && *opts.Resume {
		return nil, fmt.Errorf("job: --resume: no snapshot in %s: %w", cfg.snapshotsIn(), pipeline.ErrConfig)
	}
	if t.state, err = restoreState(ctx, t.cluster, cfg.sourceName()); err != nil {
		return nil, err
	}
	// Positions are acknowledged through the planned source: it opens nothing of its own to do so.
	name, source := plan.Segments[0].Source()
	if a, ok := source.(pipeline.Acknowledger); ok {
		t.cluster.OnSnapshot(func(info ps.SnapshotInfo) { t.acknowledge(a, info.Positions[name]) })
	}
	return t, nil
}

// claimDir makes the job's dir this run's alone: two runs would overwrite each other's snapshots.
func (t *trainer) claimDir() (err error) {
	if err := os.MkdirAll(t.cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("job: dir: %w: %w", err, pipeline.ErrUnavailable)
	}
	t.lock, err = fsx.TryLock(filepath.Join(t.cfg.Dir, "lock"))
	if errors.Is(err, fsx.ErrLocked) {
		return fmt.Errorf("job: another run is using %s; wait for it or give this job another dir: %w", t.cfg.Dir, pipeline.ErrConfig)
	}
	if err != nil {
		return fmt.Errorf("job: dir: %w: %w", err, pipeline.ErrUnavailable)
	}
	return nil
}

// beginAnew puts earlier snapshots aside when the user asked not to resume; it never deletes them.
func (t *trainer) beginAnew() error {
	if t.opts.Resume == nil || *t.opts.Resume {
		return nil
	}
	dir := t.cfg.snapshotsIn()
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for n := 1; ; n++ {
		aside := fmt.Sprintf("%s.%d", dir, n)
		if _, err := os.Stat(aside); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := os.Rename(dir, aside); err != nil {
			return fmt.Errorf("job: put the earlier snapshots aside: %w", err)
		}
		t.notice("beginning anew; the earlier snapshots are now in %s", aside)
		return nil
	}
}

func (t *trainer) notice(format string, args ...any) {
	if t.opts.Notice != nil {
		t.opts.Notice(fmt.Sprintf(format, args...))
	}
}

// acknowledge tells the source which positions a snapshot holds. Nothing depends on it but lag tools.
func (t *trainer) acknowledge(source pipeline.Acknowledger, progress map[string]ps.Progress) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	at := make(map[string]pipeline.Position, len(progress))
	for split, p := range progress {
		at[split] = pipeline.Position(p.Position)
	}
	if err := source.Acknowledge(ctx, at); err != nil {
		t.log.Warn("consumer group not told of the snapshot", "err", err)
	}
}

// close stores nothing: train has.
func (t *trainer) close() error {
	return errors.Join(t.bad.close(), t.cluster.Close(context.Background()), t.lock.Close())
}

// client opens the session of a worker.
func (t *trainer) client(ctx context.Context, worker int) (*ps.Client, error) {
	c, err := t.cluster.Client(ctx, fmt.Sprintf("worker-%d", worker))
	if err != nil {
		return nil, err
	}
	c.OnMarker(func() map[string][]byte {
		if err := t.bad.flush(); err != nil {
			t.log.Error("dead letters before a snapshot are not on the disk yet", "err", err)
		}
		return t.state.stored()
	})
	return c, nil
}

// sourceName tells one source from another in what a snapshot remembers of training: its kind, and what it reads.
func (c *Config) sourceName() string {
	name := c.trainReading(1).name()
	if c.Source.Kafka != nil {
		return name + " " + c.Source.Kafka.Topic
	}
	return strings.Join(append([]string{name}, c.Source.FileList()...), " ")
}

// evaluatesEpochs tells that training stops after each epoch to evaluate.
func (c *Config) evaluatesEpochs() bool {
	return c.Eval.Source != nil && c.Eval.Every == "epoch" && c.Source.Bounded() && c.Source.Kafka == nil
}

// progressive tells that each example is scored before it is trained on, as the model would serve it. From the second
// epoch on that would be no validation: the model has seen the example.
func (c *Config) progressive() bool { return c.Epochs == 1 }

func (t *trainer) train(ctx context.Context) (*TrainResult, error) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { defer close(done); t.monitor.run(stop) }()
	defer func() { close(stop); <-done }()

	result := &TrainResult{}
	var snapshot *ps.SnapshotInfo
	for !t.state.Stopped {
		upTo, complete := t.cfg.Epochs, t.state.Epochs >= t.cfg.Epochs
		if t.cfg.evaluatesEpochs() && !complete {
			upTo = t.state.Epochs + 1
		}
		stats, err := t.runEpochs(ctx, upTo)
		if err != nil {
			return nil, err
		}
		t.rows, t.steps = t.rows+stats.Rows, t.steps+stats.Batches
		if complete && stats.Rows == 0 {
			break // nothing has come since the run that ended the job
		}
		ended := t.cfg.Source.Bounded() && !stats.Drained && !stats.Full
		if t.cfg.Eval.Source != nil && (ended || stats.Full) {
			drained, err := t.evaluate(ctx, upTo, ended)
			if err != nil {
				return nil, err
			}
			if drained { // the next run evaluates this epoch
				ended, stats.Drained = false, true
			}
		}
		if ended {
			t.state.Epochs = upTo
		}
		// The cut that ends an epoch holds what was decided after it, so that a restarted run decides nothing twice.
		if err := t.state.store(context.WithoutCancel(ctx), t.cluster); err != nil {
			return nil, unavailable(err)
		}
		info, err := t.cluster.Snapshot(context.WithoutCancel(ctx), ps.SnapshotOptions{Pin: t.opts.Pin != "", Note: t.opts.Pin})
		if err != nil {
			return nil, unavailable(fmt.Errorf("job: the last snapshot: %w", err))
		}
		snapshot = &info
		if result.Drained = stats.Drained; !ended || t.state.Epochs >= t.cfg.Epochs {
			break
		}
	}
	if snapshot == nil { // the job had ended already
		snapshot = t.cluster.Restored()
	}
	result.Examples, result.Steps, result.Epochs = t.rows, t.steps, t.state.Epochs
	result.Seconds = time.Since(t.began).Seconds()
	result.ExamplesPerSecond = float64(t.rows) / max(result.Seconds, 1e-9)
	scores, err := traceScores(ctx, t.cluster, t.cfg.progressive())
	if err != nil {
		return nil, err
	}
	result.Metrics = scores
	maps.Copy(result.Metrics, t.state.Metrics)
	if p := t.cfg.Train.Plateau; p != nil && t.state.Best != nil {
		result.Metrics["best_"+p.Metric] = *t.state.Best
	}
	if e := t.cfg.Train.EarlyStop; e != nil && t.state.StopBest != nil {
		result.Metrics["best_"+e.Metric] = *t.state.StopBest
	}
	result.BadRows = t.bad.counts()
	result.EarlyStopped = t.state.Stopped
	if snapshot != nil {
		result.Snapshot = snapshot.Path
	}
	if r := t.cluster.Restored(); r != nil {
		result.ResumedFrom = r.Path
	}
	return result, nil
}

// runEpochs trains from where the cluster stands to the end of the given epoch.
func (t *trainer) runEpochs(ctx context.Context, upTo int) (pipeline.RunStats, error) {
	step := trainstep.StepOptions{Seed: t.cfg.Seed, LR: t.state.LR, Observe: t.monitor.observe, Progressive: t.cfg.progressive()}
	plan, err := t.cfg.trainGraph(t.model, upTo, t.client, step)
	if err != nil {
		return pipeline.RunStats{}, err
	}
	name, _ := plan.Segments[0].Source()
	var before int64
	done, err := t.cluster.Progress(ctx, name)
	if err != nil {
		return pipeline.RunStats{}, err
	}
	for _, p := range done {
		before += p.Rows
	}
	progress := Progress{Phase: "train", Total: t.cfg.Train.MaxExamples, Epochs: t.cfg.Epochs}
	if t.cfg.Source.Bounded() && t.cfg.Epochs > 1 {
		progress.Epoch = upTo
	}
	if s := t.cfg.Source.Synthetic; s != nil && s.Examples > 0 && (progress.Total == 0 || s.Examples < progress.Total) {
		progress.Total = s.Examples * int64(t.cfg.Epochs)
	}
	t.monitor.begin(progress, before)
	stats, err := local.Run(ctx, plan, pipeline.RunOptions{
		Workers: t.cfg.Train.Workers, Deterministic: t.cfg.Deterministic, MaxRows: t.cfg.Train.MaxExamples,
		Drain: t.opts.Drain,
		Env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: t.log, Hooks: t.monitor, BadRows: t.bad.policy}
		},
	})
	if err != nil {
		return pipeline.RunStats{}, err
	}
	if stats[0].Drained {
		t.notice("draining: what was read is trained, now the last snapshot is taken")
	}
	return stats[0], nil
}

// evaluate scores the evaluation source with the parameters as they are. At the end of an epoch it decides what follows
// for the learning rate and for going on; half an epoch or half an evaluation decides nothing, so that an interrupted run
// takes the same turns as one that was not.
func (t *trainer) evaluate(ctx context.Context, epoch int, ended bool) (drained bool, err error) {
	t.monitor.begin(Progress{Phase: "eval", Total: t.cfg.Eval.MaxExamples, Epoch: epoch, Epochs: t.cfg.Epochs}, 0)
	scores, stats, err := evaluate(ctx, t.cfg, t.model, t.client0, t.cfg.Eval.MaxExamples, t.opts.Drain, func(worker int) *pipeline.Env {
		return &pipeline.Env{Worker: worker, Logger: t.log, Hooks: t.monitor, BadRows: t.bad.policy}
	})
	if err != nil || stats.Drained {
		return stats.Drained, err
	}
	t.state.Metrics = scores
	t.log.Info("evaluated", "epoch", epoch, "auc", scores["auc"], "log_loss", scores["log_loss"], "lr_factor", t.state.LR)
	t.notice("epoch %d: %s", epoch, scores.text())
	if t.opts.Evaluated != nil {
		t.opts.Evaluated(epoch, scores)
	}
	if ended {
		t.state.decide(t.cfg.Train.Plateau, t.cfg.Train.EarlyStop, t.notice)
	}
	return false, nil
}

// client0 opens a session that only reads.
func (t *trainer) client0(ctx context.Context, worker int) (*ps.Client, error) {
	return t.cluster.Client(ctx, fmt.Sprintf("eval-%d", worker))
}

// decide moves the learning rate and the early stop on by one evaluation.
func (s *trainerState) decide(p *Plateau, e *EarlyStop, notice func(string, ...any)) {
	if p != nil {
		if better(s.Metrics[p.Metric], s.Best, p.Metric, p.MinDelta) {
			v := s.Metrics[p.Metric]
			s.Best, s.Bad = &v, 0
		} else if s.Bad++; s.Bad >= p.Patience {
			if lr := max(s.LR*float32(p.Factor), float32(p.MinLR)); lr < s.LR {
				s.LR = lr
				notice("%s got no better: learning rates are now %g of the configured ones", p.Metric, s.LR)
			}
			s.Bad = 0
		}
	}
	if e != nil {
		if better(s.Metrics[e.Metric], s.StopBest, e.Metric, e.MinDelta) {
			v := s.Metrics[e.Metric]
			s.StopBest, s.StopBad = &v, 0
		} else if s.StopBad++; s.StopBad >= e.Patience {
			s.Stopped = true
			notice("%s got no better for %d evaluation(s): training stops", e.Metric, s.StopBad)
		}
	}
}

// better tells that v beats best; NaN beats nothing. AUC grows, log loss falls.
func better(v float64, best *float64, name string, delta float64) bool {
	switch {
	case math.IsNaN(v):
		return false
	case best == nil:
		return true
	case name == "log_loss":
		return v < *best-delta
	default:
		return v > *best+delta
	}
}

// evaluate runs the evaluation graph of a job over parameters that open reads.
func evaluate(ctx context.Context, cfg *Config, m model.Model, open openClient, maxExamples int64, drain <-chan struct{}, env func(int) *pipeline.Env) (Scores, pipeline.RunStats, error) {
	sink := metricsink.New[*trainstep.Scored]()
	plan, err := cfg.evalGraph(cfg.evalReading(), m, open, sink)
	if err != nil {
		return nil, pipeline.RunStats{}, err
	}
	if !plan.Segments[0].Bounded() && maxExamples == 0 {
		return nil, pipeline.RunStats{}, fmt.Errorf("job: eval.source does not end: set eval.max_examples, or an end: %w", pipeline.ErrConfig)
	}
	// One worker: the sum of the log loss then has one order, so that equal parameters give equal metrics.
	stats, err := local.Run(ctx, plan, pipeline.RunOptions{MaxRows: maxExamples, Drain: drain, Deterministic: true, Env: env})
	if err != nil {
		return nil, pipeline.RunStats{}, err
	}
	got := sink.Scores()
	s := metric.Summarize(got.Probs, got.Labels, got.Weights)
	scores := Scores{}
	for _, name := range cfg.Eval.Metrics {
		switch name {
		case "auc":
			scores[name] = s.AUC
		case "log_loss":
			scores[name] = s.LogLoss
		case "calibration":
			scores[name] = s.Calibration
		}
	}
	return scores, stats[0], nil
}

package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// Train trains a job: it continues from the newest good snapshot in the job's dir where there is one, trains to the end of
// the source (or of the epochs, or of train.max_examples, or until it is drained), and stores a last snapshot.
//
// Errors: [*spec.ConfigError] and [pipeline.ErrConfig] for what the user can fix in the job, [pipeline.ErrUnavailable] for
// what cannot be reached or stored, and what the parts of the graph return.
func Train(ctx context.Context, cfg *spec.Config, opts Options) (*result.TrainResult, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var gaveUp atomic.Pointer[error]
	t, err := openTrainer(ctx, cfg, opts, func(err error) {
		err = unsafe(err)
		gaveUp.Store(&err)
		cancel(err)
	})
	if err != nil {
		return nil, err
	}
	certificates, err := watchSecrets(opts.Logger, opts.Registerer, tlsOf(cfg), tokensOf(&cfg.PS))
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	defer certificates.Close()
	opts.ready()
	train := t.train
	if t.past != nil && t.past.Done {
		train = t.result // there is nothing left of it, and what came after it is not touched
	}
	stop := answerRequests(ctx, opts.TakeSnapshot, t.shards, t.notice)
	result, err := train(ctx)
	stop()
	if err == nil {
		t.uploads.finish(ctx)
	}
	if why := gaveUp.Load(); why != nil && err != nil {
		err = *why
	}
	t.monitor.numbers.end()
	t.monitor.fills.end()
	if t.heldOut > 0 {
		t.log.InfoContext(ctx, "examples were held out of training (eval.holdout)", "held_out", t.heldOut, "trained_on", t.rows)
	}
	if cerr := t.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, err
	}
	return result, nil
}

// rowsRemoved counts the rows that went by the retention since the shards began, by cause. nil: there is none, or the shards do not say.
func (t *trainer) rowsRemoved(ctx context.Context) map[string]int64 {
	st, err := t.shards.Stats(ctx)
	if rules := t.model.Layout().Retention; err != nil || !rules.Active() {
		return nil
	}
	out := map[string]int64{}
	for _, of := range st.Tables {
		out[ps.Expired] += of.Removed.Expired
		out[ps.Evicted] += of.Removed.Evicted
	}
	return out
}

// unsafe says what it means that no snapshot can be taken any more.
func unsafe(err error) error {
	return fault.Mark(
		fmt.Errorf("job: what is trained is not safe any more: %w", err), pipeline.ErrUnavailable,
		"make room or fix what is in the way and train again, which continues from the last snapshot; snapshot.tolerate says how many may fail, ps.durability: wal keeps what is trained between them",
	)
}

// trainer is one run of a job.
type trainer struct {
	// gaveUp is called when the shards in this process cannot be stored any more.
	gaveUp func(error)
	cfg    *spec.Config
	opts   Options
	log    *slog.Logger
	hooks  *telemetry.Metrics // nil without a registerer
	model  model.Model
	plan   *pipeline.Plan // of the whole job
	shards shards
	// numShards is how many shards there were when that was answered last; 0: never, as with shards in this process, whose number stays.
	numShards int
	monitor   *monitor
	state     *stored.Trainer
	doubted   []string // of the last evaluation
	// former is what the state that belongs to a source was of the source before, by key, where this run was the leader that had it start over.
	former map[string][]byte
	// reference is what gradients of rows are sums over a batch divided by.
	reference int
	// otherKernels reports that the user was notified of them.
	otherKernels bool
	bad          *badRows
	lock         *fsx.Lock // nil with shards in other processes, whose coordinator has it
	uploads      *uploads  // nil without, and with shards in other processes
	worker       string
	// outputs are the job's outputs that are open.
	outputs wiring.Outputs
	// memories is what readers want remembered with the next snapshot.
	memories memories
	mu       sync.Mutex
	splits   []string // of a source that may grow, by name; guarded by mu
	known    *knownSplits
	// removed are the rows that had gone by the retention when the run began, by cause.
	removed map[string]int64
	// repeated are the places ([placesOf]) where this run was last asked to conclude what had been concluded.
	repeated string
	// rows and steps count what this run did, heldOut what it passed over in front of it.
	rows, steps, heldOut int64
	// badRows counts what it left out, by reason.
	badRows     map[string]int64
	left        int64            // rows that a drained run has read for nothing
	snapshot    *ps.SnapshotInfo // the last
	past        *backfill        // what of the stream's history is trained on; nil: the source is
	drained     bool
	acknowledge func(info *ps.SnapshotInfo)
	gap         atomic.Bool // the source has other records than the positions count: nothing is acknowledged any more
	untold      untold
	began       time.Time
}

func openTrainer(ctx context.Context, cfg *spec.Config, opts Options, gaveUp func(error)) (_ *trainer, err error) {
	t := &trainer{gaveUp: gaveUp, cfg: cfg, opts: opts, log: opts.Logger, began: time.Now(), worker: opts.Worker}
	if t.log == nil {
		t.log = slog.New(slog.DiscardHandler)
	}
	if t.worker == "" {
		t.worker = stored.WorkerName()
	}
	if t.model, err = wiring.Model(cfg); err != nil {
		return nil, err
	}
	if cfg.Runner != spec.RunnerLocal && (opts.Runners[cfg.Runner] == nil || opts.Recipes == nil) {
		return nil, fault.Config("job: this program has no runner %s: it is one of RunOptions.Runners, and RunOptions.Recipes builds graphs again", cfg.Runner)
	}
	if err := cfg.CheckPlaces(ctx); err != nil {
		return nil, err
	}
	// The whole graph is checked before anything is opened.
	reading := wiring.TrainReading(cfg, cfg.Epochs)
	reading.Log = t.log
	if t.plan, err = wiring.TrainGraph(cfg, t.model, reading, nil, nil, trainstep.StepOptions{Seed: cfg.Seed}); err != nil {
		return nil, err
	}
	if t.hooks, err = newTelemetry(opts.Registerer); err != nil {
		return nil, err
	}
	t.monitor = newMonitor(cfg, opts, t.hooks)
	t.monitor.outputs = &t.outputs
	t.outputs.Trained = func(ctx context.Context, source string) (map[string]pipeline.Progress, error) {
		return t.shards.Progress(ctx, source)
	}
	t.monitor.numbers, t.monitor.fills = newNumberWatch(cfg, t.log), newFillWatch(cfg, t.log)
	t.monitor.fills.watchGroups(cfg)
	t.monitor.doubts = &doubtWatch{cfg: cfg, log: t.log}
	if t.bad, err = newBadRows(cfg, t.worker, t.log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.bad.close())
		}
	}()
	if cfg.PS.Remote() {
		err = t.dial(ctx)
	} else {
		err = t.openShards(ctx)
	}
	if err != nil {
		return nil, err
	}
	t.removed = t.rowsRemoved(ctx)
	if err := t.beginBackfill(ctx); err != nil {
		return nil, errors.Join(err, t.closeShards())
	}
	t.warnOldTimes(ctx)
	// Positions are acknowledged through the planned source: it opens nothing of its own to do so.
	name, source := t.source().Name, t.source().Source
	t.acknowledge = func(*ps.SnapshotInfo) {}
	if a, ok := source.(pipeline.Acknowledger); ok {
		t.acknowledge = func(info *ps.SnapshotInfo) {
			if t.gap.Load() {
				return // the source has said that it has other records than the positions count
			}
			t.tellSource(a, t.storedSplits(source, name, info.Positions[name]))
		}
	}
	return t, nil
}

// openShards opens the shards in this process.
func (t *trainer) openShards(ctx context.Context) (err error) {
	if t.lock, err = stored.Claim(t.cfg, stored.LockName(0), "another process is training with"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.lock.Close())
		}
	}()
	fresh := t.opts.Resume != nil && !*t.opts.Resume
	if t.uploads, err = openUploads(ctx, t.cfg, fresh, t.log, psHooks(t.hooks), t.notice); err != nil {
		return err
	}
	if fresh {
		if err := stored.BeginAnew(t.cfg, t.notice); err != nil {
			return err
		}
	}
	if err := stored.FitsNewest(t.cfg, t.model.Layout(), t.notice); err != nil {
		return err
	}
	o, err := wiring.ClusterOptions(ctx, t.cfg, t.plan, t.model, t.log)
	if err != nil {
		return err
	}
	o.Logger, o.Hooks, o.Memory = t.log, psHooks(t.hooks), tableMemory(t.cfg, t.opts.Memory)
	if err := watchMemory(t.opts.Registerer, o.Memory); err != nil {
		return err
	}
	sayMemory(ctx, t.log, o.Layout, o.Memory)
	warnMemory(ctx, t.log, t.cfg, t.model, t.opts.Memory)
	o.GaveUp = t.gaveUp
	o.Grace = endingRun
	t.uploads.of(&o)
	cluster, err := coordinator.Open(ctx, o)
	if err != nil {
		return fault.Unavailable(err)
	}
	t.shards = cluster
	if err := t.resumed(); err != nil {
		return errors.Join(err, cluster.Close(context.WithoutCancel(ctx)))
	}
	t.uploads.start(ctx, cluster)
	return nil
}

// Dial connects to shards in other processes.
func (t *trainer) dial(ctx context.Context) error {
	if t.opts.Resume != nil && !*t.opts.Resume {
		return fault.Config("job: --resume=false: the shards at ps.addresses hold the state; start them with monolith ps --resume=false")
	}
	warnMemory(ctx, t.log, t.cfg, t.model, t.opts.Memory)
	remote, err := wiring.Dial(ctx, t.cfg, t.plan, t.model, 0, t.log, psHooks(t.hooks))
	if err != nil {
		return fault.Unavailable(otherFeatures(t.cfg, err))
	}
	t.shards = remote
	if err := t.resumed(); err != nil {
		return errors.Join(err, remote.Close(ctx))
	}
	return nil
}

// resumed says what the run continues from.
func (t *trainer) resumed() error {
	if r := t.shards.Restored(); r != nil {
		made := ""
		if strings.HasPrefix(r.Note, coordinator.MadeOf) {
			made = ", " + r.Note
		}
		t.notice("continuing from snapshot %s (%d rows%s)", r.Path, r.Rows(), made)
		if c, here := t.shards.(*coordinator.Cluster); here {
			for _, line := range c.Changes() {
				t.notice("%s", line)
			}
		}
	} else if t.opts.Resume != nil && *t.opts.Resume {
		where := "in " + stored.SnapshotsIn(t.cfg)
		if t.cfg.PS.Remote() {
			where = "was loaded by the shards at ps.addresses"
		}
		return fmt.Errorf("job: --resume: no snapshot %s: %w", where, pipeline.ErrConfig)
	}
	return nil
}

func (t *trainer) notice(format string, args ...any) {
	if t.opts.Notice != nil {
		t.opts.Notice(fmt.Sprintf(format, args...))
	}
}

// tellSource acknowledges to the source which positions a snapshot holds. Nothing depends on it but lag tools.
func (t *trainer) tellSource(source pipeline.Acknowledger, splits func(context.Context) (map[string]pipeline.StoredSplit, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stored, err := splits(ctx)
	if err == nil {
		err = source.Acknowledge(ctx, stored)
	}
	t.untold.say(t.log, err)
}

// storedSplits returns what looks up what a snapshot has of the splits of a source. Positions whose memory is not stored are
// left out: they came with the parameters of another job, and the log that they count may be another one.
func (t *trainer) storedSplits(source any, name string, progress map[string]ps.Progress) func(context.Context) (map[string]pipeline.StoredSplit, error) {
	_, remembers := source.(pipeline.Rememberer)
	return func(ctx context.Context) (map[string]pipeline.StoredSplit, error) {
		out := make(map[string]pipeline.StoredSplit, len(progress))
		for split, p := range progress {
			is := pipeline.StoredSplit{Position: p.Position}
			if remembers {
				memory, err := t.shards.State(ctx, ps.SourceState(name, split))
				if err != nil {
					return nil, fmt.Errorf("job: what is stored about split %q: %w", split, err)
				}
				if is.Memory = string(memory); memory == nil {
					continue
				}
			}
			out[split] = is
		}
		return out, nil
	}
}

// untold counts the snapshots in a row that a source was not told of. Methods may overlap.
type untold struct {
	mu     sync.Mutex
	inARow int
	code   failure.Code // of the last failure
}

// say logs how telling went: the first failure of a row and one of another kind, as there is a snapshot a minute or more and what is denied stays denied, and that it goes again.
func (u *untold) say(log *slog.Logger, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err == nil {
		if u.inARow > 0 {
			log.Info("consumer group is updated to snapshots again", "without", u.inARow)
		}
		u.inARow = 0
		return
	}
	code := failure.Of(err)
	if u.inARow++; u.inARow == 1 || u.code != code {
		u.code = code
		log.Warn("consumer group not updated to the snapshot; training is not held up, and lag tools show more than there is until it is said to go again", "err", err)
	}
}

// close stores nothing: train has.
func (t *trainer) close() error {
	return errors.Join(t.bad.close(), t.closeShards())
}

func (t *trainer) closeShards() error {
	t.uploads.close()
	err := t.shards.Close(context.Background())
	if t.lock != nil {
		err = errors.Join(err, t.lock.Close())
	}
	return err
}

// endingRun is for how long no snapshot is taken of splits whose worker, in this process, has left without passing its marker: a run whose
// outputs lack what was pushed is ending, and what it has pushed is to be trained again.
const endingRun = 10 * time.Second

// clientOf opens the sessions of this run's workers with the shards' state of a generation.
func (t *trainer) clientOf(generation uint64) wiring.OpenClient {
	return func(ctx context.Context, worker int) (*ps.Client, error) {
		c, err := t.shards.ClientAt(ctx, fmt.Sprintf("%s/%d", t.worker, worker), generation)
		if err != nil {
			return nil, err
		}
		c.OnMarker(func() (map[string][]byte, error) {
			if err := t.bad.flush(); err != nil {
				t.log.Error("dead letters before a snapshot are not on the disk yet", "err", err)
			}
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			if err := t.outputs.Flush(ctx, worker); err != nil {
				return nil, err
			}
			return t.memories.state(), nil
		})
		return c, nil
	}
}

// sourceName distinguishes one source from another in what a snapshot remembers of training.
func (t *trainer) sourceName() string {
	if name, ok := t.cfg.Source.Stream(); ok {
		return t.cfg.SourceNode() + " " + name
	}
	return sourceLabel(t.cfg.SourceNode(), t.known.set)
}

// evaluatesEpochs reports whether training stops after each epoch to evaluate.
func evaluatesEpochs(c *spec.Config) bool {
	_, stream := c.Source.Stream()
	from, _ := c.EvalSource()
	return from != nil && c.Eval.Every == "epoch" && c.Source.Bounded() && !stream
}

// progressive reports whether each example is scored before it is trained on, as the model would serve it. From the second
// epoch on that would be no validation: the model has seen the example.
func progressive(c *spec.Config) bool { return c.Epochs == 1 }

// marksBest reports whether the snapshot of the best evaluation is marked, and so kept: where there are several to choose from.
func marksBest(c *spec.Config) bool {
	return c.Train.EarlyStop != nil || evaluatesEpochs(c) && c.Epochs > 1
}

// evaluate scores the evaluation source with the parameters as they are. At the end of an epoch it decides what follows
// for the learning rate and for continuing; half an epoch or half an evaluation decides nothing, so that an interrupted run
// takes the same turns as one that was not.
func (t *trainer) evaluate(ctx context.Context, epoch int, ended bool, places string) (drained bool, err error) {
	t.monitor.begin(result.Status{Phase: "eval", Total: t.cfg.Eval.MaxExamples, Epoch: epoch, Epochs: t.cfg.Epochs}, 0)
	whole := *t.cfg
	whole.Eval.Slices = nil // `monolith eval` measures them
	found, stats, err := (&scoring{
		cfg: &whole, model: t.model, open: t.reader, workers: 1, maxExamples: t.cfg.Eval.MaxExamples, drain: t.opts.Drain,
		env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: t.log, Hooks: runHooks(t.monitor, t.hooks), BadRows: t.bad.policy}
		},
	}).run(ctx)
	t.leaveOut(stats)
	if err != nil || stats.Drained {
		return stats.Drained, err
	}
	if h := t.cfg.Eval.Holdout; h != nil && stats.Rows == 0 {
		t.notice("%s; there is nothing to evaluate on", holdsOutNothing(h))
	}
	scores, doubted := measure(t.cfg, found, groupKey(t.cfg))
	t.state.Metrics, t.doubted = scores, doubted
	attrs := []any{"epoch", epoch}
	for _, name := range scores.Names() {
		if v := scores[name]; result.Finite(v) != nil { // JSON has no other numbers
			attrs = append(attrs, name, math.Round(v*1e5)/1e5)
		}
	}
	t.log.InfoContext(ctx, "evaluated", append(attrs, "lr_factor", t.state.LR)...)
	if t.opts.Evaluated != nil {
		t.opts.Evaluated(epoch, scores)
	}
	if ended && !t.state.Stopped {
		decide(t.state, t.cfg, epoch, places, t.notice)
	}
	return false, nil
}

// reader opens a session that only reads.
func (t *trainer) reader(ctx context.Context, worker int) (*ps.Client, error) {
	return t.shards.Reader(ctx, fmt.Sprintf("%s/eval-%d", t.worker, worker))
}

// decide moves the learning rate and the early stop on by one evaluation.
func decide(s *stored.Trainer, cfg *spec.Config, epoch int, places string, notice func(string, ...any)) {
	// better asks the metric; a value that was not computed is never better.
	better := func(score string, best *float64, delta float64) bool {
		m, ok := cfg.Measured(score)
		v, computed := s.Metrics[score]
		return ok && computed && m.Direction.Better(v, best, delta)
	}
	if p := cfg.Train.Plateau; p != nil {
		if better(p.Metric, s.Best, p.MinDelta) {
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
	watched := cfg.Watched()
	if s.TopOf != "" && s.TopOf != watched { // the job goes by another metric now
		s.Top, s.TopEpoch, s.TopAt = nil, 0, ""
	}
	if v := s.Metrics[watched]; better(watched, s.Top, 0) {
		s.Top, s.TopOf, s.TopEpoch, s.TopAt = &v, watched, epoch, places
	}
	if e := cfg.Train.EarlyStop; e != nil {
		if better(e.Metric, s.StopBest, e.MinDelta) {
			v := s.Metrics[e.Metric]
			s.StopBest, s.StopBad = &v, 0
		} else if s.StopBad++; s.StopBad >= e.Patience {
			s.Stopped = true
			notice("%s got no better for %d evaluation(s): training stops; the best was %.5f, after epoch %d", e.Metric, s.StopBad, valueOr(s.Top, math.NaN()), s.TopEpoch)
		}
	}
}

func valueOr(v *float64, otherwise float64) float64 {
	if v == nil {
		return otherwise
	}
	return *v
}

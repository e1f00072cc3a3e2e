// Package demo shows online training with nothing installed: an embedded Kafka broker, a synthetic click stream whose
// click probabilities are known, a job that trains on it while it is published, and a comparison on held-out examples
// with the best any model could do and with the same model frozen half way.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/broker"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/synthsource"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

const (
	topic      = "clicks"
	partitions = 4
	heldOut    = 40_000 // examples; enough for a standard error of the AUC of .003
	intervals  = 10     // rows of the table over time
	resultFile = "result.json"

	// The world is a recommender's: of so many users most are seen a few times, and items are born while the demo runs. A
	// million examples touch more than 200,000 ids. Little of a click is the user's own and much the item's, so there are
	// fewer items, that a million examples suffice to learn their quality.
	users = 300_000
	items = 20_000
)

// Run runs the demo.
//
// The folder (a temporary one unless opts.Dir names it) keeps the broker's log, the job file, the held-out examples, the
// snapshots and the predictions; run again with the same folder and options, the demo says so and continues where it was,
// even when it was killed: the result is that of all runs together. A demo that has ended returns its result again.
func Run(ctx context.Context, opts job.DemoOptions) (_ *job.DemoResult, err error) {
	d := &demo{opts: opts, began: time.Now(), log: opts.Logger}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
	lock, err := fsx.TryLock(filepath.Join(d.dir, "demo.lock"))
	if errors.Is(err, fsx.ErrLocked) {
		return nil, fmt.Errorf("demo: another process runs the demo in %s: wait for it to end, or use another --dir: %w", d.dir, pipeline.ErrUnavailable)
	}
	if err != nil {
		return nil, unwritable(err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if result, err := d.ended(); result != nil || err != nil {
		return result, err
	}
	if err := d.open(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.curve.close()) }()
	kafka, err := broker.Start(broker.Options{
		Topics: map[string]int{topic: partitions}, Dir: filepath.Join(d.dir, "kafka"), Sync: true, Logger: d.log,
	})
	if err != nil {
		return nil, fmt.Errorf("demo: the embedded broker: %w", err)
	}
	d.brokers = kafka.Addrs()
	result, err := d.run(ctx)
	if cerr := kafka.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("demo: the embedded broker: %w", cerr)
	}
	return result, err
}

type demo struct {
	opts    job.DemoOptions
	log     *slog.Logger
	dir     string
	brokers []string
	stream  *synthsource.Stream
	began   time.Time
	curve   *curve
	resumed int64       // examples that earlier runs trained on
	trains  atomic.Bool // a batch of the present training was seen
}

// settings are what a demo's folder belongs to.
type settings struct {
	Examples int64  `json:"examples"`
	Seed     uint64 `json:"seed"`
	Model    string `json:"model"`
}

// unwritable is what to do about a folder that cannot be made or written to, such as that for temporary files of a container that has none.
func unwritable(err error) error {
	return fault.Mark(fmt.Errorf("demo: %w", err), pipeline.ErrUnavailable, "make room or give the right to write there, or name another folder (--dir FOLDER)")
}

// prepare makes the folder and the world, and refuses a folder of another demo.
func (d *demo) prepare() (err error) {
	if d.dir = d.opts.Dir; d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "monolith-demo-"); err != nil {
			return unwritable(err)
		}
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return unwritable(err)
	}
	want := settings{d.opts.Examples, d.opts.Seed, d.opts.Model}
	path := filepath.Join(d.dir, "demo.json")
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		var have settings
		if err := json.Unmarshal(b, &have); err != nil {
			return fmt.Errorf("demo: %s: %w: %w", path, err, pipeline.ErrConfig)
		}
		if have != want {
			return fmt.Errorf("demo: %s holds a demo with --examples %d --seed %d --model %s: use these, or another --dir: %w", d.dir, have.Examples, have.Seed, have.Model, pipeline.ErrConfig)
		}
	case errors.Is(err, fs.ErrNotExist):
		if b, err = json.Marshal(want); err != nil {
			return err
		}
		if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
			return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
		}
	default:
		return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	d.stream, err = synthsource.NewStream(synthsource.Options{Seed: d.opts.Seed, Examples: d.opts.Examples, Users: users, Items: items})
	return err
}

// ended returns the result of a demo that has ended, nil while there is none.
func (d *demo) ended() (*job.DemoResult, error) {
	path := filepath.Join(d.dir, resultFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	result := &job.DemoResult{}
	if err := json.Unmarshal(b, result); err != nil {
		return nil, fmt.Errorf("demo: %s: %w: remove it, and it is made again: %w", path, err, pipeline.ErrConfig)
	}
	result.Dir, result.ResumedFrom = d.dir, result.Examples
	d.notice("the demo in %s has ended; this is its result again", d.dir)
	return result, nil
}

// open finds out how far earlier runs came, and says so.
func (d *demo) open(ctx context.Context) error {
	held, err := d.held(ctx)
	if err != nil {
		return err
	}
	if d.curve, err = openCurve(filepath.Join(d.dir, "predictions.bin"), d.stream, max(d.opts.Examples/intervals, 1), held); err != nil {
		return err
	}
	if d.resumed = d.curve.examples(); d.resumed > 0 {
		d.notice("the demo in %s continues from %d of %d examples", d.dir, d.resumed, d.opts.Examples)
	}
	return nil
}

func (d *demo) notice(format string, args ...any) {
	if d.opts.Notice != nil {
		d.opts.Notice(fmt.Sprintf(format, args...))
	}
}

func (d *demo) run(ctx context.Context) (_ *job.DemoResult, err error) {
	held := d.stream.HeldOut(d.opts.Examples, heldOut)
	if err := d.writeHeldOut(held); err != nil {
		return nil, err
	}
	cfg, err := d.job()
	if err != nil {
		return nil, err
	}
	whole := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var publishing sync.WaitGroup
	defer publishing.Wait()
	defer cancel(nil)
	publishing.Go(func() {
		if err := d.publish(ctx); err != nil {
			cancel(err)
		}
	})

	defer func() {
		if cause := context.Cause(ctx); err != nil && whole.Err() == nil && cause != nil {
			err = cause // why the training was stopped
		}
	}()
	run := d.opts.RunOptions
	training := *cfg
	training.Eval.Source = nil // the demo compares on the held-out examples itself
	run.Observe = d.observe(cancel)
	run.Notice = func(text string) {
		if d.trains.Load() { // what comes before is about snapshots, also that of the demo's own first half
			d.notice("%s", text)
		}
	}
	frozen, half, err := d.trainHalf(ctx, training, run)
	if err != nil {
		return nil, err
	}
	last := half
	if !half.Drained {
		d.trains.Store(false)
		if last, err = job.Run(ctx, &training, run); err != nil {
			return nil, err
		}
	}
	result := &job.DemoResult{
		Examples: d.curve.examples(), ResumedFrom: d.resumed, Snapshot: last.Snapshot, Drained: last.Drained, Dir: d.dir,
		OverTime: d.curve.table(),
	}
	result.ExamplesPerSecond = float64(result.Examples) / max(d.curve.last.Seconds(), 1e-9)
	result.Progressive.AUC, result.Progressive.LogLoss = d.curve.all()
	info, err := job.InspectSnapshot(ctx, last.Snapshot)
	if err != nil {
		return nil, err
	}
	result.Rows = info.Rows

	probs, clicks := truth(held)
	result.HeldOut = job.HeldOutResult{FrozenAUC: math.NaN()}
	result.HeldOut.BestAUC, _ = metric.AUC(probs, clicks, nil)
	eval := job.EvalOptions{Options: d.opts.RunOptions, Snapshot: last.Snapshot}
	eval.Registerer, eval.Drain = nil, nil
	online, err := job.Evaluate(ctx, cfg, eval)
	if err != nil {
		return nil, err
	}
	result.HeldOut.AUC = online.Metrics["auc"]
	if frozen != "" {
		eval.Snapshot = frozen
		before, err := job.Evaluate(ctx, cfg, eval)
		if err != nil {
			return nil, err
		}
		result.HeldOut.FrozenAUC = before.Metrics["auc"]
	}
	result.Seconds = (d.curve.before + time.Since(d.began)).Seconds()
	if result.Drained {
		return result, nil
	}
	b, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return nil, err
	}
	return result, replace(filepath.Join(d.dir, resultFile), append(b, '\n'))
}

// observe returns what stores the predictions of a batch, and ends the training when that fails.
func (d *demo) observe(stop context.CancelCauseFunc) trainstep.Observer {
	return func(o trainstep.Observation) {
		d.trains.Store(true)
		if partition, ok := partitionOf(o.Origin.Split); ok {
			if err := d.curve.observe(&batch{partition: partition, from: int64(o.Origin.From), probs: o.Scores.Heads[0].Predictions}); err != nil {
				stop(err)
			}
		}
		if d.opts.Observe != nil {
			d.opts.Observe(o)
		}
	}
}

// trainHalf trains to the middle of the stream, unless an earlier run has, and returns the snapshot taken there.
func (d *demo) trainHalf(ctx context.Context, half job.Config, run job.RunOptions) (frozen string, result *job.TrainResult, err error) {
	mark := filepath.Join(d.dir, "half-way.txt")
	if b, err := os.ReadFile(mark); err == nil {
		return string(b), &job.TrainResult{}, nil
	}
	half.Train.MaxExamples = d.opts.Examples / 2
	run.Pin = "half way"
	if result, err = job.Run(ctx, &half, run); err != nil {
		return "", nil, err
	}
	if result.Drained {
		return "", result, nil
	}
	if err := replace(mark, []byte(result.Snapshot)); err != nil {
		return "", nil, err
	}
	return result.Snapshot, result, nil
}

// writeHeldOut writes the held-out examples where the job's eval section finds them.
func (d *demo) writeHeldOut(held []synthsource.Example) (err error) {
	path := filepath.Join(d.dir, "heldout.tfrecord")
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(d.dir, "heldout-*.tmp")
	if err != nil {
		return unwritable(err)
	}
	w := tfrecord.NewWriter(f, nil)
	var buf []byte
	for i := range held {
		buf = held[i].AppendTFExample(buf[:0])
		if err := w.Write(buf); err != nil {
			return errors.Join(unwritable(err), f.Close())
		}
	}
	if err := errors.Join(w.Close(), f.Close(), os.Rename(f.Name(), path)); err != nil {
		return unwritable(err)
	}
	return nil
}

func truth(held []synthsource.Example) (probs, clicks []float32) {
	for i := range held {
		probs, clicks = append(probs, float32(held[i].Probability)), append(clicks, 0)
		if held[i].Click {
			clicks[i] = 1
		}
	}
	return probs, clicks
}

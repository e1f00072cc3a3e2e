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
	"time"

	"github.com/monolith-go/monolith/internal/testbed/broker"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
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

	// The world is a recommender's: of so many users most are seen a few times, and items are born while the demo runs. A
	// million examples touch more than 200,000 ids. Little of a click is the user's own and much the item's, so there are
	// fewer items, that a million examples suffice to learn their quality.
	users = 300_000
	items = 20_000
)

// Run runs the demo.
//
// The folder (a temporary one unless opts.Dir names it) keeps the broker's log, the job file, the held-out examples and
// the snapshots; run again with the same folder and options, the demo goes on where it was, even when it was killed.
func Run(ctx context.Context, opts job.DemoOptions) (*job.DemoResult, error) {
	d := &demo{opts: opts, began: time.Now(), log: opts.Logger}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.prepare(); err != nil {
		return nil, err
	}
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
	curve   curve
}

// settings are what a demo's folder belongs to.
type settings struct {
	Examples int64  `json:"examples"`
	Seed     uint64 `json:"seed"`
	Model    string `json:"model"`
}

// prepare makes the folder and the world, and refuses a folder of another demo.
func (d *demo) prepare() (err error) {
	if d.dir = d.opts.Dir; d.dir == "" {
		if d.dir, err = os.MkdirTemp("", "monolith-demo-"); err != nil {
			return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
		}
	}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
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

func (d *demo) run(ctx context.Context) (*job.DemoResult, error) {
	held := d.stream.HeldOut(d.opts.Examples, heldOut)
	if err := d.writeHeldOut(held); err != nil {
		return nil, err
	}
	cfg, err := d.job()
	if err != nil {
		return nil, err
	}
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

	run := d.opts.RunOptions
	training := *cfg
	training.Eval.Source = nil // the demo compares on the held-out examples itself
	d.curve.every = max(d.opts.Examples/intervals, 1)
	run.Observe = d.observe
	frozen, half, err := d.trainHalf(ctx, training, run)
	if err != nil {
		return nil, err
	}
	last := half
	if !half.Drained {
		run.Notice = nil // it goes on from its own half
		if last, err = job.Run(ctx, &training, run); err != nil {
			return nil, err
		}
	}
	trained := time.Since(d.began).Seconds()
	result := &job.DemoResult{
		Examples: half.Examples, Seconds: trained, Snapshot: last.Snapshot, Drained: last.Drained, Dir: d.dir,
		OverTime: d.curve.table(),
	}
	if last != half {
		result.Examples += last.Examples
	}
	result.ExamplesPerSecond = float64(result.Examples) / trained
	all := d.curve.all()
	result.Progressive = job.ProgressiveResult{AUC: all.AUC, LogLoss: all.LogLoss}
	info, err := job.InspectSnapshot(ctx, last.Snapshot)
	if err != nil {
		return nil, err
	}
	result.Rows = info.Rows

	probs, clicks := truth(held)
	result.HeldOut = job.HeldOutResult{FrozenAUC: math.NaN()}
	result.HeldOut.BestAUC, _ = metric.AUC(probs, clicks, nil)
	eval := job.EvalOptions{RunOptions: d.opts.RunOptions, Snapshot: last.Snapshot}
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
	result.Seconds = time.Since(d.began).Seconds()
	return result, nil
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
	if err := os.WriteFile(mark, []byte(result.Snapshot), 0o644); err != nil {
		return "", nil, fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
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
		return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
	}
	w := tfrecord.NewWriter(f, nil)
	var buf []byte
	for i := range held {
		buf = held[i].AppendTFExample(buf[:0])
		if err := w.Write(buf); err != nil {
			return errors.Join(fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable), f.Close())
		}
	}
	if err := errors.Join(w.Close(), f.Close(), os.Rename(f.Name(), path)); err != nil {
		return fmt.Errorf("demo: %w: %w", err, pipeline.ErrUnavailable)
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

// observe adds a batch to the curve, with what the best possible predictor would have said: the stream can be asked again
// for every record, because partition k holds the examples k, k+4, k+8 ... in order.
func (d *demo) observe(o trainstep.Observation) {
	var partition int64
	if _, err := fmt.Sscanf(o.Origin.Split, topic+"-%d", &partition); err != nil {
		return
	}
	var ex synthsource.Example
	for r := range o.Probs {
		d.stream.At((int64(o.Origin.From)+int64(r))*partitions+partition, &ex)
		d.curve.add(o.Probs[r], o.Labels[r], float32(ex.Probability))
	}
}

// curve collects predictions in intervals.
type curve struct {
	every               int64
	probs, labels, best []float32
	at                  []time.Time // when each interval was complete
	first               time.Time
}

func (c *curve) add(prob, label, best float32) {
	if len(c.probs) == 0 {
		c.first = time.Now()
	}
	c.probs, c.labels, c.best = append(c.probs, prob), append(c.labels, label), append(c.best, best)
	if int64(len(c.probs))%c.every == 0 {
		c.at = append(c.at, time.Now())
	}
}

func (c *curve) all() metric.Summary { return metric.Summarize(c.probs, c.labels, nil) }

func (c *curve) table() []job.DemoInterval {
	var out []job.DemoInterval
	began := c.first
	for k, at := range c.at {
		from, to := int64(k)*c.every, int64(k+1)*c.every
		s := metric.Summarize(c.probs[from:to], c.labels[from:to], nil)
		best, _ := metric.AUC(c.best[from:to], c.labels[from:to], nil)
		out = append(out, job.DemoInterval{
			Examples: to, ExamplesPerSecond: float64(c.every) / max(at.Sub(began).Seconds(), 1e-9),
			AUC: s.AUC, LogLoss: s.LogLoss, BestAUC: best,
		})
		began = at
	}
	return out
}

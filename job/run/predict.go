package run

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/telemetry"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/transforms/parse"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// PredictOptions say what to predict with, beside the job.
type PredictOptions struct {
	Options
	// Snapshot is as of [EvalOptions].
	Snapshot string
	// Examples are those of predict.source, or where there is none of the job's source; [EvalExamples] are those of eval.source.
	Examples string
	// Workers is how many splits are predicted side by side; 0: train.workers.
	Workers int
	// Alone is the folder of a snapshot, or of an export in native format, that is used with its own model: the job is one of [Alone]. Empty: the model
	// is the job's.
	Alone string
	// MaxExamples ends the run when so many rows are there, those of earlier runs among them; 0: at the source's end.
	MaxExamples int64
	// Follow reads a stream without the end that its section may set, until the run is drained.
	Follow bool
}

// EvalExamples is [PredictOptions].Examples for those that the job is evaluated on.
const EvalExamples = "eval"

// Predict scores what predict.source has, or without one the job's source, with the parameters of a snapshot, and writes the predictions
// to predict.to: one for each row, in the order of each split, whatever was killed when. What has been written is found where it lies, so
// that a run that was killed or drained is continued by the next with the same job. It ends with its source; a stream ends when it is
// drained, and splits that it gets meanwhile are taken up. Labels are not needed. The predictions are those that [Evaluate] measures, bit for bit.
//
// Executors in other processes (beam.environment) read the snapshot and write to the place themselves, by the same paths; what they read has to end.
//
// Errors: [pipeline.ErrConfig], also for a place that has predictions of another snapshot, model or fields; [pipeline.ErrBadData];
// [pipeline.ErrUnavailable].
func Predict(ctx context.Context, cfg *spec.Config, o PredictOptions) (_ *result.Predicted, err error) {
	p := &prediction{opts: o, log: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}
	if p.cfg, err = o.job(cfg); err != nil {
		return nil, err
	}
	if err := p.cfg.CheckPlaces(ctx); err != nil {
		return nil, err
	}
	if p.hooks, err = newTelemetry(o.Registerer); err != nil {
		return nil, err
	}
	certificates, err := watchSecrets(p.log, o.Registerer, tlsOf(p.cfg), tokensOf(&p.cfg.PS))
	if err != nil {
		return nil, err
	}
	defer certificates.Close()
	of, err := p.chooseModel(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.alone.close()) }()
	if err := p.find(ctx); err != nil {
		return nil, err
	}
	of.Job, of.Model, of.Fields = p.cfg.Name, hashed(p.model.String()), p.fields()
	if p.place, err = openPlace(ctx, p.cfg, of); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.place.close(context.WithoutCancel(ctx))) }()
	return p.run(ctx)
}

// chooseModel finds the model and its parameters.
func (p *prediction) chooseModel(ctx context.Context) (of predictedOf, err error) {
	if p.opts.Alone != "" {
		if p.alone, err = openAlone(ctx, p.opts.Alone, p.log); err != nil {
			return of, err
		}
		p.model, p.path = p.alone.model, p.alone.path
		return predictedOf{Snapshot: p.alone.name, Created: p.alone.created}, nil
	}
	if p.model, err = wiring.Model(p.cfg); err != nil {
		return of, err
	}
	from, err := stored.ToRead(p.cfg, p.opts.Snapshot)
	if err != nil {
		return of, err
	}
	// The place of the predictions is opened for this snapshot, before its parameters are: it must be whole.
	info, damaged, err := from.Good(ctx)
	if err != nil {
		return of, fmt.Errorf("job: %w", err)
	}
	p.path, p.which = info.Path, stored.WhichIs(from.FS, info)
	stored.WarnPassedOver(ctx, p.log, damaged, p.path)
	moved, err := stored.Fits(p.cfg, nil, info)
	if err != nil {
		return of, err
	}
	if len(moved) > 0 {
		p.notice("other columns are read than for snapshot %s: %s", p.path, strings.Join(moved, "; "))
	}
	return predictedOf{Snapshot: filepath.Base(p.path), Created: info.Created}, nil
}

// open opens the parameters.
func (p *prediction) open(ctx context.Context) (_ trainstep.OpenStore, closing func() error, err error) {
	if p.alone != nil && p.alone.export != nil {
		store := p.alone.export
		return func(context.Context, *pipeline.Env) (trainstep.Store, error) { return store, nil }, func() error { return nil }, nil
	}
	cluster, err := coordinator.Open(ctx, coordinator.Options{
		Layout: p.model.Layout(), NumShards: p.cfg.PS.Shards, Precision: wiring.Precision(&p.cfg.PS), Restore: p.path, ReadOnly: true,
		Logger: p.log, Hooks: psHooks(p.hooks), Memory: readMemory(p.cfg, p.opts.Memory), Threads: p.cfg.StepThreads(),
	})
	if err != nil {
		return nil, nil, fault.Unavailable(err)
	}
	clients := wiring.OpenClient(func(ctx context.Context, worker int) (*ps.Client, error) {
		return cluster.Client(ctx, fmt.Sprintf("predict-%d", worker))
	})
	return clients.Stores(), func() error { return cluster.Close(context.WithoutCancel(ctx)) }, nil
}

// job is the job with what options say of it.
func (o *PredictOptions) job(cfg *spec.Config) (*spec.Config, error) {
	c := *cfg
	if err := o.choose(&c); err != nil {
		return nil, err
	}
	if o.Workers > 0 {
		c.Train.Workers = o.Workers
	}
	if o.MaxExamples > 0 { // which are the first does not depend on timing
		c.Train.Workers = 1
	}
	if to := c.Predict.To; to == nil || to.Value() == nil {
		return nil, fault.Config("job: predict.to is not set: say where predictions go, such as predict.to={jsonl: {dir: predictions}}, or --to jsonl --dir predictions")
	}
	return &c, o.checkRunner(&c)
}

// choose makes the examples that are asked for those of predict.source.
func (o *PredictOptions) choose(c *spec.Config) error {
	switch o.Examples {
	case "":
	case EvalExamples:
		of, ok := c.PredictingEval()
		if !ok {
			return fault.Config("job: neither eval.source nor eval.holdout is set, and the examples of evaluation are to be predicted")
		}
		*c = *of
	default:
		return fault.Config("job: the examples are %q; there are those of predict.source, or of the job's source, and %q", o.Examples, EvalExamples)
	}
	if !o.Follow {
		return nil
	}
	from, _ := c.PredictSource()
	stream, ok := from.Value().(component.Endless)
	switch {
	case !ok:
		return fault.Config("job: a source of %s ends, and cannot be followed: run the same command again, which predicts what has come since", from.Name())
	case o.MaxExamples > 0:
		return fault.Config("job: predictions that follow a stream do not end with %d examples; leave out one of them", o.MaxExamples)
	}
	on := spec.SourceOf(from.Name(), stream.WithoutEnd())
	if c.Predict.Source != nil {
		c.Predict.Source = &on
	} else {
		c.Source = on
	}
	return nil
}

// prediction is one run.
type prediction struct {
	cfg         *spec.Config
	opts        PredictOptions
	log         *slog.Logger
	hooks       *telemetry.Metrics
	model       model.Model
	alone       *alone // nil: the model is the job's
	path, which string // of the snapshot
	reading     wiring.Reading
	known       []string // the columns of the records; nil: not known
	place       *place
}

func (p *prediction) notice(format string, args ...any) {
	if p.opts.Notice != nil {
		p.opts.Notice(fmt.Sprintf(format, args...))
	}
}

// find finds the columns to write.
func (p *prediction) find(ctx context.Context) (err error) {
	p.reading = wiring.PredictReading(p.cfg)
	p.reading.Log = p.log
	if p.known, err = p.reading.RecordColumns(ctx); err != nil {
		return p.named(err)
	}
	p.reading.Fields, err = wiring.FindFields(p.cfg, p.model, p.known)
	return err
}

// fields are the names of the columns that are written.
func (p *prediction) fields() (names []string) {
	for _, f := range p.reading.Fields.List {
		names = append(names, strings.Trim(f.Name, "_"))
	}
	return names
}

// named gives an error of the source the key of the job that it belongs to.
func (p *prediction) named(err error) error {
	if _, ok := errors.AsType[*filesplit.NoMatchError](err); ok {
		return fmt.Errorf("%s: %w", p.reading.KeyOf(err), err)
	}
	return err
}

// run predicts.
func (p *prediction) run(ctx context.Context) (*result.Predicted, error) {
	began := time.Now()
	bad, err := newBadRows(p.cfg, stored.WorkerName(), p.log)
	if err != nil {
		return nil, err
	}
	defer bad.close()            //nolint:errcheck // the letter box was flushed with each row
	var open trainstep.OpenStore // of executors in this process
	if !elsewhere(p.cfg) {
		var closing func() error
		if open, closing, err = p.open(ctx); err != nil {
			return nil, err
		}
		defer closing() //nolint:errcheck // nothing was written
	}

	p.opts.ready()
	mon := newMonitor(p.cfg, p.opts.Options, p.hooks)
	mon.watched, mon.fills = "predict", newFillWatch(p.cfg, p.log)
	mon.fills.watchColumns(p.reading.Fields.Keys, func(attrs ...any) {
		p.log.Warn("no record has a value of this field; is its name that of a column?", attrs...)
	})
	outs := &wiring.Outputs{}
	mon.outputs = outs
	mon.begin(result.Status{Phase: "predict", Total: cmp.Or(p.opts.MaxExamples, p.reading.Source.NumExamples())}, 0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); mon.run(stop) }()
	defer func() { close(stop); <-done }()

	if p.reading.Known, err = p.place.probe(ctx, p.reading); err != nil {
		return nil, err
	}
	if packed := p.place.packed; len(packed) > 0 {
		p.notice("files that were read before and are compressed now, as it seems: %s; their bytes are others, so that their rows are predicted twice; name files so that compressed ones are left out", someOf(packed))
	}
	plan, stage, err := wiring.PredictGraph(p.cfg, p.reading, p.model, open, outs, p.place.output)
	if err != nil {
		return nil, err
	}
	stats, err := p.follow(ctx, plan, pipeline.RunOptions{
		Workers: p.cfg.Train.Workers, MaxRows: p.opts.MaxExamples, Deterministic: p.opts.MaxExamples > 0, Interleave: p.cfg.Train.Interleave,
		Env: func(worker int) *pipeline.Env {
			return &pipeline.Env{Worker: worker, Logger: p.log, Hooks: runHooks(mon, p.hooks), BadRows: bad.policy, Memory: p.place.remember}
		},
	})
	if err != nil {
		return nil, p.named(err)
	}
	if err := bad.guard.nothing(stats); err != nil {
		return nil, err
	}
	var features []result.FillInfo
	var missing error
	if open != nil {
		features = mon.fills.end()
		if stats.Rows > 0 {
			missing = p.blankFields(stage.Blank(), mon.fills.blank(), &stats)
		}
	}
	seconds := time.Since(began).Seconds()
	return &result.Predicted{
		Snapshot: p.path, Which: p.which, To: p.cfg.Predict.To.Name(), Place: p.place.text, Output: p.place.output, Fields: p.fields(),
		Rows: stats.Rows + stats.Resumed, Earlier: stats.Resumed, Drained: stats.Drained,
		Seconds: seconds, ExamplesPerSecond: float64(stats.Rows) / max(seconds, 1e-9), BadRows: stats.BadRows, Features: features,
	}, missing
}

// follow runs the plan, and again with all splits when there are new ones, until the source ends or the run is drained.
func (p *prediction) follow(ctx context.Context, plan *pipeline.Plan, o pipeline.RunOptions) (all pipeline.RunStats, err error) {
	for first := true; ; first = false {
		if o.Splits, err = p.place.recall(ctx, plan); err != nil {
			return all, err
		}
		growth := p.watchGrowth(ctx, plan, o.Splits)
		o.Drain = growth.drain
		stats, err := p.runGraph(ctx, plan, o)
		grown := growth.end()
		if !first {
			stats.Resumed = 0 // what the runs before have written
		}
		all = pipeline.Sum(all, stats)
		all.Drained = stats.Drained
		if err != nil || !grown || !stats.Drained {
			return all, err
		}
		p.log.Info("the source has got splits; reading continues with them")
	}
}

// growth drains a run of a source when it gets splits, or when the user wants it to end.
type growth struct {
	drain chan struct{}
	end   func() (grown bool)
}

// watchGrowth looks for new splits until end is called, which reports whether the run was drained for them alone.
func (p *prediction) watchGrowth(ctx context.Context, plan *pipeline.Plan, known []pipeline.Split) growth {
	drain, quit := make(chan struct{}), make(chan struct{})
	grown := false
	every := time.Duration(0)
	if g, ok := plan.Segments[0].Sources()[0].Source.(pipeline.Growing); ok {
		every = g.GrowsEvery()
	}
	var watch sync.WaitGroup
	watch.Go(func() {
		var poll <-chan time.Time
		if every > 0 {
			tick := time.NewTicker(every)
			defer tick.Stop()
			poll = tick.C
		}
		for {
			select {
			case <-p.opts.Drain:
				close(drain)
				return
			case <-poll:
			case <-quit:
				return
			}
			splits, err := plan.Splits(ctx)
			if err != nil { // reading says what is wrong, and has the patience
				p.log.Debug("looking for new splits", "err", err)
				continue
			}
			if grown = slices.ContainsFunc(splits, func(s pipeline.Split) bool {
				return !slices.ContainsFunc(known, func(k pipeline.Split) bool { return k.Name == s.Name })
			}); grown {
				close(drain)
				return
			}
		}
	})
	return growth{drain, func() bool {
		close(quit)
		watch.Wait()
		return grown
	}}
}

// runGraph runs the plan on the job's runner.
func (p *prediction) runGraph(ctx context.Context, plan *pipeline.Plan, o pipeline.RunOptions) (pipeline.RunStats, error) {
	if p.cfg.Runner == spec.RunnerLocal {
		stats, err := local.Run(ctx, plan, o)
		return pipeline.Sum(stats...), err
	}
	again := recipe{Run: rand.Text(), Job: p.cfg.Raw()}
	if elsewhere(p.cfg) {
		return p.runElsewhere(ctx, again, plan, o)
	}
	return p.submit(ctx, again, plan, o)
}

// submit has a runner run the plan.
func (p *prediction) submit(ctx context.Context, again recipe, plan *pipeline.Plan, o pipeline.RunOptions) (pipeline.RunStats, error) {
	config, done, err := p.opts.Recipes.add(again, func() (*Rebuilt, error) { return &Rebuilt{Plan: plan, Env: o.Env}, nil })
	if err != nil {
		return pipeline.RunStats{}, err
	}
	defer done()
	s := Submission{Recipe: config, Plan: plan, Options: o, Beam: p.cfg.Beam, Notice: p.notice}
	s.Beam.JobName = cmp.Or(s.Beam.JobName, p.cfg.Name) + "-predict"
	return p.opts.Runners[p.cfg.Runner](ctx, s)
}

// blankFields judges fields that no record of the run had a value of. It is an error when all
// records were predicted at once and nothing but the field says that the column exists. Otherwise a
// warning is logged, unless seen, the columns that were counted, has the column: it was logged then.
// Errors: [ErrBadRows].
func (p *prediction) blankFields(blank []string, seen []parse.SeenKey, stats *pipeline.RunStats) error {
	read := p.cfg.ReadColumns()
	whole := p.known == nil && stats.Resumed == 0 && !stats.Drained && p.opts.MaxExamples == 0
	var missing []string
	for _, name := range blank {
		column := strings.TrimPrefix(name, spec.FieldColumn)
		there := absent(seen, column)
		switch {
		case whole && !slices.Contains(read, column):
			text := fmt.Sprintf("%q", name)
			if near := cmp.Or(there.Near, nearest.Name(column, read)); near != "" {
				text += fmt.Sprintf(" (did you mean %q?)", near)
			} else if len(there.Names) > 0 {
				text += fmt.Sprintf(" (the records have %s)", spec.Listed(there.Names))
			}
			missing = append(missing, text)
		case !slices.ContainsFunc(seen, func(s parse.SeenKey) bool { return s.Name == column }):
			p.log.Warn("no record has a value of this field; is its name that of a column?", "column", column)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("job: predict.fields: none of the %d records of %s has a value of %s, so it is empty in all that was written to %s; name a column of the records and predict to another place: %w",
		stats.Rows, p.reading.Key, strings.Join(missing, " or of "), p.place.text, ErrBadRows)
}

// hashed is a short name for a long text.
func hashed(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:8])
}

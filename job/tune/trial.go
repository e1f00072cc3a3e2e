package tune

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/run"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// leastMeasured is how many held-out rows a trial is measured on at least.
const leastMeasured = 2000

func (s *search) trialsDir() string { return filepath.Join(s.dir, "trials") }

// try trains and measures a candidate. Errors: those that end the search; what a candidate is lost by
// is in the trial.
func (s *search) try(ctx context.Context, rung, number int, rows int64, otherSeed bool) (*trial, error) {
	t := &trial{Rung: rung, Candidate: number, OtherSeed: otherSeed, Planned: rows}
	dir := filepath.Join(s.trialsDir(), fmt.Sprintf("%03d", number))
	if err := os.RemoveAll(dir); err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	defer os.RemoveAll(dir) //nolint:errcheck // the next run removes what stays
	err := s.train(ctx, t, dir)
	short := s.on == "progressive" && t.Rows < rows // the rows that are measured did not come: the rung is run again with fewer
	if err == nil && !short {
		if v, ok := t.Scores[s.score]; !ok || math.IsNaN(v) || math.IsInf(v, 0) {
			err = fmt.Errorf("%s is not a number: training diverged, or the rows that are measured have one label only", s.score)
		}
	}
	switch {
	case err == nil:
	case ctx.Err() != nil, number == 0 && ctx.Err() == nil, fatal(err):
		if number == 0 {
			err = fmt.Errorf("the job as it is: %w", err)
		}
		return nil, err
	default:
		t.Lost, t.Scores = oneLine(failure.Plain(err)), nil
	}
	return t, nil
}

func oneLine(text string) string {
	const most = 160
	text = strings.Join(strings.Fields(text), " ")
	if r := []rune(text); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return text
}

// train runs a trial.
func (s *search) train(ctx context.Context, t *trial, dir string) error {
	cfg, err := s.config(&s.candidates[t.Candidate], t.Planned, dir, t.OtherSeed)
	if err != nil {
		return err
	}
	tail := &tail{cfg: cfg, from: t.Planned - t.Planned/share}
	o := run.Options{Status: s.o.Status, Memory: s.o.Memory}
	if s.log.Enabled(ctx, slog.LevelDebug) {
		o.Logger = s.log
	}
	best := math.NaN()
	if s.on == "progressive" {
		o.Observe = tail.observe
	} else {
		o.Evaluated = func(_ int, scores result.Scores) {
			if stop := cfg.Train.EarlyStop; stop != nil { // the job uses its best epoch
				m, _ := cfg.Measured(stop.Metric)
				v := scores[stop.Metric]
				if t.Scores != nil && !m.Direction.Better(v, &best, 0) {
					return
				}
				best = v
			}
			t.Scores = scores
		}
	}
	r, err := run.Train(ctx, cfg, o)
	if err != nil {
		return err
	}
	t.Rows, t.BadRows = r.Examples, r.BadRows
	if s.on == "progressive" {
		t.Scores = tail.measure()
	}
	return nil
}

// config is the job of a trial: the candidate's, trained on so many rows by one worker of this process,
// so that it depends on nothing else, and without whatever writes or listens anywhere but in dir.
func (s *search) config(c *candidate, rows int64, dir string, otherSeed bool) (*spec.Config, error) {
	set := c.set()
	seed := s.cfg.Seed
	if otherSeed {
		seed++
		set = append(set, s.sameWorld()...)
	}
	made, err := s.cfg.With(s.o.Env, set)
	if err != nil {
		return nil, err
	}
	cfg := *made
	cfg.Dir, cfg.Seed, cfg.Deterministic = dir, seed, true
	if s.state.Range != nil {
		source, err := dated(&cfg).Between(s.state.Range.From, s.state.Range.To)
		if err != nil {
			return nil, err
		}
		cfg.Source = spec.SourceOf(cfg.Source.Name(), source)
	}
	cfg.Runner, cfg.Outputs, cfg.Metrics = spec.RunnerLocal, nil, spec.Metrics{}
	cfg.Predict = spec.Predict{}
	memory, precision, storage := cfg.PS.Memory, cfg.PS.Precision, cfg.PS.Storage
	cfg.PS = spec.Default(cfg.Components()).PS
	cfg.PS.Memory, cfg.PS.Precision, cfg.PS.Storage = memory, precision, storage
	cfg.Snapshot = spec.Snapshot{Keep: 1, UploadKeep: 1, Tolerate: cfg.Snapshot.Tolerate}
	cfg.Train.Workers, cfg.Train.MaxBatchDelay, cfg.Train.MaxStaleness = 1, nil, 0
	cfg.Train.Prefetch = spec.Prefetch{Parse: cfg.Train.Prefetch.Parse}
	cfg.Train.MaxExamples = rows
	if cfg.Train.DeadLetter != nil {
		cfg.Train.OnBadRow, cfg.Train.DeadLetter = "skip", nil
	}
	// One worker has no delays to make up for.
	cfg.Optimizer.DelayCompensation = spec.Delays{}
	for i := range cfg.Tables {
		cfg.Tables[i].DelayCompensation = nil
	}
	cfg.Eval.Outputs, cfg.Eval.Slices = nil, nil
	if len(cfg.Heads) == 0 {
		cfg.Eval.Metrics = metrics(&cfg)
	}
	measured := max(rows/4, leastMeasured)
	if cfg.Eval.MaxExamples > 0 {
		measured = min(measured, cfg.Eval.MaxExamples)
	}
	cfg.Eval.MaxExamples = measured
	if s.on == "progressive" {
		cfg.Epochs = 1 // what was trained on says nothing
	}
	return &cfg, nil
}

// sameWorld keeps the seed of a source that takes the job's, so that another seed has the same rows.
func (s *search) sameWorld() (set []string) {
	for _, v := range s.cfg.Effective() {
		if (strings.HasPrefix(v.Path, "source.") || strings.HasPrefix(v.Path, "eval.source.")) && strings.HasSuffix(v.Path, ".seed") && v.Value == "0" {
			set = append(set, fmt.Sprintf("%s=%d", v.Path, s.cfg.Seed))
		}
	}
	return set
}

// dated is the job's source if it is a stream of which a part can be read; nil: it is none.
func dated(cfg *spec.Config) component.Dated {
	d, _ := cfg.Source.Value().(component.Dated)
	return d
}

// freeze decides which part of a stream all trials read: from where the job begins to where the stream
// ends now. Where the job begins at the end, it is all that there is.
func (s *search) freeze(ctx context.Context) error {
	stream := dated(s.cfg)
	if stream == nil {
		return nil
	}
	splits := func(source component.SourceConfig) (map[string]pipeline.Position, error) {
		r := wiring.TrainReading(s.cfg, 0)
		from := spec.SourceOf(s.cfg.Source.Name(), source)
		r.Source = &from
		all, err := r.Splits(ctx)
		if err != nil {
			return nil, fault.Unavailable(err)
		}
		out := map[string]pipeline.Position{}
		for _, split := range all {
			out[split.Name] = split.Start
		}
		return out, nil
	}
	to, err := splits(stream.From(time.Now().AddDate(100, 0, 0)))
	if err != nil {
		return err
	}
	oldest, err := splits(stream.From(time.Time{}))
	if err != nil {
		return err
	}
	begins, err := splits(s.cfg.Source.Value())
	if err != nil {
		return err
	}
	from, rows := map[string]pipeline.Position{}, int64(0)
	for split, end := range to {
		at, ok := begins[split]
		if !ok {
			at = oldest[split]
		}
		from[split] = min(max(at, oldest[split]), end)
		rows += int64(end - from[split])
	}
	if rows == 0 {
		for split, end := range to {
			from[split] = min(oldest[split], end)
			rows += int64(end - from[split])
		}
	}
	if rows == 0 {
		return fault.Config("job: the stream %s has no records to try settings on: wait for some", stream.StreamName())
	}
	s.state.Range = &span{From: from, To: to}
	return nil
}

// tail collects the predictions of the last rows of a trial.
type tail struct {
	cfg  *spec.Config
	from int64 // the first row that counts

	mu   sync.Mutex
	rows int64
	c    metric.Collection
}

func (t *tail) observe(o trainstep.Observation) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rows += int64(o.Scores.Rows); t.rows > t.from {
		t.c.Add(metric.Place{}, o.Scores)
	}
}

// measure computes all scores.
func (t *tail) measure() result.Scores {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := result.Scores{}
	if t.c.Rows() == 0 {
		return out
	}
	var w metric.Workspace
	for i, h := range t.cfg.AllHeads() {
		set := t.c.Set(i, -1)
		for _, name := range h.Metrics {
			if m, ok := t.cfg.FindMetric(name); ok && !m.Grouped {
				out[h.Score(name)] = m.Measure(&w, &set)
			}
		}
	}
	return out
}

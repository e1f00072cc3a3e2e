package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Evaluate scores the job's evaluation source with the parameters of a snapshot. Nothing is changed: the snapshot is
// read into shards of its own.
func Evaluate(ctx context.Context, cfg *Config, opts EvalOptions) (*EvalResult, error) {
	began := time.Now()
	m, err := cfg.model()
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
	bad, err := cfg.badRows(workerName(), log)
	if err != nil {
		return nil, err
	}
	defer bad.close() //nolint:errcheck // the letter box was flushed with each row
	path, which, err := cfg.snapshotToRead(opts.Snapshot)
	if err != nil {
		return nil, err
	}
	info, err := snapshot.ReadInfo(path)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	moved, err := cfg.fits(info)
	if err != nil {
		return nil, err
	}
	if len(moved) > 0 && opts.Notice != nil {
		opts.Notice(fmt.Sprintf("other columns are read than for snapshot %s: %s", path, strings.Join(moved, "; ")))
	}
	cluster, err := ps.Open(ctx, ps.Options{Layout: m.Layout(), NumShards: cfg.PS.Shards, Restore: path, Logger: log, Hooks: psHooks(hooks)})
	if err != nil {
		return nil, unavailable(err)
	}
	defer cluster.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written

	mon := newMonitor(opts.RunOptions, pipelineHooks(hooks))
	mon.watched, mon.fills = "eval", newFillWatch(cfg, log)
	limit := cfg.Eval.MaxExamples
	if opts.MaxExamples > 0 {
		limit = opts.MaxExamples
	}
	mon.begin(Progress{Phase: "eval", Total: limit}, 0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); mon.run(stop) }()
	defer func() { close(stop); <-done }()

	open := func(ctx context.Context, worker int) (*ps.Client, error) {
		return cluster.Client(ctx, fmt.Sprintf("eval-%d", worker))
	}
	scores, stats, err := evaluate(ctx, cfg, m, open, limit, opts.Drain, func(worker int) *pipeline.Env {
		return &pipeline.Env{Worker: worker, Logger: log, Hooks: mon, BadRows: bad.policy}
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
	return &EvalResult{
		Examples: n, Seconds: seconds, ExamplesPerSecond: float64(n) / max(seconds, 1e-9), Metrics: scores,
		BadRows: bad.counts(), Features: mon.fills.end(), Snapshot: path, Which: which,
	}, nil
}

// Names of snapshots for [EvalOptions].
const (
	Newest = "newest"
	Best   = "best"
)

// snapshotToRead is the snapshot that was asked for, and says which it is.
func (c *Config) snapshotToRead(asked string) (path, which string, err error) {
	if asked == Best || asked == "" && c.Train.EarlyStop != nil {
		best, err := bestIn(c.snapshotsIn())
		switch {
		case err != nil:
			return "", "", err
		case best != nil:
			return best.Path, whichIs(best), nil
		case asked == Best:
			return "", "", configError("job: there is no best snapshot in %s: train.early_stop marks one, after an epoch that was evaluated", c.snapshotsIn())
		}
	}
	if asked == "" || asked == Newest {
		asked = c.Dir
	}
	if path, err = findSnapshot(asked); err != nil {
		return "", "", err
	}
	info, err := snapshot.ReadInfo(path)
	if err != nil {
		return "", "", err
	}
	return path, whichIs(info), nil
}

// bestIn is the newest snapshot of a folder that is marked as the best, of what is trained on now; nil: there is none.
func bestIn(dir string) (*snapshot.Info, error) {
	entries, err := snapshot.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	now := ""
	for _, e := range entries { // newest first
		if e.Err != nil {
			continue
		}
		source := trainedOn(e.Info)
		if now == "" {
			now = source
		}
		if e.Info.Label == bestLabel && source == now {
			return e.Info, nil
		}
	}
	return nil, nil
}

// trainedOn is the source that a snapshot's trainer was at.
func trainedOn(info *snapshot.Info) string {
	var s trainerState
	_ = json.Unmarshal(info.State[stateKey], &s) // what cannot be read says nothing
	return s.Source
}

// whichIs says which of the snapshots beside it a snapshot is.
func whichIs(info *snapshot.Info) string {
	var is []string
	if info.Label == bestLabel {
		var s trainerState
		text := "best"
		if err := json.Unmarshal(info.State[stateKey], &s); err == nil && s.Top != nil {
			text = fmt.Sprintf("best, after epoch %d, %.5f", s.TopEpoch, *s.Top)
		}
		is = append(is, text)
	}
	entries, err := snapshot.List(filepath.Dir(info.Path))
	if i := slices.IndexFunc(entries, func(e snapshot.Entry) bool { return e.Err == nil }); err == nil && i >= 0 && entries[i].Info.ID == info.ID {
		is = append(is, "newest")
	}
	return strings.Join(is, "; ")
}

// findSnapshot finds the snapshot that a path means: a snapshot's folder, or the newest good one in a folder of snapshots
// or in a job's dir.
func findSnapshot(path string) (string, error) {
	entries, err := findSnapshots(path)
	if err != nil {
		return "", err
	}
	var damaged []error
	for _, e := range entries {
		if e.Err == nil {
			return e.Path, nil
		}
		damaged = append(damaged, e.Err)
	}
	return "", errors.Join(damaged...)
}

// findSnapshots returns the snapshots that a path stands for, the newest first: one, or those of a job's dir or of a folder of
// snapshots. There is one at least, which may be damaged.
func findSnapshots(path string) ([]snapshot.Entry, error) {
	info, err := snapshot.ReadInfo(path)
	if _, gone := os.Stat(path); err == nil || gone == nil && snapshot.Named(path) {
		return []snapshot.Entry{{Path: path, Info: info, Err: err}}, nil
	}
	for _, dir := range []string{filepath.Join(path, "snapshots"), path} {
		entries, err := snapshot.List(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if len(entries) > 0 {
			return entries, nil
		}
	}
	return nil, fmt.Errorf("job: no snapshot in %s: train the job first, or name a snapshot's folder: %w", path, pipeline.ErrConfig)
}

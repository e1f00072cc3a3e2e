package jobbench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// snapshotIDs is how many rows are written where nobody says.
const snapshotIDs = 10_000_000

// Snapshot measures jobs whose tables have o.Rows rows while a snapshot is written, as SIGUSR2 asks for one, against the same job before and after: examples a second, the longest time between two batches, ms, and examples a second of processor time, which other work on the machine disturbs less. Two snapshots are
// measured. The ids of a batch are drawn uniformly; the time of filling the tables does not count.
func Snapshot(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = snapshotIDs
	}
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	const extra = 200_000 // examples behind those that fill the tables
	each := max(o.Rows/fields, 1)
	if err := writeFilling(dir, each, extra); err != nil {
		return nil, err
	}
	for i, s := range []shape{
		{name: "lr, batch 4096", model: "{lr: {}}", batch: 4096},
		{name: "fm, batch 4096", model: "{fm: {dim: 16}}", batch: 4096},
		{name: "deepfm, batch 512", model: deep, batch: 512},
	} {
		name := fmt.Sprintf("snapshot of %d rows while %s, 2 workers, trains", o.Rows, s.name)
		if !o.Wants(name) {
			continue
		}
		s.workers, s.epochs, s.rows = 2, 1<<20, each+extra
		r, err := whileWritten(ctx, o, s, dir, filepath.Join(dir, fmt.Sprintf("run-%d", i)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		results = append(results, r.results(name)...)
	}
	return results, nil
}

// turns are the rates of a job, examples a second and a second of processor time, and the longest times between two batches, ms, in turn without a snapshot and while one is written: without, with, without,
// with, without.
type turns struct {
	rates, perCPU, longest []float64
}

func (t *turns) results(name string) []bench.Result {
	rate := func(name, unit string, x []float64) bench.Result {
		with, without := (x[1]+x[3])/2, bench.Median([]float64{x[0], x[2], x[4]})
		return bench.Result{Name: name, Unit: unit, Ours: with, Theirs: map[string]float64{"without": without}, Ratio: with / without, Control: x[4] / x[0], Machine: bench.Machine()}
	}
	waits, wait := max(t.longest[0], t.longest[2], t.longest[4]), max(t.longest[1], t.longest[3])
	results := []bench.Result{
		rate(name, "examples/s", t.rates),
		{Name: name + ", longest time between batches", Unit: "ms", Ours: wait, Theirs: map[string]float64{"without": waits}, Ratio: wait / waits, Control: t.longest[4] / t.longest[0], Machine: bench.Machine()},
	}
	if bench.CPUSeconds() > 0 { // 0: not known on this system
		results = append(results, rate(name+", by processor time", "examples/s", t.perCPU))
	}
	return results
}

// whileWritten runs a job until it has been through its turns.
func whileWritten(ctx context.Context, o bench.Options, s shape, data, dir string) (t turns, err error) {
	cfg, err := s.config(data, dir)
	if err != nil {
		return t, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.Duration(o.Rounds) * o.Each * 3
	take := make(chan struct{}, 1)
	var mu sync.Mutex
	var examples, counted int
	var written uint64
	var began, last, looked time.Time
	var longest time.Duration
	var cpu float64
	// over reports whether a turn is: without a snapshot after a while, with one once that is there.
	over := func(now time.Time) (bool, error) {
		if len(t.rates)%2 == 0 {
			return now.Sub(began) >= quiet, nil
		}
		if now.Sub(looked) < 5*time.Millisecond {
			return false, nil
		}
		looked = now
		// To read a manifest, again and again, would be what is measured.
		_, err := os.Stat(filepath.Join(snapshot.Path(stored.SnapshotsIn(cfg), written+1), snapshot.ManifestName))
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		written++
		return true, err
	}
	var failed error
	_, err = job.Run(ctx, cfg, job.RunOptions{TakeSnapshot: take, Observe: func(b trainstep.Observation) {
		mu.Lock()
		defer mu.Unlock()
		now, n := time.Now(), b.Scores.Rows
		examples += n
		// After the tables are full, and everything was trained on once, the caches forget that.
		if examples < s.rows || len(t.rates) == 5 {
			return
		}
		if !began.IsZero() {
			counted += n
			longest = max(longest, now.Sub(last))
			ends, err := over(now)
			if failed = err; err != nil {
				cancel()
				return
			}
			if last = now; !ends {
				return
			}
			t.rates, t.longest = append(t.rates, float64(counted)/now.Sub(began).Seconds()), append(t.longest, longest.Seconds()*1e3)
			t.perCPU = append(t.perCPU, float64(counted)/(bench.CPUSeconds()-cpu))
			if len(t.rates) == 5 {
				cancel()
				return
			}
			if len(t.rates)%2 == 1 {
				take <- struct{}{}
			}
		}
		began, last, counted, longest, cpu = now, now, 0, 0, bench.CPUSeconds()
	}})
	if len(t.rates) < 5 {
		return t, errors.Join(err, failed, errors.New("the job ended before it was measured"))
	}
	return t, failed
}

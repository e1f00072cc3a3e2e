package jobbench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

const (
	fewIDs  = 1_000_000
	manyIDs = 50_000_000
)

// Size measures the steps of one worker on a job whose tables have o.Rows ids, all of which have been trained on, against the same job with a
// million: examples a second. The ids of a batch are drawn uniformly in both. The time of filling the tables does not count, and nothing is
// stored. The small one is measured before the large one and after it, which is the control; o.Rounds does not matter.
func Size(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = manyIDs
	}
	few := min(fewIDs, o.Rows)
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	for _, s := range []shape{
		{name: "fm, batch 4096", model: "{fm: {dim: 16}}", batch: 4096, rows: 400_000},
		{name: "deepfm, batch 512", model: deep, batch: 512, rows: 100_000},
		{name: "deepfm, batch 4096", model: deep, batch: 4096, rows: 100_000},
	} {
		name := fmt.Sprintf("size %s, %d ids", s.name, o.Rows)
		if !o.Wants(name) {
			continue
		}
		s.rows = min(s.rows, o.Rows)
		s.workers, s.epochs, s.train = 1, 1, ", interleave: 1" // fills, then measures
		var rates [3]float64
		for i, ids := range []int{few, o.Rows, few} {
			if rates[i], err = filled(ctx, s, dir, ids); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		small := (rates[0] + rates[2]) / 2
		results = append(results, bench.Result{
			Name: name, Ours: rates[1], Theirs: map[string]float64{fmt.Sprintf("%d ids", few): small},
			Ratio: rates[1] / small, Control: rates[2] / rates[0], Unit: "examples/s", Machine: bench.Machine(),
		})
	}
	return results, nil
}

// filled is the rate of a job on s.rows examples after all of so many ids have been trained on.
func filled(ctx context.Context, s shape, dir string, ids int) (rate float64, err error) {
	data := filepath.Join(dir, "ids")
	if err := os.Mkdir(data, 0o700); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	each := max(ids/fields, 1)
	if err := writeFilling(data, each, s.rows); err != nil {
		return 0, err
	}
	cfg, err := s.config(data, filepath.Join(data, "run"))
	if err != nil {
		return 0, err
	}
	// After the tables are full the caches forget that.
	n, seconds, _, err := timed(ctx, cfg, each+s.rows/4, each+s.rows-s.batch, bench.CPUSeconds)
	return n / seconds, err
}

// writeFilling writes examples that have each of so many ids of a field once, one after another, and so many more that have any of them.
func writeFilling(dir string, each, more int) error {
	rng := rand.New(rand.NewPCG(2, fields))
	return writeParquet(dir, each+more, func(i int, of []int) (bool, error) {
		for f := range of {
			if of[f] = i; i >= each {
				of[f] = rng.IntN(each)
			}
		}
		return rng.IntN(5) == 0, nil
	})
}

// timed runs a job, takes the time of its steps from the first after so many examples to that with which there are so many, and ends it
// there: the beginning, and a snapshot, may take longer than all the rest. used is what cpu, a clock in seconds of the processors, says of that time.
func timed(ctx context.Context, cfg *job.Config, from, to int, cpu func() float64) (n, seconds, used float64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	examples, counted := 0, 0
	var begin, end time.Time
	_, err = job.Run(ctx, cfg, job.RunOptions{Observe: func(b trainstep.Observation) {
		n := int(b.Origin.To - b.Origin.From)
		switch examples += n; {
		case examples < from || !end.IsZero():
		case begin.IsZero():
			begin, used = time.Now(), cpu()
		default:
			if counted += n; examples >= to {
				end, used = time.Now(), cpu()-used
				cancel()
			}
		}
	}})
	if end.IsZero() {
		return 0, 1, 1, errors.Join(err, fmt.Errorf("%d of %d examples were trained on", examples, to))
	}
	return float64(counted), end.Sub(begin).Seconds(), used, nil
}

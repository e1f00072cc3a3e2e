package jobbench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job/demo"
)

// Queues measures jobs whose batches are looked up ahead and pushed behind the step, two of each, against the same jobs without queues
// between lookup, step and push: examples a second. o.Rows is how many rows the files have, and how many examples are made.
func Queues(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = rows
	}
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	if err := writeWorld(dir, o.Rows, nil); err != nil {
		return nil, err
	}
	const (
		without = ", prefetch: {lookup: 0, push: 0}"
		queues  = ", prefetch: {lookup: 2, push: 2}"
		wal     = "ps: {durability: wal}\n"
	)
	clicks := fmt.Sprintf("source: {synthetic: {examples: %d, splits: 4}}\n", o.Rows) + demo.Parse
	for i, s := range []shape{
		{name: "lr, batch 4096", model: "{lr: {}}", batch: 4096, epochs: 4},
		{name: "fm, batch 4096", model: "{fm: {dim: 16}}", batch: 4096, epochs: 2},
		{name: "deepfm, batch 512", model: deep, batch: 512, epochs: 1},
		{name: "deepfm, batch 4096", model: deep, batch: 4096, epochs: 1},
		{name: "demo, batch 256", model: "{deepfm: {dim: 8, hidden: [64, 32]}}", batch: 256, epochs: 1, source: clicks},
		{name: "demo, batch 256, wal", model: "{deepfm: {dim: 8, hidden: [64, 32]}}", batch: 256, epochs: 1, source: clicks, sections: wal},
		{name: "deepfm, batch 512, wal", model: deep, batch: 512, epochs: 1, sections: wal},
	} {
		for _, s.workers = range []int{1, 2} {
			name := fmt.Sprintf("queues %s, workers %d", s.name, s.workers)
			if !o.Wants(name) {
				continue
			}
			run := func(s shape, keys string) func() (float64, error) {
				s.train = keys
				return func() (float64, error) { return train(ctx, s, dir, filepath.Join(dir, fmt.Sprintf("run-%d", i))) }
			}
			r, err := bench.Compare(ctx, o, name, "examples/s", bench.Wall, bench.Candidate{Name: "queues", Run: run(s, queues)},
				bench.Candidate{Name: "without", Run: run(s, without)})
			if err != nil {
				return nil, err
			}
			results = append(results, r)
		}
	}
	return results, nil
}

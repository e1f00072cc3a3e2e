package jobbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
)

// Predict measures what is predicted of the rows of Parquet files, from loading the snapshot to the last file of predictions, against
// evaluating the same rows, which writes nothing, and against training on them: examples a second. o.Rows is how many rows there are.
func Predict(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
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
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	s := shape{model: deep, batch: 4096, workers: 2, epochs: 1}
	runtime.GOMAXPROCS(s.workers)
	trained := filepath.Join(dir, "trained")
	if _, err := train(ctx, s, dir, trained); err != nil {
		return nil, err
	}
	for _, to := range []string{"parquet", "tfrecord", "tsv", "jsonl"} {
		name := fmt.Sprintf("predict deepfm to %s, 2 cores", to)
		if !o.Wants(name) {
			continue
		}
		out := filepath.Join(dir, "out")
		s.sections = fmt.Sprintf("predict: {fields: [f00, f01, label, prediction], to: {%s: %q}}\neval: {source: {parquet: {files: [%q]}}}\n", to, out, filepath.Join(dir, "*.parquet"))
		cfg, err := s.config(dir, trained)
		if err != nil {
			return nil, err
		}
		ours := bench.Candidate{Name: "predict", Run: func() (float64, error) {
			if err := os.RemoveAll(out); err != nil {
				return 0, err
			}
			r, err := job.Predict(ctx, cfg, job.PredictOptions{})
			if err != nil {
				return 0, err
			}
			return float64(r.Rows), nil
		}}
		r, err := bench.Compare(ctx, o, name, "examples/s", bench.Wall, ours,
			bench.Candidate{Name: "evaluate", Run: func() (float64, error) {
				r, err := job.Evaluate(ctx, cfg, job.EvalOptions{})
				if err != nil {
					return 0, err
				}
				return float64(r.Examples), nil
			}},
			bench.Candidate{Name: "train", Run: func() (float64, error) {
				only := s
				only.sections = ""
				return train(ctx, only, dir, filepath.Join(dir, "again"))
			}})
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

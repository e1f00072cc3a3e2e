// Package jobbench measures whole training jobs, for `monolith bench step`, `queues`, `predict`, `serve`, `size`, `frappe` and `procs`.
package jobbench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
)

// shape is a job to measure.
type shape struct {
	name, model string
	batch       int
	workers     int
	threads     int    // of each worker; 0: one
	rows        int    // in the files
	epochs      int    // over them
	train       string // further keys of that section, each after a comma
	source      string // instead of the world's files, with parse
	sections    string // further ones
}

const (
	deep = "{deepfm: {dim: 16, hidden: [400, 400, 400]}}"
	bf16 = ", precision: bf16"
)

func shapes() []shape {
	return []shape{
		{name: "lr, batch 4096, 1 core", model: "{lr: {}}", batch: 4096, workers: 1, epochs: 2},
		{name: "lr, batch 4096, 2 cores", model: "{lr: {}}", batch: 4096, workers: 2, epochs: 4},
		{name: "lr, batch 4096, 2 cores, 1 worker", model: "{lr: {}}", batch: 4096, workers: 1, threads: 2, epochs: 4},
		{name: "fm, batch 4096, 1 core", model: "{fm: {dim: 16}}", batch: 4096, workers: 1, epochs: 1},
		{name: "fm, batch 4096, 2 cores", model: "{fm: {dim: 16}}", batch: 4096, workers: 2, epochs: 2},
		{name: "fm, batch 4096, 2 cores, 1 worker", model: "{fm: {dim: 16}}", batch: 4096, workers: 1, threads: 2, epochs: 2},
		{name: "deepfm, batch 512, 2 cores", model: deep, batch: 512, workers: 2, epochs: 1},
		{name: "deepfm, batch 4096, 2 cores", model: deep, batch: 4096, workers: 2, epochs: 1},
		{name: "deepfm, batch 4096, 2 cores, 1 worker", model: deep, batch: 4096, workers: 1, threads: 2, epochs: 1},
		{name: "deepfm bf16, batch 512, 2 cores", model: deep, batch: 512, workers: 2, epochs: 1, train: bf16},
		{name: "deepfm bf16, batch 4096, 2 cores", model: deep, batch: 4096, workers: 2, epochs: 1, train: bf16},
	}
}

// cores is how many the job may use.
func (s *shape) cores() int { return s.workers * max(s.threads, 1) }

// Step measures jobs from Parquet to the last snapshot, with the shards in this process: examples a second. A job is run at least once in
// each round; o.Rows is how many rows the files have. Other programs (o.With) train on as many examples of the same rows, which they have
// in memory before their time begins.
func Step(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = rows
	}
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	others, err := newFlat(dir)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(writeWorld(dir, o.Rows, others), others.Close()); err != nil {
		return nil, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for i, s := range shapes() {
		name := "step " + s.name
		if !o.Wants(name) {
			continue
		}
		s.rows = o.Rows
		runtime.GOMAXPROCS(s.cores())
		r, err := beside(ctx, o, name, s, dir, filepath.Join(dir, fmt.Sprintf("run-%d", i)))
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// beside compares a job with the programs that train the same model.
func beside(ctx context.Context, o bench.Options, name string, s shape, data, dir string) (r bench.Result, err error) {
	var theirs []bench.Candidate
	absent := map[string]string{}
	for _, v := range rivals(s) {
		c, stop, err := v.start(ctx, o, data, s)
		if why, ok := errors.AsType[*absentError](err); ok {
			absent[v.name] = why.reason
			continue
		}
		if err != nil {
			return r, err
		}
		defer stop()
		theirs = append(theirs, c)
	}
	ours := bench.Candidate{Name: "monolith", Run: func() (float64, error) { return train(ctx, s, data, dir) }}
	r, err = bench.Compare(ctx, o, name, "examples/s", bench.Wall, ours, theirs...)
	r.Absent = absent
	return r, err
}

// folder makes one for files, and returns what removes it.
func folder(o bench.Options) (dir string, remove func() error, err error) {
	dir, err = os.MkdirTemp(o.Dir, "monolith-bench-*")
	return dir, func() error { return os.RemoveAll(dir) }, err
}

// train runs a job and returns how many examples it trained on.
func train(ctx context.Context, s shape, data, dir string) (float64, error) {
	if err := os.RemoveAll(dir); err != nil {
		return 0, err
	}
	cfg, err := s.config(data, dir)
	if err != nil {
		return 0, err
	}
	r, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		return 0, err
	}
	return float64(r.Examples), nil
}

// config is the job of a shape in a folder of its own, on the rows in another one.
func (s *shape) config(data, dir string) (*job.Config, error) {
	return job.Decode([]byte(s.text(data, dir)), "bench.yaml", job.LoadOptions{})
}

// text is config as a job file.
func (s *shape) text(data, dir string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "version: 1\nname: bench\ndir: %q\n", dir)
	if s.source != "" {
		text.WriteString(s.source)
	} else {
		fmt.Fprintf(&text, "source: {parquet: {files: [%q]}}\nparse:\n  label: click\n  features:\n", filepath.Join(data, "*.parquet"))
		for f := range fields {
			fmt.Fprintf(&text, "    - {name: %s, slot: %d}\n", field(f), f+1)
		}
	}
	fmt.Fprintf(&text, "model: %s\nepochs: %d\ntrain: {batch: %d, workers: %d%s}\nsnapshot: {every: 0s}\nlog: {level: error}\n%s",
		s.model, s.epochs, s.batch, s.workers, s.train, s.sections)
	return text.String()
}

// Package jobbench measures whole training jobs, for `monolith bench step`.
package jobbench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
)

// The world that jobs are trained on: rows of one id in each of 39 fields, as wide as the advertising data sets that factorization machines
// are compared on. The ids of a field follow Zipf's law with exponent 1.1, and labels a logistic model of them.
const (
	fields   = 39
	ids      = 25_600 // of each field
	exponent = 1.1
	rows     = 300_000
)

// shape is a job to measure.
type shape struct {
	name, model string
	batch       int
	cores       int
	epochs      int // over the rows
}

func shapes() []shape {
	const deep = "{deepfm: {dim: 16, hidden: [400, 400, 400]}}"
	return []shape{
		{"lr, batch 4096, 1 core", "{lr: {}}", 4096, 1, 2},
		{"lr, batch 4096, 2 cores", "{lr: {}}", 4096, 2, 4},
		{"fm, batch 4096, 1 core", "{fm: {dim: 16}}", 4096, 1, 1},
		{"fm, batch 4096, 2 cores", "{fm: {dim: 16}}", 4096, 2, 2},
		{"deepfm, batch 512, 2 cores", deep, 512, 2, 1},
		{"deepfm, batch 4096, 2 cores", deep, 4096, 2, 1},
	}
}

// Step measures jobs from Parquet to the last snapshot, with the shards in this process: examples a second. A job is run at least once in
// each round; o.Rows is how many rows the files have.
func Step(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = rows
	}
	dir, err := os.MkdirTemp(o.Dir, "monolith-bench-*")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := writeWorld(dir, o.Rows); err != nil {
		return nil, err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for i, s := range shapes() {
		name := "step " + s.name
		if !o.Wants(name) {
			continue
		}
		runtime.GOMAXPROCS(s.cores)
		run := func() (float64, error) { return train(ctx, s, dir, filepath.Join(dir, fmt.Sprintf("run-%d", i))) }
		r, err := bench.Compare(ctx, o, name, "examples/s", bench.Wall, bench.Candidate{Name: "monolith", Run: run})
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// train runs a job and returns how many examples it trained on.
func train(ctx context.Context, s shape, data, dir string) (float64, error) {
	if err := os.RemoveAll(dir); err != nil {
		return 0, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "version: 1\nname: bench\ndir: %q\nsource: {parquet: {files: [%q]}}\nparse:\n  label: click\n  features:\n", dir, filepath.Join(data, "*.parquet"))
	for f := range fields {
		fmt.Fprintf(&text, "    - {name: %s, slot: %d}\n", field(f), f+1)
	}
	fmt.Fprintf(&text, "model: %s\nepochs: %d\ntrain: {batch: %d, workers: %d}\nsnapshot: {every: 0s}\nlog: {level: error}\n", s.model, s.epochs, s.batch, s.cores)
	cfg, err := job.Decode([]byte(text.String()), "bench.yaml", job.LoadOptions{})
	if err != nil {
		return 0, err
	}
	r, err := job.Run(ctx, cfg, job.RunOptions{})
	if err != nil {
		return 0, err
	}
	return float64(r.Examples), nil
}

func field(f int) string { return fmt.Sprintf("f%02d", f) }

// writeWorld writes four files with n rows together.
func writeWorld(dir string, n int) error {
	rng := rand.New(rand.NewPCG(1, fields))
	cumulated, sum := make([]float64, ids), 0.0
	for i := range cumulated {
		sum += math.Pow(float64(i+1), -exponent)
		cumulated[i] = sum
	}
	weights := make([][]float64, fields)
	scattered := make([][]int, fields) // frequent ids are not neighbours
	for f := range weights {
		weights[f], scattered[f] = make([]float64, ids), rng.Perm(ids)
		for i := range weights[f] {
			weights[f][i] = .35 * rng.NormFloat64()
		}
	}
	group := parquet.Group{"click": parquet.Leaf(parquet.BooleanType)}
	for f := range fields {
		group[field(f)] = parquet.Encoded(parquet.Leaf(parquet.Int64Type), &parquet.Plain)
	}
	schema := parquet.NewSchema("bench", group)
	const files = 4
	batch := make([]parquet.Row, 1000)
	for part := range files {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("part-%d.parquet", part)))
		if err != nil {
			return err
		}
		buffered := bufio.NewWriterSize(file, 1<<20)
		w := parquet.NewWriter(buffered, schema)
		for left := n*(part+1)/files - n*part/files; left > 0 && err == nil; left -= len(batch) {
			batch = batch[:min(left, len(batch))]
			for i := range batch {
				row := append(batch[i][:0], parquet.Value{})
				logit := -1.2
				for f := range fields {
					id := scattered[f][min(sort.SearchFloat64s(cumulated, rng.Float64()*sum), ids-1)]
					logit += weights[f][id]
					row = append(row, parquet.Int64Value(int64(id)).Level(0, 0, f+1))
				}
				// Columns are in the order of their names: click comes first.
				row[0] = parquet.BooleanValue(rng.Float64() < 1/(1+math.Exp(-logit))).Level(0, 0, 0)
				batch[i] = row
			}
			_, err = w.WriteRows(batch)
		}
		batch = batch[:cap(batch)]
		if err := errors.Join(err, w.Close(), buffered.Flush(), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

package jobbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/demo"
)

// Program is the name in [bench.Options].With of the program that serves shards in processes of their own: PROGRAM ps JOB.yaml --shard N.
// By default it is this one.
const Program = "monolith"

// Procs measures jobs whose two shards are processes on this machine, behind unix sockets, against the same jobs with both shards in the
// process that trains, from the first sixth of the examples to the last: examples a second, and examples for each second of the processors' time of
// all processes. On a machine that does other work three processes get more of it than one, so that there only the
// latter says something. o.Rows is how many examples there are.
func Procs(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	deepRows, clickRows := o.Rows, o.Rows
	if o.Rows == 0 {
		deepRows, clickRows = rows/3, 3*rows
	}
	if err := writeWorld(dir, deepRows, nil); err != nil {
		return nil, err
	}
	clicks := fmt.Sprintf("source: {synthetic: {examples: %d, splits: 4}}\n", clickRows) + demo.Parse
	for _, s := range []shape{
		{name: "demo, batch 512", model: "{deepfm: {dim: 8, hidden: [64, 32]}}", batch: 512, source: clicks, rows: clickRows},
		{name: "deepfm, batch 512", model: deep, batch: 512, rows: deepRows},
		{name: "deepfm, batch 4096", model: deep, batch: 4096, rows: deepRows},
	} {
		s.epochs = 1
		for _, s.workers = range []int{1, 2} {
			for _, c := range []struct {
				name, unit string
				of         func(spent) (float64, float64)
			}{{"", "examples/s", spent.byClock}, {", cpu", "examples/cpu-s", spent.byProcessor}} {
				name := fmt.Sprintf("procs %s, workers %d%s", s.name, s.workers, c.name)
				if !o.Wants(name) {
					continue
				}
				candidate := func(name string, run func() (spent, error)) bench.Candidate {
					return bench.Candidate{Name: name, Timed: func() (float64, float64, error) {
						t, err := run()
						n, seconds := c.of(t)
						return n, seconds, err
					}}
				}
				r, err := bench.Compare(ctx, o, name, c.unit, nil,
					candidate("processes", func() (spent, error) { return apart(ctx, s, o.With[Program], dir) }),
					candidate("in process", func() (spent, error) { return together(ctx, s, dir) }))
				if err != nil {
					return nil, err
				}
				results = append(results, r)
			}
		}
	}
	return results, nil
}

// spent is what a job took.
type spent struct{ n, seconds, cpu float64 }

func (t spent) byClock() (n, seconds float64)     { return t.n, t.seconds }
func (t spent) byProcessor() (n, seconds float64) { return t.n, t.cpu }

// middle is the part of a job's examples that is timed: the rest is its beginning, and the parts of batches at the ends of splits.
func (s *shape) middle() (from, to int) { return s.rows / 6, s.rows * 5 / 6 }

// together trains with two shards in this process.
func together(ctx context.Context, s shape, data string) (t spent, err error) {
	dir := filepath.Join(data, "together")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s.sections += "ps: {shards: 2}\n"
	cfg, err := s.config(data, dir)
	if err != nil {
		return t, err
	}
	return s.spend(ctx, cfg, bench.CPUSeconds)
}

// spend runs the job in this process.
func (s *shape) spend(ctx context.Context, cfg *job.Config, cpu func() float64) (t spent, err error) {
	from, to := s.middle()
	t.n, t.seconds, t.cpu, err = timed(ctx, cfg, from, to, cpu)
	return t, err
}

// apart trains with two shards in processes of program.
func apart(ctx context.Context, s shape, program, data string) (t spent, err error) {
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return t, err
		}
	}
	dir := filepath.Join(data, "apart")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Mkdir(dir, 0o700); err != nil {
		return t, err
	}
	s.sections += fmt.Sprintf("ps: {addresses: [%q, %q]}\n", "unix:"+filepath.Join(dir, "0"), "unix:"+filepath.Join(dir, "1"))
	file, text := filepath.Join(dir, "job.yaml"), s.text(data, filepath.Join(dir, "run"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return t, err
	}
	cfg, err := job.Decode([]byte(text), file, job.LoadOptions{})
	if err != nil {
		return t, err
	}
	ctx, cancel := context.WithCancel(ctx)
	shards := make([]*exec.Cmd, 2)
	output := make([]bytes.Buffer, len(shards))
	defer func() {
		cancel()
		for i, shard := range shards {
			if shard != nil && shard.Process != nil {
				_ = shard.Wait() // it was killed
			}
			if err != nil && output[i].Len() > 0 {
				err = fmt.Errorf("%w\nshard %d: %s", err, i, bytes.TrimSpace(output[i].Bytes()))
			}
		}
	}()
	for i := range shards {
		shards[i] = exec.CommandContext(ctx, program, "ps", file, "-q", "--shard", fmt.Sprint(i))
		shards[i].Stderr = &output[i]
		if err := shards[i].Start(); err != nil {
			return t, fmt.Errorf("shard %d: %w", i, err)
		}
	}
	return s.spend(ctx, cfg, func() float64 {
		sum := bench.CPUSeconds()
		for _, shard := range shards {
			sum += cpuSeconds(shard.Process.Pid)
		}
		return sum
	})
}

//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// BenchmarkWorkers trains the demo's model with 1, 2 and 3 worker processes and two shards in processes of their own, over
// loopback TCP, and one worker in front of shards that keep a log. Each is measured twice: the second time is the control
// of the first. Compare with BenchmarkRunner, where one process does everything.
func BenchmarkWorkers(b *testing.B) {
	path, err := bin()
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		workers int
		log     string
	}{{1, "none"}, {2, "none"}, {3, "none"}, {1, "wal"}, {1, "wal-nosync"}} {
		for _, run := range []string{"a", "b"} {
			b.Run(fmt.Sprintf("workers=%d/log=%s/run=%s", c.workers, c.log, run), func(b *testing.B) {
				var examples int64
				var took time.Duration
				for b.Loop() {
					n, d := benchWorkers(b, path, c.workers, c.log)
					examples, took = examples+n, took+d
				}
				b.ReportMetric(float64(examples)/took.Seconds(), "examples/s")
			})
		}
	}
}

const benchWorkersJob = `
version: 1
name: bench
dir: %[1]s/run
source: {synthetic: {examples: %[2]d, splits: 6}}
parse:
  format: tf_example
  features:
    - {name: user, slot: 1}
    - {name: item, slot: 2}
    - {name: category, slot: 3}
    - {name: history, slot: 4, max: 10, combiner: mean}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 8, hidden: [64, 32]}}
train: {batch: 512}
ps: {addresses: [%[3]s, %[4]s], durability: %[5]s, wal: {sync: %[6]v}}
`

// benchWorkers trains and returns how many examples, and how long that took from the first worker's start to the last one's
// end.
func benchWorkers(b *testing.B, path string, workers int, log string) (int64, time.Duration) {
	b.Helper()
	dir := b.TempDir()
	durability, sync1 := "none", true
	if log != "none" {
		durability, sync1 = "wal", log == "wal"
	}
	job := filepath.Join(dir, "job.yaml")
	text := fmt.Sprintf(benchWorkersJob, dir, 600_000, testbed.FreeAddr(b), testbed.FreeAddr(b), durability, sync1)
	if err := os.WriteFile(job, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	shards := make([]*exec.Cmd, 2)
	for i := range shards {
		shards[i] = exec.Command(path, "ps", job, "-q", "--shard", fmt.Sprint(i))
		if err := shards[i].Start(); err != nil {
			b.Fatal(err)
		}
	}
	defer func() {
		for _, s := range shards {
			_ = s.Process.Kill()
			_ = s.Wait()
		}
	}()
	// A run that trains nothing waits until the shards are ready.
	if out, err := exec.Command(path, "train", job, "-q", "--set", "train.max_examples=1").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	outs, errs := make([][]byte, workers), make([]error, workers)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { outs[i], errs[i] = exec.Command(path, "train", job, "-q", "--json").Output() })
	}
	wg.Wait()
	took := time.Since(start)
	n := int64(0)
	for i, out := range outs {
		if errs[i] != nil {
			b.Fatalf("%v\n%s", errs[i], stderr(errs[i]))
		}
		var r struct{ Result struct{ Examples int64 } }
		if err := json.Unmarshal(out, &r); err != nil {
			b.Fatal(err)
		}
		n += r.Result.Examples
	}
	return n, took
}

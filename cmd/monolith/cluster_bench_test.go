//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/run"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
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

// BenchmarkTakeOver kills the process in charge of a shard with a standby, each a process of its own, and measures how long the next push of a worker waits until it is
// acknowledged: by the standby, which has the rows in memory.
func BenchmarkTakeOver(b *testing.B) {
	for _, rows := range []int{1_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			dir := b.TempDir()
			path := filepath.Join(dir, "job.yaml")
			text := fmt.Sprintf(`
version: 1
name: bench
dir: %[1]s/run
source: {synthetic: {examples: 1}}
parse: {format: tf_example, features: [{name: user, slot: 1}], label: click}
model: {deepfm: {dim: 8, hidden: [8]}}
train: {batch: 1}
ps: {addresses: [%[2]s, %[3]s], standby: {addresses: ["", "%[4]s"]}, durability: wal}
`, dir, testbed.FreeAddr(b), testbed.FreeAddr(b), testbed.FreeAddr(b))
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				b.Fatal(err)
			}
			cfg, err := job.Load(path, job.LoadOptions{})
			if err != nil {
				b.Fatal(err)
			}
			const caught = "the standby has caught up"
			serve := func(side int) *child {
				return start(b, "", append([]string{"ps", path, "--shard", "1"}, []string{"--standby"}[:side]...)...)
			}
			start(b, "", "ps", path, "--shard", "0")
			sides := [2]*child{serve(0), serve(1)}
			sides[0].saysTimes(caught, 1)

			remote, m, err := run.Connect(b.Context(), cfg, nil)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = remote.Close(b.Context()) }()
			cl, err := remote.Client(b.Context(), "w")
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = cl.Close() }()
			if _, err := cl.Resume(b.Context(), "s", []string{"x"}); err != nil {
				b.Fatal(err)
			}
			layout, pushes, last := m.Layout(), int64(0), int64(0)
			push := func(fids int) { // new ones, all of them on shard 1
				u := &param.Update{Source: "s", Split: "x", From: pushes, To: pushes + 1, NumRows: 1, LR: 1, Time: pushes, Dense: make([]float32, layout.DenseLen())}
				pushes++
				for t, tbl := range layout.Tables {
					var ids []int64
					for n := fids/len(layout.Tables) + min(fids%len(layout.Tables), 1-min(t, 1)); len(ids) < n; {
						if last++; ps.ShardOf(ps.Bucket(last), 2) == 1 {
							ids = append(ids, last)
						}
					}
					u.Keys = append(u.Keys, ids)
					u.Counts = append(u.Counts, slices.Repeat([]uint32{1}, len(ids)))
					u.Grads = append(u.Grads, slices.Repeat([]float32{1}, len(ids)*tbl.Dim()))
				}
				if err := cl.Push(b.Context(), u); err != nil {
					b.Fatal(err)
				}
			}
			for at := 0; at < rows; at += min(rows, 50_000) {
				push(min(rows, 50_000))
			}
			st, err := remote.Stats(b.Context())
			there := int64(0)
			for _, tbl := range st.Tables {
				there += tbl.Rows
			}
			if err != nil || there < int64(rows)-50_000 { // the last push may not be committed
				b.Fatalf("%d rows, %v; want %d", there, err, rows)
			}
			total, longest := time.Duration(0), time.Duration(0)
			for charged := 0; b.Loop(); charged = 1 - charged {
				dead := sides[charged]
				began := time.Now()
				_ = dead.cmd.Process.Kill()
				push(1)
				took := time.Since(began)
				total, longest = total+took, max(longest, took)
				b.StopTimer()
				<-dead.done
				sides[charged] = serve(charged)
				sides[1-charged].saysTimes(caught, 1)
				time.Sleep(time.Second) // until shard 0 knows
				b.StartTimer()
			}
			b.ReportMetric(total.Seconds()/float64(b.N), "s/take-over")
			b.ReportMetric(longest.Seconds(), "s-longest")
		})
	}
}

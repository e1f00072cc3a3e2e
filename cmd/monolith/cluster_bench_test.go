//go:build unix

package main_test

import (
	"context"
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
	"github.com/monolith-go/monolith/ps/rpc"
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

// benchShardJob writes a job of two shards; ps is what its section says beside their addresses and the log.
func benchShardJob(b *testing.B, ps string) (path string) {
	b.Helper()
	dir := b.TempDir()
	path = filepath.Join(dir, "job.yaml")
	text := fmt.Sprintf(`
version: 1
name: bench
dir: %[1]s/run
source: {synthetic: {examples: 1}}
parse: {format: tf_example, features: [{name: user, slot: 1}], label: click}
model: {deepfm: {dim: 8, hidden: [8]}}
train: {batch: 1}
snapshot: {keep: 1}
ps: {addresses: [%[2]s, %[3]s], durability: wal%[4]s}
`, dir, testbed.FreeAddr(b), testbed.FreeAddr(b), ps)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	return path
}

// pusher is a worker that pushes rows to one of the two shards of benchShardJob.
type pusher struct {
	*rpc.Remote
	b            *testing.B
	client       *ps.Client
	layout       *param.Layout
	shard        int
	pushes, last int64
}

// newPusher connects to the shards of a job.
func newPusher(b *testing.B, path string, shard int) *pusher {
	b.Helper()
	cfg, err := job.Load(path, job.LoadOptions{})
	if err != nil {
		b.Fatal(err)
	}
	remote, m, err := run.Connect(b.Context(), cfg, run.Asking{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = remote.Close(context.WithoutCancel(b.Context())) })
	cl, err := remote.Client(b.Context(), "w")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cl.Close() })
	if _, err := cl.Resume(b.Context(), "s", []string{"x"}); err != nil {
		b.Fatal(err)
	}
	return &pusher{Remote: remote, b: b, client: cl, layout: m.Layout(), shard: shard}
}

// push makes so many new rows, all of them on the shard, and returns when they are acknowledged.
func (p *pusher) push(rows int) {
	p.b.Helper()
	u := &param.Update{
		Source: "s", Split: "x", From: p.pushes, To: p.pushes + 1, NumRows: 1, LR: 1, Time: p.pushes, Dense: make([]float32, p.layout.DenseLen()),
	}
	p.pushes++
	for t, tbl := range p.layout.Tables {
		var ids []int64
		for n := rows/len(p.layout.Tables) + min(rows%len(p.layout.Tables), 1-min(t, 1)); len(ids) < n; {
			if p.last++; ps.ShardOf(ps.Bucket(p.last), 2) == p.shard {
				ids = append(ids, p.last)
			}
		}
		u.Keys = append(u.Keys, ids)
		u.Counts = append(u.Counts, slices.Repeat([]uint32{1}, len(ids)))
		u.Grads = append(u.Grads, slices.Repeat([]float32{1}, len(ids)*tbl.Dim()))
	}
	if err := p.client.Push(p.b.Context(), u); err != nil {
		p.b.Fatal(err)
	}
}

// fill makes so many rows.
func (p *pusher) fill(rows int) {
	p.b.Helper()
	const each = 50_000
	for at := 0; at < rows; at += min(rows, each) {
		p.push(min(rows, each))
	}
	st, err := p.Stats(p.b.Context())
	there := int64(0)
	for _, tbl := range st.Tables {
		there += tbl.Rows
	}
	if err != nil || there < int64(rows)-each { // the last push may not be committed
		p.b.Fatalf("%d rows, %v; want %d", there, err, rows)
	}
}

// snapshot takes a snapshot.
func (p *pusher) snapshot() {
	p.b.Helper()
	taken := make(chan error, 1)
	go func() {
		_, err := p.Snapshot(p.b.Context(), ps.SnapshotOptions{})
		taken <- err
	}()
	for {
		select {
		case err := <-taken:
			if err != nil {
				p.b.Fatal(err)
			}
			return
		case <-time.After(time.Millisecond):
		}
		if err := p.client.Idle(p.b.Context()); err != nil { // it passes the marker
			p.b.Fatal(err)
		}
	}
}

// waits is how long things took.
type waits struct {
	total, longest time.Duration
}

func (w *waits) since(began time.Time) {
	took := time.Since(began)
	w.total, w.longest = w.total+took, max(w.longest, took)
}

func (w *waits) report(b *testing.B, what string) {
	b.ReportMetric(w.total.Seconds()/float64(b.N), "s/"+what)
	b.ReportMetric(w.longest.Seconds(), "s-longest")
}

// BenchmarkTakeOver kills the process in charge of a shard with a standby, each a process of its own, and measures how long the next push of a worker waits until it is
// acknowledged: by the standby, which has the rows in memory.
func BenchmarkTakeOver(b *testing.B) {
	for _, rows := range []int{1_000, 1_000_000, 10_000_000} {
		b.Run(fmt.Sprintf("rows=%d", rows), func(b *testing.B) {
			path := benchShardJob(b, fmt.Sprintf(`, standby: {addresses: ["", "%s"]}`, testbed.FreeAddr(b)))
			const caught = "the standby has caught up"
			serve := func(side int) *child {
				return start(b, "", append([]string{"ps", path, "--shard", "1"}, []string{"--standby"}[:side]...)...)
			}
			start(b, "", "ps", path, "--shard", "0")
			sides := [2]*child{serve(0), serve(1)}
			sides[0].saysTimes(caught, 1)
			p := newPusher(b, path, 1)
			p.fill(rows)
			var took waits
			for charged := 0; b.Loop(); charged = 1 - charged {
				dead := sides[charged]
				began := time.Now()
				_ = dead.cmd.Process.Kill()
				p.push(1)
				took.since(began)
				b.StopTimer()
				<-dead.done
				sides[charged] = serve(charged)
				sides[1-charged].saysTimes(caught, 1)
				time.Sleep(time.Second) // until shard 0 knows
				b.StartTimer()
			}
			took.report(b, "take-over")
		})
	}
}

// BenchmarkComeBack kills shard 0, which coordinates and has no standby, starts it again at once, and measures how long the next push of a worker waits until it is acknowledged:
// by a process that has read its part of the snapshot, and replayed what its log has after that. From then on shards answer that coordinator too: coordinated.
func BenchmarkComeBack(b *testing.B) {
	for _, c := range []struct{ rows, logged int }{{1_000, 0}, {1_000_000, 0}, {1_000_000, 1_000_000}, {5_000_000, 0}} {
		b.Run(fmt.Sprintf("rows=%d/logged=%d", c.rows, c.logged), func(b *testing.B) {
			path := benchShardJob(b, "")
			start(b, "", "ps", path, "--shard", "1")
			zero := start(b, "", "ps", path, "--shard", "0")
			p := newPusher(b, path, 0)
			for range 2 { // the second trims the log of what lies before the first
				p.fill(c.rows / 2)
				p.snapshot()
			}
			if c.logged > 0 {
				p.fill(c.logged)
			}
			var took, coordinated waits
			for b.Loop() {
				began := time.Now()
				_ = zero.cmd.Process.Kill()
				<-zero.done
				zero = start(b, "", "ps", path, "--shard", "0")
				p.push(1)
				took.since(began)
				zero.says("shards continue from their logs")
				coordinated.since(began)
			}
			took.report(b, "come-back")
			b.ReportMetric(coordinated.total.Seconds()/float64(b.N), "s/coordinated")
		})
	}
}

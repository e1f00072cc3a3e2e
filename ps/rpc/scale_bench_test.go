package rpc_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
)

// scaled is a cluster of which somebody looks rows up, and somebody else trains on them, as fast as they can.
type scaled struct {
	*cluster
	rows int
	at   int64 // of the trainer
}

// update trains on ids.
func (s *scaled) update(ids []int64) *param.Update {
	u := &param.Update{
		Source: "s", Split: "x", From: s.at, To: s.at + 1, NumRows: 1, LR: 1, Time: s.at,
		Keys: [][]int64{ids}, Counts: [][]uint32{make([]uint32, len(ids))}, Grads: [][]float32{make([]float32, scaledDim*len(ids))},
	}
	for i := range ids {
		u.Counts[0][i] = 1
		u.Grads[0][scaledDim*i] = .1
	}
	s.at++
	return u
}

const scaledDim = 16

// train pushes until the context ends, in whatever generation there is.
func (s *scaled) train(ctx context.Context) {
	r := rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		cl, err := s.Client(ctx, "trainer")
		if err != nil {
			continue
		}
		var p map[string]ps.Progress
		if p, err = cl.Resume(ctx, "s", []string{"x"}); err == nil {
			s.at = max(int64(p["x"].Position), 0)
		}
		for err == nil {
			ids := map[int64]bool{}
			for len(ids) < 500 {
				ids[r.Int64N(int64(s.rows))] = true
			}
			var keys []int64
			for id := range ids {
				keys = append(keys, id)
			}
			err = cl.Push(ctx, s.update(keys))
		}
		_ = cl.Close()
	}
}

// look looks rows up until the context ends, counts answers, and returns the longest that one took, and the longest of the first ones of a generation.
func (s *scaled) look(ctx context.Context, answers *atomic.Int64) (longest, first time.Duration) {
	r := rand.New(rand.NewPCG(3, 4))
	rows := &param.Rows{Keys: [][]int64{make([]int64, 100)}, Values: [][]float32{make([]float32, 100*scaledDim)}}
	began := time.Now()
	for lives := 0; ctx.Err() == nil; lives++ {
		cl, err := s.Reader(ctx, "reader")
		for fresh := lives > 0; err == nil; fresh = false {
			for i := range rows.Keys[0] {
				rows.Keys[0][i] = r.Int64N(int64(s.rows))
			}
			if err = cl.Lookup(ctx, rows); err == nil {
				took := time.Since(began)
				if longest = max(longest, took); fresh {
					first = max(first, took)
				}
				answers.Add(1)
				began = time.Now()
			}
		}
		if cl != nil {
			_ = cl.Close()
		}
	}
	return longest, first
}

// BenchmarkScale goes from 2 to 5 and back to 2 shards while a worker trains and a reader looks rows up. Beside the longest that an answer to the reader took stands the longest of those that
// began before the number of shards changed and came after it, and the longest in as long a time in which it stayed.
func BenchmarkScale(b *testing.B) {
	for _, rows := range []int{10_000, 1_000_000, 10_000_000} {
		for _, incremental := range []int{0, 12} {
			b.Run(fmt.Sprintf("rows=%d/incremental=%d", rows, incremental), func(b *testing.B) { benchmarkScale(b, rows, incremental) })
		}
	}
}

func benchmarkScale(b *testing.B, rows, incremental int) {
	l := &param.Layout{Tables: []param.Table{{Name: "t", Segments: []param.Segment{{Name: "v", Dim: scaledDim, Optimizer: optim.Adagrad{LR: .1}}}}}}
	var now, most atomic.Int64 // bytes that all tables take
	memory := table.NewMemory(table.MemoryOptions{Limit: 1 << 40, Changed: func(n int64) {
		now.Store(n)
		most.Store(max(most.Load(), n))
	}})
	o := coordinator.Options{Layout: l, NumShards: 5, Addrs: make([]string, 2), Dir: b.TempDir(), Incremental: incremental, Memory: memory}
	c, err := start(b.Context(), o, "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := c.Close(b.Context()); err != nil {
			b.Error(err)
		}
	}()
	s := &scaled{cluster: c, rows: rows}
	cl, err := s.Client(b.Context(), "trainer")
	if err == nil {
		_, err = cl.Resume(b.Context(), "s", []string{"x"})
	}
	ids := make([]int64, min(rows, 20_000))
	for at := 0; at < rows && err == nil; at += len(ids) {
		for i := range ids {
			ids[i] = int64(at + i)
		}
		err = cl.Push(b.Context(), s.update(ids))
	}
	if err == nil {
		err = cl.Flush(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	_ = cl.Close()
	before := now.Load()
	ctx, cancel := context.WithCancel(b.Context())
	var trainer sync.WaitGroup
	trainer.Go(func() { s.train(ctx) })
	var pause, longest, first, control, took time.Duration
	again := int64(0)
	watched := func(do func()) (longest, first time.Duration) {
		ctx, cancel := context.WithCancel(ctx)
		var reader sync.WaitGroup
		var answers atomic.Int64
		reader.Go(func() { longest, first = s.look(ctx, &answers) })
		do()
		for last := answers.Load(); answers.Load() == last; { // one in the generation that there is now
			time.Sleep(time.Millisecond)
		}
		cancel()
		reader.Wait()
		return longest, first
	}
	for b.Loop() {
		for _, to := range []int{5, 2} {
			l, f := watched(func() {
				out, err := c.Scale(b.Context(), c.addrs[:to])
				if err != nil {
					b.Fatal(err)
				}
				pause, took, again = max(pause, out.Pause), max(took, out.Took), max(again, out.Again)
			})
			longest, first = max(longest, l), max(first, f)
		}
		b.StopTimer()
		l, _ := watched(func() { time.Sleep(took) })
		control = max(control, l)
		b.StartTimer()
	}
	cancel()
	trainer.Wait()
	b.ReportMetric(longest.Seconds(), "s-longest-lookup")
	b.ReportMetric(first.Seconds(), "s-longest-across")
	b.ReportMetric(control.Seconds(), "s-longest-without")
	b.ReportMetric(pause.Seconds(), "s-pushes-waited")
	b.ReportMetric(took.Seconds(), "s-took")
	b.ReportMetric(float64(again), "again")
	b.ReportMetric(float64(before)/1e6, "MB-before")
	b.ReportMetric(float64(most.Load())/1e6, "MB-most")
}

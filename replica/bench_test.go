package replica_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/replica"
)

// BenchmarkFreshness pushes batches of 512 examples of 26 ids, of a million, to one shard of this process at a rate, or as fast as it goes (rate=0), beside so many replicas, and
// reports the time from the moment when a batch is pushed to the one when a replica reads it: 50 % and 99 % of all. With rate=0 examples/s without replicas and with them say what they cost.
func BenchmarkFreshness(b *testing.B) {
	for _, rate := range []int{50_000, 0} {
		for _, replicas := range []int{0, 1, 3, 0} { // the last is the control of the first
			if rate > 0 && replicas == 0 {
				continue
			}
			b.Run(fmt.Sprintf("rate=%d/replicas=%d", rate, replicas), func(b *testing.B) { benchFreshness(b, rate, replicas) })
		}
	}
}

// BenchmarkPass pushes to so many of a million rows of one shard in this process, and measures the passes of replicas over them: their time, and what they and the pushes of 512 · 26 ids before
// cost the processor, for each row that has changed, in ns.
func BenchmarkPass(b *testing.B) {
	for _, changed := range []int{1000, 100_000, 400_000} {
		for _, replicas := range []int{1, 3} {
			b.Run(fmt.Sprintf("changed=%d/replicas=%d", changed, replicas), func(b *testing.B) { benchPass(b, changed, replicas) })
		}
	}
}

func benchPass(b *testing.B, changed, replicas int) {
	const batch, ids = 512 * 26, 1_000_000
	l := pstest.BenchLayout(16)
	c, err := coordinator.Open(b.Context(), coordinator.Options{Layout: l, NumShards: 1})
	if err != nil {
		b.Fatal(err)
	}
	cl, err := c.Client(b.Context(), "worker")
	if err == nil {
		_, err = cl.Resume(b.Context(), "s", []string{"x"})
	}
	if err != nil {
		b.Fatal(err)
	}
	rng, n := rand.New(rand.NewPCG(1, 2)), int64(0)
	keys := rng.Perm(ids)
	push := func(rows int) {
		for at := 0; at < rows; at += batch {
			some := make([]int64, min(batch, rows-at))
			for i := range some {
				some[i] = int64(keys[at+i])
			}
			u := pstest.BenchUpdate(some, 16)
			u.From, u.To = n, n+1
			n++
			if err := cl.Push(b.Context(), u); err != nil {
				b.Fatal(err)
			}
		}
		if err := cl.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	from := &shards{streams: map[uint64]bool{}}
	from.set(c, 1)
	var all []*replica.Replica
	var passes []*replica.Passes
	for i := range replicas {
		r := replica.New(replica.Options{Layout: l, Name: fmt.Sprint(i)})
		all, passes = append(all, r), append(passes, r.Passes(from))
	}
	next := func() {
		for _, p := range passes {
			if err := p.Next(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	}
	push(ids)
	for range 2 { // all rows, and none
		next()
	}
	var pass, pushes float64 // s
	for b.Loop() {
		b.StopTimer()
		rng.Shuffle(ids, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		began := bench.CPUSeconds()
		push(changed)
		pushes += bench.CPUSeconds() - began
		b.StartTimer()
		began = bench.CPUSeconds()
		next()
		pass += bench.CPUSeconds() - began
	}
	b.ReportMetric(pass*1e9/float64(b.N*changed), "cpu-ns/row")
	b.ReportMetric(pushes*1e9/float64(b.N*changed), "push-cpu-ns/row")
	for _, r := range all {
		if err := r.Close(); err != nil {
			b.Error(err)
		}
	}
	if err := errors.Join(cl.Close(), c.Close(b.Context())); err != nil {
		b.Error(err)
	}
}

func benchFreshness(b *testing.B, rate, replicas int) {
	const batch, columns, ids = 512, 26, 1_000_000
	l := pstest.BenchLayout(16)
	l.Dense = append(l.Dense, param.Tensor{Name: "batches", Shape: []int{1}, Optimizer: optim.SGD{LR: 1}})
	c, err := coordinator.Open(b.Context(), coordinator.Options{Layout: l, NumShards: 1})
	if err != nil {
		b.Fatal(err)
	}
	cl, err := c.Client(b.Context(), "worker")
	if err == nil {
		_, err = cl.Resume(b.Context(), "s", []string{"x"})
	}
	if err != nil {
		b.Fatal(err)
	}
	from := &shards{streams: map[uint64]bool{}}
	from.set(c, 1)
	ctx, cancel := context.WithCancel(b.Context())
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		pushed []time.Time // of the batches, in their order
		ages   []time.Duration
		done   atomic.Bool
	)
	for i := range replicas {
		r := replica.New(replica.Options{Layout: l, Name: fmt.Sprint(i)})
		read := make(chan struct{})
		wg.Go(func() {
			_ = r.Follow(ctx, from) // until the benchmark ends
			<-read
			_ = r.Close()
		})
		<-r.Filled()
		wg.Go(func() {
			defer close(read)
			x, dense := r.Reader(), make([]float32, l.DenseLen())
			seen := 0
			for !done.Load() {
				x.Hold()
				_, err := x.Dense(b.Context(), 0, dense)
				x.Release()
				now := time.Now()
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				for ; seen < int(dense[len(dense)-1]); seen++ {
					ages = append(ages, now.Sub(pushed[seen]))
				}
				mu.Unlock()
				time.Sleep(time.Millisecond)
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	updates := make([]*param.Update, 64)
	for i := range updates {
		u := pstest.BenchUpdate(pstest.Distinct(rng, batch*columns, ids), 16)
		u.Source, u.Split, u.NumRows = "s", "x", batch
		u.Dense = make([]float32, l.DenseLen())
		u.Dense[len(u.Dense)-1] = -1
		updates[i] = u
	}
	began, n := time.Now(), 0
	for b.Loop() {
		u := updates[n%len(updates)]
		u.From, u.To = int64(n), int64(n+1)
		if rate > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(n) * batch * time.Second / time.Duration(rate))))
		}
		mu.Lock()
		pushed = append(pushed, time.Now())
		mu.Unlock()
		if err := cl.Push(b.Context(), u); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n*batch)/time.Since(began).Seconds(), "examples/s")
	done.Store(true)
	cancel()
	wg.Wait()
	if slices.Sort(ages); len(ages) > 0 {
		b.ReportMetric(ages[len(ages)/2].Seconds()*1e3, "p50-ms")
		b.ReportMetric(ages[len(ages)*99/100].Seconds()*1e3, "p99-ms")
	}
	if err := cl.Close(); err != nil {
		b.Error(err)
	}
	if err := c.Close(context.WithoutCancel(ctx)); err != nil {
		b.Error(err)
	}
}

package pstest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

const (
	benchRows  = 1_000_000
	benchBatch = 2000
	benchDim   = 16
)

// BenchmarkCluster measures lookups, pushes and snapshots of a parameter server with a million rows, with 1 and 4 shards.
// Each operation is measured twice: the second time is the control of the first.
func BenchmarkCluster(b *testing.B, open OpenFunc) {
	b.Helper()
	for _, shards := range []int{1, 4} {
		name := fmt.Sprintf("rows=%d/dim=%d/shards=%d", benchRows, benchDim, shards)
		b.Run(name, func(b *testing.B) { benchCluster(b, open, shards) })
	}
}

func benchLayout() *param.Layout {
	return &param.Layout{
		Tables: []param.Table{{Name: "t", Segments: []param.Segment{{
			Name: "v", Dim: benchDim, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.05},
		}}}},
		Dense: []param.Tensor{{Name: "w", Shape: []int{64}, Optimizer: optim.Adagrad{LR: 0.05}}},
	}
}

func benchUpdate(keys []int64) *param.Update {
	u := &param.Update{
		Source: Source, Split: "x", NumRows: 1, LR: 1, Keys: [][]int64{append([]int64(nil), keys...)},
		Counts: [][]uint32{make([]uint32, len(keys))}, Grads: [][]float32{make([]float32, len(keys)*benchDim)}, Dense: make([]float32, 64),
	}
	for i := range u.Counts[0] {
		u.Counts[0][i] = 1
	}
	for i := range u.Grads[0] {
		u.Grads[0][i] = 0.01
	}
	return u
}

func benchCluster(b *testing.B, open OpenFunc, shards int) {
	b.Helper()
	ctx := context.WithoutCancel(b.Context())
	c, err := open(ctx, coordinator.Options{Layout: benchLayout(), NumShards: shards, Dir: b.TempDir(), Keep: 1})
	if err != nil {
		b.Fatal(err)
	}
	cl, err := c.Client(ctx, "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := cl.Close(); err != nil {
			b.Error(err)
		}
		if err := c.Close(ctx); err != nil {
			b.Error(err)
		}
	}()
	if _, err := cl.Resume(ctx, Source, []string{"x"}); err != nil {
		b.Fatal(err)
	}
	at := int64(0)
	push := func(u *param.Update) {
		u.From, u.To = at, at+1
		at++
		if err := cl.Push(ctx, u); err != nil {
			b.Fatal(err)
		}
	}
	keys := make([]int64, benchBatch)
	for from := int64(0); from < benchRows; from += benchBatch {
		for i := range keys {
			keys[i] = from + int64(i)
		}
		push(benchUpdate(keys))
	}
	r := rand.New(rand.NewPCG(1, 1))
	updates := make([]*param.Update, 64)
	for i := range updates {
		seen := map[int64]bool{}
		for j := 0; j < benchBatch; {
			if k := r.Int64N(benchRows); !seen[k] {
				seen[k] = true
				keys[j] = k
				j++
			}
		}
		updates[i] = benchUpdate(keys)
	}
	found := &param.Rows{Values: [][]float32{make([]float32, benchBatch*benchDim)}}
	for _, run := range []string{"a", "b"} {
		b.Run("op=lookup/run="+run, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				found.Keys = updates[n%len(updates)].Keys
				if err := cl.Lookup(ctx, found); err != nil {
					b.Fatal(err)
				}
				n++
			}
			b.ReportMetric(float64(n*benchBatch)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	for _, run := range []string{"a", "b"} {
		b.Run("op=push/run="+run, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				push(updates[n%len(updates)])
				n++
			}
			b.ReportMetric(float64(n*benchBatch)/b.Elapsed().Seconds(), "rows/s")
		})
	}
	for _, run := range []string{"a", "b"} {
		b.Run("op=snapshot/run="+run, func(b *testing.B) {
			benchSnapshot(b, c, func() { push(updates[int(at)%len(updates)]) })
		})
	}
}

// benchSnapshot takes snapshots while pushes continue, and compares the longest push with the longest of as many without.
func benchSnapshot(b *testing.B, c Cluster, push func()) {
	b.Helper()
	longest := func(stop func() bool) (d time.Duration, n int) {
		for !stop() {
			start := time.Now()
			push()
			d = max(d, time.Since(start))
			n++
		}
		return d, n
	}
	var bytes int64
	var took, during, waited time.Duration
	pushes := 0
	for b.Loop() {
		infos := make(chan ps.SnapshotInfo, 1)
		go func() {
			defer close(infos)
			info, err := c.Snapshot(b.Context(), ps.SnapshotOptions{})
			if err != nil {
				b.Error(err)
				return
			}
			infos <- info
		}()
		var info ps.SnapshotInfo
		d, n := longest(func() bool {
			select {
			case info = <-infos:
				return true
			default:
				return false
			}
		})
		pushes += n
		bytes, took, during, waited = bytes+info.Bytes(), took+info.Took, max(during, d), max(waited, info.Stall)
	}
	quiet, _ := longest(func() bool { pushes--; return pushes < 0 })
	b.ReportMetric(float64(bytes)/1e6/took.Seconds(), "MB/s")
	b.ReportMetric(float64(during.Microseconds())/1e3, "longest-push-ms")
	b.ReportMetric(float64(quiet.Microseconds())/1e3, "longest-push-without-ms")
	b.ReportMetric(float64(waited.Microseconds())/1e3, "longest-wait-ms")
}

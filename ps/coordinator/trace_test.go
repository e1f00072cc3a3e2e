package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// tracedUpdate changes a few rows and says trace, from at to at+1.
func tracedUpdate(at int64, trace []byte) *param.Update {
	u := pstest.BenchUpdate([]int64{at % 7, 100 + at, 1 << 40}, 2)
	u.From, u.To, u.Trace = at, at+1, trace
	return u
}

// lastOf is the trace that is kept of these: the oracle.
func lastOf(tb testing.TB, all []float32) []byte {
	tb.Helper()
	return pstest.Trace(all[max(0, len(all)-score.MaxExamples):]...)
}

// floats is n numbers in no order.
func floats(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = r.Float32()
	}
	return x
}

func wantTrace(tb testing.TB, c *coordinator.Cluster, want []byte, when string) {
	tb.Helper()
	if got, err := c.State(tb.Context(), ps.TraceState); err != nil || !bytes.Equal(got, want) || got != nil && len(got) == 0 {
		tb.Fatalf("%s: a trace of %d bytes, want %d, or others; %v", when, len(got), len(want), err)
	}
}

// TestTraceKeepsTheLast compares with a slice that keeps all.
func TestTraceKeepsTheLast(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: 2})
	cl := mustClient(t, c, "x")
	r := rand.New(rand.NewPCG(3, 4))
	sizes := []int{0, 1, score.MaxExamples - 1, 1, score.MaxExamples, score.MaxExamples + 5, 7, 0, 2*score.MaxExamples + 1}
	for range 12 {
		sizes = append(sizes, r.IntN(1<<(1+r.IntN(17))))
	}
	var all []float32
	for at, n := range sizes {
		predictions := floats(r, n)
		said := pstest.Trace(predictions...)
		if err := cl.Push(t.Context(), tracedUpdate(int64(at), said)); err != nil {
			t.Fatal(err)
		}
		all = append(all, predictions...)
		clear(said) // the buffer is the caller's again
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantTrace(t, c, lastOf(t, all), "after a push")
		if at%5 == 4 {
			all = floats(r, []int{0, 30, score.MaxExamples + 3, score.MaxExamples}[at/5%4])
			if err := c.SetState(t.Context(), ps.TraceState, pstest.Trace(all...)); err != nil {
				t.Fatal(err)
			}
			wantTrace(t, c, lastOf(t, all), "after SetState")
		}
	}
	if err := c.SetState(t.Context(), ps.TraceState, []byte("no trace")); !errors.Is(err, ps.ErrLayout) || !errors.Is(err, score.ErrTrace) {
		t.Errorf("no trace: %v, want ErrLayout and ErrTrace", err)
	}
	wantTrace(t, c, lastOf(t, all), "after what was refused")
	if err := c.SetState(t.Context(), ps.TraceState, nil); err != nil {
		t.Fatal(err)
	}
	wantTrace(t, c, nil, "after clearing")
}

// TestTraceIsAppliedOnce follows one update from being staged to being taken over: it is in the trace when its rows are
// applied, and once.
func TestTraceIsAppliedOnce(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	failing := false
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: 3, WrapConn: func(_ string, shard int, conn ps.Conn) ps.Conn {
		return &halfConn{conn, shard, &failing}
	}})
	a, b := mustClient(t, c, "x"), mustClient(t, c)
	one, two, three := tracedUpdate(0, pstest.Trace(1)), tracedUpdate(1, pstest.Trace(2, 2.5)), tracedUpdate(2, pstest.Trace(3))
	if err := a.Push(ctx, one); err != nil {
		t.Fatal(err)
	}
	wantTrace(t, c, nil, "staged everywhere")
	if err := a.Push(ctx, one); err != nil { // again, as after a lost answer; it carries the commit
		t.Fatal(err)
	}
	wantTrace(t, c, pstest.Trace(1), "committed")

	if err := a.Push(ctx, two); err != nil {
		t.Fatal(err)
	}
	p, err := b.Resume(ctx, "s", []string{"x"})
	if err != nil || p["x"].Position != 2 {
		t.Fatalf("taken over at %+v, %v, want 2: all shards had it", p, err)
	}
	wantTrace(t, c, pstest.Trace(1, 2, 2.5), "taken over from all shards")
	if err := a.Push(ctx, three); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("push of the old owner: %v, want ErrFenced", err)
	}

	failing = true
	if err := b.Push(ctx, three); !errors.Is(err, pstest.ErrKilled) {
		t.Fatalf("push to some shards: %v", err)
	}
	failing = false
	d := mustClient(t, c)
	if p, err = d.Resume(ctx, "s", []string{"x"}); err != nil || p["x"].Position != 2 {
		t.Fatalf("taken over at %+v, %v, want 2: some shards had no more", p, err)
	}
	wantTrace(t, c, pstest.Trace(1, 2, 2.5), "taken over from some shards")
	for _, u := range []*param.Update{two, three, three} { // two is applied already
		if err := d.Push(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	wantTrace(t, c, pstest.Trace(1, 2, 2.5, 3), "pushed again")
}

// halfConn reaches shard 0 only while failing is set.
type halfConn struct {
	ps.Conn
	shard   int
	failing *bool
}

func (c *halfConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if *c.failing && c.shard > 0 {
		return ps.Reply{}, pstest.ErrKilled
	}
	return c.Conn.Stage(ctx, ctl, epoch, u)
}

// TestTraceIsPartOfTheCut stops in the middle, by way of a snapshot, on other numbers of shards, and compares with a run
// that nobody stopped.
func TestTraceIsPartOfTheCut(t *testing.T) {
	t.Parallel()
	const updates, half = 20, 9
	ctx := t.Context()
	const rows = 5_000 // of an update; 20 of these are more than a full trace
	said := func(at int64, mark float32) []float32 {
		return slices.Repeat([]float32{float32(at), mark}, rows/2)
	}
	train := func(c *coordinator.Cluster, from, to int64, mark float32) string {
		t.Helper()
		cl := mustClient(t, c, "x")
		for at := from; at < to; at++ {
			if err := cl.Push(ctx, tracedUpdate(at, pstest.Trace(said(at, mark)...))); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		d, err := c.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	whole := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2)})
	want := train(whole, 0, updates, 0.25)
	var all []float32
	for at := range int64(updates) {
		all = append(all, said(at, 0.25)...)
	}
	wantTrace(t, whole, lastOf(t, all), "untouched")
	if other := train(mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2)}), 0, updates, 0.5); other == want {
		t.Error("two traces have one digest")
	}
	for _, shards := range []int{1, 2, 5} {
		dir := t.TempDir()
		c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: shards, Dir: dir})
		cl := mustClient(t, c, "x")
		for at := range int64(half) {
			if err := cl.Push(ctx, tracedUpdate(at, pstest.Trace(said(at, 0.25)...))); err != nil {
				t.Fatal(err)
			}
		}
		if err := cl.Close(); err != nil {
			t.Fatal(err)
		}
		info, err := c.Snapshot(ctx, ps.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		train(c, half, half+3, 0.75) // a snapshot does not know what came after it
		if got, want := info.State[ps.TraceState], pstest.Trace(all[:half*rows]...); !bytes.Equal(got, want) {
			t.Errorf("%d shards: %d bytes of trace in the snapshot, want %d, or others", shards, len(got), len(want))
		}
		again := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: shards%3 + 1, Dir: dir})
		wantTrace(t, again, pstest.Trace(all[:half*rows]...), "restored")
		if got := train(again, half, updates, 0.25); got != want {
			t.Errorf("%d shards, then %d: digest %s, want %s", shards, shards%3+1, got, want)
		}
		wantTrace(t, again, lastOf(t, all), "gone on")
	}
}

// TestTraceIsOne refuses bytes that nobody could read again.
func TestTraceIsOne(t *testing.T) {
	t.Parallel()
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: 2})
	cl := mustClient(t, c, "x")
	if err := cl.Push(t.Context(), tracedUpdate(0, []byte("no trace"))); !errors.Is(err, ps.ErrLayout) || !errors.Is(err, score.ErrTrace) {
		t.Errorf("got %v, want ErrLayout and ErrTrace", err)
	}
}

func TestTraceAllocatesNothing(t *testing.T) {
	c := mustOpen(t, coordinator.Options{Layout: pstest.BenchLayout(2), NumShards: 2})
	cl := mustClient(t, c, "x")
	u := pstest.BenchUpdate([]int64{1, 2, 3}, 2)
	u.Trace = pstest.Trace(make([]float32, 5000)...) // the ring turns a few times
	step := func() {
		u.From, u.To = u.To, u.To+1
		if err := cl.Push(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	step()
	step()
	step()
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations a push", n)
	}
}

// BenchmarkTrace is what a trace costs a push, and a cut that copies a full one.
func BenchmarkTrace(b *testing.B) {
	c := mustOpen(b, coordinator.Options{Layout: pstest.BenchLayout(2)})
	cl := mustClient(b, c, "x")
	at := int64(0)
	push := func(b *testing.B, u *param.Update) {
		u.From, u.To = at, at+1
		at++
		if err := cl.Push(b.Context(), u); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"trace=no", "trace=512"} {
		b.Run("push/"+name, func(b *testing.B) {
			u := pstest.BenchUpdate([]int64{1, 2, 3}, 2)
			if name == "trace=512" {
				u.Trace = pstest.Trace(make([]float32, 512)...)
				b.SetBytes(int64(len(u.Trace)))
			}
			b.ReportAllocs()
			for b.Loop() {
				push(b, u)
			}
		})
	}
	b.Run("state", func(b *testing.B) {
		full := pstest.Trace(make([]float32, score.MaxExamples)...)
		if err := c.SetState(b.Context(), ps.TraceState, full); err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(full)))
		b.ReportAllocs()
		for b.Loop() {
			if got, err := c.State(b.Context(), ps.TraceState); err != nil || len(got) != len(full) {
				b.Fatal(len(got), err)
			}
		}
	})
}

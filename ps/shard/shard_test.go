package shard_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/wal"
)

// TestNewOwnerDisturbs: a split that is taken over while a cut waits for markers may be settled differently before and
// after it, so the cut is not taken; once it is taken, it is nobody's business.
func TestNewOwnerDisturbs(t *testing.T) {
	t.Parallel()
	s, err := shard.New(pstest.CountingLayout(), 0, 1, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id := ps.SplitID{Source: "s", Split: "x"}
	s.Open(1, "old")
	s.Open(2, "new")
	if _, err := s.Acquire(1, id, 1); err != nil {
		t.Fatal(err)
	}
	s.BeginCut(7, []uint64{1}, 0)
	if _, disturbed := s.CutState(7); disturbed {
		t.Error("a cut is disturbed although nothing has happened")
	}
	if _, err := s.Acquire(2, id, 2); err != nil {
		t.Fatal(err)
	}
	if _, disturbed := s.CutState(7); !disturbed {
		t.Error("a cut continues although a split has a new owner")
	}
}

// TestLateCoordinator: what a coordinator had decided that is gone comes too late, and changes nothing.
func TestLateCoordinator(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]*shard.LogOptions{"no log": nil, "log": {Dir: t.TempDir(), NoSync: true}} {
		n, err := shard.Open(t.Context(), shard.Options{Layout: pstest.CountingLayout(), NumShards: 1, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 5}); err != nil {
			t.Fatal(err)
		}
		for _, o := range []ps.LoadOptions{{Generation: 5}, {Generation: 4}, {Generation: 4, Keep: true}, {Generation: 5, Keep: true}} {
			if err := n.Load(t.Context(), o); !errors.Is(err, ps.ErrRolledBack) {
				t.Errorf("%s: %+v after generation 5: %v, want ErrRolledBack", name, o, err)
			}
		}
		for _, g := range []uint64{math.MaxUint64, math.MaxInt64} {
			if err := n.Load(t.Context(), ps.LoadOptions{Generation: g}); !errors.Is(err, ps.ErrMismatch) {
				t.Errorf("%s: generation %d: %v, want ErrMismatch", name, g, err)
			}
		}
		if g := n.Generation(); g != 5 {
			t.Errorf("%s: generation %d, want 5", name, g)
		}
		// The clock of shard 0's machine was ahead when it made one, and that is in the logs.
		ahead := uint64(time.Date(2199, 1, 2, 3, 4, 5, 0, time.UTC).UnixMicro())
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: ahead}); err != nil || n.Generation() != ahead {
			t.Errorf("%s: a generation of a clock that was ahead: %d, %v; want %d", name, n.Generation(), err, ahead)
		}
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestGivenUpKeep: a call that is cancelled while it waits for the log leaves node and log in one generation.
func TestGivenUpKeep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fs := &gateFS{Disk: fsx.OS{}}
	o := shard.Options{Layout: pstest.CountingLayout(), NumShards: 1, Dir: t.TempDir(), Log: &shard.LogOptions{Dir: dir, Disk: fs}}
	n, err := shard.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	open := fs.shut()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Load(ctx, ps.LoadOptions{Generation: 2, Keep: true}) }()
	fs.await(t)
	cancel()
	time.Sleep(10 * time.Millisecond) // a call that does not wait has returned by now
	open()
	if err := <-done; err != nil {
		t.Errorf("the log has the generation, the call says %v", err)
	}
	before := n.Generation()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := shard.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.Close() }()
	if g := again.Generation(); g != before {
		t.Errorf("the node was in generation %d, its log gives %d", before, g)
	}
}

// TestTraceLiesOnShardZero refuses what no client sends.
func TestTraceLiesOnShardZero(t *testing.T) {
	t.Parallel()
	l := pstest.BenchLayout(2)
	s, err := shard.New(l, 1, 2, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Open(1, "w")
	if _, err := s.Acquire(1, ps.SplitID{Source: "s", Split: "x"}, 1); err != nil {
		t.Fatal(err)
	}
	u := &param.Update{Source: "s", Split: "x", To: 1, Trace: pstest.Trace(1)}
	if err := s.Stage(1, 1, u); !errors.Is(err, ps.ErrLayout) {
		t.Errorf("got %v, want ErrLayout", err)
	}
	u.Trace = nil
	if err := s.Stage(1, 1, u); err != nil {
		t.Error(err)
	}
}

// FuzzWorkerState sets any blobs of worker state, the trace among them: what is kept is bounded and comes back the same.
func FuzzWorkerState(f *testing.F) {
	f.Add("k", []byte("v"))
	f.Add(ps.TraceState, []byte("no trace"))
	f.Add(ps.TraceState, pstest.Trace(1, 2, 3))
	f.Add(ps.TraceState, pstest.Trace(make([]float32, score.MaxExamples+5)...))
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		s, err := shard.New(pstest.CountingLayout(), 0, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		s.SetState(key, value)
		got := s.State(key)
		want := value
		if key == ps.TraceState {
			var err error
			if want, err = score.AppendTail(nil, value); err != nil || len(score.Records(want)) == 0 {
				want = nil
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%d bytes under %q come back as %d", len(value), key, len(got))
		}
		if c := s.Cut(); !bytes.Equal(c.State[key], want) {
			t.Fatalf("a cut has %d bytes of %d", len(c.State[key]), len(want))
		}
		s.SetState(key, got)
		if again := s.State(key); !bytes.Equal(again, want) {
			t.Fatalf("set again, %d bytes are %d", len(want), len(again))
		}
	})
}

func TestLogRecords(t *testing.T) {
	t.Parallel()
	l := pstest.SmallJob().Layout()
	l.Tables[1].Segments[0].Delay = 0 // the values are an edit's too
	u := pstest.RandomUpdate(l, "x", 3, 9)
	records := shard.LogRecords(u)
	s, err := shard.ApplyRecords(l, records[:3])
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if diff := cmp.Diff(u, s.Staged(ps.SplitID{Source: "s", Split: "x"}), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("staged (-written +read):\n%s", diff)
	}
	edited, err := shard.ApplyRecords(l, records[:7])
	if err != nil {
		t.Fatal(err)
	}
	defer edited.Close()
	if e := edited.Staged(ps.SplitID{Source: "s", Split: "x"}); e == nil || e.Op != param.AssignAdd || e.From != u.To || !cmp.Equal(e.Grads, u.Grads) {
		t.Errorf("staged edit %+v, want the values of %+v to be added from %d on", e, u, u.To)
	}
	for i, r := range records {
		for n := range r.Payload {
			if r.Kind == 7 && n >= len(r.Payload)-5 { // a value ends with the record
				continue
			}
			short := append(slices.Clone(records[:i]), shard.LogRecord{Kind: r.Kind, Payload: r.Payload[:n]})
			s, err := shard.ApplyRecords(l, short)
			s.Close()
			if !errors.Is(err, wal.ErrCorrupt) {
				t.Fatalf("record of kind %d cut to %d of %d bytes: %v, want ErrCorrupt", r.Kind, n, len(r.Payload), err)
			}
		}
	}
}

// FuzzLogRecord applies any record after those of a session that owns a split.
func FuzzLogRecord(f *testing.F) {
	l := pstest.SmallJob().Layout()
	records := shard.LogRecords(pstest.RandomUpdate(l, "x", 3, 9))
	for _, r := range records {
		f.Add(r.Kind, r.Payload)
	}
	f.Add(byte(0), []byte{})
	f.Fuzz(func(t *testing.T, kind byte, payload []byte) {
		s, err := shard.ApplyRecords(l, append(slices.Clone(records[:3]), shard.LogRecord{Kind: kind, Payload: payload}))
		s.Close()
		if err != nil && !errors.Is(err, wal.ErrCorrupt) && !errors.Is(err, ps.ErrFull) {
			t.Errorf("%v, want ErrCorrupt", err)
		}
	})
}

// TestSlowSync: while the disk is at a push, lookups of the rows that it commits are answered, and the push is not.
func TestSlowSync(t *testing.T) {
	t.Parallel()
	fs := &gateFS{Disk: fsx.OS{}}
	const rows, dim = 50, 4
	o := shard.Options{Layout: pstest.BenchLayout(dim), NumShards: 1, Log: &shard.LogOptions{Dir: t.TempDir(), Disk: fs}}
	n, c, u := pusher(t, o)
	defer func() { _ = n.Close() }()
	look := func() []float32 {
		t.Helper()
		out := make([]float32, rows*dim)
		if _, err := c.Lookup(t.Context(), nil, &param.Rows{Keys: u.Keys, Values: [][]float32{out}}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := look()
	commit := []ps.Control{{Kind: ps.Commit, Split: ps.SplitID{Source: u.Source, Split: u.Split}, Epoch: 1, To: u.To}}
	u.From, u.To = u.To, u.To+1
	open := fs.shut()
	defer open()
	done := make(chan error, 1)
	go func() {
		_, err := c.Stage(t.Context(), commit, 1, u)
		done <- err
	}()
	fs.await(t)
	looked := make(chan []float32, 1)
	go func() { looked <- look() }()
	select {
	case after := <-looked:
		if slices.Equal(before, after) {
			t.Error("the commit has no effect before the disk has it")
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("a lookup waits for the disk")
	}
	select {
	case err := <-done:
		t.Errorf("the push is acknowledged before the disk has it: %v", err)
	default:
	}
	open()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// trained is a node, closed when the test ends, with the stream of a worker that has taken a split.
func trained(t *testing.T, o shard.Options, id ps.SplitID) (*shard.Node, ps.Conn) {
	t.Helper()
	n, err := shard.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	c, err := n.Connect(t.Context(), 1, 1, "trainer")
	if err == nil {
		_, _, err = c.Acquire(t.Context(), id, 1)
	}
	if err != nil {
		t.Fatal(err)
	}
	return n, c
}

// pusher is a node with a stream that has staged its first update, of 50 rows of the bench layout.
func pusher(t *testing.T, o shard.Options) (*shard.Node, ps.Conn, *param.Update) {
	t.Helper()
	n, err := shard.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	c, err := n.Connect(t.Context(), 9, 1, "w")
	if err != nil {
		t.Fatal(err)
	}
	u := pstest.BenchUpdate(pstest.Distinct(rand.New(rand.NewPCG(1, 1)), 50, 1000), 4)
	u.From, u.To = 0, 1
	if _, _, err := c.Acquire(t.Context(), ps.SplitID{Source: u.Source, Split: u.Split}, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Stage(t.Context(), nil, 1, u); err != nil {
		t.Fatal(err)
	}
	return n, c, u
}

// TestRefusedPushes: a push that is refused, or whose update the shard has already, leaves nothing behind, whatever the update looks like; and what was
// staged is a copy, which the caller's memory has nothing to do with.
func TestRefusedPushes(t *testing.T) {
	t.Parallel()
	for _, log := range []*shard.LogOptions{nil, {Dir: t.TempDir(), NoSync: true}} {
		n, c, u := pusher(t, shard.Options{Layout: pstest.BenchLayout(4), NumShards: 1, Log: log})
		id := ps.SplitID{Source: u.Source, Split: u.Split}
		commit := []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: 1}}
		bad := *u
		bad.From, bad.To, bad.Counts, bad.Trace = 1, 2, nil, []byte("none")
		gap := *u
		gap.From, gap.To = 5, 6
		for range 20 {
			for _, refused := range []*param.Update{&bad, &gap} {
				if _, err := c.Stage(t.Context(), commit, 1, refused); !errors.Is(err, ps.ErrLayout) && !errors.Is(err, ps.ErrGap) {
					t.Fatalf("%v, want ErrLayout or ErrGap", err)
				}
			}
			if _, err := c.Stage(t.Context(), nil, 1, u); err != nil { // again
				t.Fatal(err)
			}
		}
		if free := n.FreeCopies(); free > 2 {
			t.Errorf("log %v: %d copies of updates are kept of 60 pushes one after the other", log != nil, free)
		}
		next := *u
		next.From, next.To = 1, 2
		if _, err := c.Stage(t.Context(), nil, 1, &next); err != nil {
			t.Fatal(err)
		}
		rows := &param.Rows{Keys: u.Keys, Values: [][]float32{make([]float32, len(u.Keys[0])*4)}}
		if _, err := c.Lookup(t.Context(), nil, rows); err != nil {
			t.Fatal(err)
		}
		before := slices.Clone(rows.Values[0])
		for i := range u.Grads[0] {
			u.Grads[0][i] *= -1
		}
		commit[0].To = 2
		if _, err := c.Control(t.Context(), commit); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Lookup(t.Context(), nil, rows); err != nil {
			t.Fatal(err)
		}
		for i, w := range rows.Values[0] {
			if w >= before[i] {
				t.Fatalf("log %v: weight %d went from %v to %v against a positive gradient", log != nil, i, before[i], w)
			}
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExchangedPushes: pushes whose memory a shard may keep do what copies of them do, whatever becomes of what it leaves in their place; what is refused, or goes to a log, is
// left as it was, and what a shard leaves of Found says nothing.
func TestExchangedPushes(t *testing.T) {
	t.Parallel()
	layout := pstest.BenchLayout(4)
	push := func(n int, exchange bool) *param.Update {
		u := pstest.BenchUpdate(pstest.Distinct(rand.New(rand.NewPCG(1, uint64(n%3))), 40+n, 1000), 4)
		u.From, u.To, u.Dense, u.Exchange = int64(n), int64(n+1), make([]float32, layout.DensePushLen()), exchange
		for i := range u.Grads[0] {
			u.Grads[0][i] = float32(i%7) - 2
		}
		for i := range u.Dense {
			u.Dense[i] = float32(n+i) / 8
		}
		return u
	}
	type state struct {
		rows  []float32
		dense []float32
	}
	run := func(exchange bool, log *shard.LogOptions) state {
		n, c, first := pusher(t, shard.Options{Layout: layout, NumShards: 1, Log: log})
		id := ps.SplitID{Source: first.Source, Split: first.Split}
		for i := 1; i < 30; i++ {
			u, was := push(i, exchange), push(i, exchange)
			u.Found = []param.Found{{}}
			rows := &param.Rows{Keys: u.Keys, Values: [][]float32{make([]float32, len(u.Grads[0]))}, Found: u.Found}
			commit := []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: int64(i)}}
			if _, err := c.Lookup(t.Context(), commit, rows); err != nil {
				t.Fatal(err)
			}
			gap := *u
			gap.From, gap.To = u.From+5, u.To+5
			if _, err := c.Stage(t.Context(), nil, 1, &gap); !errors.Is(err, ps.ErrGap) {
				t.Fatalf("%v, want ErrGap", err)
			}
			if !slices.Equal(u.Keys[0], was.Keys[0]) || !slices.Equal(u.Grads[0], was.Grads[0]) || !slices.Equal(gap.Dense, was.Dense) {
				t.Fatal("a push that was refused has changed")
			}
			grads, dense := &u.Grads[0][0], &u.Dense[0]
			if _, err := c.Stage(t.Context(), nil, 1, u); err != nil {
				t.Fatal(err)
			}
			keeps := len(u.Grads[0]) == 0 || &u.Grads[0][0] != grads
			if want := exchange && log == nil; keeps != want || (len(u.Dense) == 0 || &u.Dense[0] != dense) != want {
				t.Fatalf("exchange %t, log %t: the shard has kept memory: %t", exchange, log != nil, keeps)
			} else if want && u.Found[0].In != nil {
				t.Fatal("what is left of Found names a table")
			}
			for k := range u.Keys[0] { // it is the caller's again
				u.Keys[0][k] = -1
			}
			for k := range u.Counts[0] {
				u.Counts[0][k] = 1 << 20
			}
			for _, of := range [][]float32{u.Grads[0], u.Dense} {
				for k := range of {
					of[k] = 1e9
				}
			}
		}
		var s state
		keys := pstest.Distinct(rand.New(rand.NewPCG(1, 1)), 60, 1000)
		s.rows, s.dense = make([]float32, 4*len(keys)), make([]float32, layout.DenseLen())
		if _, err := c.Lookup(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: 30}}, &param.Rows{Keys: [][]int64{keys}, Values: [][]float32{s.rows}}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Dense(t.Context(), nil, 0, s.dense); err != nil {
			t.Fatal(err)
		}
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
		return s
	}
	want := run(false, nil)
	for _, log := range []*shard.LogOptions{nil, {Dir: t.TempDir(), NoSync: true}} {
		if got := run(true, log); !slices.Equal(got.rows, want.rows) || !slices.Equal(got.dense, want.dense) {
			t.Errorf("log %t: rows or dense tensors differ from those of copies", log != nil)
		}
	}
}

// TestCommitsComeBack: a node that is opened again has applied what was committed in front of the updates that it acknowledged, and
// has staged the last of them.
func TestCommitsComeBack(t *testing.T) {
	t.Parallel()
	o := shard.Options{Layout: pstest.BenchLayout(4), NumShards: 1, Log: &shard.LogOptions{Dir: t.TempDir(), NoSync: true}}
	n, c, u := pusher(t, o)
	id := ps.SplitID{Source: u.Source, Split: u.Split}
	// The shard takes the commit, and not what is behind it.
	u.From, u.To = 10, 11
	if _, err := c.Stage(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: 1}}, 1, u); !errors.Is(err, ps.ErrGap) {
		t.Errorf("an update behind a gap: %v, want ErrGap", err)
	}
	u.From, u.To = 0, 1
	for range 5 {
		commit := []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: u.To}}
		u.From, u.To = u.To, u.To+1
		if _, err := c.Stage(t.Context(), commit, 1, u); err != nil {
			t.Fatal(err)
		}
	}
	// One that the shard cannot take leaves nothing in the log: it must come back.
	if _, err := c.Stage(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: u.To + 7}}, 1, u); !errors.Is(err, ps.ErrGap) {
		t.Errorf("a commit of what is not staged: %v, want ErrGap", err)
	}
	want, err := n.Progress(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err = shard.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	got, err := n.Progress(t.Context())
	if err != nil || got[id] != want[id] || got[id].Position != 5 {
		t.Errorf("came back with %+v, %v; want %+v, position 5", got[id], err, want[id])
	}
	if c, err = n.Connect(t.Context(), 10, 1, "w"); err != nil {
		t.Fatal(err)
	}
	if st, _, err := c.Acquire(t.Context(), id, 2); err != nil || len(st.Staged) != 1 || st.Staged[0].Position != 6 {
		t.Errorf("staged %+v, %v; want one update to 6", st.Staged, err)
	}
}

// TestWriteCutWaitsForTheLog: a shard's part of a snapshot is there only when the border after it is durable in the log;
// otherwise a power failure leaves a snapshot that the log knows nothing of, and the log counts as one of an earlier life.
func TestWriteCutWaitsForTheLog(t *testing.T) {
	t.Parallel()
	fs := &gateFS{Disk: fsx.OS{}}
	dir := t.TempDir()
	o := shard.Options{Layout: pstest.CountingLayout(), NumShards: 1, Dir: dir, Log: &shard.LogOptions{Dir: t.TempDir(), Disk: fs}}
	n, err := shard.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
		t.Fatal(err)
	}
	open := fs.shut()
	defer open()
	if err := n.BeginCut(t.Context(), 5, 1, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := n.AwaitCut(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	w, err := snapshot.Create(snapshot.Options{Dir: dir, ID: 1, Layout: o.Layout, Shards: 1, Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	fs.await(t)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := n.WriteCut(ctx, 5, ps.WriteOptions{Dir: w.Dir()}); err == nil {
		t.Error("the part of a snapshot is there, and its border in the log is not")
	}
	open()
	if _, err := n.WriteCut(t.Context(), 5, ps.WriteOptions{Dir: w.Dir()}); err != nil && !strings.Contains(err.Error(), "exist") {
		t.Error(err)
	}
}

// gateFS holds every fsync, of files and folders, while it is shut.
type gateFS struct {
	fsx.Disk
	mu      sync.Mutex
	gate    chan struct{} // nil: open
	waiting atomic.Int32
}

// shut makes syncs wait until open is called.
func (f *gateFS) shut() (open func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	gate := make(chan struct{})
	f.gate = gate
	return sync.OnceFunc(func() {
		f.mu.Lock()
		f.gate = nil
		f.mu.Unlock()
		close(gate)
	})
}

// await returns when a sync is waiting.
func (f *gateFS) await(t *testing.T) {
	t.Helper()
	eventually(t, "something is synced", func() bool { return f.waiting.Load() > 0 })
}

func (f *gateFS) pass() {
	f.mu.Lock()
	gate := f.gate
	f.mu.Unlock()
	if gate != nil {
		f.waiting.Add(1)
		<-gate
		f.waiting.Add(-1)
	}
}

func (f *gateFS) Create(path string) (fsx.DiskFile, error) {
	file, err := f.Disk.Create(path)
	if err != nil {
		return nil, err
	}
	return &gateFile{file, f}, nil
}

func (f *gateFS) Update(path string, at int64, direct bool) (fsx.DiskFile, error) {
	file, err := f.Disk.Update(path, at, direct)
	if err != nil {
		return nil, err
	}
	return &gateFile{file, f}, nil
}

func (f *gateFS) SyncDir(path string) error { f.pass(); return f.Disk.SyncDir(path) }

type gateFile struct {
	fsx.DiskFile
	f *gateFS
}

func (f *gateFile) Sync() error { f.f.pass(); return f.DiskFile.Sync() }

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

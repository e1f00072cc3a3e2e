package pstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// Cluster is what the suite needs of a parameter server.
type Cluster interface {
	Client(ctx context.Context, worker string) (*ps.Client, error)
	Snapshot(ctx context.Context, o ps.SnapshotOptions) (ps.SnapshotInfo, error)
	Restored() *ps.SnapshotInfo
	Stats(ctx context.Context) (ps.Stats, error)
	Progress(ctx context.Context, source string) (map[string]ps.Progress, error)
	Row(ctx context.Context, tbl int, fid int64, dst *table.Rows) (bool, error)
	Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error
	Tally(ctx context.Context) (tables []tally.Slots, newest int64, err error)
	ChangesFor(ctx context.Context, shard int, r ps.ChangesRequest) (*ps.Changes, error)
	SetState(ctx context.Context, key string, value []byte) error
	InitState(ctx context.Context, key string, value []byte) (stored []byte, err error)
	SetStateAt(ctx context.Context, member, generation uint64, key string, value []byte) error
	State(ctx context.Context, key string) ([]byte, error)
	Join(ctx context.Context, o ps.JoinOptions) (member uint64, err error)
	Await(ctx context.Context, member, have uint64) (ps.Assignment, error)
	Report(ctx context.Context, member uint64, r ps.Report) error
	Follow(ctx context.Context, worker, run string, have ps.Ending, ended []int) (ps.Ending, error)
	Leave(ctx context.Context, member uint64) (last bool, err error)
	Digest(ctx context.Context) (string, error)
	Close(ctx context.Context) error
}

var _ Cluster = (*coordinator.Cluster)(nil)

// OpenFunc opens a cluster; it passes [coordinator.Options].WrapConn on to every stream of a client.
type OpenFunc func(ctx context.Context, o coordinator.Options) (Cluster, error)

// TestCluster checks a parameter server of 1, 2 and 5 shards and its client.
func TestCluster(t *testing.T, open OpenFunc) {
	t.Helper()
	s := suite{open}
	t.Run("same result on any number of shards", s.testShards)
	t.Run("precision", s.testPrecision)
	t.Run("same result after kills and restores", s.testKills)
	t.Run("plain maps in float64", s.testFloat64)
	t.Run("rows come and go", s.testRetention)
	t.Run("rows come and go between snapshots", s.testRetainedChains)
	t.Run("changes of rows that come and go", s.testChangesRetained)
	t.Run("cuts of rows that come and go", s.testCutsRetained)
	t.Run("cuts that replicas share", s.testSharedCuts)
	t.Run("torn batches are noticed", s.testTorn)
	t.Run("model of the protocol", s.testModel)
	for _, shards := range []int{1, 2, 5} {
		t.Run(fmt.Sprintf("shards=%d", shards), func(t *testing.T) {
			t.Run("exactly once", func(t *testing.T) { s.testExactlyOnce(t, shards) })
			t.Run("edits", func(t *testing.T) { s.testEdits(t, shards) })
			t.Run("changes", func(t *testing.T) { s.testChanges(t, shards) })
			t.Run("cuts for replicas", func(t *testing.T) { s.testCuts(t, shards) })
			t.Run("tally", func(t *testing.T) { s.testTally(t, shards) })
			t.Run("fencing", func(t *testing.T) { s.testFencing(t, shards) })
			t.Run("update rules", func(t *testing.T) { s.testRules(t, shards) })
			t.Run("dense versions", func(t *testing.T) { s.testDense(t, shards) })
			t.Run("reads ahead", func(t *testing.T) { s.testAhead(t, shards) })
			t.Run("worker state", func(t *testing.T) { s.testState(t, shards) })
			t.Run("refused marker", func(t *testing.T) { s.testRefusedMarker(t, shards) })
			t.Run("first worker state", func(t *testing.T) { s.testFirstState(t, shards) })
			t.Run("who decides", func(t *testing.T) { s.testWhoDecides(t, shards) })
			t.Run("delegation", func(t *testing.T) { s.testDelegation(t, shards) })
			t.Run("join and leave", func(t *testing.T) { s.testJoinLeave(t, shards) })
			t.Run("half staged", func(t *testing.T) { s.testHalfStaged(t, shards) })
			t.Run("dead owner", func(t *testing.T) { s.testDeadOwner(t, shards) })
		})
	}
}

type suite struct{ open OpenFunc }

func (s suite) must(t *testing.T, o coordinator.Options) Cluster {
	t.Helper()
	c, err := s.open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return c
}

func client(t *testing.T, c Cluster, worker string) *ps.Client {
	t.Helper()
	cl, err := c.Client(t.Context(), worker)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cl.Close() }) // the cluster may be closed already
	return cl
}

func digest(t *testing.T, c Cluster) string {
	t.Helper()
	d, err := c.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func progress(t *testing.T, c Cluster) map[string]ps.Progress {
	t.Helper()
	p, err := c.Progress(t.Context(), Source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// row reports whether the first table has a row for a fid.
func row(t *testing.T, c Cluster, fid int64, dst *table.Rows) bool {
	t.Helper()
	ok, err := c.Row(t.Context(), 0, fid, dst)
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// reference runs a job on one shard without trouble.
func (s suite) reference(t *testing.T, j Job, p param.Precision) string {
	t.Helper()
	c := s.must(t, coordinator.Options{Layout: j.Layout(), Precision: p})
	w, err := NewWorker(t.Context(), j, client(t, c, "reference"))
	if err != nil {
		t.Fatal(err)
	}
	finish(t, w)
	return digest(t, c)
}

func finish(t *testing.T, w *Worker) {
	t.Helper()
	for {
		more, err := w.Step(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !more {
			break
		}
	}
	if err := w.client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (s suite) testShards(t *testing.T) {
	t.Parallel()
	j := SmallJob()
	want := s.reference(t, j, param.Float32)
	for _, shards := range []int{2, 5, 64} {
		c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: shards})
		w, err := NewWorker(t.Context(), j, client(t, c, "w"))
		if err != nil {
			t.Fatal(err)
		}
		finish(t, w)
		if got := digest(t, c); got != want {
			t.Errorf("%d shards: digest %s, want %s", shards, got, want)
		}
		for _, p := range progress(t, c) {
			if p.Rows != int64(j.SplitLen) || int(p.Position) != j.SplitLen {
				t.Errorf("%d shards: progress %+v, want all of %d", shards, p, j.SplitLen)
			}
		}
	}
}

// testPrecision: rows and gradients are rounded in the same way whatever is between client and shards, and what is read with state is
// not. The digest is that of shards of this process.
func (s suite) testPrecision(t *testing.T) {
	t.Parallel()
	j := SmallJob()
	local := suite{func(ctx context.Context, o coordinator.Options) (Cluster, error) { return coordinator.Open(ctx, o) }}
	run := func(s suite, p param.Precision, shards int) (string, Cluster, *ps.Client) {
		c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: shards, Precision: p})
		cl := client(t, c, "w")
		w, err := NewWorker(t.Context(), j, cl)
		if err != nil {
			t.Fatal(err)
		}
		finish(t, w)
		return digest(t, c), c, cl
	}
	seen := map[string]param.Precision{}
	for _, p := range []param.Precision{param.Float32, param.BF16, param.FP16} {
		want, _, _ := run(local, p, 1)
		if q, ok := seen[want]; ok {
			t.Errorf("%s and %s give the same digest", p, q)
		}
		seen[want] = p
		for _, shards := range []int{1, 3} {
			got, c, cl := run(s, p, shards)
			if got != want {
				t.Errorf("%s, %d shards: digest %s, want %s", p, shards, got, want)
			}
			keys := []int64{0, 5, 11, 96, -3, 1 << 50}
			for _, state := range []bool{false, true} {
				rows := &param.Rows{}
				for _, table := range j.Layout().Tables {
					rows.Keys, rows.Values = append(rows.Keys, keys), append(rows.Values, make([]float32, len(keys)*table.Dim()))
					if state {
						rows.State = append(rows.State, make([]float32, len(keys)*table.StateDim()))
					}
				}
				if err := cl.Lookup(t.Context(), rows); err != nil {
					t.Fatal(err)
				}
				found := 0
				for tbl := range rows.Keys {
					dim := j.Layout().Tables[tbl].Dim()
					for i, k := range keys {
						var r table.Rows
						ok, err := c.Row(t.Context(), tbl, k, &r)
						if err != nil {
							t.Fatal(err)
						}
						if !ok {
							continue
						}
						found++
						if !state {
							p.RoundRows(r.Weights, r.Weights)
						}
						if got := rows.Values[tbl][i*dim:][:dim]; !slices.Equal(got, r.Weights) {
							t.Errorf("%s, %d shards, with state %v: row %d is %v, want %v", p, shards, state, k, got, r.Weights)
						}
					}
				}
				if found == 0 {
					t.Error("no row was found")
				}
			}
		}
	}
}

// countLayout counts examples: every row of every table should end at the number of examples.
func countLayout() *param.Layout {
	return &param.Layout{Tables: []param.Table{{Name: "n", Segments: []param.Segment{{Name: "n", Dim: 1, Optimizer: Counting{}}}}}}
}

// countUpdate adds n to each of ids.
func countUpdate(split string, from, to int64, ids []int64) *param.Update {
	n := to - from
	u := &param.Update{
		Source: Source, Split: split, From: from, To: to, NumRows: int(n), LR: 1, Time: to,
		Keys: [][]int64{ids}, Counts: [][]uint32{make([]uint32, len(ids))}, Grads: [][]float32{make([]float32, len(ids))},
	}
	for i := range ids {
		u.Counts[0][i], u.Grads[0][i] = uint32(n), float32(n)
	}
	return u
}

func someIDs(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)*7919 - 1000
	}
	return out
}

func (s suite) testFencing(t *testing.T, shards int) {
	t.Parallel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards})
	ids := someIDs(20)
	a, b := client(t, c, "a"), client(t, c, "b")
	ctx := t.Context()
	if err := a.Push(ctx, countUpdate("x", 0, 1, ids)); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("push without Resume: %v, want ErrFenced", err)
	}
	p, err := a.Resume(ctx, Source, []string{"x", "y"})
	if diff := cmp.Diff(map[string]ps.Progress{"x": {Position: -1}, "y": {Position: -1}}, p); diff != "" || err != nil {
		t.Fatalf("first Resume: %v\n%s", err, diff)
	}
	if err := a.Push(ctx, countUpdate("x", 5, 8, ids)); err != nil {
		t.Fatal(err)
	}
	// a has not committed: the take-over does, because every shard has the batch.
	p, err = b.Resume(ctx, Source, []string{"x"})
	if diff := cmp.Diff(map[string]ps.Progress{"x": {Position: 8, Rows: 3, Batches: 1}}, p); diff != "" || err != nil {
		t.Fatalf("take-over: %v\n%s", err, diff)
	}
	if err := a.Push(ctx, countUpdate("x", 8, 9, ids)); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("push of the former owner: %v, want ErrFenced", err)
	}
	if err := errors.Join(a.Push(ctx, countUpdate("y", 0, 1, ids)), a.Flush(ctx)); err != nil {
		t.Errorf("the former owner's other split: %v", err)
	}
	if err := errors.Join(b.Push(ctx, countUpdate("x", 8, 10, ids)), b.Flush(ctx)); err != nil {
		t.Errorf("push of the new owner: %v", err)
	}
	if _, err := a.Resume(ctx, Source, []string{"x"}); err != nil {
		t.Errorf("taking it back: %v", err)
	}
	if err := b.Push(ctx, countUpdate("x", 10, 11, ids)); !errors.Is(err, ps.ErrFenced) {
		t.Errorf("push after it was taken back: %v, want ErrFenced", err)
	}
	for _, id := range ids {
		var r table.Rows
		if !row(t, c, id, &r) || r.Weights[0] != 6 {
			t.Errorf("row %d: %+v, want 6", id, r)
		}
	}
}

func (s suite) testRules(t *testing.T, shards int) {
	t.Parallel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards})
	ctx, ids, cl := t.Context(), someIDs(20), client(t, c, "w")
	if _, err := cl.Resume(ctx, Source, []string{"x"}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		from, to int64
		want     error
	}{
		{10, 20, nil}, // the first of a split may begin anywhere
		{10, 20, nil}, // again
		{21, 25, ps.ErrGap},
		{15, 25, ps.ErrOverlap},
		{20, 25, nil},
		{10, 20, nil},
		{22, 25, nil}, // inside of what is there
		{25, 25, nil}, // nothing
		{24, 26, ps.ErrOverlap},
		{25, 30, nil},
		{-1, 2, ps.ErrLayout},
	} {
		if err := cl.Push(ctx, countUpdate("x", step.from, step.to, ids)); !errors.Is(err, step.want) {
			t.Errorf("push from %d to %d: %v, want %v", step.from, step.to, err, step.want)
		}
	}
	u := countUpdate("x", 30, 31, ids)
	u.Grads[0] = u.Grads[0][1:]
	if err := cl.Push(ctx, u); !errors.Is(err, ps.ErrLayout) {
		t.Errorf("push with a gradient too few: %v, want ErrLayout", err)
	}
	if err := cl.Lookup(ctx, &param.Rows{Keys: [][]int64{ids}, Values: [][]float32{nil}}); !errors.Is(err, ps.ErrLayout) {
		t.Errorf("lookup without room: %v, want ErrLayout", err)
	}
	rows := &param.Rows{Keys: [][]int64{append(slices.Clone(ids), 4711)}, Values: [][]float32{make([]float32, len(ids)+1)}}
	for range 2 {
		if err := cl.Lookup(ctx, rows); err != nil {
			t.Fatal(err)
		}
	}
	for i, v := range rows.Values[0] {
		if want := float32(20); i < len(ids) && v != want || i == len(ids) && v != 0 {
			t.Errorf("fid %d: %v", rows.Keys[0][i], v)
		}
	}
	if row(t, c, 4711, &table.Rows{}) {
		t.Error("a lookup has made a row")
	}
	if diff := cmp.Diff(map[string]ps.Progress{"x": {Position: 30, Rows: 20, Batches: 3}}, progress(t, c)); diff != "" {
		t.Errorf("progress (-want +got):\n%s", diff)
	}
}

func (s suite) testDense(t *testing.T, shards int) {
	t.Parallel()
	j := SmallJob()
	c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: shards})
	ctx, a, b := t.Context(), client(t, c, "a"), client(t, c, "b")
	n := j.Layout().DenseLen()
	x, y := make([]float32, n), make([]float32, n)
	have, err := a.Dense(ctx, 0, x)
	if err != nil {
		t.Fatal(err)
	}
	x[0] += 100
	if v, err := a.Dense(ctx, have, x); err != nil || v != have || x[0] < 50 {
		t.Errorf("unchanged: version %d instead of %d, %v; copied: %v", v, have, err, x[0] < 50)
	}
	w, err := NewWorker(ctx, j, b)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := w.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	next, err := a.Dense(ctx, have, x)
	if err != nil || next == have {
		t.Fatalf("after pushes: version %d again, %v", next, err)
	}
	if _, err := b.Dense(ctx, 0, y); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(y, x); diff != "" {
		t.Errorf("clients see different values:\n%s", diff)
	}
	clear(x)
	if _, err := a.Dense(ctx, 0, x); err != nil || !slices.Equal(x, y) {
		t.Errorf("a buffer of version 0 was not filled: %v", err)
	}
	clear(x)
	if _, err := a.Dense(ctx, have, x); err != nil || !slices.Equal(x, y) {
		t.Errorf("a buffer of an older version was not filled: %v", err)
	}
	if _, err := a.Dense(ctx, 0, x[1:]); !errors.Is(err, ps.ErrLayout) {
		t.Errorf("a buffer too short: %v, want ErrLayout", err)
	}
}

// testAhead reads rows and dense tensors with their optimizers' state and makes of them, with gradients, what the shards make of
// them; and counts the updates of others that a read has not seen.
func (s suite) testAhead(t *testing.T, shards int) {
	t.Parallel()
	j := SmallJob()
	l := j.Layout()
	c := s.must(t, coordinator.Options{Layout: l, NumShards: shards})
	ctx, a, b := t.Context(), client(t, c, "a"), client(t, c, "b")
	w, err := NewWorker(ctx, j, a)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 { // rows with a past, and rows without
		if _, err := w.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	u, err := w.update(ctx, 0, w.pos[0], w.pos[0]+j.BatchLen)
	if err != nil {
		t.Fatal(err)
	}
	read := func(cl *ps.Client) (*param.Rows, []float32, []float32, []int64) {
		t.Helper()
		rows := &param.Rows{Keys: u.Keys}
		for i, spec := range l.Tables {
			rows.Values = append(rows.Values, make([]float32, len(u.Keys[i])*spec.Dim()))
			rows.State = append(rows.State, make([]float32, len(u.Keys[i])*spec.StateDim()))
		}
		weights, state := make([]float32, l.DenseLen()), make([]float32, l.DenseStateLen())
		if err := cl.Lookup(ctx, rows); err != nil {
			t.Fatal(err)
		}
		seen, err := cl.DenseState(ctx, weights, state, nil)
		if err != nil {
			t.Fatal(err)
		}
		return rows, weights, state, seen
	}
	rows, weights, state, seen := read(a)
	if n, m := a.Behind(rows.Seen), a.Behind(seen); n != 0 || m != 0 {
		t.Errorf("right after a read %d and %d updates of others are lacking", n, m)
	}
	pushed := a.Pushed()
	if err := a.Push(ctx, u); err != nil {
		t.Fatal(err)
	}
	if a.Pushed() != pushed+1 || a.AwaitPushed(ctx, pushed+1) != nil || a.Behind(rows.Seen) != 0 {
		t.Errorf("after a push of its own: %d pushed, was %d, %d updates of others", a.Pushed(), pushed, a.Behind(rows.Seen))
	}
	_, _, _, theirs := read(b)
	if err := a.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, _, now := read(b); b.Behind(theirs) != 1 || b.Behind(now) != 0 {
		t.Errorf("after another's push a read before it lacks %d updates, one after it %d", b.Behind(theirs), b.Behind(now))
	}
	if a.Applied(Source, "nowhere") >= 0 {
		t.Error("a split that nobody resumed has a position")
	}
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	if err := a.AwaitPushed(canceled, pushed+2); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a push that never comes: %v", err)
	}
	// The oracle is the shards.
	for i, spec := range l.Tables {
		rule, dim, n := param.NewRowRule(spec), spec.Dim(), spec.StateDim()
		for r := range u.Keys[i] {
			width := spec.Width(param.Train)
			rule.Update(rows.Values[i][r*dim:][:dim], rows.State[i][r*n:][:n], u.Grads[i][r*width:][:width], u.LR, u.Examples)
		}
	}
	at, stateAt, pushAt := 0, 0, 0
	for _, x := range l.Dense {
		n, m := x.Len(), x.Optimizer.StateDim(x.Len())
		k := x.PushLen()
		x.Update(weights[at:at+n], state[stateAt:stateAt+m], u.Dense[pushAt:pushAt+k], make([]float32, n), u.LR, u.Examples)
		at, stateAt, pushAt = at+n, stateAt+m, pushAt+k
	}
	want, wantWeights, wantState, _ := read(a)
	if diff := cmp.Diff(want.Values, rows.Values); diff != "" {
		t.Errorf("rows (-shards +made of gradients):\n%s", diff)
	}
	if diff := cmp.Diff(want.State, rows.State); diff != "" {
		t.Errorf("their state (-shards +made of gradients):\n%s", diff)
	}
	if !slices.Equal(wantWeights, weights) || !slices.Equal(wantState, state) {
		t.Error("dense tensors made of gradients are not those of the shards")
	}
	want.State[1] = want.State[1][1:]
	if err := a.Lookup(ctx, want); !errors.Is(err, ps.ErrLayout) {
		t.Errorf("lookup without room for the state: %v, want ErrLayout", err)
	}
	if _, err := a.DenseState(ctx, weights, state[1:], nil); !errors.Is(err, ps.ErrLayout) {
		t.Errorf("dense tensors without room for the state: %v, want ErrLayout", err)
	}
}

// testWhoDecides stores state that was decided on: only the workers' leader may, as long as the shards have the state that
// it speaks of.
func (s suite) testWhoDecides(t *testing.T, shards int) {
	t.Parallel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards})
	ctx := t.Context()
	join := func(worker string) (member uint64, a ps.Assignment) {
		t.Helper()
		member, err := c.Join(ctx, ps.JoinOptions{Worker: worker, Splits: []string{"x"}})
		if err != nil {
			t.Fatal(err)
		}
		if a, err = c.Await(ctx, member, 0); err != nil {
			t.Fatal(err)
		}
		return member, a
	}
	first, a := join("a")
	second, b := join("b")
	if !a.Leader || b.Leader {
		t.Fatalf("leaders: %+v, %+v", a, b)
	}
	try := func(member, generation uint64, value string, want error) {
		t.Helper()
		if err := c.SetStateAt(ctx, member, generation, "k", []byte(value)); !errors.Is(err, want) {
			t.Errorf("member %x of generation %d: %v, want %v", member, generation, err, want)
		}
	}
	try(first, a.Generation, "decided", nil)
	try(second, a.Generation, "follower", ps.ErrFenced)
	try(first, a.Generation+1, "later", ps.ErrRolledBack)
	try(first+1<<40, a.Generation, "of another coordinator", ps.ErrRejoin)
	again, _ := join("a") // takes the first's place
	try(first, a.Generation, "replaced", ps.ErrFenced)
	try(again, a.Generation, "younger than b", ps.ErrFenced)
	try(second, a.Generation, "leads now", nil)
	if got, err := c.State(ctx, "k"); err != nil || string(got) != "leads now" {
		t.Errorf("state %q, %v", got, err)
	}
}

// testFirstState stores worker state where there is none: of many at once one does, and all get what it has stored.
func (s suite) testFirstState(t *testing.T, shards int) {
	t.Parallel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards})
	const askers = 8
	got := make([]string, askers)
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() {
			v, err := c.InitState(t.Context(), "k", fmt.Append(nil, "of ", i))
			if err != nil {
				t.Error(err)
			}
			got[i] = string(v)
		})
	}
	all.Wait()
	v, err := c.State(t.Context(), "k")
	if err != nil || len(v) == 0 {
		t.Fatalf("state %q, %v", v, err)
	}
	for i, g := range got {
		if g != string(v) {
			t.Errorf("asker %d got %q, stored is %q", i, g, v)
		}
	}
	if err := c.SetState(t.Context(), "k", []byte("later")); err != nil {
		t.Fatal(err)
	}
	if v, err := c.InitState(t.Context(), "k", []byte("first?")); err != nil || string(v) != "later" {
		t.Errorf("state %q, %v; want what was stored last", v, err)
	}
}

// testRefusedMarker: a worker that may not pass its marker keeps the snapshot waiting, also by leaving, until its successor passes its own; its calls say
// why.
func (s suite) testRefusedMarker(t *testing.T, shards int) {
	t.Parallel()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards, Dir: t.TempDir(), Grace: time.Hour})
	ctx, ids, cl := t.Context(), someIDs(20), client(t, c, "w")
	if _, err := cl.Resume(ctx, Source, []string{"x"}); err != nil {
		t.Fatal(err)
	}
	refused := errors.New("outputs are behind")
	asked := 0
	cl.OnMarker(func() (map[string][]byte, error) {
		asked++
		return nil, refused
	})
	if err := cl.Push(ctx, countUpdate("x", 0, 1, ids)); err != nil {
		t.Fatal(err)
	}
	taken := make(chan error, 1)
	var info ps.SnapshotInfo
	go func() {
		var err error
		info, err = c.Snapshot(ctx, ps.SnapshotOptions{})
		taken <- err
	}()
	var err error
	for err == nil { // until the cut has begun
		select {
		case err := <-taken:
			t.Fatalf("a snapshot was taken past a marker that was refused: %v", err)
		default:
			err = cl.Idle(ctx)
		}
	}
	for _, err := range []error{err, cl.Push(ctx, countUpdate("x", 1, 2, ids)), cl.Flush(ctx)} {
		if !errors.Is(err, refused) {
			t.Errorf("%v, want that outputs are behind", err)
		}
	}
	before := asked
	if err := cl.Close(); err != nil || asked != before+1 {
		t.Errorf("asked %d times more at the end, %v", asked-before, err)
	}
	select {
	case err := <-taken:
		t.Fatalf("a snapshot was taken past a marker that was refused: %v", err)
	case <-time.After(100 * time.Millisecond): // a snapshot that does not wait takes a few
	}
	next := client(t, c, "next")
	at, err := next.Resume(ctx, Source, []string{"x"})
	if err != nil || at["x"].Position != 1 {
		t.Fatalf("resumed at %+v, %v; want 1", at, err)
	}
	for done := false; !done; {
		if err := next.Idle(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-taken:
			if done = true; err != nil {
				t.Fatal(err)
			}
		default:
		}
	}
	if p := info.Positions[Source]["x"].Position; p != 1 {
		t.Errorf("the snapshot is at %d, want 1", p)
	}
}

// testState stores worker state in the cut it belongs to.
func (s suite) testState(t *testing.T, shards int) {
	t.Parallel()
	dir := t.TempDir()
	c := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards, Dir: dir})
	ctx, ids, cl := t.Context(), someIDs(20), client(t, c, "w")
	if _, err := cl.Resume(ctx, Source, []string{"x"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.SetState(ctx, "fixed", []byte("f")), c.SetState(ctx, "gone", []byte("g"))); err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	cl.OnMarker(func() (map[string][]byte, error) {
		return map[string][]byte{"at": fmt.Append(nil, at), "gone": nil}, nil
	})
	infos := make(chan ps.SnapshotInfo, 1)
	go func() {
		defer close(infos)
		info, err := c.Snapshot(ctx, ps.SnapshotOptions{Note: "n"})
		if err != nil {
			t.Error(err)
			return
		}
		infos <- info
	}()
	var info ps.SnapshotInfo
	for taken := false; !taken; {
		if err := cl.Push(ctx, countUpdate("x", at, at+1, ids)); err != nil {
			t.Fatal(err)
		}
		at++
		select {
		case info, taken = <-infos:
			if !taken {
				return
			}
		default:
		}
	}
	want := map[string][]byte{"fixed": []byte("f"), "at": fmt.Append(nil, info.Positions[Source]["x"].Position)}
	if info.Positions[Source] == nil {
		want["at"] = []byte("0") // before the first push was committed
	}
	if diff := cmp.Diff(want, info.State); diff != "" {
		t.Errorf("state of the snapshot (-want +got):\n%s", diff)
	}
	again := s.must(t, coordinator.Options{Layout: countLayout(), NumShards: shards%3 + 1, Dir: dir})
	if got, err := again.State(ctx, "at"); err != nil || string(got) != string(want["at"]) || again.Restored().Note != "n" {
		t.Errorf("restored state %q, note %q", got, again.Restored().Note)
	}
	if d := digest(t, again); d != info.Digest {
		t.Errorf("restored digest %s, want %s", d, info.Digest)
	}
}

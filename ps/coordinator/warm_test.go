package coordinator_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// teach pushes updates of one split and takes a snapshot.
func teach(t *testing.T, c *coordinator.Cluster, l *param.Layout, from, to int64) ps.SnapshotInfo {
	t.Helper()
	cl := mustClient(t, c, "x")
	for at := from; at < to; at++ {
		if err := cl.Push(t.Context(), pstest.RandomUpdate(l, "x", at, at+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := c.Snapshot(t.Context(), ps.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func mustDigest(t *testing.T, c *coordinator.Cluster) string {
	t.Helper()
	d, err := c.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// grown is the layout of a model that has got a table, a wider layer and a head, and learns more slowly.
func grown() *param.Layout {
	l := pstest.SmallJob().Layout()
	l.Tables[1].Segments[0].Optimizer = optim.Adagrad{LR: 0.05}
	l.Tables = append(l.Tables, param.Table{Name: "genre", Segments: []param.Segment{
		{Name: "vec", Dim: 2, Init: param.Uniform(-1, 1), Optimizer: optim.SGD{}},
	}})
	l.Dense[0].Shape = []int{5, 2}
	l.Dense = append(l.Dense, param.Tensor{Name: "head", Shape: []int{2}, Init: param.Constant(1), Optimizer: optim.SGD{}})
	return l
}

var growing = param.Policies{
	Tables:  map[string]param.Policy{"genre": param.PolicyInit},
	Tensors: map[string]param.Policy{"head": param.PolicyInit, "w0": param.PolicyGrow},
}

// TestWarmStart begins a run with the parameters of another one's model, which it has grown: every row is there with its
// state, positions are not, and after that the run has snapshots of its own, which come first. With a log or without, the
// number of shards may be another.
func TestWarmStart(t *testing.T) {
	t.Parallel()
	old := coordinator.Options{Layout: pstest.SmallJob().Layout(), NumShards: 2, Dir: t.TempDir()}
	c := mustOpen(t, old)
	info := teach(t, c, old.Layout, 0, 50)
	rows := map[int64]table.Rows{}
	for fid := range int64(60) {
		var r table.Rows
		if found, err := c.Row(t.Context(), 1, fid, &r); err != nil {
			t.Fatal(err)
		} else if found {
			rows[fid] = r
		}
	}
	for _, logged := range []bool{false, true} {
		o := coordinator.Options{Layout: grown(), NumShards: 3, Dir: filepath.Join(t.TempDir(), "new"), From: info.Path}
		if logged {
			o.Log = &shard.LogOptions{Dir: t.TempDir()}
		}
		if _, err := coordinator.Open(t.Context(), o); !errors.Is(err, ps.ErrLayout) || !strings.Contains(err.Error(), "restore: {tables: {genre.vec: init}, tensors: {head: init, w0: init}}") {
			t.Fatalf("what does not fit passes: %v", err)
		}
		o.Fit = growing
		warm := mustOpen(t, o)
		want := []string{
			"genre.vec begins with initial values: it is new",
			"tensor w0 keeps what lies in both shapes: it is [5 2], was [3 2]",
			"tensor head begins with initial values: it is new",
			"item.vec: adagrad's lr is 0.05, was 0.1",
		}
		if diff := cmp.Diff(want, warm.Changes()); diff != "" {
			t.Error(diff)
		}
		for fid, want := range rows {
			var got table.Rows
			if found, err := warm.Row(t.Context(), 1, fid, &got); err != nil || !found || !slices.Equal(got.Weights, want.Weights) || !slices.Equal(got.State, want.State) {
				t.Errorf("fid %d: %+v (%v, %v), want %+v", fid, got, found, err, want)
			}
		}
		if p, err := warm.Progress(t.Context(), "s"); err != nil || len(p) != 0 {
			t.Errorf("a run that has read nothing has positions %v, %v", p, err)
		}
		begun := mustDigest(t, warm)
		if err := warm.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// From then on it is a run like any other: nothing is converted twice.
		again := mustOpen(t, o)
		if d := mustDigest(t, again); d != begun || len(again.Changes()) != 0 {
			t.Errorf("opened again: digest %s, want %s; changes %q", d, begun, again.Changes())
		}
		mine := teach(t, again, o.Layout, 0, 10)
		if err := again.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if third := mustOpen(t, o); mustDigest(t, third) != mine.Digest {
			t.Error("the run's own snapshots do not come first")
		}
	}
}

// TestModelChangesInItsRun changes rules and shape of a model in the folder of its own snapshots: it continues at its
// positions, says what changed, and the snapshot before stays.
func TestModelChangesInItsRun(t *testing.T) {
	t.Parallel()
	o := coordinator.Options{Layout: pstest.SmallJob().Layout(), NumShards: 2, Dir: t.TempDir()}
	c := mustOpen(t, o)
	first := teach(t, c, o.Layout, 0, 20)
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	faster := o
	faster.Layout = pstest.SmallJob().Layout()
	faster.Layout.Tables[1].Segments[0].Optimizer, faster.Layout.Seed = optim.Adagrad{LR: 1}, 12
	c = mustOpen(t, faster)
	if diff := cmp.Diff([]string{"initial values: the seed is 12, was 11", "item.vec: adagrad's lr is 1, was 0.1"}, c.Changes()); diff != "" {
		t.Error(diff)
	}
	if d := mustDigest(t, c); d != first.Digest {
		t.Errorf("digest %s, want %s: nothing is lost", d, first.Digest)
	}
	// The rule is in force.
	var before, after table.Rows
	fid := int64(1)
	for ; fid < 60; fid++ {
		if found, err := c.Row(t.Context(), 1, fid, &before); err != nil {
			t.Fatal(err)
		} else if found {
			break
		}
	}
	u := countUpdateOf(faster.Layout, fid, 20, 21, before.Weights)
	cl := mustClient(t, c, "x")
	if err := errors.Join(cl.Push(t.Context(), u), cl.Flush(t.Context()), cl.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Row(t.Context(), 1, fid, &after); err != nil {
		t.Fatal(err)
	}
	want, state := slices.Clone(before.Weights), slices.Clone(before.State)
	optim.Adagrad{LR: 1}.Update(want, state, []float32{1, 1, 1}, 1)
	if !slices.Equal(after.Weights, want) || !slices.Equal(after.State, state) {
		t.Errorf("row %v %v, want %v %v", after.Weights, after.State, want, state)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	wider := o
	wider.Layout, wider.Fit = grown(), growing
	c = mustOpen(t, wider)
	if p, err := c.Progress(t.Context(), "s"); err != nil || p["x"].Position != 20 {
		t.Errorf("the run continues at %v, %v; want 20", p, err)
	}
	if info := c.Restored(); info == nil || info.ID == first.ID || info.Note != "made of "+first.Path {
		t.Errorf("restored %+v", info)
	}
	if s, err := snapshot.Open(t.Context(), first.Path); err != nil {
		t.Errorf("the snapshot before: %v", err)
	} else if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// countUpdateOf is an update with gradient 1, in time, for one row of table 1.
func countUpdateOf(l *param.Layout, fid, from, to int64, weights []float32) *param.Update {
	u := pstest.RandomUpdate(l, "x", from, to)
	for t := range u.Keys {
		u.Keys[t], u.Counts[t], u.Grads[t] = nil, nil, nil
	}
	u.LR, u.Keys[1], u.Counts[1], u.Grads[1] = 1, []int64{fid}, []uint32{1}, l.Tables[1].AppendSeen(nil, []float32{1, 1, 1}, weights)
	return u
}

// TestRulesChangeUnderLog: a learning rate may change where a log is kept, a shape only after a snapshot, and so may which rows are pushed with the weights of their gradients.
func TestRulesChangeUnderLog(t *testing.T) {
	t.Parallel()
	o, _, digest := logged(t, 2)
	o.Layout.Dense[2].Optimizer = optim.Adagrad{LR: 7}
	c, err := coordinator.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"w1: adagrad's lr is 7, was 0.05"}, c.Changes()); diff != "" {
		t.Error(diff)
	}
	// What the log holds after the snapshot is applied by the new rule.
	if d := mustDigest(t, c); d == digest {
		t.Error("the new rule is not in force")
	}
	if p, err := c.Progress(t.Context(), "s"); err != nil || p["x"].Position != 180 {
		t.Errorf("progress %v, %v", p, err)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Layout.Tables[1].Segments[0].Delay = 0.25
	if c, err = coordinator.Open(t.Context(), o); err != nil {
		t.Fatal(err)
	} else if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.Layout.Tables[1].Segments[0].Delay = 0
	if _, err := coordinator.Open(t.Context(), o); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), "ps.wal.dir") {
		t.Errorf("a log of pushes with other rows: %v", err)
	}
	o.Layout, o.Fit = grown(), growing
	if _, err := coordinator.Open(t.Context(), o); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), "ps.wal.dir") {
		t.Errorf("a log of another shape: %v", err)
	}
}

// TestReadOnly gives the weights of a snapshot to shards without optimizer state: lookups are the same, memory is less,
// and nothing can be pushed.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	o := coordinator.Options{Layout: pstest.SmallJob().Layout(), NumShards: 2, Dir: t.TempDir()}
	c := mustOpen(t, o)
	info := teach(t, c, o.Layout, 0, 50)
	// Other rules and optimizers are nothing to a reader.
	l := pstest.SmallJob().Layout()
	l.Dense[0].Optimizer, l.Tables[0].Segments[1].Optimizer = optim.SGD{}, optim.Adagrad{}
	r := mustOpen(t, coordinator.Options{Layout: l, NumShards: 3, Restore: info.Path, ReadOnly: true})
	if len(r.Changes()) != 0 {
		t.Errorf("changes: %q", r.Changes())
	}
	all, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	st, err := r.Stats(t.Context())
	if err != nil || st.Rows() != all.Rows() || st.DenseBytes >= all.DenseBytes {
		t.Errorf("%d rows of %d, %d bytes of dense tensors of %d: %v", st.Rows(), all.Rows(), st.DenseBytes, all.DenseBytes, err)
	}
	read := func(c *coordinator.Cluster) (*param.Rows, []float32) {
		cl, err := c.Client(t.Context(), "reader")
		if err != nil {
			t.Fatal(err)
		}
		rows := &param.Rows{}
		for _, spec := range l.Tables {
			var keys []int64
			for fid := range int64(80) { // some have no row
				keys = append(keys, fid)
			}
			rows.Keys, rows.Values = append(rows.Keys, keys), append(rows.Values, make([]float32, len(keys)*spec.Dim()))
		}
		dense := make([]float32, l.DenseLen())
		_, err = cl.Dense(t.Context(), 0, dense)
		if err := errors.Join(err, cl.Lookup(t.Context(), rows), cl.Close()); err != nil {
			t.Fatal(err)
		}
		rows.Seen = nil // two clusters count for themselves
		return rows, dense
	}
	want, wantDense := read(c)
	got, dense := read(r)
	if diff := cmp.Diff(want, got); diff != "" || !slices.Equal(dense, wantDense) {
		t.Errorf("dense %v, want %v\n%s", dense, wantDense, diff)
	}
	cl, err := r.Client(t.Context(), "trainer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Resume(t.Context(), "s", []string{"x"}); !errors.Is(err, ps.ErrReadOnly) {
		t.Errorf("Resume: %v, want ErrReadOnly", err)
	}
	if err := cl.Push(t.Context(), pstest.RandomUpdate(l, "x", 50, 51)); err == nil {
		t.Error("a push is taken")
	}
	if err := cl.Close(); err != nil {
		t.Error(err)
	}
}

// TestCountsOfAnotherAdmissionAreDropped: a restart with another admission reports how many ids begin from 0.
func TestCountsOfAnotherAdmissionAreDropped(t *testing.T) {
	t.Parallel()
	rules := func(a param.Admission, capacity int64) param.Retention {
		r := param.Retention{Default: param.SlotRetention{Occurrences: 15}, Admission: a}
		if a.Filters() {
			r.FilterCapacity, r.FilterSplits = capacity, param.LeastFilterSplits
		}
		return r
	}
	filtered := regexp.MustCompile("^what the hash filter has counted of ids without a row is dropped: they begin from 0$")
	counts := regexp.MustCompile("^the occurrences of [1-9][0-9]* ids without a row are dropped: they begin from 0$")
	for _, c := range []struct {
		was, is  param.Admission
		capacity int64
		want     *regexp.Regexp
	}{
		{param.AdmitExact, param.AdmitExact, 0, nil},
		{param.AdmitExact, param.AdmitLinear, 0, counts},
		{param.AdmitExact, param.AdmitHash, 4096, counts},
		{param.AdmitExact, "", 0, counts},
		{param.AdmitSliding, param.AdmitExact, 0, filtered},
		{param.AdmitSliding, param.AdmitSliding, 4096, nil},
		{param.AdmitSliding, param.AdmitSliding, 1 << 20, filtered},
	} {
		t.Run(fmt.Sprint(c.was, " ", c.is, " ", c.capacity), func(t *testing.T) {
			t.Parallel()
			o := coordinator.Options{Layout: pstest.SmallJob().Layout(), NumShards: 2, Dir: t.TempDir()}
			o.Layout.Retention = rules(c.was, 4096)
			cl := mustOpen(t, o)
			teach(t, cl, o.Layout, 0, 50)
			if err := cl.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.Layout = pstest.SmallJob().Layout()
			if c.is != "" {
				o.Layout.Retention = rules(c.is, c.capacity)
			}
			var got []string
			for _, change := range mustOpen(t, o).Changes() {
				if strings.Contains(change, "they begin from 0") {
					got = append(got, change)
				}
			}
			if c.want == nil && len(got) > 0 || c.want != nil && (len(got) != 1 || !c.want.MatchString(got[0])) {
				t.Errorf("%q, want one like %v", got, c.want)
			}
		})
	}
}

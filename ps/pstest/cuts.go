package pstest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
)

// weights are those of the rows of each table by id, as bits.
type weights []map[int64][]uint32

func newWeights(tables int) weights {
	w := make(weights, tables)
	for t := range w {
		w[t] = map[int64][]uint32{}
	}
	return w
}

func (w weights) put(t int, rows *table.Rows) {
	if len(rows.Keys) == 0 {
		return
	}
	dim := len(rows.Weights) / len(rows.Keys)
	for i, k := range rows.Keys {
		bits := make([]uint32, dim)
		for j := range bits {
			bits[j] = math.Float32bits(rows.Weights[i*dim+j])
		}
		w[t][k] = bits
	}
}

// cutMirror keeps what a shard has given of its cuts.
type cutMirror struct {
	rows   weights
	stream uint64
	dense  []float32
	at     *ps.CutOfShard
}

// deal deals with an answer.
func (m *cutMirror) deal(c *ps.Changes, tables int) {
	if c.All && c.Stream != m.stream {
		m.rows = newWeights(tables)
	}
	m.stream = c.Stream
	for _, k := range c.Removed {
		delete(m.rows[c.Table], k)
	}
	m.rows.put(c.Table, &c.Rows)
	if m.at = c.At; c.Whole && len(c.At.Dense) > 0 {
		m.dense = c.At.Dense
	}
}

// moment is what a cluster was at one moment.
type moment struct {
	rows     weights
	dense    [][]float32 // of the shards
	progress map[string]ps.Progress
}

// momentOf asks a cluster that nobody changes.
func momentOf(t *testing.T, c Cluster, cl *ps.Client, l *param.Layout, shards int, ids []int64) moment {
	t.Helper()
	m := moment{rows: newWeights(len(l.Tables)), dense: make([][]float32, shards), progress: progress(t, c)}
	all := make([]float32, l.DenseLen())
	if _, err := cl.Dense(t.Context(), 0, all); err != nil {
		t.Fatal(err)
	}
	place := ps.NewPlacement(l, shards)
	for _, d := range l.Dense {
		s := place.TensorShard(d.Name)
		m.dense[s] = append(m.dense[s], all[:d.Len()]...)
		all = all[d.Len():]
	}
	for tbl := range l.Tables {
		var rows table.Rows
		if err := c.Entries(t.Context(), tbl, ids, &rows); err != nil {
			t.Fatal(err)
		}
		m.rows.put(tbl, &rows)
	}
	return m
}

// testCuts: a pass that is a cut has everything as it was when it began, however much changes until it is given, whichever answers are lost.
func (s suite) testCuts(t *testing.T, shards int) {
	t.Parallel()
	s.followCuts(t, SmallJob(), shards)
}

// testCutsRetained is testCuts where rows come and go.
func (s suite) testCutsRetained(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"expiry", "oldest"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.followCuts(t, retentionJobs()[name], 2)
		})
	}
}

func (s suite) followCuts(t *testing.T, j Job, shards int) {
	l, r := j.Layout(), rand.New(rand.NewPCG(uint64(shards), 5))
	c := s.must(t, coordinator.Options{Layout: l, NumShards: shards})
	cl := client(t, c, "worker")
	w, err := NewWorker(t.Context(), j, cl)
	if err != nil {
		t.Fatal(err)
	}
	// Rows beside those of the job, so many that a pass has several answers of a table.
	const beside, from = 4500, 100_000
	e, err := cl.Edit(t.Context(), "beside")
	if err != nil {
		t.Fatal(err)
	}
	ids := Distinct(r, beside, 2*beside)
	for i := range ids {
		ids[i] += from
	}
	edit := func(some []int64) error {
		return e.Apply(t.Context(), param.AssignAdd, 1, some, slices.Repeat([]float32{r.Float32(), 1, -1}, len(some)))
	}
	if err := edit(ids); err != nil {
		t.Fatal(err)
	}
	for k := -j.NumIDs; k <= j.NumIDs; k++ {
		ids = append(ids, k)
	}
	change := func() {
		t.Helper()
		at := r.IntN(beside - 100)
		_, err := w.Step(t.Context())
		if err := errors.Join(err, edit(ids[at:at+100])); err != nil {
			t.Fatal(err)
		}
	}
	lost := losing{c, r}
	consumer, of := ps.NewReplica("replica", lost, shards), make([]cutMirror, shards)
	next := func(shard int) (whole bool) {
		t.Helper()
		var a *ps.Changes
		if err := retry(func() (err error) { a, err = consumer.Next(t.Context(), shard); return err }); err != nil {
			t.Fatal(err)
		}
		of[shard].deal(a, len(l.Tables))
		return a.Whole
	}
	answers := 0
	for round := range 6 {
		for range r.IntN(4) {
			change()
		}
		if r.IntN(4) == 0 { // its process begins again, perhaps in the middle of a pass
			for range r.IntN(3) {
				next(r.IntN(shards))
			}
			consumer = ps.NewReplica("replica", lost, shards)
		} else if round > 0 && r.IntN(3) == 0 { // nothing is asked for long
			change()
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := momentOf(t, c, cl, l, shards, ids)
		var open []int
		for shard := range shards {
			if !next(shard) {
				open = append(open, shard)
			}
		}
		for len(open) > 0 {
			change()
			answers++
			i := r.IntN(len(open))
			if next(open[i]) {
				open = slices.Delete(open, i, i+1)
			}
		}
		got := newWeights(len(l.Tables))
		for shard := range of {
			m := &of[shard]
			for tbl := range got {
				maps.Copy(got[tbl], m.rows[tbl])
			}
			if diff := cmp.Diff(want.dense[shard], m.dense); diff != "" {
				t.Fatalf("round %d: dense tensors of shard %d (-shard +replica):\n%s", round, shard, diff)
			}
			for split, p := range want.progress {
				if is := m.at.Progress[ps.SplitID{Source: Source, Split: split}]; is != p {
					t.Fatalf("round %d: split %s of shard %d is at %+v, the cut at %+v", round, split, shard, p, is)
				}
			}
		}
		if err := compareWeights(want.rows, got, j.Retention.Expires()); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if shards == 1 && !j.Retention.Active() && answers < 6 {
		t.Errorf("%d answers while something changed: that says little", answers)
	}
}

// testSharedCuts: replicas that share cuts, and ask at their own pace, lose answers, begin again or stay away, have at the end of each pass what the shard was at its cut.
func (s suite) testSharedCuts(t *testing.T) {
	t.Parallel()
	jobs := retentionJobs()
	for name, j := range map[string]Job{"lasting": SmallJob(), "expiry": jobs["expiry"], "oldest": jobs["oldest"]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s.shareCuts(t, j)
		})
	}
}

func (s suite) shareCuts(t *testing.T, j Job) {
	const shards, replicas = 2, 4
	l, r := j.Layout(), rand.New(rand.NewPCG(4, 2))
	c := s.must(t, coordinator.Options{Layout: l, NumShards: shards})
	cl := client(t, c, "worker")
	w, err := NewWorker(t.Context(), j, cl)
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	for k := -j.NumIDs; k <= j.NumIDs; k++ {
		ids = append(ids, k)
	}
	var moments []moment
	lost := losing{c, r}
	consumers, of := make([]*ps.Consumer, replicas), make([][]cutMirror, replicas)
	begin := func(i int) { consumers[i] = ps.NewReplica(fmt.Sprint("replica ", i), lost, shards) }
	for i := range replicas {
		begin(i)
		of[i] = make([]cutMirror, shards)
	}
	next := func(i, shard int) (whole bool) {
		t.Helper()
		var a *ps.Changes
		if err := retry(func() (err error) { a, err = consumers[i].Next(t.Context(), shard); return err }); err != nil {
			t.Fatal(err)
		}
		m := &of[i][shard]
		if m.deal(a, len(l.Tables)); !a.Whole {
			return false
		}
		at := slices.IndexFunc(moments, func(m moment) bool {
			return !slices.ContainsFunc(j.Splits(), func(split string) bool {
				return a.At.Progress[ps.SplitID{Source: Source, Split: split}] != m.progress[split]
			})
		})
		if at < 0 {
			t.Fatalf("replica %d: shard %d was never at %v", i, shard, a.At.Progress)
		}
		want := newWeights(len(l.Tables))
		for tbl, rows := range moments[at].rows {
			for k, row := range rows {
				if ps.ShardOf(ps.Bucket(k), shards) == shard {
					want[tbl][k] = row
				}
			}
		}
		if err := compareWeights(want, m.rows, j.Retention.Expires()); err != nil {
			t.Fatalf("replica %d, shard %d at moment %d of %d: %v", i, shard, at, len(moments), err)
		}
		if diff := cmp.Diff(moments[at].dense[shard], m.dense); diff != "" {
			t.Fatalf("replica %d, shard %d at moment %d of %d: dense tensors (-shard +replica):\n%s", i, shard, at, len(moments), diff)
		}
		return true
	}
	for more := true; more; {
		if more, err = w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cl.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		moments = append(moments, momentOf(t, c, cl, l, shards, ids))
		if r.IntN(3) == 0 { // all keep pace
			for i := range replicas {
				for shard := range shards {
					for !next(i, shard) {
					}
				}
			}
		}
		for range r.IntN(12) {
			i := min(r.IntN(replicas), r.IntN(replicas)) // the last ones seldom
			if r.IntN(50) == 0 {
				begin(i)
			}
			next(i, r.IntN(shards))
		}
	}
}

// compareWeights compares rows; where rows expire, more may be there, which are told when their memory is freed.
func compareWeights(want, got weights, expire bool) error {
	for tbl := range want {
		if len(got[tbl]) < len(want[tbl]) || len(got[tbl]) > len(want[tbl]) && !expire {
			return fmt.Errorf("table %d: %d rows, want %d", tbl, len(got[tbl]), len(want[tbl]))
		}
		for k, w := range want[tbl] {
			if !slices.Equal(w, got[tbl][k]) {
				return fmt.Errorf("table %d: row %d is %x, want %x", tbl, k, got[tbl][k], w)
			}
		}
	}
	return nil
}

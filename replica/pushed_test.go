package replica_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/replica"
)

// exported trains a job whose first table keeps 16 bits, and exports it.
func exported(t *testing.T) (dir string) {
	t.Helper()
	const text = `
version: 1
name: clicks
source: {synthetic: {examples: 1000, splits: 1}}
parse:
  features: [{name: user, slot: 1, table: users}, {name: item, slot: 2, table: items}]
  label: click
model: {deepfm: {dim: 4, hidden: [4]}}
tables: [{name: users, storage: fp16}]
`
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: []string{"dir=" + filepath.Join(t.TempDir(), "run")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: t.TempDir(), Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	return r.Dir
}

func openExport(t *testing.T, dir string) *native.Export {
	t.Helper()
	e, err := native.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// push is a Pushed with what its rows must be: those that were assigned, and the export's.
type push struct {
	t     *testing.T
	p     *replica.Pushed
	base  *native.Export
	ids   []int64
	has   []map[int64][]float32 // by table, what was assigned
	order uint64                // the snapshot of what is assigned next
}

func newPush(t *testing.T, dir string, memory *table.Memory) *push {
	x := &push{t: t, p: replica.NewPushed(openExport(t, dir), memory), base: openExport(t, dir), has: []map[int64][]float32{{}, {}}}
	t.Cleanup(func() {
		if err := errors.Join(x.p.Close(), x.base.Close()); err != nil {
			t.Error(err)
		}
	})
	rng := rand.New(rand.NewPCG(7, 8)) // ids with rows and ids without
	for slot := range int64(3) {
		for s := range int64(40) {
			x.ids = append(x.ids, slot<<48|s, slot<<48|int64(rng.Uint64()>>20))
		}
	}
	return x
}

// assign assigns rows; nil values are those of the export.
func (x *push) assign(tbl int, ids []int64, values []float32) error {
	spec := x.base.Model().Graph.Layout().Tables[tbl]
	dim := spec.Dim()
	if values == nil {
		values = make([]float32, dim*len(ids))
		if _, err := x.base.Find(tbl, ids, values, nil); err != nil {
			x.t.Fatal(err)
		}
	}
	want := slices.Clone(values)
	at := 0
	for _, s := range spec.Segments {
		if kept := optim.ValuesOf(s.Optimizer); kept != optim.FP32 {
			for i := range ids {
				kept.Round(want[i*dim+at:][:s.Dim])
			}
		}
		at += s.Dim
	}
	rows := &param.Rows{Keys: make([][]int64, 2), Values: make([][]float32, 2)}
	rows.Keys[tbl], rows.Values[tbl] = slices.Clone(ids), values
	err := x.p.Assign(rows, x.order)
	if err == nil {
		for i, id := range ids {
			x.has[tbl][id] = want[i*dim:][:dim]
		}
	}
	return err
}

// check compares all rows, bit for bit.
func (x *push) check(what string) {
	x.t.Helper()
	r := x.p.Reader()
	var rows param.Rows
	tables := x.base.Model().Graph.Layout().Tables
	for t := range tables {
		rows.Keys, rows.Values = append(rows.Keys, x.ids), append(rows.Values, make([]float32, tables[t].Dim()*len(x.ids)))
	}
	r.Hold()
	err := r.Lookup(x.t.Context(), &rows)
	r.Release()
	if err != nil {
		x.t.Fatal(err)
	}
	kept := int64(0)
	for t := range tables {
		dim := tables[t].Dim()
		base := make([]float32, len(rows.Values[t]))
		if _, err := x.base.Find(t, x.ids, base, nil); err != nil {
			x.t.Fatal(err)
		}
		for i, id := range x.ids {
			want := base[i*dim:][:dim]
			if row := x.has[t][id]; row != nil {
				if !slices.EqualFunc(row, want, sameBits) {
					kept++
				}
				want = row
			}
			if got := rows.Values[t][i*dim:][:dim]; !slices.EqualFunc(got, want, sameBits) {
				x.t.Fatalf("%s: table %d row %x is %v, want %v", what, t, id, got, want)
			}
		}
	}
	if n := x.p.Rows(); n != kept {
		x.t.Fatalf("%s: %d rows are in memory, %d differ from the export's", what, n, kept)
	}
}

func sameBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }

// some picks distinct ids, and values for them.
func (x *push) some(rng *rand.Rand, tbl, n int) ([]int64, []float32) {
	ids := slices.Clone(x.ids)
	rng.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	ids = ids[:n]
	values := make([]float32, n*x.base.Model().Graph.Layout().Tables[tbl].Dim())
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	return ids, values
}

// TestPushed assigns rows at random, new ones, old ones and those of the export: what is read is what was assigned last, rounded to what the table keeps, and the export's of all others, bit for bit; rows that the export has so
// are not kept.
func TestPushed(t *testing.T) {
	t.Parallel()
	x := newPush(t, exported(t), nil)
	rng := rand.New(rand.NewPCG(1, 2))
	x.check("at first")
	found := 0
	for t := range x.has {
		n, err := x.base.Find(t, x.ids, make([]float32, len(x.ids)*x.base.Model().Graph.Layout().Tables[t].Dim()), nil)
		if found += n; err != nil || n == 0 || n == len(x.ids) {
			x.t.Fatalf("the export has %d of %d ids of table %d: %v", n, len(x.ids), t, err)
		}
	}
	for range 100 {
		tbl := rng.IntN(2)
		ids, values := x.some(rng, tbl, rng.IntN(40))
		if rng.IntN(3) == 0 {
			values = nil
		}
		if err := x.assign(tbl, ids, values); err != nil {
			t.Fatal(err)
		}
		x.check("after an assignment")
	}
	if x.p.Rows() == 0 {
		t.Error("nothing was assigned")
	}
	dense, want := make([]float32, len(x.base.Model().Dense)), x.base.Model().Dense
	if _, err := x.p.Reader().Dense(t.Context(), 0, dense); err != nil || !slices.Equal(dense, want) {
		t.Errorf("dense weights %v, want %v: %v", dense, want, err)
	}
	for _, bad := range []*param.Rows{
		{Keys: [][]int64{{1}}, Values: [][]float32{{1}}},
		{Keys: [][]int64{{1}, nil}, Values: [][]float32{{1}, nil}},
	} {
		if err := x.p.Assign(bad, x.order); !errors.Is(err, ps.ErrLayout) {
			t.Errorf("%v: %v, want ErrLayout", bad, err)
		}
	}
	x.check("after rows that do not fit")
}

// TestPushedMemory: rows for which there is no room are refused, all of a push, and those that are there may be assigned again.
func TestPushedMemory(t *testing.T) {
	t.Parallel()
	x := newPush(t, exported(t), table.NewMemory(table.MemoryOptions{Limit: 12 << 10, Of: "the test's limit"}))
	rng := rand.New(rand.NewPCG(3, 4))
	full := 0
	for full < 3 {
		tbl := rng.IntN(2)
		ids, values := x.some(rng, tbl, 30)
		err := x.assign(tbl, ids, values)
		if errors.Is(err, ps.ErrFull) {
			full++
		} else if err != nil {
			t.Fatal(err)
		}
		x.check("after an assignment")
	}
	many := &param.Rows{Keys: make([][]int64, 2), Values: make([][]float32, 2)} // of which the first table has room
	for id := range x.has[0] {
		many.Keys[0], many.Values[0] = []int64{id}, slices.Repeat([]float32{77}, len(x.has[0][id]))
	}
	many.Keys[1], many.Values[1] = x.some(rng, 1, len(x.ids))
	for range 9 {
		for _, id := range slices.Clone(many.Keys[1])[:len(x.ids)] {
			many.Keys[1] = append(many.Keys[1], id+int64(len(many.Keys[1]))<<20)
		}
	}
	many.Values[1] = ones(len(many.Keys[1]) * x.base.Model().Graph.Layout().Tables[1].Dim())
	if err := x.p.Assign(many, x.order); !errors.Is(err, ps.ErrFull) {
		t.Errorf("rows of two tables: %v, want ErrFull", err)
	}
	x.check("after rows of two tables")
	for tbl, has := range x.has {
		var ids []int64
		for id := range has {
			ids = append(ids, id)
		}
		values := make([]float32, len(ids)*x.base.Model().Graph.Layout().Tables[tbl].Dim())
		if err := x.assign(tbl, ids, values); err != nil {
			t.Errorf("rows that are there: %v", err)
		}
		x.check("after rows that are there")
	}
}

func ones(n int) []float32 { return slices.Repeat([]float32{1}, n) }

// TestPushedAtOnce: who reads while rows are assigned finds all of a push or none of it.
func TestPushedAtOnce(t *testing.T) {
	t.Parallel()
	x := newPush(t, exported(t), nil)
	const rounds = 200
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			r, last := x.p.Reader(), float32(0)
			tables := x.base.Model().Graph.Layout().Tables
			rows := param.Rows{Keys: [][]int64{x.ids, x.ids}}
			for _, spec := range tables {
				rows.Values = append(rows.Values, make([]float32, spec.Dim()*len(x.ids)))
			}
			for last < rounds {
				r.Hold()
				err := r.Lookup(t.Context(), &rows)
				r.Release()
				if err != nil {
					t.Error(err)
					return
				}
				is := rows.Values[0][0]
				if is < 1 {
					continue // before the first
				}
				for _, v := range slices.Concat(rows.Values...) {
					if v != is || is < last {
						t.Errorf("%v beside %v after %v", v, is, last)
						return
					}
				}
				last = is
			}
		})
	}
	for round := range rounds {
		rows := &param.Rows{Keys: [][]int64{slices.Clone(x.ids), slices.Clone(x.ids)}}
		for _, spec := range x.base.Model().Graph.Layout().Tables {
			rows.Values = append(rows.Values, slices.Repeat([]float32{float32(round + 1)}, spec.Dim()*len(x.ids)))
		}
		if err := x.p.Assign(rows, x.order); err != nil {
			t.Error(err)
		}
	}
	wg.Wait()
}

// TestPushedInherit: the export of a newer snapshot takes over what was read behind that snapshot's cut, whatever the clocks of the machines say, and with it the name of what it has. An older one does
// not say that it has all; one of another job takes over nothing.
func TestPushedInherit(t *testing.T) {
	t.Parallel()
	dir := exported(t)
	x := newPush(t, dir, nil)
	rng := rand.New(rand.NewPCG(5, 6))
	const taken = 1000
	want := []map[int64][]float32{{}, {}}
	for _, order := range []uint64{5, taken - 1, taken, taken + 1, math.MaxInt64} {
		x.order = order
		for tbl := range 2 {
			ids, values := x.some(rng, tbl, 20)
			if err := x.assign(tbl, ids, values); err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				delete(want[tbl], id)
				if order >= taken {
					want[tbl][id] = x.has[tbl][id]
				}
			}
		}
	}
	source := x.p.Source()
	newer := newPush(t, dir, nil)
	newer.ids, newer.has = x.ids, want
	newer.p.Model().From.Snapshot = taken
	newer.p.Model().From.Created = x.p.AsOf().Add(-24 * time.Hour) // of a machine whose clock is behind
	if newer.p.Source() == source {
		t.Error("two exports have one source")
	}
	if err := newer.p.Inherit(x.p); err != nil {
		t.Fatal(err)
	}
	newer.check("the newer one")
	if newer.p.Rows() == 0 {
		t.Error("nothing was taken over")
	}
	if newer.p.Source() != source || x.p.Source() == source {
		t.Errorf("source %d and before %d, want %d and another", newer.p.Source(), x.p.Source(), source)
	}
	older := newPush(t, dir, nil)
	older.p.Model().From.Created = x.p.AsOf().Add(24 * time.Hour)
	older.ids, older.has = x.ids, want
	if err := older.p.Inherit(newer.p); err != nil {
		t.Fatal(err)
	}
	older.check("the older one")
	if older.p.Source() == source || newer.p.Source() != source {
		t.Error("an older export says that it has all that was assigned")
	}
	other := newPush(t, dir, nil)
	other.p.Model().From.Job, other.p.Model().From.Snapshot = "other", taken
	if err := other.p.Inherit(newer.p); err != nil {
		t.Fatal(err)
	}
	other.check("one of another job")
	if other.p.Source() == source || newer.p.Source() != source {
		t.Error("an export of another job says that it has all that was assigned")
	}
	small := replica.NewPushed(openExport(t, dir), table.NewMemory(table.MemoryOptions{Limit: 1, Of: "the test's limit"}))
	if err := small.Inherit(newer.p); !errors.Is(err, ps.ErrFull) || small.Source() == source || newer.p.Source() != source {
		t.Errorf("without room: %v", err)
	}
	if err := small.Close(); err != nil {
		t.Error(err)
	}
}

package inspect_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/job/inspect"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// row is what the slow, obvious store has of a fid.
type row struct {
	time    int64
	count   uint64
	weights []float32
}

// store is a map for each table and, beside it, the fids that wait.
type store struct {
	layout        *param.Layout
	rows, waiting []map[int64]row
}

func newStore() *store {
	s := &store{layout: &param.Layout{
		Tables: []param.Table{
			{Name: "a", Segments: []param.Segment{
				{Name: "bias", Dim: 1, Optimizer: optim.FTRL{}}, {Name: "vec", Dim: 3, Optimizer: optim.Stored(optim.Adagrad{}, optim.BF16)},
			}},
			{Name: "b", Segments: []param.Segment{{Name: "v", Dim: 2, Optimizer: optim.SGD{}}}},
			{Name: "empty", Segments: []param.Segment{{Name: "v", Dim: 1, Optimizer: optim.SGD{}}}},
		},
		Retention: param.Retention{Default: param.SlotRetention{Occurrences: 3}},
	}}
	for range s.layout.Tables {
		s.rows, s.waiting = append(s.rows, map[int64]row{}), append(s.waiting, map[int64]row{})
	}
	return s
}

// change makes n changes of rows of the first tables and returns the fids that changed.
func (s *store) change(t *testing.T, r *rand.Rand, n int) []map[int64]bool {
	t.Helper()
	changed := []map[int64]bool{{}, {}, {}}
	for range n {
		tbl := r.IntN(2)
		key, err := fid.New([]int{0, 1, 7, 32767}[r.IntN(4)], uint64(r.IntN(9000)))
		if err != nil {
			t.Fatal(err)
		}
		changed[tbl][int64(key)] = true
		if r.IntN(6) == 0 {
			delete(s.rows[tbl], int64(key))
			continue
		}
		at := row{time: 1700000000_000000 - int64(math.Exp(r.Float64()*35)), count: uint64(1 + r.IntN(3)), weights: make([]float32, s.layout.Tables[tbl].Dim())}
		for i := range at.weights {
			at.weights[i] = float32(r.NormFloat64())
		}
		switch r.IntN(40) {
		case 0:
			at.time = 0
		case 1:
			at.weights[1] = math.MaxFloat32
		case 2:
			at.count = math.MaxInt64
		}
		s.rows[tbl][int64(key)] = at
	}
	return changed
}

// feed hands out rows in the order of their hashes.
func feed(of map[int64]row, keep func(int64) bool, stateDim int) func(*table.Rows, int) bool {
	keys := slices.DeleteFunc(slices.SortedFunc(maps.Keys(of), func(a, b int64) int { return cmp.Compare(table.Hash(a), table.Hash(b)) }), func(k int64) bool { return !keep(k) })
	return func(dst *table.Rows, limit int) bool {
		n := min(limit, len(keys))
		for _, k := range keys[:n] {
			dst.Keys, dst.Times, dst.Counts = append(dst.Keys, k), append(dst.Times, of[k].time), append(dst.Counts, of[k].count)
			dst.Weights = append(dst.Weights, of[k].weights...)
			dst.State = append(dst.State, make([]float32, stateDim)...)
		}
		keys = keys[n:]
		return n > 0
	}
}

// write writes a snapshot, of what changed since base where there is one.
func (s *store) write(t *testing.T, dir string, shards int, base *snapshot.Info, changed []map[int64]bool) *snapshot.Info {
	t.Helper()
	id := uint64(1)
	if base != nil {
		id = base.ID + 1
	}
	w, err := snapshot.Create(snapshot.Options{Dir: dir, ID: id, Base: base, Layout: s.layout, Shards: shards, Created: time.Unix(1700000000, int64(id))})
	if err != nil {
		t.Fatal(err)
	}
	for shard := range shards {
		p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: s.layout, Shard: shard})
		on := func(k int64) bool { return int(table.Hash(k)>>32*uint64(shards)>>32) == shard }
		for i, spec := range s.layout.Tables {
			if base == nil {
				err = errors.Join(err, p.Rows(i, feed(s.rows[i], on, spec.StateDim())))
			} else {
				total, removed := int64(0), []int64{}
				for k := range s.rows[i] {
					if on(k) {
						total++
					}
				}
				for k := range changed[i] {
					if _, is := s.rows[i][k]; on(k) && !is {
						removed = append(removed, k)
					}
				}
				slices.SortFunc(removed, func(a, b int64) int { return cmp.Compare(table.Hash(a), table.Hash(b)) })
				err = errors.Join(err, p.Changed(i, feed(s.rows[i], func(k int64) bool { return on(k) && changed[i][k] }, spec.StateDim()), func() (int64, []int64) { return total, removed }))
			}
			if len(s.waiting[i]) > 0 {
				err = errors.Join(err, p.Waiting(i, snapshot.KindWaiting, feed(s.waiting[i], on, 0)))
			}
		}
		if shard == 0 {
			err = errors.Join(err, p.Dense(nil))
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// check compares what is said of a snapshot with sums over the maps.
func (s *store) check(t *testing.T, got *result.SnapshotSlots) {
	t.Helper()
	newest := int64(0)
	for i := range s.rows {
		for _, of := range []map[int64]row{s.rows[i], s.waiting[i]} {
			for _, r := range of {
				newest = max(newest, r.time)
			}
		}
	}
	if got.Newest == nil || got.Newest.UnixMicro() != newest {
		t.Fatalf("the newest time is %v, want %v", got.Newest, time.UnixMicro(newest).UTC())
	}
	at := 0
	for i, spec := range s.layout.Tables {
		for _, slot := range []int{0, 1, 5, 6, 7, 32767} {
			want := result.SlotInfo{Table: spec.Name, Slot: slot}
			var ages []float64
			norms := 0.
			for k, r := range s.rows[i] {
				if fid.ID(k).Slot() != slot {
					continue
				}
				want.Rows++
				want.Bytes += spec.RowBytes()
				if want.Occurrences > math.MaxUint64-r.count {
					want.Occurrences = math.MaxUint64
				} else {
					want.Occurrences += r.count
				}
				if r.count == 1 {
					want.Once++
				}
				norm := 0.
				for _, x := range r.weights {
					norm = math.Hypot(norm, float64(x))
				}
				norms += norm
				if r.time == 0 {
					want.Timeless++
				} else {
					ages = append(ages, float64(newest-r.time)/1e6)
				}
			}
			for k := range s.waiting[i] {
				if fid.ID(k).Slot() == slot {
					want.Waiting++
				}
			}
			if want.Rows == 0 && want.Waiting == 0 {
				continue
			}
			if at == len(got.Slots) {
				t.Fatalf("%d slots, more are there: table %s, slot %d", at, spec.Name, slot)
			}
			is := got.Slots[at]
			at++
			if want.Rows > 0 {
				want.Share = float64(want.Rows) / float64(len(s.rows[i]))
			}
			if want.Rows > 0 {
				want.MeanNorm = norms / float64(want.Rows)
			}
			if math.Abs(is.MeanNorm-want.MeanNorm) > 1e-9*want.MeanNorm {
				t.Errorf("table %s, slot %d: mean norm %v, want %v", spec.Name, slot, is.MeanNorm, want.MeanNorm)
			}
			want.MeanNorm = is.MeanNorm
			found := is.Ages
			is.Ages = nil
			if len(is.Features) > 0 || !equal(is, want) {
				t.Errorf("got %+v, want %+v", is, want)
			}
			if (found == nil) != (len(ages) == 0) {
				t.Errorf("table %s, slot %d: ages %v of %d rows with a time", spec.Name, slot, found, len(ages))
			}
			if found == nil || len(ages) == 0 {
				continue
			}
			slices.Sort(ages)
			p50, p90, most := ages[(len(ages)*50+99)/100-1], ages[(len(ages)*90+99)/100-1], ages[len(ages)-1]
			if found.P50 < p50 || found.P50 > p50*33/32 || found.P90 < p90 || found.P90 > p90*33/32 || found.Max != most {
				t.Errorf("table %s, slot %d: ages %+v, want %v, %v, %v", spec.Name, slot, found, p50, p90, most)
			}
		}
	}
	if at != len(got.Slots) {
		t.Errorf("%d slots, want %d", len(got.Slots), at)
	}
}

// equal compares what has no lists.
func equal(a, b result.SlotInfo) bool {
	return a.Table == b.Table && a.Slot == b.Slot && a.Rows == b.Rows && a.Share == b.Share && a.Bytes == b.Bytes && a.Occurrences == b.Occurrences && a.Once == b.Once &&
		a.MeanNorm == b.MeanNorm && a.Timeless == b.Timeless && a.Waiting == b.Waiting
}

// TestSlotsAreSums: whole snapshots and chains, of any number of shards, with fids that wait and without, are what sums over a map are.
func TestSlotsAreSums(t *testing.T) {
	t.Parallel()
	for _, shards := range []int{1, 3} {
		r := rand.New(rand.NewPCG(5, uint64(shards)))
		s, dir := newStore(), t.TempDir()
		s.change(t, r, 30_000)
		info := s.write(t, dir, shards, nil, nil)
		look := func() *result.SnapshotSlots {
			t.Helper()
			last, calls := int64(0), 0
			got, err := inspect.Slots(t.Context(), info.Path, inspect.SlotOptions{Progress: func(read, total int64) {
				if read <= last || read > total {
					t.Errorf("%d of %d rows are read, after %d", read, total, last)
				}
				last, calls = read, calls+1
			}})
			if err != nil {
				t.Fatal(err)
			}
			if want := int64(2 * (len(s.rows[0]) + len(s.rows[1]) + len(s.waiting[0]))); last != want || calls == 0 || got.Rows != info.Rows() {
				t.Errorf("%d rows in all, at the end %d are read in %d calls, want %d", got.Rows, last, calls, want)
			}
			return got
		}
		s.check(t, look())
		for range 2 {
			changed := s.change(t, r, 3000)
			info = s.write(t, dir, shards, info, changed)
			s.check(t, look())
		}
		for i := range 500 {
			key, err := fid.New(5+i%3, uint64(1e6+i)) // slots with rows and without
			if err != nil {
				t.Fatal(err)
			}
			s.waiting[0][int64(key)] = row{time: 1700000100_000000 - int64(i), count: 1}
		}
		info = s.write(t, t.TempDir(), shards, nil, nil)
		s.check(t, look())
	}
}

// TestSlotsEnd: the context ends the reading, and damage is named.
func TestSlotsEnd(t *testing.T) {
	t.Parallel()
	s, dir := newStore(), t.TempDir()
	s.change(t, rand.New(rand.NewPCG(6, 6)), 1000)
	info := s.write(t, dir, 2, nil, nil)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	if _, err := inspect.Slots(ctx, info.Path, inspect.SlotOptions{Progress: func(int64, int64) { cancel(); calls++ }}); !errors.Is(err, context.Canceled) || calls != 1 {
		t.Errorf("cancelled after the first of %d parts: %v", calls, err)
	}
	newer := s.write(t, dir, 2, info, s.change(t, rand.New(rand.NewPCG(6, 7)), 100))
	if err := os.Truncate(filepath.Join(newer.Path, "rows-0000-0001.arrow"), 700); err != nil {
		t.Fatal(err)
	}
	if _, err := inspect.Slots(t.Context(), newer.Path, inspect.SlotOptions{}); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "rows-0000-0001.arrow: 700 bytes of ") {
		t.Errorf("damaged: %v", err)
	}
	if got, err := inspect.Slots(t.Context(), dir, inspect.SlotOptions{}); err != nil || got.Path != info.Path || len(got.Damaged) != 1 || !strings.Contains(got.Damaged[0], "rows-0000-0001.arrow") {
		t.Errorf("of a folder whose newest is damaged: %+v, %v", got, err)
	}
	empty := newStore()
	got, err := inspect.Slots(t.Context(), empty.write(t, t.TempDir(), 2, nil, nil).Path, inspect.SlotOptions{})
	if err != nil || got.Newest != nil || got.Slots == nil || len(got.Slots) != 0 {
		t.Errorf("of no rows: %+v, %v", got, err)
	}
}

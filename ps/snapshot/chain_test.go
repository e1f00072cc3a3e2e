package snapshot_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// history is a table that changes, and the folder of its snapshots: the slow, obvious store that chains are compared with.
type history struct {
	t      *testing.T
	seed   uint64
	r      *rand.Rand
	fs     fsx.FS
	dir    string
	shards int
	now    map[int64]table.Rows
	// changed are the keys that were made, changed or removed since the snapshot before.
	changed map[int64]bool
	last    *snapshot.Info
	// then is what each snapshot held.
	then map[uint64]map[int64]table.Rows
}

func newHistory(t *testing.T, seed uint64, store fsx.FS, dir string, shards int) *history {
	return &history{
		t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 9)), fs: store, dir: dir, shards: shards, now: map[int64]table.Rows{}, changed: map[int64]bool{},
		then: map[uint64]map[int64]table.Rows{},
	}
}

// change makes n random changes.
func (h *history) change(n int) {
	for range n {
		key := int64(h.r.IntN(600))
		h.changed[key] = true
		if h.r.IntN(4) == 0 {
			delete(h.now, key)
			continue
		}
		row := randomRows(h.r, layout().Tables[0], 1)
		row.Keys[0] = key
		h.now[key] = row
	}
}

// rows joins rows in the order of their hashes.
func rowsOf(of map[int64]table.Rows, keep func(int64) bool) table.Rows {
	keys := slices.SortedFunc(maps.Keys(of), func(a, b int64) int { return cmp.Compare(table.Hash(a), table.Hash(b)) })
	var out table.Rows
	for _, k := range keys {
		if keep(k) {
			r := of[k]
			out.Keys, out.Times, out.Counts = append(out.Keys, k), append(out.Times, r.Times[0]), append(out.Counts, r.Counts[0])
			out.Weights, out.State = append(out.Weights, r.Weights...), append(out.State, r.State...)
		}
	}
	return out
}

// on reports whether a key is on a shard.
func (h *history) on(shard int) func(int64) bool {
	return func(k int64) bool { return int(table.Hash(k)>>32*uint64(h.shards)>>32) == shard }
}

// snapshot writes what the table holds, as an incremental snapshot if asked to.
func (h *history) snapshot(incremental bool) (*snapshot.Info, error) {
	l := layout()
	id := uint64(1)
	if h.last != nil {
		id = h.last.ID + 1
	}
	o := snapshot.Options{
		FS: h.fs, Dir: h.dir, ID: id, Layout: l, Shards: h.shards, Created: time.Unix(1700000000+int64(h.seed), int64(id)),
		Positions: map[string]map[string]snapshot.Progress{"s": {"x": {Position: 5, Rows: int64(id)}}},
	}
	if incremental {
		o.Base = h.last
	}
	w, err := snapshot.Create(o)
	if err != nil {
		return nil, err
	}
	for shard := range h.shards {
		p := snapshot.NewPart(snapshot.PartOptions{FS: h.fs, Dir: w.Dir(), Layout: l, Shard: shard})
		on := h.on(shard)
		all := rowsOf(h.now, on)
		none := func(*table.Rows, int) bool { return false }
		if incremental {
			rows := rowsOf(h.now, func(k int64) bool { return on(k) && h.changed[k] })
			var removed []int64 // some of them have a row again
			for k := range h.changed {
				if _, is := h.now[k]; on(k) && (!is || h.r.IntN(3) == 0) {
					removed = append(removed, k)
				}
			}
			slices.SortFunc(removed, func(a, b int64) int { return cmp.Compare(table.Hash(a), table.Hash(b)) })
			err = errors.Join(p.Changed(0, feed(&rows, l.Tables[0], 0, len(rows.Keys)), func() (int64, []int64) { return int64(len(all.Keys)), removed }),
				p.Changed(1, none, func() (int64, []int64) { return 0, nil }))
		} else {
			err = errors.Join(p.Rows(0, feed(&all, l.Tables[0], 0, len(all.Keys))), p.Rows(1, none))
		}
		if err == nil && shard == h.shards-1 {
			err = p.Dense(tensors())
		}
		if err != nil {
			return nil, err
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		return nil, err
	}
	h.last, h.changed = info, map[int64]bool{}
	h.then[info.ID] = maps.Clone(h.now)
	return info, nil
}

func (h *history) must(incremental bool) *snapshot.Info {
	h.t.Helper()
	info, err := h.snapshot(incremental)
	if err != nil {
		h.t.Fatal(err)
	}
	return info
}

// check compares every snapshot that there is with what was stored, and returns which there are.
func (h *history) check() (ids []uint64) {
	h.t.Helper()
	entries, err := snapshot.ListIn(h.fs, h.dir)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range entries {
		ids = append(ids, e.ID)
		if e.Err != nil {
			h.t.Errorf("snapshot %d: %v", e.ID, e.Err)
			continue
		}
		if faults, err := snapshot.Verify(h.t.Context(), h.fs, e.Path); err != nil || len(faults) > 0 {
			h.t.Errorf("snapshot %d: %v, %v", e.ID, faults, err)
		}
		s, err := snapshot.OpenWith(h.t.Context(), e.Path, snapshot.OpenOptions{FS: h.fs})
		if err != nil {
			h.t.Errorf("snapshot %d: %v", e.ID, err)
			continue
		}
		var got table.Rows
		err = s.Rows(0, func(r *table.Rows) error {
			got.Keys, got.Times, got.Counts = append(got.Keys, r.Keys...), append(got.Times, r.Times...), append(got.Counts, r.Counts...)
			got.Weights, got.State = append(got.Weights, r.Weights...), append(got.State, r.State...)
			return nil
		})
		want := rowsOf(h.then[e.ID], func(int64) bool { return true })
		if err != nil || e.Info.Rows() != int64(len(want.Keys)) || !sameRows(&got, &want) {
			h.t.Errorf("snapshot %d: %d rows of %d, or others: %v", e.ID, len(got.Keys), len(want.Keys), err)
		}
		if err := s.Close(); err != nil {
			h.t.Error(err)
		}
	}
	return ids
}

func sameRows(a, b *table.Rows) bool {
	return slices.Equal(a.Keys, b.Keys) && slices.Equal(a.Times, b.Times) && slices.Equal(a.Counts, b.Counts) && slices.Equal(a.Weights, b.Weights) && slices.Equal(a.State, b.State)
}

// TestChains reads chains of incremental snapshots, before and after they are compacted, beside a map that was copied at each of them.
func TestChains(t *testing.T) {
	t.Parallel()
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, seed, &objects{}, "bucket/run", 1+int(seed)%3)
			h.change(int(seed) * 40) // none of the first
			h.must(false)
			for range 6 {
				h.change(h.r.IntN(150))
				if info := h.must(h.r.IntN(8) > 0); info.Base != nil && info.Digest != "" {
					t.Error("an incremental snapshot has a digest")
				}
				if h.r.IntN(3) > 0 {
					continue
				}
				if faults := h.check(); len(faults) == 0 {
					t.Fatal("no snapshots")
				}
				whole, err := snapshot.Compact(t.Context(), h.fs, h.last.Path, layout(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if whole.Base != nil || whole.ID != h.last.ID || !whole.Created.Equal(h.last.Created) || whole.Digest == "" {
					t.Errorf("compacted: base %v, number %d, digest %q", whole.Base, whole.ID, whole.Digest)
				}
				if files := below(t, h.fs, whole.Path); len(files) != len(whole.Files)+1 {
					t.Errorf("compacted: %v of %d", files, len(whole.Files))
				}
			}
			if ids := h.check(); len(ids) != 7 {
				t.Errorf("snapshots %v", ids)
			}
			// What is kept has its bases.
			for keep := 5; keep > 0; keep-- {
				if _, err := snapshot.Prune(t.Context(), h.fs, h.dir, snapshot.Retention{Keep: keep}, snapshot.PruneOptions{}); err != nil {
					t.Fatal(err)
				}
				if ids := h.check(); len(ids) < keep || ids[0] != h.last.ID {
					t.Errorf("kept %d: %v", keep, ids)
				}
			}
			if _, err := snapshot.Compact(t.Context(), h.fs, h.last.Path, layout(), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := snapshot.Prune(t.Context(), h.fs, h.dir, snapshot.Retention{Keep: 1}, snapshot.PruneOptions{}); err != nil {
				t.Fatal(err)
			}
			if ids := h.check(); len(ids) != 1 {
				t.Errorf("the newest is whole, and there are %v", ids)
			}
		})
	}
}

// TestChainRowReader reads a chain from any row on.
func TestChainRowReader(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 3, fsx.Local{}, t.TempDir(), 2)
	h.change(900)
	h.must(false)
	h.change(200)
	h.must(true)
	h.change(100)
	info := h.must(true)
	for shard := range h.shards {
		want := rowsOf(h.now, h.on(shard))
		r, err := snapshot.OpenRows(t.Context(), info, 0, shard, snapshot.RowsOptions{WeightsOnly: shard == 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []int64{0, 1, 50, int64(len(want.Keys)) - 1, int64(len(want.Keys)), 3} {
			if err := r.SeekRow(from); err != nil {
				t.Fatal(err)
			}
			var keys []int64
			at := int64(-1)
			for {
				rows, first, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if at < 0 && first > from {
					t.Errorf("from %d rows begin at %d", from, first)
				}
				at = first
				keys = append(keys, rows.Keys[max(0, from-first):]...)
			}
			if !slices.Equal(keys, want.Keys[from:]) {
				t.Errorf("shard %d from row %d: %d rows of %d, or others", shard, from, len(keys), int64(len(want.Keys))-from)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestChainInObjects kills who writes incremental snapshots, compacts them and trims, at every change of the store: what is
// there is whole, nothing is left behind, and the newest snapshot that was committed is there.
func TestChainInObjects(t *testing.T) {
	t.Parallel()
	for at := 1; ; at++ {
		store := &objects{}
		h := newHistory(t, 5, store, "bucket/run", 2)
		h.change(80)
		h.must(false)
		store.dieAt = store.changes + at
		var err error
		for range 3 {
			h.change(20)
			if err == nil {
				_, err = h.snapshot(true)
			}
		}
		if err == nil {
			_, err = snapshot.Compact(t.Context(), store, h.last.Path, layout(), nil)
		}
		if err == nil {
			_, err = snapshot.Prune(t.Context(), store, h.dir, snapshot.Retention{Keep: 1}, snapshot.PruneOptions{})
		}
		if err == nil && store.changes < store.dieAt {
			if at < 40 {
				t.Errorf("only %d changes", at-1)
			}
			if ids := h.check(); !slices.Equal(ids, []uint64{4}) {
				t.Errorf("at the end there are %v", ids)
			}
			return
		}
		store.dieAt = 0
		if h.then[h.last.ID+1] == nil { // it may have its manifest though its writer did not hear of that
			h.then[h.last.ID+1] = maps.Clone(h.now)
		}
		if _, err := snapshot.Clean(store, h.dir); err != nil {
			t.Fatal(err)
		}
		entries, err := snapshot.ListIn(store, h.dir)
		if err != nil || len(entries) == 0 || entries[0].ID < h.last.ID {
			t.Fatalf("change %d: %v, %v", at, entries, err)
		}
		names := 0
		for _, e := range entries {
			if e.Info != nil {
				names += len(e.Info.Files) + 1
			}
		}
		if all := below(t, store, "bucket"); names != len(all) {
			t.Errorf("change %d: %d objects of %d snapshots that have %d", at, len(all), len(entries), names)
		}
		if entries[0].ID == h.last.ID {
			h.check()
		}
	}
}

// TestChainDamage changes a bit of every file of a chain, cuts it short and removes it: nothing that is read by it is believed, what does not need it
// is whole, and the report names the file.
func TestChainDamage(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 7, fsx.Local{}, t.TempDir(), 2)
	h.change(300)
	h.must(false)
	for range 2 {
		h.change(60)
		h.must(true)
	}
	entries, err := snapshot.List(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	read := func(id uint64) error {
		s, err := snapshot.OpenWith(t.Context(), snapshot.Path(h.dir, id), snapshot.OpenOptions{Threads: int(id)})
		if err != nil {
			return err
		}
		return s.Close()
	}
	for _, e := range entries {
		for _, f := range e.Info.Files {
			path := filepath.Join(e.Path, f.Name)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			flipped := slices.Clone(good)
			flipped[len(good)*2/3] ^= 4
			for what, b := range map[string][]byte{"a bit": flipped, "cut": good[:len(good)-1], "gone": nil} {
				if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				if b != nil {
					if err := os.WriteFile(path, b, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				for id := uint64(1); id <= 3; id++ {
					// Tensors are whole in each: those of bases are not read.
					bad := id == e.ID || id > e.ID && f.Table >= 0
					if err := read(id); errors.Is(err, snapshot.ErrCorrupt) != bad || err != nil && !strings.Contains(err.Error(), f.Name) {
						t.Errorf("%s of %s of snapshot %d: snapshot %d: %v", what, f.Name, e.ID, id, err)
					}
				}
				faults, err := snapshot.Verify(t.Context(), h.fs, e.Path)
				if err != nil || len(faults) != 1 || !strings.Contains(faults[0].Error(), f.Name) {
					t.Errorf("%s of %s: %v, %v", what, f.Name, faults, err)
				}
			}
			if err := os.WriteFile(path, good, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	h.check()
	// Another snapshot under the number of the base is not taken for it.
	other := newHistory(t, 8, fsx.Local{}, t.TempDir(), 2)
	other.last = &snapshot.Info{ID: 1}
	if err := os.RemoveAll(snapshot.Path(h.dir, 2)); err != nil {
		t.Fatal(err)
	}
	if err := read(3); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "base") {
		t.Errorf("without its base: %v", err)
	}
	if err := os.Rename(other.must(false).Path, snapshot.Path(h.dir, 2)); err != nil {
		t.Fatal(err)
	}
	if err := read(3); !errors.Is(err, snapshot.ErrCorrupt) || !strings.Contains(err.Error(), "another snapshot") {
		t.Errorf("with another base: %v", err)
	}
}

// TestOpenWhileCompacted: who has read the manifest of an incremental snapshot that is compacted before the files are opened reads the whole one.
func TestOpenWhileCompacted(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 11, fsx.Local{}, t.TempDir(), 1)
	h.change(300)
	h.must(false)
	h.change(60)
	info := h.must(true)
	if _, err := snapshot.Compact(t.Context(), h.fs, info.Path, layout(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := snapshot.Prune(t.Context(), h.fs, h.dir, snapshot.Retention{Keep: 1}, snapshot.PruneOptions{}); err != nil {
		t.Fatal(err)
	}
	r, err := snapshot.OpenRows(t.Context(), info, 0, 0, snapshot.RowsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	want := rowsOf(h.now, func(int64) bool { return true })
	if got, _, err := r.Next(); err != nil || !sameRows(got, &want) {
		t.Errorf("other rows: %v", err)
	}
}

// TestVerifyWaiting: fids that wait for a row are part of what is verified.
func TestVerifyWaiting(t *testing.T) {
	t.Parallel()
	l, dir := layout(), t.TempDir()
	w, err := snapshot.Create(snapshot.Options{Dir: dir, ID: 1, Layout: l, Shards: 1, Created: time.Unix(1700000000, 0)})
	if err != nil {
		t.Fatal(err)
	}
	rows := table.Rows{Keys: []int64{1, 2}, Times: []int64{3, 4}, Counts: []uint64{5, 6}}
	done := false
	p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: l})
	err = errors.Join(p.Dense(tensors()), p.Waiting(0, snapshot.KindWaiting, func(dst *table.Rows, _ int) bool {
		if !done {
			dst.Keys, dst.Times, dst.Counts = append(dst.Keys, rows.Keys...), append(dst.Times, rows.Times...), append(dst.Counts, rows.Counts...)
		}
		defer func() { done = true }()
		return !done
	}))
	if err != nil {
		t.Fatal(err)
	}
	w.Add(p.Part())
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if faults, err := snapshot.Verify(t.Context(), nil, info.Path); err != nil || len(faults) > 0 {
		t.Errorf("%v, %v", faults, err)
	}
}

// TestOneShardOfAChain: a shard reads its part of every snapshot of a chain and no other's.
func TestOneShardOfAChain(t *testing.T) {
	t.Parallel()
	store := &objects{}
	h := newHistory(t, 17, store, "bucket/run", 2)
	h.change(300)
	h.must(false)
	h.change(60)
	h.must(true)
	h.change(60)
	info := h.must(true)
	for _, name := range below(t, store, h.dir) {
		if strings.HasSuffix(name, "-0000.arrow") { // of shard 0
			if err := store.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	s, err := snapshot.OpenWith(t.Context(), info.Path, snapshot.OpenOptions{FS: store, Shard: 1, Shards: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	want := rowsOf(h.now, h.on(1))
	var got table.Rows
	if err := s.Rows(0, func(r *table.Rows) error {
		got.Keys, got.Times, got.Counts = append(got.Keys, r.Keys...), append(got.Times, r.Times...), append(got.Counts, r.Counts...)
		got.Weights, got.State = append(got.Weights, r.Weights...), append(got.State, r.State...)
		return nil
	}); err != nil || !sameRows(&got, &want) {
		t.Errorf("%d rows of %d, or others: %v", len(got.Keys), len(want.Keys), err)
	}
	if _, err := snapshot.OpenWith(t.Context(), info.Path, snapshot.OpenOptions{FS: store}); !errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("both shards: %v", err)
	}
}

// TestWhatWasAdded applies what each snapshot of a chain adds to an earlier one to a map of that one's rows, shard by shard of any number: it is then that of the later one.
// The files of the earlier one are not there any more.
func TestWhatWasAdded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			store := &objects{}
			h := newHistory(t, seed, store, "bucket/run", 1+int(seed)%3)
			h.change(500)
			infos := []*snapshot.Info{h.must(false)}
			for range 4 {
				h.change(h.r.IntN(200))
				infos = append(infos, h.must(true))
			}
			last := infos[len(infos)-1]
			for i, since := range infos[:len(infos)-1] {
				for _, name := range below(t, store, since.Path) {
					if strings.HasSuffix(name, ".arrow") {
						if err := store.Remove(t.Context(), name); err != nil {
							t.Fatal(err)
						}
					}
				}
				for _, info := range infos[i+1:] {
					got := maps.Clone(h.then[since.ID])
					said := map[int64]int{}
					for shard := range 2 {
						s, err := snapshot.OpenWith(t.Context(), info.Path, snapshot.OpenOptions{FS: store, Shard: shard, Shards: 2, Since: since.ID})
						if err != nil {
							t.Fatal(err)
						}
						mine := func(k int64) bool { return table.Hash(k)>>63 == uint64(shard) }
						err = s.Changes(0, func(rows *table.Rows, removed []int64) error {
							for _, k := range removed {
								if mine(k) {
									said[k]++
									delete(got, k)
								}
							}
							dim, stateDim := layout().Tables[0].Dim(), layout().Tables[0].StateDim()
							for i, k := range rows.Keys {
								if mine(k) {
									said[k]++
									got[k] = table.Rows{
										Keys: []int64{k}, Times: []int64{rows.Times[i]}, Counts: []uint64{rows.Counts[i]},
										Weights: slices.Clone(rows.Weights[i*dim:][:dim]), State: slices.Clone(rows.State[i*stateDim:][:stateDim]),
									}
								}
							}
							return nil
						})
						if tensors, terr := s.Tensors(); !s.Added() || terr != nil || h.shards == 1 && len(tensors) == 0 {
							t.Errorf("%d since %d: added %t, %d tensors, %v", info.ID, since.ID, s.Added(), len(tensors), terr)
						}
						if err := errors.Join(err, s.Close()); err != nil {
							t.Fatal(err)
						}
					}
					all := func(int64) bool { return true }
					a, b := rowsOf(got, all), rowsOf(h.then[info.ID], all)
					if !sameRows(&a, &b) {
						t.Errorf("%d since %d: %d rows, want %d, or others", info.ID, since.ID, len(a.Keys), len(b.Keys))
					}
					for k, n := range said {
						if n != 1 {
							t.Errorf("%d since %d: fid %d is there %d times", info.ID, since.ID, k, n)
						}
					}
				}
			}
			// One that adds to nothing that the reader has is read as a whole.
			h.change(10)
			s, err := snapshot.OpenWith(t.Context(), h.must(false).Path, snapshot.OpenOptions{FS: store, Since: last.ID})
			if err != nil || s.Added() {
				t.Fatalf("a whole one was added: %v", err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRetention keeps by count, age, exemption and label, and says why.
func TestRetention(t *testing.T) {
	t.Parallel()
	day := time.Unix(1700000000, 0)
	entry := func(id uint64, age time.Duration, change func(*snapshot.Info)) snapshot.Entry {
		info := &snapshot.Info{ID: id, Created: day.Add(-age)}
		if change != nil {
			change(info)
		}
		return snapshot.Entry{ID: id, Info: info}
	}
	base := func(id uint64) func(*snapshot.Info) {
		return func(i *snapshot.Info) { i.Base = &snapshot.Base{ID: id} }
	}
	entries := []snapshot.Entry{
		{ID: 12, Err: snapshot.ErrCorrupt},
		entry(11, 0, base(9)),
		entry(10, time.Minute, func(i *snapshot.Info) { i.Pinned = true; i.Base = &snapshot.Base{ID: 8} }),
		entry(9, time.Hour, base(6)),
		entry(8, 2*time.Hour, nil),
		entry(7, 3*time.Hour, func(i *snapshot.Info) { i.Label = "best" }),
		entry(6, 4*time.Hour, nil),
		entry(5, 5*time.Hour, func(i *snapshot.Info) { i.Label = "best" }),
		entry(4, 6*time.Hour, base(3)),
		entry(3, 7*time.Hour, base(2)),
		entry(2, 8*time.Hour, nil),
		entry(1, 9*time.Hour, nil),
	}
	why := snapshot.Retention{Keep: 1, For: 90 * time.Minute, Exempt: []uint64{4}}.Kept(entries, nil)
	want := []string{
		"damaged", "one of the newest 1", "pinned", "not 1h30m0s old", "base of snap-00000010", "newest best", "base of snap-00000009", "",
		"exempt", "base of snap-00000004", "base of snap-00000003", "",
	}
	if !slices.Equal(why, want) {
		t.Errorf("kept %q,\nwant %q", why, want)
	}
}

// TestCompare counts what two snapshots have that is not the same, beside the maps that they were made of.
func TestCompare(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 13, fsx.Local{}, t.TempDir(), 2)
	h.change(400)
	a := h.must(false)
	h.change(100)
	h.must(true)
	h.change(30)
	b := h.must(true)
	var want snapshot.TableDifference
	want.Name = "a/b"
	for k, row := range h.then[a.ID] {
		switch other, ok := h.then[b.ID][k]; {
		case !ok:
			want.Removed++
		case sameRows(&row, &other):
			want.Same++
		default:
			want.Changed++
		}
	}
	for k := range h.then[b.ID] {
		if _, ok := h.then[a.ID][k]; !ok {
			want.Added++
		}
	}
	open := func(info *snapshot.Info) *snapshot.Snapshot {
		s, err := snapshot.Open(t.Context(), info.Path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	d, err := snapshot.Compare(t.Context(), open(a), open(b))
	if err != nil {
		t.Fatal(err)
	}
	if d.Tables[0] != want || want.Added == 0 || want.Removed == 0 || want.Changed == 0 || want.Same == 0 {
		t.Errorf("table %+v, want %+v", d.Tables[0], want)
	}
	if len(d.Tensors) != 0 || len(d.State) != 0 || len(d.Positions) != 1 || d.Positions[0].A.Rows != 1 || d.Positions[0].B.Rows != 3 {
		t.Errorf("%+v", d)
	}
	if same, err := snapshot.Compare(t.Context(), open(b), open(b)); err != nil || len(same.Positions) != 0 || same.Tables[0].Same != b.Rows() || same.Tables[0].Changed != 0 {
		t.Errorf("with itself: %+v, %v", same, err)
	}
}

// TestPlanVerifies: a snapshot that turns out damaged does not count, whichever it is, and nothing is read where nothing goes.
func TestPlanVerifies(t *testing.T) {
	t.Parallel()
	entries := func() (out []snapshot.Entry) {
		for id := uint64(5); id > 0; id-- {
			out = append(out, snapshot.Entry{ID: id, Info: &snapshot.Info{ID: id}})
		}
		return out
	}
	for _, c := range []struct {
		keep     int
		damaged  []uint64
		gone     []uint64
		verified int
	}{
		{keep: 2, gone: []uint64{3, 2, 1}, verified: 2},
		{keep: 5, damaged: []uint64{5}},
		{keep: 2, damaged: []uint64{5}, gone: []uint64{2, 1}, verified: 3},
		{keep: 2, damaged: []uint64{5, 4, 3}, verified: 3},
		{keep: 1, damaged: []uint64{5, 3}, gone: []uint64{3, 2, 1}, verified: 2}, // 3 goes as another would
		{keep: 1, damaged: []uint64{5, 4, 3, 2, 1}, verified: 4},
	} {
		verified := 0
		of := entries()
		why, err := snapshot.Retention{Keep: c.keep}.Plan(t.Context(), of, nil, func(_ context.Context, info *snapshot.Info) error {
			verified++
			if slices.Contains(c.damaged, info.ID) {
				return snapshot.ErrCorrupt
			}
			return nil
		})
		var gone []uint64
		for i, e := range of {
			if why[i] == "" {
				gone = append(gone, e.ID)
			}
		}
		if err != nil || !slices.Equal(gone, c.gone) || verified != c.verified {
			t.Errorf("keep %d, damaged %d: %d go after %d were verified, %v; want %d after %d", c.keep, c.damaged, gone, verified, err, c.gone, c.verified)
		}
	}
	unknown := errors.New("does not answer")
	if _, err := (snapshot.Retention{Keep: 1}).Plan(t.Context(), entries(), nil, func(context.Context, *snapshot.Info) error { return unknown }); !errors.Is(err, unknown) {
		t.Errorf("what cannot be verified: %v", err)
	}
}

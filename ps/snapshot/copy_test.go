package snapshot_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// in is the same history, whose snapshots are looked for elsewhere.
func (h *history) in(store fsx.FS, dir string) *history {
	there := *h
	there.fs, there.dir = store, dir
	return &there
}

// copyAll copies what a folder has, the oldest first.
func copyAll(ctx context.Context, h *history, to fsx.FS, dir string) error {
	entries, err := snapshot.ListIn(h.fs, h.dir)
	slices.Reverse(entries)
	for _, e := range entries {
		if err == nil {
			err = snapshot.Copy(ctx, e.Info, snapshot.CopyOptions{From: h.fs, To: to, Dir: dir})
		}
	}
	return err
}

// TestCopy copies chains to an object store and back, before and after one was compacted: all that is read there is what was stored.
func TestCopy(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 1, fsx.Local{}, t.TempDir(), 2)
	store := new(fsxtest.Mem)
	for i, incremental := range []bool{false, true, true, false, true} {
		h.change(300)
		h.must(incremental)
		if err := copyAll(t.Context(), h, store, "up"); err != nil {
			t.Fatal(err)
		}
		if ids := h.in(store, "up").check(); len(ids) != i+1 {
			t.Fatalf("%v are there after %d", ids, i+1)
		}
	}
	if _, err := snapshot.Compact(t.Context(), h.fs, snapshot.Path(h.dir, 3), layout(), nil); err != nil {
		t.Fatal(err)
	}
	if err := copyAll(t.Context(), h, store, "up"); err != nil {
		t.Fatal(err)
	}
	h.in(store, "up").check()
	info, err := snapshot.ReadInfoIn(store, snapshot.Path("up", 3))
	if err != nil || info.Base != nil {
		t.Fatalf("compacted, its copy adds to %v, %v", info.Base, err)
	}
	files, err := store.List(t.Context(), snapshot.Path("up", 3))
	if err != nil || len(files) != len(info.Files)+1 {
		t.Errorf("%d files are there, %d and the manifest are named: %v", len(files), len(info.Files), err)
	}
	back := h.in(fsx.Local{}, t.TempDir())
	if err := copyAll(t.Context(), h.in(store, "up"), back.fs, back.dir); err != nil {
		t.Fatal(err)
	}
	if ids := back.check(); len(ids) != 5 {
		t.Errorf("%v came back", ids)
	}
}

// breaking is a store that fails from its n-th change on.
type breaking struct {
	*fsxtest.Mem
	left atomic.Int64
}

var errStoreGone = errors.New("the store is gone")

func (b *breaking) Create(ctx context.Context, name string) (fsx.Writer, error) {
	if b.left.Add(-1) < 0 {
		return nil, errStoreGone
	}
	w, err := b.Mem.Create(ctx, name)
	return breakingWriter{w, b}, err
}

func (b *breaking) Remove(ctx context.Context, name string) error {
	if b.left.Add(-1) < 0 {
		return errStoreGone
	}
	return b.Mem.Remove(ctx, name)
}

type breakingWriter struct {
	fsx.Writer
	b *breaking
}

func (w breakingWriter) Commit(ctx context.Context) error {
	if w.b.left.Add(-1) < 0 {
		return errStoreGone
	}
	return w.Writer.Commit(ctx)
}

// TestCopyCutShort ends the copy of a chain at every change of the store: a reader finds snapshots whole or not at all, with what they add to, and
// the next copy ends it without what is there already.
func TestCopyCutShort(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 2, fsx.Local{}, t.TempDir(), 2)
	for _, incremental := range []bool{false, true, true} {
		h.change(300)
		h.must(incremental)
	}
	for n := int64(0); ; n++ {
		store := &breaking{Mem: new(fsxtest.Mem)}
		store.left.Store(n)
		err := copyAll(t.Context(), h, store, "up")
		there := h.in(store, "up")
		ids := there.check() // the newest first, and every one is whole
		for i, id := range ids {
			if id != uint64(len(ids)-i) {
				t.Fatalf("after %d changes there are %v", n, ids)
			}
		}
		if store.left.Load() >= 0 {
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		if err != nil && !errors.Is(err, errStoreGone) {
			t.Fatal(err)
		}
		store.left.Store(1 << 30)
		counted := 0
		for id := uint64(1); id <= 3; id++ {
			info, err := snapshot.ReadInfo(snapshot.Path(h.dir, id))
			if err == nil {
				err = snapshot.Copy(t.Context(), info, snapshot.CopyOptions{To: store, Dir: "up", Copied: func(int64) { counted++ }})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if ids := there.check(); len(ids) != 3 {
			t.Fatalf("cut short after %d changes, then copied again, there are %v", n, ids)
		}
		// Each file takes two changes; those that were done are not copied again, but for one that its snapshot did not know to be its own.
		whole := 0
		for id := uint64(1); id <= 3; id++ {
			info, _ := snapshot.ReadInfo(snapshot.Path(h.dir, id))
			whole += len(info.Files) + 1
		}
		if most := whole - int(n)/2 + 2*3; counted > most {
			t.Errorf("cut short after %d changes, %d of %d files were copied again, want %d at most", n, counted, whole, most)
		}
	}
}

// TestCopyOverAnother: what a cut of the same number has left that never became a snapshot is no part of the copy, and one that is a snapshot is not
// touched.
func TestCopyOverAnother(t *testing.T) {
	t.Parallel()
	store := new(fsxtest.Mem)
	var two [2]*history
	for i := range two {
		two[i] = newHistory(t, uint64(i), fsx.Local{}, t.TempDir(), 1)
		two[i].change(200)
		two[i].must(false)
	}
	cut := &breaking{Mem: store}
	cut.left.Store(7)
	if err := copyAll(t.Context(), two[0], cut, "up"); !errors.Is(err, errStoreGone) {
		t.Fatal(err)
	}
	// The same sizes, so that nothing but whose they are distinguishes them.
	for _, f := range two[1].last.Files {
		name := filepath.Join(snapshot.Path("up", 1), f.Name)
		if _, err := store.Stat(t.Context(), name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err := fsx.WriteFile(t.Context(), store, name, make([]byte, f.Bytes)); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyAll(t.Context(), two[1], store, "up"); err != nil {
		t.Fatal(err)
	}
	if ids := two[1].in(store, "up").check(); len(ids) != 1 {
		t.Errorf("%v", ids)
	}
	if err := copyAll(t.Context(), two[0], store, "up"); !errors.Is(err, snapshot.ErrTaken) {
		t.Errorf("copied over another snapshot: %v", err)
	}
	two[1].in(store, "up").check()
}

// TestCopyDamaged: what is not what its manifest says is not copied, whatever is wrong with it, and no snapshot is there.
func TestCopyDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(b []byte) []byte{
		"a bit":   func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"shorter": func(b []byte) []byte { return b[:len(b)-1] },
		"longer":  func(b []byte) []byte { return append(b, 0) },
		"gone":    nil,
	} {
		h := newHistory(t, 3, fsx.Local{}, t.TempDir(), 1)
		h.change(200)
		info := h.must(false)
		file := filepath.Join(info.Path, info.Files[0].Name)
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if damage == nil {
			err = os.Remove(file)
		} else {
			err = os.WriteFile(file, damage(b), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		store := new(fsxtest.Mem)
		if err := copyAll(t.Context(), h, store, "up"); !errors.Is(err, snapshot.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrCorrupt", name, err)
		}
		if entries, err := snapshot.ListIn(store, "up"); len(entries) != 0 || err != nil {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
	}
	ended, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	h := newHistory(t, 4, fsx.Local{}, t.TempDir(), 1)
	h.change(10)
	h.must(false)
	if err := copyAll(ended, h, new(fsxtest.Mem), "up"); !errors.Is(err, enough) || errors.Is(err, snapshot.ErrCorrupt) {
		t.Errorf("cancelled: %v", err)
	}
}

// compacting is a folder whose snapshot is compacted, and what it added to removed, when so many files have been opened.
type compacting struct {
	fsx.Local
	after  atomic.Int64
	change func()
}

func (c *compacting) Open(ctx context.Context, name string) (fsx.File, error) {
	if c.after.Add(-1) == 0 {
		c.change()
	}
	return c.Local.Open(ctx, name)
}

// TestVerifyWhileCompacted: at whatever file a reader is when the snapshot becomes a whole one, nothing is wrong with it.
func TestVerifyWhileCompacted(t *testing.T) {
	t.Parallel()
	for n, reached := int64(1), true; reached; n++ {
		h := newHistory(t, 12, fsx.Local{}, t.TempDir(), 1)
		h.change(300)
		h.must(false)
		h.change(60)
		info := h.must(true)
		store := &compacting{change: func() {
			_, err := snapshot.Compact(t.Context(), h.fs, info.Path, layout(), nil)
			if err == nil {
				_, err = snapshot.Prune(t.Context(), h.fs, h.dir, snapshot.Retention{Keep: 1}, snapshot.PruneOptions{})
			}
			if err != nil {
				t.Error(err)
			}
		}}
		store.after.Store(n)
		if faults, err := snapshot.Verify(t.Context(), store, info.Path); err != nil || len(faults) > 0 {
			t.Errorf("compacted when %d files are open: %v, %v", n, faults, err)
		}
		reached = store.after.Load() <= 0
	}
}

// away is a store in which one manifest is out of reach.
type away struct {
	*fsxtest.Mem
	name string
}

func (a away) Open(ctx context.Context, name string) (fsx.File, error) {
	if name == a.name {
		return nil, fsx.ErrUnreachable
	}
	return a.Mem.Open(ctx, name)
}

func (a away) Stat(ctx context.Context, name string) (fsx.Info, error) {
	if name == a.name {
		return fsx.Info{}, fsx.ErrUnreachable
	}
	return a.Mem.Stat(ctx, name)
}

// TestPruneOutOfReach removes old snapshots while one manifest after the other cannot be read: nothing goes, for what one adds to would not be
// known, and all of it goes when the store answers again.
func TestPruneOutOfReach(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 4, fsx.Local{}, t.TempDir(), 2)
	for _, incremental := range []bool{false, false, true, false} {
		h.change(300)
		h.must(incremental)
	}
	store := new(fsxtest.Mem)
	if err := copyAll(t.Context(), h, store, "up"); err != nil {
		t.Fatal(err)
	}
	there := h.in(store, "up")
	for id := uint64(1); id <= 4; id++ {
		f := away{store, filepath.Join(snapshot.Path("up", id), snapshot.ManifestName)}
		gone, err := snapshot.Prune(t.Context(), f, "up", snapshot.Retention{Keep: 2}, snapshot.PruneOptions{})
		if !errors.Is(err, fsx.ErrUnreachable) || len(gone) != 0 {
			t.Errorf("with the manifest of %d out of reach %v went: %v", id, gone, err)
		}
		if ids := there.check(); len(ids) != 4 {
			t.Fatalf("with the manifest of %d out of reach %v are left", id, ids)
		}
	}
	if gone, err := snapshot.Prune(t.Context(), store, "up", snapshot.Retention{Keep: 2}, snapshot.PruneOptions{}); err != nil || len(gone) != 1 {
		t.Errorf("%v went: %v", gone, err)
	}
	if ids := there.check(); !slices.Equal(ids, []uint64{4, 3, 2}) {
		t.Errorf("%v are left", ids)
	}
}

// stuck is a store that does not remove one object.
type stuck struct {
	*fsxtest.Mem
	name string
}

func (s stuck) Remove(ctx context.Context, name string) error {
	if name == s.name {
		return fsx.ErrUnreachable
	}
	return s.Mem.Remove(ctx, name)
}

// TestPruneCutShort: where a snapshot cannot be removed what it adds to stays, so that it can be read, and all that is to go goes the next time.
func TestPruneCutShort(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 5, fsx.Local{}, t.TempDir(), 2)
	for _, incremental := range []bool{false, true, true, false} {
		h.change(300)
		h.must(incremental)
	}
	store := new(fsxtest.Mem)
	if err := copyAll(t.Context(), h, store, "up"); err != nil {
		t.Fatal(err)
	}
	there := h.in(store, "up")
	for _, tt := range []struct {
		stuck uint64
		left  []uint64
	}{{3, []uint64{4, 3, 2, 1}}, {2, []uint64{4, 2, 1}}, {1, []uint64{4, 1}}, {0, []uint64{4}}} {
		f := stuck{store, filepath.Join(snapshot.Path("up", tt.stuck), snapshot.ManifestName)}
		gone, err := snapshot.Prune(t.Context(), f, "up", snapshot.Retention{Keep: 1}, snapshot.PruneOptions{})
		if errors.Is(err, fsx.ErrUnreachable) != (tt.stuck > 0) {
			t.Errorf("with %d stuck %v went: %v", tt.stuck, gone, err)
		}
		if ids := there.check(); !slices.Equal(ids, tt.left) {
			t.Errorf("with %d stuck %v are left, want %v", tt.stuck, ids, tt.left)
		}
	}
}

// TestCleanWhole: of a snapshot that is whole Clean takes the mark of its writer away, which died before it did, and nothing else.
func TestCleanWhole(t *testing.T) {
	t.Parallel()
	h := newHistory(t, 6, fsx.Local{}, t.TempDir(), 2)
	h.change(300)
	path := h.must(false).Path
	list := func() (names []string) {
		all, err := os.ReadDir(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			names = append(names, e.Name())
		}
		return names
	}
	before := list()
	for _, name := range []string{"begun", "notes.txt"} {
		if err := os.WriteFile(filepath.Join(path, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if gone, err := snapshot.Clean(h.fs, h.dir); err != nil || len(gone) != 0 {
		t.Errorf("%v went: %v", gone, err)
	}
	want := append(slices.Clone(before), "notes.txt")
	slices.Sort(want)
	if got := list(); !slices.Equal(got, want) {
		t.Errorf("there are %q, want %q", got, want)
	}
	if ids := h.check(); !slices.Equal(ids, []uint64{1}) {
		t.Error(ids)
	}
}

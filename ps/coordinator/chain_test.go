package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// chained is a cluster whose snapshots are incremental, and the job that changes it.
type chained struct {
	t *testing.T
	j pstest.Job
	o coordinator.Options
	c *coordinator.Cluster
}

func newChained(t *testing.T, incremental int) *chained {
	j := pstest.Job{NumSplits: 3, SplitLen: 4000, BatchLen: 7, NumIDs: 997}
	h := &chained{t: t, j: j, o: coordinator.Options{Layout: j.Layout(), NumShards: 2, Dir: t.TempDir(), Keep: 2, Incremental: incremental}}
	h.c = mustOpen(t, h.o)
	return h
}

// train trains some batches.
func (h *chained) train(steps int) {
	h.t.Helper()
	cl := mustClient(h.t, h.c)
	w, err := pstest.NewWorker(h.t.Context(), h.j, cl)
	for range steps {
		if err == nil {
			_, err = w.Step(h.t.Context())
		}
	}
	if err := errors.Join(err, cl.Flush(h.t.Context()), cl.Close()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *chained) take(o ps.SnapshotOptions) ps.SnapshotInfo {
	h.t.Helper()
	info, err := h.c.Snapshot(h.t.Context(), o)
	if err != nil {
		h.t.Fatal(err)
	}
	return info
}

// check compares the newest snapshot with what the shards hold, read by as many shards and by others, and returns its digest.
func (h *chained) check(info ps.SnapshotInfo) {
	h.t.Helper()
	want, err := h.c.Digest(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	s, err := snapshot.Open(h.t.Context(), info.Path)
	if err != nil {
		h.t.Fatal(err)
	}
	if d, err := s.Digest(); err != nil || d != want {
		h.t.Errorf("snapshot %d has digest %s, the shards %s: %v", info.ID, d, want, err)
	}
	if err := s.Close(); err != nil {
		h.t.Error(err)
	}
	for _, shards := range []int{2, 3} {
		c, err := coordinator.Open(h.t.Context(), coordinator.Options{Layout: h.o.Layout, NumShards: shards, Restore: info.Path})
		if err != nil {
			h.t.Fatal(err)
		}
		if d, err := c.Digest(h.t.Context()); err != nil || d != want {
			h.t.Errorf("snapshot %d on %d shards has digest %s, want %s: %v", info.ID, shards, d, want, err)
		}
		if err := c.Close(h.t.Context()); err != nil {
			h.t.Error(err)
		}
	}
}

// TestIncremental takes snapshots of few changes after one of all rows: they are small, and what is read by them is what the shards
// hold. When there are as many as may be, the newest becomes a whole one, and those before go.
func TestIncremental(t *testing.T) {
	t.Parallel()
	const most = 3
	h := newChained(t, most)
	h.train(600)
	whole := h.take(ps.SnapshotOptions{})
	if whole.Base != nil {
		t.Errorf("the first adds to %v", whole.Base)
	}
	for i := range most {
		h.train(2)
		info := h.take(ps.SnapshotOptions{})
		if info.Base == nil || info.Base.ID != info.ID-1 || info.Rows() < whole.Rows() || info.Bytes() > whole.Bytes()/4 {
			t.Errorf("snapshot %d of %d rows and %d bytes adds to %v; the whole one has %d rows and %d bytes", info.ID, info.Rows(), info.Bytes(), info.Base, whole.Rows(), whole.Bytes())
		}
		h.check(info)
		if i < most-1 {
			continue
		}
		until(t, "the newest is compacted, and the others are gone", func() bool {
			entries, err := snapshot.List(h.o.Dir)
			return err == nil && len(entries) <= 4 && entries[0].Info != nil && entries[0].Info.Base == nil
		})
		newest, err := h.c.Newest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h.check(*newest)
	}
	// The next one adds to what was compacted.
	h.train(1)
	info := h.take(ps.SnapshotOptions{})
	if info.Base == nil || info.Base.ID != info.ID-1 {
		t.Errorf("after compaction: it adds to %v", info.Base)
	}
	h.check(info)
	// One that is to be kept for ever stands alone, and so does one of many changes.
	h.train(1)
	if info := h.take(ps.SnapshotOptions{Pin: true}); info.Base != nil {
		t.Errorf("the pinned one adds to %v", info.Base)
	}
	h.train(700)
	info = h.take(ps.SnapshotOptions{})
	if info.Base != nil {
		t.Errorf("when most rows have changed: it adds to %v", info.Base)
	}
	h.check(info)
}

// TestIncrementalContinues: who begins with a snapshot, of as many shards, adds to it; other shards, and those that have lost what they know of changes, write
// a whole one.
func TestIncrementalContinues(t *testing.T) {
	t.Parallel()
	h := newChained(t, 5)
	h.train(600)
	first := h.take(ps.SnapshotOptions{})
	for _, shards := range []int{2, 3, 3} {
		if err := h.c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.o.NumShards = shards
		h.c = mustOpen(t, h.o)
		h.train(2)
		info := h.take(ps.SnapshotOptions{})
		if (info.Base != nil) != (info.ID == first.ID+1 || info.ID == first.ID+3) {
			t.Errorf("snapshot %d of %d shards adds to %v", info.ID, shards, info.Base)
		}
		h.check(info)
	}
	// Going back is beginning again.
	h.train(3)
	in, err := h.c.Info()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.c.RollBack(t.Context(), in.Generation, "a test"); err != nil {
		t.Fatal(err)
	}
	h.train(1)
	info := h.take(ps.SnapshotOptions{})
	if info.Base == nil || info.Base.ID != first.ID+3 {
		t.Errorf("after going back: it adds to %v", info.Base)
	}
	h.check(info)
}

// failingFS is a file system on which nothing can be written for a while.
type failingFS struct {
	fsx.FS
	full bool
}

func (f *failingFS) Create(ctx context.Context, name string) (fsx.Writer, error) {
	if f.full && filepath.Ext(name) == ".arrow" {
		return nil, fmt.Errorf("%s: %w", name, syscall.ENOSPC)
	}
	return f.FS.Create(ctx, name)
}

// TestFailedSnapshotLosesNoChanges: what had changed until a snapshot that failed is in the next one, beside what has changed since.
func TestFailedSnapshotLosesNoChanges(t *testing.T) {
	t.Parallel()
	h := newChained(t, 5)
	if err := h.c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := &failingFS{FS: fsx.Local{}}
	h.o.FS = store
	h.c = mustOpen(t, h.o)
	h.train(600)
	first := h.take(ps.SnapshotOptions{})
	for range 3 {
		h.train(1)
		store.full = true
		if _, err := h.c.Snapshot(t.Context(), ps.SnapshotOptions{}); !errors.Is(err, ps.ErrNoSpace) {
			t.Fatalf("on a full disk: %v", err)
		}
		store.full = false
	}
	h.train(1)
	info := h.take(ps.SnapshotOptions{})
	if info.Base == nil || info.Base.ID != first.ID {
		t.Errorf("it adds to %v", info.Base)
	}
	h.check(info)
}

// busyFS is a file system in which somebody begins a file in a folder just before it is removed, some times.
type busyFS struct {
	fsx.FS
	folder string
	times  int
}

func (f *busyFS) Remove(ctx context.Context, name string) error {
	if name == f.folder && f.times > 0 {
		f.times--
		if err := fsx.WriteFile(ctx, f.FS, filepath.Join(name, fmt.Sprintf("rows-%d.arrow", f.times)), []byte("x")); err != nil {
			return err
		}
	}
	return f.FS.Remove(ctx, name)
}

// TestFolderIsCleanedWhileShardsWrite: a shard that has not heard that its coordinator was killed writes its part of a snapshot on; the next coordinator begins all the same, and with the
// snapshot before.
func TestFolderIsCleanedWhileShardsWrite(t *testing.T) {
	t.Parallel()
	h := newChained(t, 5)
	h.train(100)
	first := h.take(ps.SnapshotOptions{})
	if err := h.c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(h.o.Dir, "snap-00000002")
	if err := fsx.WriteFile(t.Context(), fsx.Local{}, filepath.Join(half, "rows-9.arrow"), []byte("x")); err != nil {
		t.Fatal(err)
	}
	store := &busyFS{FS: fsx.Local{}, folder: half, times: 5} // the first is before the folder is found to have files
	h.o.FS = store
	h.c = mustOpen(t, h.o)
	if _, err := os.Stat(half); !errors.Is(err, fs.ErrNotExist) || store.times > 0 {
		t.Errorf("%s: %v; %d times more were to be seen", half, err, store.times)
	}
	h.train(1)
	if info := h.take(ps.SnapshotOptions{}); info.ID != first.ID+1 {
		t.Errorf("the next snapshot is %d, the last one was %d", info.ID, first.ID)
	}
}

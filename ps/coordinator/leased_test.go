package coordinator_test

import (
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// TestLeased: a file that a coordinator has begun is not made visible, and none is removed, once shard 0 has no lease.
func TestLeased(t *testing.T) {
	t.Parallel()
	const lease = 500 * time.Millisecond
	n, err := shard.Open(t.Context(), shard.Options{
		Layout: pstest.CountingLayout(), NumShards: 2, Dir: t.TempDir(), Log: &shard.LogOptions{Dir: t.TempDir(), NoSync: true}, Pair: &shard.PairOptions{Lease: lease},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = n.Close() }()
	dir := t.TempDir()
	f, name := coordinator.Leased(nil, n), filepath.Join(dir, "manifest")
	if _, err := f.Create(t.Context(), name); !errors.Is(err, ps.ErrNotReady) {
		t.Fatalf("a file is begun by a process that is not in charge: %v", err)
	}
	var w fsx.Writer
	for call := uint64(1); w == nil; call += 2 { // on a slow machine the lease may be over by then
		a, err := n.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: call})
		if err == nil {
			_, err = n.Lease(t.Context(), ps.LeaseCall{Coordinator: 1, Call: call + 1, Process: a.Process, Stamp: a.Stamp})
		}
		if err != nil {
			t.Fatal(err)
		}
		if w, err = f.Create(t.Context(), name); err != nil && !errors.Is(err, ps.ErrNotReady) {
			t.Fatal(err)
		}
	}
	if _, err := w.Write([]byte("late")); err != nil {
		t.Fatal(err)
	}
	for n.InCharge() {
		time.Sleep(lease / 50)
	}
	if err := w.Commit(t.Context()); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("a file is made visible without a lease: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := f.Stat(t.Context(), name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is there: %v", err)
	}
	if err := f.Remove(t.Context(), dir); !errors.Is(err, ps.ErrNotReady) {
		t.Errorf("a folder is removed without a lease: %v", err)
	}
}

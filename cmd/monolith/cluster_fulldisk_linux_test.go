package main_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// smallDisk mounts a file system of three megabytes, or ends the test as [testbed.Require] says. fill takes what is left of it and returns how to give it
// back.
func smallDisk(t *testing.T) (dir string, fill func() (free func())) {
	t.Helper()
	dir = t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		testbed.Require(t, "mount", fmt.Sprintf("a small file system cannot be mounted: %v", err))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, func() func() {
		t.Helper()
		filler := filepath.Join(dir, "filler")
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = f.Write(make([]byte, 4096))
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestFullDiskUnderTheLogs fills the disk of the shards' logs: a process that meets it says so and ends, and nothing that was
// acknowledged is lost.
func TestFullDiskUnderTheLogs(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	c := newCluster(t, 2, 15000, 3000, fmt.Sprintf(", durability: wal, wal: {dir: %s/wal, segment_bytes: 65536}", dir))
	shards := c.serve(t)
	worker := start(t, "", "train", c.job)
	waitFor(t, func() bool { return len(c.snapshots()) > 1 })
	free := fill()
	log := filepath.Join(dir, "wal", "shard-000")
	if o := worker.end(0); strings.Contains(o.stderr, "connection refused") { // it called only after the shard's process had ended
		o.wants(t, 3, "does not answer", "is it running")
	} else {
		o.wants(t, 3, log, "no space left", "free space", "start the shard again")
	}
	select { // one of the two has met it first, and the other one may be spared
	case <-shards[0].done:
		shards[0].end(0).wants(t, 3, log, "no space left", "free space")
		shards[1].end(syscall.SIGKILL)
	case <-shards[1].done:
		shards[1].end(0).wants(t, 3, log, "no space left", "free space")
		shards[0].end(syscall.SIGKILL)
	case <-time.After(3 * time.Minute):
		t.Fatal("no shard has met the full disk")
	}
	free()
	c.serve(t)
	monolith(t, "train", c.job).wants(t, 0)
	c.exact(t)
}

// TestFullDiskUnderTheSnapshots fills the disk of a cluster's snapshots: training continues, the snapshots before stay
// whole, and the last one is reported as missing.
func TestFullDiskUnderTheSnapshots(t *testing.T) {
	t.Parallel()
	dir, fill := smallDisk(t)
	c := newCluster(t, 2, 3000, 3000, "")
	text, err := os.ReadFile(c.job)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.job, bytes.Replace(text, []byte("keep: 3"), []byte("keep: 3, tolerate: 0"), 1), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(c.dir, "run")); err != nil {
		t.Fatal(err)
	}
	shards := c.serve(t)
	worker := start(t, "", "train", c.job)
	waitFor(t, func() bool { return len(c.snapshots()) > 1 })
	free := fill()
	shards[0].says("snapshot failed").says("no space left")
	worker.end(0).wants(t, 3, "the last snapshot could not be taken", "no space left", filepath.Join(c.dir, "run", "snapshots"), "train again")
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	digest(t, path, filepath.Join(c.dir, "run")) // fails unless the newest is whole
	free()
	monolith(t, "train", c.job).wants(t, 0)
	c.exact(t)
}

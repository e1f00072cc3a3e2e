package shard_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// failingDisk makes every sync of a file fail, once it is told to.
type failingDisk struct {
	fsx.Disk

	err atomic.Pointer[error]
}

type failingFile struct {
	fsx.DiskFile

	d *failingDisk
}

func (f failingFile) Sync() error {
	if err := f.d.err.Load(); err != nil {
		return *err
	}
	return f.DiskFile.Sync()
}

func (d *failingDisk) Create(path string) (fsx.DiskFile, error) {
	f, err := d.Disk.Create(path)
	return failingFile{f, d}, err
}

func (d *failingDisk) Update(path string, at int64, direct bool) (fsx.DiskFile, error) {
	f, err := d.Disk.Update(path, at, direct)
	return failingFile{f, d}, err
}

// TestDiskOfTheLogFails: the error says which shard's disk failed and what to do, and is one of the environment.
func TestDiskOfTheLogFails(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		err, is error
		says    string
	}{
		{syscall.EIO, ps.ErrDisk, "check the disk"},
		{syscall.ESTALE, ps.ErrDisk, "mount the network folder again"},
		{syscall.EFBIG, ps.ErrDisk, "ulimit -f"},
		{syscall.ENOSPC, ps.ErrNoSpace, "free space"},
	} {
		d := &failingDisk{Disk: fsx.OS{}}
		n, err := shard.Open(t.Context(), shard.Options{Layout: pstest.CountingLayout(), NumShards: 1, Log: &shard.LogOptions{Dir: t.TempDir(), Disk: d}})
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
			t.Fatal(err)
		}
		c, err := n.Connect(t.Context(), 1, 1, "w")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.Acquire(t.Context(), ps.SplitID{Source: "s", Split: "x"}, 1); err != nil {
			t.Fatal(err)
		}
		d.err.Store(&x.err)
		for range 2 { // also what comes after it
			_, err = c.Stage(t.Context(), nil, 1, pstest.CountingUpdate("x", 0, 1, []int64{1}))
			if !errors.Is(err, x.is) || !errors.Is(err, x.err) || failure.Of(err).Class() != failure.Environment || !strings.Contains(err.Error(), x.says) {
				t.Errorf("%v: %v, want %v and %q", x.err, err, x.is, x.says)
			}
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 2}); err == nil || !strings.Contains(err.Error(), "shard 0: write-ahead log") {
			t.Errorf("%v: %v, want the shard", x.err, err)
		}
		_ = n.Close()
	}
}

// TestReplacedProcessSaysSo: a process of a pair that finds snapshots of its standby beside its old log was replaced. Its log is not damaged. One without a standby warns.
func TestReplacedProcessSaysSo(t *testing.T) {
	t.Parallel()
	for _, paired := range []bool{true, false} {
		dir, logs := t.TempDir(), t.TempDir()
		var says bytes.Buffer
		o := shard.Options{
			Layout: pstest.CountingLayout(), NumShards: 1, Dir: dir, Log: &shard.LogOptions{Dir: logs, NoSync: true}, Logger: slog.New(slog.NewTextHandler(&says, nil)),
		}
		if paired {
			o.Pair = &shard.PairOptions{Lease: lease}
		}
		first, err := shard.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if paired {
			tell(t, first, echo(0, tell(t, first, ps.LeaseCall{Coordinator: 1})))
		}
		if err := errors.Join(first.Load(t.Context(), ps.LoadOptions{Generation: 1}), first.Close()); err != nil {
			t.Fatal(err)
		}
		w, err := snapshot.Create(snapshot.Options{Dir: dir, ID: 3, Layout: o.Layout, Shards: 1, Created: time.Now()})
		if err == nil {
			_, err = w.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		says.Reset()
		again, err := shard.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		log := says.String()
		if strings.Contains(log, "level=INFO msg=\"this process was replaced") != paired || strings.Contains(log, "level=WARN") == paired {
			t.Errorf("with a standby: %v; it says:\n%s", paired, log)
		}
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

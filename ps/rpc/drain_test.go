package rpc_test

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
)

// fillingDisk is a disk that is found full in the midst of a sync: from when full is set a sync says so in asked, waits until goes is closed, and fails.
type fillingDisk struct {
	fsx.Disk
	full  atomic.Bool
	asked chan struct{}
	goes  chan struct{}
}

func (d *fillingDisk) Create(path string) (fsx.DiskFile, error) {
	f, err := d.Disk.Create(path)
	return &fillingFile{f, d}, err
}

func (d *fillingDisk) Update(path string, at int64, direct bool) (fsx.DiskFile, error) {
	f, err := d.Disk.Update(path, at, direct)
	return &fillingFile{f, d}, err
}

type fillingFile struct {
	fsx.DiskFile
	d *fillingDisk
}

func (f *fillingFile) Sync() error {
	if !f.d.full.Load() {
		return f.DiskFile.Sync()
	}
	select {
	case f.d.asked <- struct{}{}:
	default:
	}
	<-f.d.goes
	return syscall.ENOSPC
}

// TestDrain: a push that waits for the disk when its shard's server is drained is answered with what became of it, and the server is drained then, not before. Nobody else
// gets in meanwhile.
func TestDrain(t *testing.T) {
	t.Parallel()
	disk := &fillingDisk{Disk: fsx.OS{}, asked: make(chan struct{}, 1), goes: make(chan struct{})}
	c, err := start(t.Context(), coordinator.Options{
		Layout: pstest.CountingLayout(), NumShards: 1, Dir: t.TempDir(), Log: &shard.LogOptions{Dir: t.TempDir(), Disk: disk},
	}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }() // the log has failed
	w := resumed(t, c)
	disk.full.Store(true)
	pushed, drained := make(chan error, 1), make(chan struct{})
	go func() { pushed <- w.Push(t.Context(), pstest.CountingUpdate("x", 0, 1, []int64{1})) }()
	<-disk.asked
	go func() {
		defer close(drained)
		c.servers[0].Drain(t.Context())
	}()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		conn, err := net.Dial("tcp", c.addrs[0])
		if err != nil {
			break
		}
		_ = conn.Close()
		if time.Now().After(deadline) {
			t.Fatal("a server that is drained takes connections")
		}
	}
	select {
	case <-drained:
		t.Error("drained while a push waits for its answer")
	default:
	}
	close(disk.goes)
	if err := <-pushed; !errors.Is(err, ps.ErrNoSpace) {
		t.Errorf("a push to a shard whose disk is full: %v, want ErrNoSpace", err)
	}
	_ = w.Close() // it has nothing to say to a shard that has failed
	<-drained
}

package fsx_test

import (
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/monolith-go/monolith/internal/fsx"
)

// TestLockBesideAFork: a lock that was given back can be had while somebody else has the open file, as a process that is being started does.
func TestLockBesideAFork(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := fsx.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(first.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := fsx.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
}

package wal_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/ps/wal"
)

// TestFilesThatMayNotGrow: a limit of the process or of its file system says what to raise, as a disk that is full says what to free.
func TestFilesThatMayNotGrow(t *testing.T) {
	t.Parallel()
	l, err := wal.Open(wal.Options{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	for cause, want := range map[error]string{syscall.EFBIG: "ulimit -f", syscall.ENOSPC: "free space", syscall.EDQUOT: "free space"} {
		err := l.Fault(&fs.PathError{Op: "write", Path: "part", Err: cause})
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "wal-0000000000000001.log") {
			t.Errorf("%v, want the file, %q and the cause", err, want)
		}
	}
}

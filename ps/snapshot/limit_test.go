package snapshot_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestFilesThatMayNotGrow: a limit of the process or of its file system says what to raise, as a disk that is full says what to free.
func TestFilesThatMayNotGrow(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]string{syscall.EFBIG: "ulimit -f", syscall.ENOSPC: "free space", syscall.EDQUOT: "free space"} {
		err := snapshot.WriteFault("snap-00000001", &fs.PathError{Op: "write", Path: "part", Err: cause})
		if !errors.Is(err, cause) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "snap-00000001") {
			t.Errorf("%v, want the snapshot, %q and the cause", err, want)
		}
	}
}

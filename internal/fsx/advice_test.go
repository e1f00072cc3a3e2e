package fsx_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
)

// TestAdvice: each error of a file system has advice of its own, however it is wrapped.
func TestAdvice(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]string{
		syscall.ENOSPC: "make room", syscall.EDQUOT: "quota", syscall.EFBIG: "ulimit -f", syscall.EMFILE: "ulimit -n", syscall.ENFILE: "fs.file-max",
		syscall.EROFS: "for writing", syscall.EIO: "check the disk", syscall.ESTALE: "mount the network folder", syscall.EACCES: "right to write", syscall.EPERM: "right to write",
	} {
		if do, known := fsx.Advice(fmt.Errorf("writing: %w", &os.PathError{Op: "write", Path: "x", Err: err})); !known || !strings.Contains(do, want) {
			t.Errorf("%v: %q, %v; want %q", err, do, known, want)
		}
	}
	if do, known := fsx.Advice(errors.New("something else")); known || do == "" {
		t.Errorf("an error that is not known: %q, %v", do, known)
	}
}

package fsx_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
)

// TestGlobOfSealed: a folder that this process may not look into is no empty one. Root may look anywhere, so this thread asks
// as somebody else.
func TestGlobOfSealed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	sealed := filepath.Join(dir, "sealed")
	if err := os.Mkdir(sealed, 0o000); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		const nobody = 65534
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Setfsuid(0) }()
	}
	if _, err := os.Stat(sealed); errors.Is(err, fs.ErrPermission) {
		testbed.Require(t, "posix", "the folder for temporary files (TMPDIR) lies in one that others may not look into")
	} else if err != nil {
		t.Fatal(err)
	}
	if got, err := fsx.Glob(t.Context(), fsx.Local{}, filepath.Join(sealed, "*")); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%q, %v, want ErrPermission", got, err)
	}
}

//go:build unix

package fsx_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
)

// TestSpecialIsNotOpened: to open a pipe that nobody writes to would take for ever, and no context ends it.
func TestSpecialIsNotOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link, file := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0) // so that an Open that is tried returns
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = writer.Close() })
	for name, special := range map[string]bool{pipe: true, link: true, os.DevNull: true, file: false, dir: false} {
		info, err := fsx.Local{}.Stat(t.Context(), name)
		if err != nil || info.Special != special {
			t.Errorf("Stat of %s: %+v, %v", name, info, err)
		}
		f, err := fsx.Local{}.Open(t.Context(), name)
		if errors.Is(err, fsx.ErrSpecial) != special {
			t.Errorf("Open of %s: %v", name, err)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil && !special {
			t.Error(err)
		}
	}
}

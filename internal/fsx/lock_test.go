package fsx_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
)

func TestLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "lock")
	first, err := fsx.TryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fsx.TryLock(path); !errors.Is(err, fsx.ErrLocked) {
		t.Errorf("a second lock: %v, want ErrLocked", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := fsx.TryLock(path)
	if err != nil {
		t.Fatalf("after the first was given back: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := fsx.TryLock(filepath.Join(path, "no", "folder")); err == nil || errors.Is(err, fsx.ErrLocked) {
		t.Errorf("a path that cannot be: %v", err)
	}
}

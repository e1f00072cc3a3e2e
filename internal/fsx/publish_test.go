package fsx_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
)

func begin(t *testing.T, path, content string) fsx.Exclusive {
	t.Helper()
	w, err := fsx.Local{}.Create(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	return w.(fsx.Exclusive)
}

// TestCommitNewOnce: of many writers of one name exactly one succeeds, whole, and the others get the reason and leave nothing.
func TestCommitNewOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	final := filepath.Join(dir, "final")
	writers := make([]fsx.Exclusive, 20)
	for i := range writers {
		writers[i] = begin(t, final, strconv.Itoa(i))
	}
	var won atomic.Int64
	var wg sync.WaitGroup
	for _, w := range writers {
		wg.Go(func() {
			switch err := w.CommitNew(t.Context()); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, fs.ErrExist):
				t.Error(err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if left, err := os.ReadDir(dir); won.Load() != 1 || err != nil || len(left) != 1 {
		t.Errorf("%d succeeded; %v, %v is left", won.Load(), left, err)
	}
}

// TestCommittedFilesAreDurable: what a file holds is durable before it has its name, and its name and those of its folders are before Commit and CommitNew return.
func TestCommittedFilesAreDurable(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]func(w fsx.Exclusive) error{
		"rename": func(w fsx.Exclusive) error { return w.Commit(t.Context()) },
		"link":   func(w fsx.Exclusive) error { return w.CommitNew(t.Context()) },
	} {
		disk, root := &fsxtest.Recorder{}, t.TempDir()
		w, err := fsx.Local{Disk: disk}.Create(t.Context(), filepath.Join(root, "a", "b", "final"))
		if err != nil {
			t.Fatal(err)
		}
		if err := commit(w.(fsx.Exclusive)); err != nil {
			t.Fatal(err)
		}
		want := []string{"sync temporary", name + " final", "sync folder b", "sync folder a", "sync folder " + filepath.Base(root)}
		if got := disk.Done(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestCommitNewOfARemovedFile: who removes what another has begun keeps it from ever being seen.
func TestCommitNewOfARemovedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := begin(t, filepath.Join(dir, "final"), "x")
	begun, err := os.ReadDir(dir)
	if err != nil || len(begun) != 1 {
		t.Fatalf("%v, %v", begun, err)
	}
	if err := os.Remove(filepath.Join(dir, begun[0].Name())); err != nil {
		t.Fatal(err)
	}
	if err := w.CommitNew(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want fs.ErrNotExist", err)
	}
	_ = w.Close() // says again that it is gone
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v is left", left, err)
	}
}

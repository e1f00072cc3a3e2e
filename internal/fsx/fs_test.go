package fsx_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
)

func TestLocal(t *testing.T) {
	t.Parallel()
	fsxtest.Test(t, fsx.Local{}, t.TempDir())
}

func TestMem(t *testing.T) {
	t.Parallel()
	fsxtest.Test(t, new(fsxtest.Mem), "root")
}

// TestGlobAgainstFilepath compares with the standard library, relative patterns and links included.
func TestGlobAgainstFilepath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, name := range []string{"a.csv", "b.csv", "[x].csv", "d/a.csv", "d/e/b.csv", "f/a.csv"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("d", "link"), os.Symlink("a.csv", "link.csv")); err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{
		"*", "*.csv", "*/*.csv", "./*.csv", "*/e/*", "d/*", "d/e/b.csv", "link/*", "l*/a.csv", "no*", `\[x\].csv`, "[[]x].csv", "../*", "*/", "d//*.csv",
		filepath.Join(dir, "*"), filepath.Join(dir, "*", "a.csv"),
	} {
		want, wantErr := filepath.Glob(pattern)
		got, err := fsx.Glob(t.Context(), fsx.Local{}, pattern)
		for i := range want {
			want[i] = filepath.Clean(want[i])
		}
		for i := range got {
			got[i] = filepath.Clean(got[i])
		}
		if !slices.Equal(got, want) || (err == nil) != (wantErr == nil) {
			t.Errorf("%s: %q, %v; filepath says %q, %v", pattern, got, err, want, wantErr)
		}
	}
}

// TestGlobOfLoop: a folder that cannot be looked into is no empty one.
func TestGlobOfLoop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	if got, err := fsx.Glob(t.Context(), fsx.Local{}, filepath.Join(loop, "*")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("a link to itself: %q, %v, want ELOOP", got, err)
	}
}

// TestLocalLeftovers: a process that dies before the commit leaves a file that no pattern of a job names by accident.
func TestLocalLeftovers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := fsx.Local{}.Create(t.Context(), filepath.Join(dir, "part.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("1,2\n")); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name()[0] != '.' || filepath.Ext(entries[0].Name()) != ".tmp" {
		t.Errorf("%v, %v", entries, err)
	}
	if got, err := fsx.Glob(t.Context(), fsx.Local{}, filepath.Join(dir, "*")); got != nil || err != nil {
		t.Errorf("any name: %q, %v", got, err)
	}
	if err := w.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "part.csv"))
	if err != nil || info.Mode().Perm()&0o444 != 0o444 {
		t.Errorf("%v, %v: others cannot read it", info, err)
	}
}

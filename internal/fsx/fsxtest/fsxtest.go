// Package fsxtest holds the test that every file system must pass, and one in memory that is like an object store.
package fsxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Test checks a file system below an empty folder of it.
func Test(t *testing.T, f fsx.FS, root string) {
	ctx := t.Context()
	at := func(parts ...string) string { return filepath.Join(append([]string{root}, parts...)...) }
	write := func(name, content string) {
		t.Helper()
		if err := fsx.WriteFile(ctx, f, name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		b, err := fsx.ReadFile(ctx, f, name, 1<<20)
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	names := func(dir string) (out []string) {
		t.Helper()
		infos, err := f.List(ctx, dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
		for _, i := range infos {
			out = append(out, fmt.Sprint(i.Name, i.Dir))
		}
		return out
	}

	t.Run("absent", func(t *testing.T) {
		_, openErr := f.Open(ctx, at("no"))
		_, statErr := f.Stat(ctx, at("no"))
		_, listErr := f.List(ctx, at("no"))
		for _, err := range []error{openErr, statErr, listErr, f.Remove(ctx, at("no"))} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%v, want ErrNotExist", err)
			}
		}
		if err := fsx.RemoveAll(ctx, f, at("no")); err != nil {
			t.Error(err)
		}
	})

	t.Run("whole or not at all", func(t *testing.T) {
		w, err := f.Create(ctx, at("a", "b", "file"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte("one")); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Stat(ctx, at("a", "b", "file")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("before it was committed: %v", err)
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Error(err)
		}
		if err := w.Commit(ctx); err == nil {
			t.Error("a file that was given up was committed")
		}
		if got := names(at("a", "b")); got != nil {
			t.Errorf("given up, it left %v", got)
		}
		write(at("a", "b", "file"), "two")
		open, err := f.Open(ctx, at("a", "b", "file"))
		if err != nil {
			t.Fatal(err)
		}
		write(at("a", "b", "file"), "three")
		if got := read(at("a", "b", "file")); got != "three" {
			t.Errorf("written again, it holds %q", got)
		}
		b := make([]byte, 3)
		if n, err := open.ReadAt(b, 0); string(b[:n]) != "two" || err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("what was opened before holds %q, %v", b[:n], err)
		}
		if err := open.Close(); err != nil {
			t.Error(err)
		}
	})

	t.Run("reading", func(t *testing.T) {
		write(at("digits"), "0123456789")
		file, err := f.Open(ctx, at("digits"))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close() //nolint:errcheck // only read from
		if i := file.Info(); i.Name != "digits" || i.Size != 10 || i.Dir {
			t.Errorf("opened: %+v", i)
		}
		b := make([]byte, 4)
		if n, err := file.ReadAt(b, 3); n != 4 || string(b) != "3456" || err != nil {
			t.Errorf("four bytes at 3: %q, %v", b[:n], err)
		}
		if n, err := file.ReadAt(b, 8); n != 2 || !errors.Is(err, io.EOF) {
			t.Errorf("four bytes at 8: %q, %v", b[:n], err)
		}
		r := fsx.NewReader(file)
		r.SeekTo(7)
		if rest, err := io.ReadAll(r); string(rest) != "789" || err != nil {
			t.Errorf("from 7: %q, %v", rest, err)
		}
		if _, err := fsx.ReadFile(ctx, f, at("digits"), 9); !errors.Is(err, fsx.ErrTooLarge) {
			t.Errorf("ten bytes within nine: %v", err)
		}
	})

	t.Run("list and glob", func(t *testing.T) {
		for _, name := range []string{"x/2.csv", "x/1.csv", "x/1.txt", "y/1.csv", "y/deep/1.csv"} {
			write(at("tree", filepath.FromSlash(name)), name)
		}
		if got := names(at("tree", "y")); !slices.Equal(got, []string{"1.csvfalse", "deeptrue"}) {
			t.Errorf("listed: %v", got)
		}
		for pattern, want := range map[string][]string{
			"tree/x/*.csv":    {"tree/x/1.csv", "tree/x/2.csv"},
			"tree/*/1.csv":    {"tree/x/1.csv", "tree/y/1.csv"},
			"tree/?/[12].csv": {"tree/x/1.csv", "tree/x/2.csv", "tree/y/1.csv"},
			"tree/x/1.txt":    {"tree/x/1.txt"},
			"tree/no/*":       nil,
			"tree/x/1.txt/*":  nil,
			"tree/x/3.txt":    nil,
		} {
			got, err := fsx.Glob(ctx, f, at(filepath.FromSlash(pattern)))
			for i := range got {
				rel, _ := filepath.Rel(root, got[i])
				got[i] = filepath.ToSlash(rel)
			}
			if !slices.Equal(got, want) || err != nil {
				t.Errorf("%s: %v, %v; want %v", pattern, got, err, want)
			}
		}
		if _, err := fsx.Glob(ctx, f, at("[")); !errors.Is(err, filepath.ErrBadPattern) {
			t.Errorf("a bad pattern: %v", err)
		}
	})

	t.Run("remove", func(t *testing.T) {
		write(at("gone", "1"), "1")
		write(at("gone", "deep", "2"), "2")
		write(at("gone-not"), "3")
		if err := f.Remove(ctx, at("gone", "1")); err != nil {
			t.Error(err)
		}
		if err := fsx.RemoveAll(ctx, f, at("gone")); err != nil {
			t.Error(err)
		}
		if _, err := f.Stat(ctx, at("gone")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after it was removed: %v", err)
		}
		if got := read(at("gone-not")); got != "3" {
			t.Errorf("its neighbour holds %q", got)
		}
	})

	t.Run("cancelled", func(t *testing.T) {
		write(at("there"), "1")
		reason := errors.New("enough")
		done, cancel := context.WithCancelCause(ctx)
		w, err := f.Create(done, at("late"))
		if err != nil {
			t.Fatal(err)
		}
		cancel(reason)
		_, openErr := f.Open(done, at("there"))
		_, statErr := f.Stat(done, at("there"))
		_, listErr := f.List(done, root)
		_, createErr := f.Create(done, at("new"))
		for i, err := range []error{openErr, statErr, listErr, createErr, f.Remove(done, at("there")), w.Commit(done)} {
			if !errors.Is(err, reason) {
				t.Errorf("call %d: %v, want the context's cause", i, err)
			}
			if fsx.Damage(err) {
				t.Errorf("call %d: %v passes for damage of the file", i, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.Stat(ctx, at("late")); !errors.Is(err, fs.ErrNotExist) || read(at("there")) != "1" {
			t.Errorf("after it was cancelled: %v", err)
		}
	})
}

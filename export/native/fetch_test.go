package native_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
)

// watched is a store that says which files are opened, and where one ends early.
type watched struct {
	fsx.FS
	opened []string
	cut    string // files that end with this are cut off in the middle
}

var errCut = errors.New("the connection is cut")

func (w *watched) Open(ctx context.Context, name string) (fsx.File, error) {
	w.opened = append(w.opened, name)
	f, err := w.FS.Open(ctx, name)
	if err == nil && w.cut != "" && strings.HasSuffix(name, w.cut) {
		f = half{f}
	}
	return f, err
}

type half struct{ fsx.File }

func (h half) ReadAt(p []byte, at int64) (int, error) {
	n, _ := h.File.ReadAt(p[:min(int64(len(p)), max(0, h.Info().Size/2-at))], at)
	return n, errCut
}

// files are those of a folder by their names.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		out[filepath.ToSlash(strings.TrimPrefix(path, dir+string(filepath.Separator)))] = string(b)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func put(t *testing.T, to fsx.FS, name string, contents map[string]string) {
	t.Helper()
	for file, text := range contents {
		if err := fsx.WriteFile(t.Context(), to, filepath.Join(name, file), []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFetch brings an export from a store: all of it or nothing has the name; what is there whole is not copied again, what is not is; what is damaged in the store is named.
func TestFetch(t *testing.T) {
	t.Parallel()
	_, info := train(t)
	whole, _ := exported(t, info)
	want := files(t, whole)
	want[export.WarmupName] = "requests"
	store := &watched{FS: &fsxtest.Mem{}}
	put(t, store, "clicks/7", want)
	put(t, store, "clicks/007", want)
	put(t, store, "clicks/x", want)
	put(t, store, "clicks", map[string]string{"9": "no folder", "8/_export.json": "{}"})
	found, err := native.Find(t.Context(), store, "clicks")
	if err != nil || !slices.Equal(found, []native.Place{{8, "clicks/8"}, {7, "clicks/7"}}) {
		t.Errorf("found %v, %v", found, err)
	}
	if found, err = native.Find(t.Context(), store, "clicks/7"); err != nil || !slices.Equal(found, []native.Place{{7, "clicks/7"}}) {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err = native.Find(t.Context(), store, "nothing"); !errors.Is(err, native.ErrNone) {
		t.Errorf("found nothing, %v", err)
	}
	if _, err = native.Find(t.Context(), fsx.Local{}, filepath.Join(whole, "dense.f32")); !errors.Is(err, native.ErrNone) {
		t.Errorf("found in a file: %v", err)
	}
	to := filepath.Join(t.TempDir(), "cache", "7")
	fetch := func(name string, o native.FetchOptions) error {
		store.opened = nil
		return native.Fetch(t.Context(), store, name, to, o)
	}
	if err := fetch("clicks/8", native.FetchOptions{}); !errors.Is(err, native.ErrNone) || !strings.Contains(err.Error(), "clicks/8") {
		t.Errorf("without a manifest: %v", err)
	}
	full := errors.New("no room")
	if err := fetch("clicks/7", native.FetchOptions{Room: func(_, _ int64) error { return full }}); !errors.Is(err, full) || len(store.opened) != 1 {
		t.Errorf("without room: %v after %q", err, store.opened)
	}

	if err := native.Fetch(t.Context(), store, "clicks/7", filepath.Join(t.TempDir(), "7"), native.FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	var slabs []string // in the order in which they are copied
	for _, name := range store.opened {
		if strings.HasSuffix(name, ".slab") {
			slabs = append(slabs, strings.TrimPrefix(filepath.ToSlash(name), "clicks/7/"))
		}
	}
	store.cut = slabs[len(slabs)-1]
	if err := fetch("clicks/7", native.FetchOptions{}); !errors.Is(err, errCut) || !strings.Contains(err.Error(), store.cut) {
		t.Errorf("cut off: %v", err)
	}
	if _, err := os.Stat(to); err == nil {
		t.Error("a part of an export has its name")
	}
	before := len(store.opened)
	// One that was copied is damaged here meanwhile, and somebody has left a file.
	partial := filepath.Join(filepath.Dir(to), ".7.partial")
	if err := errors.Join(flipBit(filepath.Join(partial, filepath.FromSlash(slabs[0])), 900), os.WriteFile(filepath.Join(partial, "left"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	store.cut = ""
	var missing, done, total int64
	o := native.FetchOptions{Room: func(_, m int64) error { missing = m; return nil }, Progress: func(d, all int64) { done, total = d, all }}
	if err := fetch("clicks/7", o); err != nil {
		t.Fatal(err)
	}
	if n := int64(len(want[slabs[0]]) + len(want[slabs[len(slabs)-1]])); missing < n || missing >= total || done != total || len(store.opened) >= before {
		t.Errorf("%d bytes were missing, at least %d had to be, %d of %d are there; %q were opened, %d before", missing, n, done, total, store.opened, before)
	}
	same := func(want map[string]string) {
		t.Helper()
		got := files(t, to)
		if !maps.Equal(got, want) {
			t.Errorf("%q are here, of the store's %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
		}
		if names, err := os.ReadDir(filepath.Dir(to)); err != nil || len(names) != 1 {
			t.Errorf("beside it: %v, %v", names, err)
		}
	}
	same(want)
	if faults, err := open(t, to).Verify(t.Context()); err != nil || len(faults) > 0 {
		t.Error(faults, err)
	}
	if err := fetch("clicks/7", o); err != nil || len(store.opened) != 1 {
		t.Errorf("again: %q were opened, %v", store.opened, err)
	}

	// Another export takes its place; of one that is damaged nothing does.
	_, info = train(t, "seed=9")
	dir, _ := exported(t, info)
	other := files(t, dir)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(other)), func(name string) bool { return name == native.ManifestName })
	for _, name := range []string{names[0], names[1], names[len(names)-1]} { // dense weights, and rows of each table
		for what, change := range map[string]func([]byte) []byte{
			"a bit":     func(b []byte) []byte { b[len(b)/3] ^= 1; return b },
			"its end":   func(b []byte) []byte { return b[:len(b)-1] },
			"all of it": func([]byte) []byte { return nil },
		} {
			bad := &fsxtest.Mem{}
			put(t, bad, "bad", other)
			if b := change([]byte(other[name])); b != nil {
				put(t, bad, "bad", map[string]string{name: string(b)})
			} else if err := bad.Remove(t.Context(), filepath.Join("bad", name)); err != nil {
				t.Fatal(err)
			}
			fresh := filepath.Join(t.TempDir(), "7")
			if err := native.Fetch(t.Context(), bad, "bad", fresh, native.FetchOptions{}); !errors.Is(err, native.ErrCorrupt) || !strings.Contains(fmt.Sprint(err), name) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
			if _, err := os.Stat(fresh); err == nil {
				t.Errorf("%s of %s: the copy has its name", what, name)
			}
		}
	}
	put(t, store, "other", other)
	if err := fetch("other", native.FetchOptions{}); err != nil {
		t.Fatal(err)
	}
	same(other)
}

package native_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/ps/table"
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

// TestPart: of a store's export the files alone are copied that have rows of a part. There each id of the part has its row and is refused no other way than in the whole export; a copy that lacks a file of its part, or is opened
// as a whole one, is damaged. Of a manifest of version 1, which does not say what files have, all files are copied.
func TestPart(t *testing.T) {
	t.Parallel()
	_, info := train(t)
	dir, m := exported(t, info)
	whole, store := open(t, dir), &fsxtest.Mem{}
	put(t, store, "clicks", files(t, dir))
	slabsIn := func(dir string) (out []string) {
		for name := range files(t, dir) {
			if strings.HasSuffix(name, ".slab") {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return out
	}
	all := slabsIn(dir)
	fetched := func(part native.Part) (to string) {
		t.Helper()
		to = filepath.Join(t.TempDir(), "7")
		if err := native.Fetch(t.Context(), store, "clicks", to, native.FetchOptions{Part: &part}); err != nil {
			t.Fatal(err)
		}
		return to
	}
	for _, of := range []int{1, 2, 3} {
		for index := range of {
			part := native.Part{Index: index, Of: of}
			to := fetched(part)
			e, err := native.OpenPart(t.Context(), to, part)
			if err != nil {
				t.Fatalf("part %s: %v", part, err)
			}
			has := slabsIn(to)
			if fewer := len(has) < len(all); fewer != (of > 1) {
				t.Errorf("part %s has %d files of %d", part, len(has), len(all))
			}
			for tbl := range m.Tables {
				dim, theirs := m.Graph.Layout().Tables[tbl].Dim(), 0
				if err := m.Rows(t.Context(), tbl, func(r *table.Rows) error {
					for _, id := range r.Keys {
						if native.PartOf(id, of) != index {
							continue
						}
						theirs++
						got, want := make([]float32, dim), make([]float32, dim)
						found, err := e.Find(tbl, []int64{id}, got, nil)
						if _, werr := whole.Find(tbl, []int64{id}, want, nil); err != nil || werr != nil || found != 1 || !slices.Equal(got, want) {
							t.Errorf("part %s: id %d has %v, %v; want %v, %v", part, id, got, err, want, werr)
						}
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				if theirs == 0 {
					t.Errorf("part %s has no ids of table %d: no test", part, tbl)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if of == 1 {
				continue
			}
			if _, err := native.Open(t.Context(), to); !errors.Is(err, native.ErrCorrupt) {
				t.Errorf("part %s as a whole: %v", part, err)
			}
			if err := os.Remove(filepath.Join(to, has[0])); err != nil {
				t.Fatal(err)
			}
			if _, err := native.OpenPart(t.Context(), to, part); !errors.Is(err, native.ErrCorrupt) || !strings.Contains(err.Error(), has[0]) {
				t.Errorf("part %s without %s: %v", part, has[0], err)
			}
		}
	}

	old := files(t, dir)
	text := regexp.MustCompile(`,\s*"hashes": \{[^}]*\}`).ReplaceAllString(old[native.ManifestName], "")
	text = strings.Replace(text, `"version": 2`, `"version": 1`, 1)
	at := strings.LastIndex(text, `"crc32c": `) + len(`"crc32c": `)
	var compact bytes.Buffer
	if err := json.Compact(&compact, []byte(text[:at]+"0}")); err != nil {
		t.Fatal(err)
	}
	text = fmt.Sprintf("%s%d}\n", text[:at], crc32.Checksum(compact.Bytes(), crc32.MakeTable(crc32.Castagnoli)))
	put(t, store, "clicks", map[string]string{native.ManifestName: text})
	part := native.Part{Index: 1, Of: 3}
	to := fetched(part)
	e, err := native.OpenPart(t.Context(), to, part)
	if has := slabsIn(to); err != nil || !slices.Equal(has, all) {
		t.Fatalf("of version 1: %d files of %d, %v", len(has), len(all), err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	open(t, to)
}

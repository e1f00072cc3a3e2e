package filesplit_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
)

// write makes files of a folder, by name.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// listed are the paths, relative to a folder, by name, and the identities by name.
func listed(t *testing.T, dir string, known map[string]string, patterns ...string) (paths, ids map[string]string) {
	t.Helper()
	for i, p := range patterns {
		if !filepath.IsAbs(p) {
			patterns[i] = dir + "/" + p
		}
	}
	f := filesplit.NewFiles(fsx.Local{}, patterns, known, nil, nil, false)
	files, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paths, ids = map[string]string{}, map[string]string{}
	for _, file := range files {
		found, err := f.Find(t.Context(), file.Name)
		path := found.Path
		if err != nil || path != file.Path {
			t.Errorf("path of %q: %q, %v; want %q", file.Name, path, err, file.Path)
		}
		paths[file.Name], ids[file.Name] = strings.TrimPrefix(path, dir+"/"), file.Identity
	}
	if len(paths) != len(files) {
		t.Errorf("names are used twice: %+v", files)
	}
	return paths, ids
}

func TestNamesSayNothingOfTheFolder(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		patterns []string
		want     map[string]string
	}{
		{"one file", []string{"mon/x"}, map[string]string{"x": "mon/x"}},
		{"a pattern", []string{"mon/*"}, map[string]string{"x": "mon/x", "y": "mon/y"}},
		{"folders of a pattern", []string{"*/x"}, map[string]string{"a/x": "a/x", "mon/x": "mon/x", "tue/x": "tue/x"}},
		{"one folder of a pattern", []string{"m*/x"}, map[string]string{"mon/x": "mon/x"}},
		{"a macro", []string{"{INT(1,2)}/z"}, map[string]string{"1/z": "1/z"}},
		{"equal names", []string{"mon/x", "tue/x", "mon/y"}, map[string]string{"mon/x": "mon/x", "tue/x": "tue/x", "y": "mon/y"}},
		{"equal folders too", []string{"a/mon/x", "mon/x"}, map[string]string{"a/mon/x": "a/mon/x", "mon/x": "mon/x"}},
		{"one below the other", []string{"a/x", "a/mon/x"}, map[string]string{"x": "a/x", "mon/x": "a/mon/x"}},
		{"twice", []string{"mon/x", "mon/../mon/x", "mon/*"}, map[string]string{"x": "mon/x", "y": "mon/y"}},
		{"brackets", []string{"b/[1]"}, map[string]string{"[1]": "b/[1]"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"mon/x": "1", "mon/y": "2", "tue/x": "3", "1/z": "4", "a/mon/x": "5", "b/[1]": "6", "a/x": "7"})
			paths, _ := listed(t, dir, nil, tc.patterns...)
			if diff := cmp.Diff(tc.want, paths); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// TestFilesAreKnownAgain changes a folder whose files are known, in all ways, and looks what they are called.
func TestFilesAreKnownAgain(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("a long file\n", 20_000)
	before := map[string]string{"x": "one", "y": "two", "large": large, "z": "three"}
	for _, tc := range []struct {
		name  string
		after map[string]string
		want  map[string]string // path by name
	}{
		{"nothing", before, map[string]string{"x": "x", "y": "y", "large": "large", "z": "z"}},
		{"one more, one less", map[string]string{"x": "one", "a": "new"}, map[string]string{"x": "x", "a": "a"}},
		{"appended", map[string]string{"x": "one and", "large": large + "more"}, map[string]string{"x": "x", "large": "large"}},
		{"renamed", map[string]string{"b/q": "one", "large.old": large}, map[string]string{"x": "b/q", "large": "large.old"}},
		{"swapped", map[string]string{"x": "two", "y": "one"}, map[string]string{"x": "y", "y": "x"}},
		{"moved and appended", map[string]string{"b/x": "one and"}, map[string]string{"x": "b/x"}},
		{"another of the name", map[string]string{"x": "else", "z": "three"}, map[string]string{"x~2": "x", "z": "z"}},
		{"another in its middle", map[string]string{"large": large[:70_000] + "!" + large[70_000:]}, map[string]string{"large~2": "large"}},
		{"shorter", map[string]string{"large": large[:len(large)-1]}, map[string]string{"large~2": "large"}},
		{"a copy beside it", map[string]string{"x": "one", "copy": "one"}, map[string]string{"x": "x", "copy": "copy"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir, elsewhere := t.TempDir(), t.TempDir()
			write(t, dir, before)
			_, known := listed(t, dir, nil, "*")
			write(t, elsewhere, tc.after)
			var patterns []string
			for path := range tc.after {
				patterns = append(patterns, path)
			}
			paths, ids := listed(t, elsewhere, known, patterns...)
			if diff := cmp.Diff(tc.want, paths); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			for name, id := range ids {
				if known[name] != "" && id != known[name] {
					t.Errorf("%s was %s and is %s", name, known[name], id)
				}
			}
			// What is new is known from then on, and nothing is forgotten.
			for name, id := range known {
				if ids[name] == "" {
					ids[name] = id
				}
			}
			again, _ := listed(t, elsewhere, ids, patterns...)
			if diff := cmp.Diff(paths, again); diff != "" {
				t.Errorf("again (-first +second)\n%s", diff)
			}
		})
	}
}

func TestAnIdentityMoves(t *testing.T) {
	t.Parallel()
	var first map[string]string
	for i := range 3 {
		dir := t.TempDir()
		write(t, dir, map[string]string{fmt.Sprintf("part-%d", i): strings.Repeat("row\n", 50_000)})
		if i == 2 {
			if err := os.Symlink(filepath.Join(dir, "part-2"), filepath.Join(dir, "link")); err != nil {
				t.Fatal(err)
			}
		}
		_, ids := listed(t, dir, nil, "*")
		for name, id := range ids {
			if first == nil {
				first = map[string]string{name: id}
			}
			if id != first["part-0"] {
				t.Errorf("%s is %s, its original %s", name, id, first["part-0"])
			}
		}
	}
}

// TestInTheOrderOfPatterns: files can be listed in the order that they are named in, and have the names that they have otherwise.
func TestInTheOrderOfPatterns(t *testing.T) {
	t.Parallel()
	dir := folder(t, "1/b", "1/c", "2/a", "2/b")
	patterns := []string{dir + "/2/*", dir + "/1/c", dir + "/2/a", dir + "/1/b"}
	want := []string{"2/a", "2/b", "1/c", "1/b"}
	f := filesplit.NewFiles(fsx.Local{}, patterns, nil, nil, nil, true)
	files, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	var paths []string
	for _, file := range files {
		paths = append(paths, strings.TrimPrefix(file.Path, dir+"/"))
		known[file.Name] = file.Identity
	}
	if !slices.Equal(paths, want) {
		t.Errorf("files are %q, want %q", paths, want)
	}
	sorted, _ := listed(t, dir, known, patterns...)
	if got := slices.Sorted(maps.Keys(sorted)); !slices.Equal(got, slices.Sorted(maps.Keys(known))) {
		t.Errorf("names are %q sorted, %q in order", got, slices.Sorted(maps.Keys(known)))
	}
}

// memory is what a job stores of its files.
type memory struct {
	known, seen map[string]string
	follow      map[string]bool
}

// look lists the files of a folder and takes up what is new, as a job does.
func (m *memory) look(t *testing.T, dir string) (*filesplit.Files, []filesplit.File) {
	t.Helper()
	if m.known == nil {
		m.known, m.seen = map[string]string{}, map[string]string{}
	}
	f := filesplit.NewFiles(fsx.Local{}, []string{dir + "/*"}, maps.Clone(m.known), maps.Clone(m.seen), m.follow, false)
	files, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if old := m.known[file.Name]; old != "" && old != file.Identity {
			t.Fatalf("%s was %s and is %s", file.Name, old, file.Identity)
		}
		if m.known[file.Name] = file.Identity; file.Seen != "" {
			m.seen[file.Name] = file.Seen
		}
	}
	return f, files
}

// TestAFileIsWhatWasLastSeenOfIt writes file after file under one name, many of which begin alike: each is the known one that it begins with, of several
// the one that most is known of, or a new one. No two have the same identity but empty ones.
func TestAFileIsWhatWasLastSeenOfIt(t *testing.T) {
	t.Parallel()
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		var m memory
		last := map[string]string{} // what was last seen, by name: the oracle
		again, grown := 0, 0
		for range 60 {
			text := strings.Repeat("h", rnd.IntN(3))
			if names := slices.Sorted(maps.Keys(last)); len(names) > 0 && rnd.IntN(3) > 0 {
				text = last[names[rnd.IntN(len(names))]]
				text = text[:len(text)-rnd.IntN(min(len(text), 2)+1)]
			}
			for range rnd.IntN(4) {
				text += string(rune('a' + rnd.IntN(2)))
			}
			want := ""
			for name, of := range last {
				if of == "" && name != "x" { // an empty file tells nothing from it under another name
					continue
				}
				if strings.HasPrefix(text, of) && (want == "" || len(of) > len(last[want])) {
					want = name
				}
			}
			write(t, dir, map[string]string{"x": text})
			_, files := m.look(t, dir)
			got := files[0].Name
			if _, known := last[got]; want != "" && got != want || want == "" && known {
				t.Fatalf("seed %d: %q is %q, want %q; known are %q", seed, text, got, want, last)
			}
			if want != "" {
				again++
				if text != last[got] {
					grown++
				}
			}
			last[got] = text
		}
		if again == 0 || grown == 0 || len(last) < 3 {
			t.Errorf("seed %d: %d known again, %d grown, %d files: no test", seed, again, grown, len(last))
		}
		names := map[string]string{}
		for name, id := range m.known {
			if names[id] != "" && !strings.HasPrefix(id, "0:") {
				t.Errorf("seed %d: %s and %s are both %s", seed, name, names[id], id)
			}
			names[id] = name
		}
	}
}

// TestLargeFilesThatHaveGrown: beginning and end of what was first seen and of what was last seen are compared.
func TestLargeFilesThatHaveGrown(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("0123456789", 50_000))
	for _, tc := range []struct {
		at   int // the byte that is another
		name string
	}{
		{-1, "x"},
		{10, "x~2"},
		{149_000, "x~2"},
		{250_000, "x"}, // neither was looked at
		{399_990, "x~2"},
		{400_010, "x"},
	} {
		dir := t.TempDir()
		var m memory
		for _, size := range []int{150_000, 400_000} {
			write(t, dir, map[string]string{"x": string(text[:size])})
			m.look(t, dir)
		}
		other := slices.Clone(text)
		if tc.at >= 0 {
			other[tc.at] = '!'
		}
		write(t, dir, map[string]string{"x": string(other)})
		if _, files := m.look(t, dir); files[0].Name != tc.name {
			t.Errorf("with another byte at %d it is %q, want %q", tc.at, files[0].Name, tc.name)
		}
	}
}

// TestNoMoreIsReadThanIsStored lets a file grow at every moment: what is read of it is in what was stored of it before.
func TestNoMoreIsReadThanIsStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var m memory
	read := func(f *filesplit.Files, file filesplit.File, more string) string {
		t.Helper()
		in, err := f.Open(t.Context(), file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = in.Close() }()
		if more != "" { // while it is open
			write(t, dir, map[string]string{"x": more})
		}
		if got := in.Info().Size; got != file.Size {
			t.Errorf("open, it has %d bytes; listed, %d", got, file.Size)
		}
		text, err := io.ReadAll(fsx.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		for from := range len(text) + 2 {
			p := make([]byte, 3)
			n, err := in.ReadAt(p, int64(from))
			if want := string(text[min(from, len(text)):min(from+3, len(text))]); string(p[:n]) != want || (n < 3) != errors.Is(err, io.EOF) {
				t.Errorf("from %d: %q, %v; want %q", from, p[:n], err, want)
			}
		}
		return string(text)
	}
	write(t, dir, map[string]string{"x": "12"})
	f, files := m.look(t, dir)
	if got := read(f, files[0], "1234"); got != "12" { // a new one
		t.Errorf("read %q", got)
	}
	f, files = m.look(t, dir) // which finds that it has grown, and stores it after
	if got := read(f, files[0], ""); got != "12" {
		t.Errorf("read %q", got)
	}
	write(t, dir, map[string]string{"x": "123456"})
	if got := read(f, files[0], "12345678"); got != "12" {
		t.Errorf("read %q", got)
	}
	again := memory{maps.Clone(m.known), map[string]string{"x": files[0].Seen}, nil}
	f, files = again.look(t, dir)
	if got := read(f, files[0], ""); got != "1234" {
		t.Errorf("read %q", got)
	}
}

// TestALogIsRotated renames a log that was written to since it was looked at last, as often as not with others that were renamed before, and begins
// a new one: each is what it was. Those that may not be followed are new.
func TestALogIsRotated(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		dir := t.TempDir()
		m := memory{follow: map[string]bool{}}
		logs, is := []string{"log\n"}, []string{""} // what each holds, the newest first, and its name: the oracle
		for n := range 40 {
			for i := range logs {
				if i < 2 && rnd.IntN(3) > 0 { // the one that was rotated last is written to for a while
					logs[i] += fmt.Sprintf("row %d of %d\n", rnd.IntN(1000), n)
				}
			}
			if rnd.IntN(3) == 0 {
				logs, is = slices.Insert(logs, 0, fmt.Sprintf("log %d\n", n)), slices.Insert(is, 0, "")
			}
			for i, text := range logs {
				name := "app.log"
				if i > 0 {
					name = fmt.Sprintf("app.log.%d", i)
				}
				write(t, dir, map[string]string{name: text})
			}
			_, files := m.look(t, dir)
			for _, f := range files {
				m.follow[f.Name] = true
				i := 0
				_, _ = fmt.Sscanf(filepath.Base(f.Path), "app.log.%d", &i)
				if is[i] == "" {
					is[i] = f.Name
				}
				if f.Name != is[i] {
					t.Fatalf("seed %d, step %d: %s is %q, want %q", seed, n, f.Path, f.Name, is[i])
				}
			}
			if names := slices.Compact(slices.Sorted(slices.Values(is))); len(names) != len(logs) {
				t.Fatalf("seed %d, step %d: names %q", seed, n, is)
			}
		}
		if len(logs) < 5 {
			t.Errorf("seed %d: %d logs", seed, len(logs))
		}
	}
	dir := t.TempDir()
	var m memory
	write(t, dir, map[string]string{"a": "one"})
	m.look(t, dir)
	write(t, dir, map[string]string{"a": "else", "b": "one and"})
	if _, files := m.look(t, dir); files[0].Name != "a~2" || files[1].Name != "b" {
		t.Errorf("what is not followed is %q and %q", files[0].Name, files[1].Name)
	}
}

// TestWhatWasListedIsRead renames, replaces and removes a file between listing and opening it.
func TestWhatWasListedIsRead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		after map[string]string
		want  string // in the error: not what was listed
	}{
		{"the same", map[string]string{"x": "one"}, ""},
		{"appended", map[string]string{"x": "one and"}, ""},
		{"rotated", map[string]string{"x": "another log", "x.1": "one and"}, ""},
		{"rotated by a copy", map[string]string{"x": "", "x.1": "one"}, ""},
		{"renamed", map[string]string{"y": "one"}, ""},
		{"replaced", map[string]string{"x": "two"}, "has been replaced"},
		{"removed", map[string]string{"y": "two"}, "no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write(t, dir, map[string]string{"x": "one"})
			var m memory
			f, files := m.look(t, dir)
			if err := os.Remove(filepath.Join(dir, "x")); err != nil {
				t.Fatal(err)
			}
			write(t, dir, tc.after)
			for path := range tc.after { // times of files may be coarse
				if err := os.Chtimes(filepath.Join(dir, path), time.Time{}, time.Unix(1, 0)); err != nil {
					t.Fatal(err)
				}
			}
			in, err := f.Open(t.Context(), files[0])
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want one with %q", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = in.Close() }()
			if got, err := io.ReadAll(fsx.NewReader(in)); err != nil || string(got) != "one" {
				t.Errorf("read %q, %v", got, err)
			}
		})
	}
}

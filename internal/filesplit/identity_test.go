package filesplit_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	f := filesplit.NewFiles(fsx.Local{}, patterns, known, false)
	files, err := f.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	paths, ids = map[string]string{}, map[string]string{}
	for _, file := range files {
		path, err := f.Path(t.Context(), file.Name)
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
	f := filesplit.NewFiles(fsx.Local{}, patterns, nil, true)
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

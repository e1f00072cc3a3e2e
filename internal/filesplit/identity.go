package filesplit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Files are the files of a source, under names that stay while files are moved, renamed, copied or appended to: a file is
// the one that was known before if it begins with the same bytes, whatever its path. Methods may overlap.
type Files struct {
	fs       fsx.FS
	patterns []string
	known    map[string]string // identities by name
	inOrder  bool

	mu   sync.Mutex
	list []File // the last
}

// NewFiles describes the files of a file system that the patterns name (see [Expand]). known are the identities, by name, of the files that
// the source had before; it is not changed any more. inOrder keeps the order of the patterns.
func NewFiles(in fsx.FS, patterns []string, known map[string]string, inOrder bool) *Files {
	return &Files{fs: in, patterns: patterns, known: known, inOrder: inOrder}
}

// List looks which files there are and returns them, sorted by name or in the order of the patterns, with identities. A file that is known has its former
// name and identity. A new one has the name that [Expand] gives it, with a number where a known file of other bytes has
// that name: `part-0.csv~2`. Errors: those of [Expand] and of the file system.
func (f *Files) List(ctx context.Context) ([]File, error) {
	expand := Expand
	if f.inOrder {
		expand = ExpandInOrder
	}
	files, err := expand(ctx, f.fs, f.patterns)
	if err != nil {
		return nil, err
	}
	in := f.fs
	if err := recognise(files, f.known, func(f *File, size int64) (string, error) { return identity(ctx, in, f.Path, size) }); err != nil {
		return nil, err
	}
	if !f.inOrder {
		slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = files
	return slices.Clone(files), nil
}

// Path is where the file of a name lies.
func (f *Files) Path(ctx context.Context, name string) (string, error) {
	f.mu.Lock()
	files := f.list
	f.mu.Unlock()
	if files == nil {
		var err error
		if files, err = f.List(ctx); err != nil {
			return "", err
		}
	}
	if i := slices.IndexFunc(files, func(f File) bool { return f.Name == name }); i >= 0 {
		return files[i].Path, nil
	}
	return "", fmt.Errorf("there is no file %q among those of %q", name, f.patterns)
}

// recognise gives files their identities, and those that are known their former names.
func recognise(files []File, known map[string]string, identity func(f *File, size int64) (string, error)) error {
	free := map[string]bool{} // known files that none was recognised as
	for name := range known {
		free[name] = true
	}
	take := func(f *File, name string) {
		f.Name, f.Identity = name, known[name]
		delete(free, name)
	}
	var left []*File
	for i := range files {
		f := &files[i]
		if id := known[f.Name]; id != "" {
			is, err := f.is(id, identity)
			if err != nil {
				return err
			}
			if is {
				take(f, f.Name)
				continue
			}
		}
		left = append(left, f)
	}
	names := slices.Sorted(maps.Keys(known))
	search := func(is func(f *File, name string) (bool, error)) error {
		for i, f := range left {
			for _, name := range names {
				if !free[name] {
					continue
				}
				ok, err := is(f, name)
				if err != nil {
					return err
				}
				if ok {
					take(f, name)
					left[i] = nil
					break
				}
			}
		}
		left = slices.DeleteFunc(left, func(f *File) bool { return f == nil })
		return nil
	}
	for _, f := range left {
		var err error
		if f.Identity, err = identity(f, f.Size); err != nil {
			return err
		}
	}
	err := search(func(f *File, name string) (bool, error) { return f.Size > 0 && f.Identity == known[name], nil })
	if err == nil { // moved, and appended to since
		err = search(func(f *File, name string) (bool, error) {
			if size, ok := sizeOf(known[name]); !ok || size == 0 || plain(name) != plain(f.Name) {
				return false, nil
			}
			return f.is(known[name], identity)
		})
	}
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for i := range files {
		used[files[i].Name] = known[files[i].Name] != ""
	}
	for _, f := range left {
		base := f.Name
		for n := 2; known[f.Name] != "" || used[f.Name]; n++ {
			f.Name = fmt.Sprintf("%s~%d", base, n)
		}
		used[f.Name] = true
	}
	return nil
}

// plain is the last part of a name, without a number that [Files] has given it.
func plain(name string) string {
	base, _, _ := strings.Cut(path.Base(name), "~")
	return base
}

// is reports whether the file has the identity, or has had it before something was appended.
func (f *File) is(id string, identity func(f *File, size int64) (string, error)) (bool, error) {
	size, ok := sizeOf(id)
	if !ok || f.Size < size {
		return false, nil
	}
	got, err := identity(f, size)
	return got == id, err
}

// looked is how many bytes of a file's beginning, and of its end, make its identity.
const looked = 64 << 10

// identity is that of the first size bytes of a file: their number, and a hash of the first and the last of them.
func identity(ctx context.Context, in fsx.FS, path string, size int64) (string, error) {
	f, err := in.Open(ctx, path)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	_, err = io.Copy(h, io.NewSectionReader(f, 0, min(size, looked)))
	if err == nil && size > looked {
		from := max(size-looked, looked)
		_, err = io.Copy(h, io.NewSectionReader(f, from, size-from))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d:%s", size, hex.EncodeToString(h.Sum(nil)[:16])), nil
}

// sizeOf is how many bytes an identity speaks of.
func sizeOf(id string) (int64, bool) {
	text, _, ok := strings.Cut(id, ":")
	n, err := strconv.ParseInt(text, 10, 64)
	return n, ok && err == nil && n >= 0
}

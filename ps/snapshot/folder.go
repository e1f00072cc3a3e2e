package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/fsx"
)

const (
	dirPrefix = "snap-"
	// begunName is the first object of a snapshot that is being written: other writers see that the name is taken. It goes when
	// there is a manifest.
	begunName = "begun"
	// dataExt ends the names of all data files.
	dataExt = ".arrow"
)

func dirName(id uint64) string { return fmt.Sprintf("%s%08d", dirPrefix, id) }

// Path is where snapshot id of a folder lies.
func Path(dir string, id uint64) string { return filepath.Join(dir, dirName(id)) }

// parseName returns the number in a snapshot's folder name.
func parseName(name string) (id uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, dirPrefix)
	if !ok {
		return 0, false
	}
	id, err := strconv.ParseUint(digits, 10, 64)
	return id, err == nil && id > 0 && name == dirName(id)
}

// Named reports whether a path has a snapshot's name, whatever is there.
func Named(path string) bool {
	_, ok := parseName(filepath.Base(filepath.Clean(path)))
	return ok
}

// Entry is a snapshot in a folder.
type Entry struct {
	ID   uint64
	Path string
	// Err says why the snapshot cannot be used; nil: it is good, as far as its manifest and the names and sizes of its files say, and those of its bases.
	// See [ReadEntry]; whether the bytes are right, a [Verifier] says.
	Err error
	// Info is the manifest; nil when that cannot be read.
	Info *Info
}

// List returns the snapshots of a folder, newest first. A folder that does not exist has none, and what has no manifest is
// none.
func List(dir string) ([]Entry, error) { return ListIn(fsx.Local{}, dir) }

// ListIn is [List] in another store.
func ListIn(f fsx.FS, dir string) ([]Entry, error) {
	found, err := names(f, dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	var out []Entry
	l := &looker{fs: f}
	for _, name := range found {
		id, ok := parseName(name)
		if !ok {
			continue
		}
		if e := l.entry(id, filepath.Join(dir, name)); e.Info != nil || !errors.Is(e.Err, fs.ErrNotExist) {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int {
		if a.ID > b.ID {
			return -1
		}
		return 1
	})
	return out, nil
}

// Clean removes what killed writers and removers left in a folder, which is what has no manifest and what a manifest does not name,
// and returns the names. Nobody else may be writing.
func Clean(f fsx.FS, dir string) ([]string, error) {
	found, err := names(f, dir)
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	var gone []string
	var errs []error
	for _, name := range found {
		if _, ok := parseName(name); !ok {
			continue
		}
		path := filepath.Join(dir, name)
		inside, err := names(f, path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !slices.Contains(inside, ManifestName) {
			errs = append(errs, remove(f, path))
			gone = append(gone, name)
			continue
		}
		if slices.Contains(inside, begunName) {
			errs = append(errs, remove(f, filepath.Join(path, begunName)))
		}
		if info, err := ReadInfoIn(f, path); err == nil {
			left, err := sweep(f, info, inside)
			gone, errs = append(gone, left...), append(errs, err)
		}
	}
	return gone, errors.Join(errs...)
}

// sweep removes the data files in a snapshot's folder that its manifest does not name: those that it had before [Compact], or that
// a Compact which was killed had begun. It returns their paths below the folder of snapshots.
func sweep(f fsx.FS, info *Info, inside []string) ([]string, error) {
	var gone []string
	var errs []error
	for _, name := range inside {
		named := slices.ContainsFunc(info.Files, func(f FileInfo) bool { return f.Name == name })
		if named || filepath.Ext(name) != dataExt {
			continue
		}
		errs = append(errs, remove(f, filepath.Join(info.Path, name)))
		gone = append(gone, filepath.Join(filepath.Base(info.Path), name))
	}
	return gone, errors.Join(errs...)
}

// Absolute is where a snapshot lies, made absolute for messages where that is possible.
func Absolute(p string) string {
	if abs, err := filepath.Abs(p); err == nil {
		return abs
	}
	return p
}

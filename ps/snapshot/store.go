package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	dirPrefix = "snap-"
	tmpSuffix = ".tmp"
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

// Named tells whether a path has a snapshot's name, whatever is there.
func Named(path string) bool {
	_, ok := parseName(filepath.Base(filepath.Clean(path)))
	return ok
}

// Entry is a snapshot in a folder.
type Entry struct {
	ID   uint64
	Path string
	// Info is the manifest, or nil when Err says why it cannot be read. Data files are not looked at: see [Open].
	Info *Info
	Err  error
}

// List returns the snapshots of a folder, newest first. A folder that does not exist has none.
func List(dir string) ([]Entry, error) { return ListFS(OS{}, dir) }

// ListFS is [List] on another file system.
func ListFS(fsys FS, dir string) ([]Entry, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	var out []Entry
	for _, name := range names {
		if id, ok := parseName(name); ok {
			e := Entry{ID: id, Path: filepath.Join(dir, name)}
			e.Info, e.Err = readInfo(fsys, e.Path)
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

// Clean removes what killed writers and removers left in a folder and returns the names. Nobody else may be writing.
func Clean(fsys FS, dir string) ([]string, error) {
	names, err := fsys.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	var gone []string
	var errs []error
	for _, name := range names {
		base, ok := strings.CutSuffix(name, tmpSuffix)
		if _, is := parseName(base); ok && is {
			errs = append(errs, fsys.RemoveAll(filepath.Join(dir, name)))
			gone = append(gone, name)
		}
	}
	return gone, errors.Join(errs...)
}

// Prune keeps the newest keep snapshots, the pinned ones and the newest of each label, and returns the paths of those it removed. What cannot be
// read does not count towards keep and is left for its owner to look at.
func Prune(fsys FS, dir string, keep int) ([]string, error) {
	entries, err := ListFS(fsys, dir)
	if err != nil {
		return nil, err
	}
	var gone []string
	var errs []error
	labels := map[string]bool{"": true}
	for _, e := range entries { // newest first
		if e.Err != nil || e.Info.Pinned {
			continue
		}
		first := !labels[e.Info.Label]
		labels[e.Info.Label] = true
		if keep > 0 {
			keep--
			continue
		}
		if first {
			continue
		}
		// The name goes first: a removal that is cut short leaves a temporary folder, not half a snapshot.
		if err := fsys.Rename(e.Path, e.Path+tmpSuffix); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, fsys.RemoveAll(e.Path+tmpSuffix))
		gone = append(gone, e.Path)
	}
	return gone, errors.Join(errs...)
}

package filesplit

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// File is one file of a source.
type File struct {
	// Name is Path with forward slashes: the stable name of the file's split.
	Name string
	// Path is as the pattern gave it: relative patterns make relative paths.
	Path string
	// Size is in bytes.
	Size int64
}

// maxPatterns bounds what the macros of one pattern may stand for.
const maxPatterns = 100_000

// NoMatchError tells of a pattern that names no file.
type NoMatchError struct {
	Pattern string
	// Nearest is the file of the pattern's folder with the most similar name, or empty.
	Nearest string
	// Reason says more («is a folder»), or is empty.
	Reason string
}

// Error names the pattern and what the user may have meant.
func (e *NoMatchError) Error() string {
	s := fmt.Sprintf("no file matches %q", e.Pattern)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.Nearest != "" {
		s += fmt.Sprintf("; the nearest name there is %q", e.Nearest)
	}
	return s
}

// Expand returns the files that the patterns name, sorted by name and each once. A pattern is a path, which may hold the
// wildcards of [filepath.Match] and Monolith's macros (see [Macros]). Every pattern must name a file, but with macros one
// of the paths that they stand for is enough: days without data are usual. Folders are passed over. Errors: all faulty
// patterns at once, a [*NoMatchError] for each that names no file, other errors for ones that cannot be understood.
func Expand(patterns []string) ([]File, error) {
	var files []File
	var faults []error
	for _, pattern := range patterns {
		found, err := expand(pattern)
		if err != nil {
			faults = append(faults, err)
		}
		files = append(files, found...)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(files, func(a, b File) bool { return a.Name == b.Name }), nil
}

func expand(pattern string) ([]File, error) {
	if strings.TrimSpace(pattern) == "" {
		return nil, &NoMatchError{Pattern: pattern, Reason: "the pattern is empty"}
	}
	paths, err := Macros(pattern)
	if err != nil {
		return nil, err
	}
	var files []File
	folder := false
	for _, path := range paths {
		found := []string{path}
		if _, err := os.Lstat(path); err != nil { // a file may well have brackets in its name
			if found, err = filepath.Glob(path); err != nil {
				return nil, fmt.Errorf("pattern %q: %w", path, err)
			}
		}
		for _, f := range found {
			info, err := os.Stat(f)
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed since it was listed, or a link to nowhere
			}
			if err != nil {
				return nil, err
			}
			if info.IsDir() {
				folder = true
				continue
			}
			f = filepath.Clean(f)
			files = append(files, File{Name: filepath.ToSlash(f), Path: f, Size: info.Size()})
		}
	}
	if len(files) == 0 {
		return nil, noMatch(pattern, paths[0], folder)
	}
	return files, nil
}

// noMatch looks around for what the user may have meant. Where the folder cannot be looked into, that is the error: wildcards
// match nothing then.
func noMatch(pattern, path string, folder bool) error {
	e := &NoMatchError{Pattern: pattern}
	if folder {
		e.Reason = "it is a folder; name files, as in " + filepath.ToSlash(filepath.Join(pattern, "*"))
		return e
	}
	dir := filepath.Dir(path)
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		e.Reason = fmt.Sprintf("there is no folder %q", filepath.ToSlash(dir))
		return e
	}
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG) {
		return e
	}
	if err != nil { // too many open files, say: that nothing matched says nothing
		return err
	}
	defer func() { _ = d.Close() }() // only read from
	names, _ := d.Readdirnames(10_000)
	slices.Sort(names)
	if name := Nearest(filepath.Base(path), names); name != "" {
		e.Nearest = filepath.ToSlash(filepath.Join(dir, name))
	}
	return e
}

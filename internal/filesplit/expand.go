package filesplit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
)

// File is one file of a source.
type File struct {
	// Name is what the file is called within its source, wherever the source lies: the path after the folder that its
	// pattern begins with, `part-0.csv` or `monday/part-0.csv` of `/data/*/part-0.csv`; where that is the same for several
	// files, the path after the folder that they have in common.
	Name string
	// Path is as the pattern gave it: relative patterns make relative paths.
	Path string
	// Size is in bytes. Of a file that [Files] lists, it is how many of them are read.
	Size int64
	// Identity identifies the file by its content when it was first seen; [Expand] leaves it out. See [Files].
	Identity string
	// Seen is what Identity would be of all that the file holds by now; empty: the same.
	Seen string

	read  string   // what Identity would be of the Size bytes
	whole fsx.Info // of the file when it was listed
	abs   string   // Path from the root on
	depth int      // how many of its parts are in Name
	// pattern numbers the first that names it.
	pattern int
}

// maxPatterns bounds what the macros of one pattern may stand for.
const maxPatterns = 100_000

// NoMatchError describes a pattern that names no file.
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

// Expand returns the files of a file system that the patterns name, sorted by name, each path once. A pattern is a path, which may hold the
// wildcards of [filepath.Match] and Monolith's macros (see [Macros]). Every pattern must name a file, but with macros one
// of the paths that they stand for is enough: days without data are usual. Folders are passed over, as are pipes, sockets and devices, and
// names that begin with "_" or "." where the pattern's own part does not (see hidden). Errors: all faulty
// patterns at once, a [*NoMatchError] for each that names no file, other errors for ones that cannot be understood.
func Expand(ctx context.Context, in fsx.FS, patterns []string) ([]File, error) {
	files, err := expandAll(ctx, in, patterns)
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	return files, err
}

// ExpandInOrder is [Expand] in the order of the patterns, of one pattern sorted by path: a path that several name has the place of the first.
func ExpandInOrder(ctx context.Context, in fsx.FS, patterns []string) ([]File, error) {
	files, err := expandAll(ctx, in, patterns)
	slices.SortFunc(files, func(a, b File) int {
		return cmp.Or(cmp.Compare(a.pattern, b.pattern), cmp.Compare(a.abs, b.abs))
	})
	return files, err
}

// expandAll returns the files with their names, in no order.
func expandAll(ctx context.Context, in fsx.FS, patterns []string) ([]File, error) {
	var files []File
	var faults []error
	for i, pattern := range patterns {
		found, err := expand(ctx, in, pattern)
		if err != nil {
			faults = append(faults, err)
		}
		for k := range found {
			found[k].pattern = i
		}
		files = append(files, found...)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(a.abs, b.abs) })
	files = slices.CompactFunc(files, func(a, b File) bool { return a.abs == b.abs })
	name(files)
	return files, nil
}

// name names the files of different paths.
func name(files []File) {
	for again := true; again; {
		again = false
		same := map[string][]int{}
		for i := range files {
			f := &files[i]
			f.Name = tail(f.abs, f.depth)
			same[f.Name] = append(same[f.Name], i)
		}
		for _, of := range same {
			if len(of) < 2 {
				continue
			}
			again = true // one of them lies deeper than its name says, or their paths were the same
			shared := common(files, of)
			for _, i := range of {
				files[i].depth = max(files[i].depth, len(parts(files[i].abs))-shared)
			}
		}
	}
}

func parts(path string) []string {
	return strings.Split(strings.Trim(filepath.ToSlash(path), "/"), "/")
}

// common is how many folders the paths of some files have in common from the root on.
func common(files []File, of []int) int {
	first := parts(files[of[0]].abs)
	n := len(first) - 1
	for _, i := range of[1:] {
		p := parts(files[i].abs)
		n = min(n, len(p)-1)
		for k := range n {
			if p[k] != first[k] {
				n = k
				break
			}
		}
	}
	return n
}

// tail is the last n parts of a path, with forward slashes.
func tail(path string, n int) string {
	p := parts(path)
	return strings.Join(p[max(len(p)-n, 0):], "/")
}

// depth is how many parts of a path a pattern leaves open: those after the folder that it begins with, one at least.
func depth(pattern string) int {
	parts := strings.Split(filepath.ToSlash(filepath.Clean(pattern)), "/")
	for i, p := range parts {
		if strings.ContainsAny(p, "*?[{") {
			return len(parts) - i
		}
	}
	return 1
}

func expand(ctx context.Context, in fsx.FS, pattern string) ([]File, error) {
	if strings.TrimSpace(pattern) == "" {
		return nil, &NoMatchError{Pattern: pattern, Reason: "the pattern is empty"}
	}
	if IsURL(pattern) {
		return nil, &NoMatchError{Pattern: withoutSecrets(pattern), Reason: "it is a URL, and sources are local files; mount the store, or copy the files here"}
	}
	paths, err := Macros(pattern)
	if err != nil {
		return nil, err
	}
	var files []File
	folder, special, passed := false, false, false
	for _, path := range paths {
		found, open := []string{path}, depth(pattern)
		if _, err := in.Stat(ctx, path); err == nil {
			if path == pattern { // a file may well have brackets in its name
				open = 1
			}
		} else {
			if found, err = fsx.Glob(ctx, in, path); err != nil {
				return nil, fmt.Errorf("pattern %q: %w", path, err)
			}
			all := len(found)
			found = slices.DeleteFunc(found, func(f string) bool { return hidden(path, f) })
			passed = passed || len(found) < all
		}
		for _, f := range found {
			info, err := in.Stat(ctx, f)
			if errors.Is(err, fs.ErrNotExist) {
				continue // removed since it was listed, or a link to nowhere
			}
			if err != nil {
				return nil, err
			}
			if info.Dir {
				folder = true
				continue
			}
			if info.Special {
				special = true
				continue
			}
			f = filepath.Clean(f)
			abs, err := filepath.Abs(f)
			if err != nil {
				return nil, err
			}
			files = append(files, File{Path: f, Size: info.Size, whole: info, abs: abs, depth: open})
		}
	}
	if len(files) == 0 && special {
		return nil, &NoMatchError{Pattern: pattern, Reason: fsx.ErrSpecial.Error()}
	}
	if len(files) == 0 && !folder && passed {
		return nil, &NoMatchError{Pattern: pattern, Reason: `names that begin with "_" or "." are passed over, and there are no others; a pattern that begins so itself has them, as in _*`}
	}
	if len(files) == 0 {
		return nil, noMatch(ctx, in, pattern, paths[0], folder)
	}
	return files, nil
}

// hidden reports whether a path that a pattern matches has a name that begins with "." or "_" where the pattern does not ask for one: files
// that others write beside data, such as _SUCCESS, ._COPYING_ and .part-0.crc. A folder `_key=value` is none: Spark and Hive have the same rule.
func hidden(pattern, path string) bool {
	p, f := strings.Split(filepath.ToSlash(filepath.Clean(pattern)), "/"), strings.Split(filepath.ToSlash(filepath.Clean(path)), "/")
	if len(p) != len(f) {
		return false
	}
	for i := range p {
		if p[i] != f[i] && !isHidden(p[i]) && isHidden(f[i]) {
			return true
		}
	}
	return false
}

func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") && !strings.Contains(name, "=")
}

// noMatch looks around for what the user may have meant. Where the folder cannot be looked into, that is the error: wildcards
// match nothing then.
func noMatch(ctx context.Context, in fsx.FS, pattern, path string, folder bool) error {
	e := &NoMatchError{Pattern: pattern}
	if folder {
		e.Reason = "it is a folder; name files, as in " + cmp.Or(DataIn(path), filepath.ToSlash(filepath.Join(pattern, "*")))
		return e
	}
	dir := filepath.Dir(path)
	there, err := in.List(ctx, dir)
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
	names := make([]string, 0, len(there))
	for _, i := range there {
		names = append(names, i.Name)
	}
	if name := nearest.Name(filepath.Base(path), names); name != "" {
		e.Nearest = filepath.ToSlash(filepath.Join(dir, name))
	}
	return e
}

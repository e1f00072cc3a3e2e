package fsx

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Glob returns the names of the files and folders that a pattern of [filepath.Match] stands for, sorted within each folder;
// none is no error. What a [Local] writer left that was killed is passed over. Folders that do not exist are passed over, those that cannot be looked into are an error, since what
// they hold is not known. Errors: filepath.ErrBadPattern, those of [FS].List and Stat.
func Glob(ctx context.Context, in FS, pattern string) ([]string, error) {
	if _, err := filepath.Match(pattern, ""); err != nil {
		return nil, err
	}
	if !hasMeta(pattern) {
		_, err := in.Stat(ctx, pattern)
		if absent(err) {
			return nil, nil
		}
		return []string{pattern}, err
	}
	dir, last := filepath.Split(pattern)
	dir = cleanDir(dir)
	dirs := []string{dir}
	if hasMeta(dir) && dir != pattern {
		var err error
		if dirs, err = Glob(ctx, in, dir); err != nil {
			return nil, err
		}
	}
	var out []string
	for _, d := range dirs {
		infos, err := in.List(ctx, d)
		if absent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, i := range infos {
			if ok, _ := filepath.Match(last, i.Name); ok && (!isTemp(i.Name) || isTemp(last)) { // the pattern was checked above
				out = append(out, filepath.Join(d, i.Name))
			}
		}
	}
	return slices.Clip(out), nil
}

// absent reports whether there is nothing of a name, or that what should be a folder is a file.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

// cleanDir is the folder part that filepath.Split returns, without its separator.
func cleanDir(dir string) string {
	switch vol := filepath.VolumeName(dir); dir {
	case "":
		return "."
	case vol + string(filepath.Separator):
		return dir
	default:
		return dir[:len(dir)-1]
	}
}

// hasMeta reports whether a pattern has anything that is not itself.
func hasMeta(pattern string) bool {
	magic := `*?[`
	if filepath.Separator != '\\' {
		magic = `*?[\`
	}
	return strings.ContainsAny(pattern, magic)
}

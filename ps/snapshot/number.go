package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// ReadNumber reads what [WriteNumber] wrote, or 0 where there is no such file.
func ReadNumber(fsys FS, path string) (uint64, error) {
	b, err := fsys.ReadFile(path, 64)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("snapshot: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("snapshot: %s holds %q and no number; if you know of nothing that changed it, remove it: %w", path, b, ErrCorrupt)
	}
	return n, nil
}

// WriteNumber replaces a small file with a number above 0; it is durable when the error is nil. The folder is made.
func WriteNumber(fsys FS, path string, n uint64) error {
	tmp := path + tmpSuffix
	if err := errors.Join(fsys.MkdirAll(filepath.Dir(path)), fsys.RemoveAll(tmp)); err != nil {
		return fmt.Errorf("snapshot: writing %s: %w", path, err)
	}
	f, err := fsys.Create(tmp)
	if err != nil {
		return fmt.Errorf("snapshot: writing %s: %w", path, err)
	}
	_, err = fmt.Fprintln(f, n)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = fsys.Rename(tmp, path)
	}
	if err == nil {
		err = fsys.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("snapshot: writing %s: %w", path, err)
	}
	return nil
}

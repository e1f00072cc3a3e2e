package fsx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// CanMake checks, without changing anything, whether a folder is there to be written to or could be made: nil, or what is
// in the way. A disk that is full shows only when it is written to.
func CanMake(dir string) error {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			if filepath.Dir(at) != at {
				continue
			}
			return err
		case err != nil:
			return err
		case !info.IsDir():
			return fmt.Errorf("%s is a file, not a folder", at)
		}
		if err := writable(at); err != nil {
			return fmt.Errorf("%s cannot be written to: %w", at, err)
		}
		return nil
	}
}

// CanWrite checks, without changing anything, whether a file is there to be written to or could be made.
func CanWrite(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return CanMake(filepath.Dir(path))
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a file", path)
	}
	if err := writable(path); err != nil {
		return fmt.Errorf("%s cannot be written to: %w", path, err)
	}
	return nil
}

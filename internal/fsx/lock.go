// Package fsx holds what the standard library lacks about files.
package fsx

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked says that another process, or another part of this one, holds the lock.
var ErrLocked = errors.New("in use by another process")

// Lock is an exclusive claim on a folder by way of a file in it. The system gives it back when the process ends, however
// it ends.
type Lock struct{ f *os.File }

// TryLock claims the lock file at path, making it if need be, without waiting. Errors: [ErrLocked], those of opening the
// file.
func TryLock(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &Lock{f}, nil
}

// Close gives the lock back. The file stays: removing it would race with the next owner.
func (l *Lock) Close() error {
	// Closing alone is not enough where this process is starting another one at this moment, which has the file too until its program is loaded.
	return errors.Join(unlock(l.f), l.f.Close())
}

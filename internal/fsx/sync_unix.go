//go:build unix

package fsx

import (
	"errors"
	"syscall"
)

// ignoreUnsupported passes over what file systems answer that cannot sync a folder, and need not.
func ignoreUnsupported(err error) error {
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		return nil
	}
	return err
}

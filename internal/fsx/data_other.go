//go:build !linux

package fsx

import (
	"errors"
	"os"
)

// syncData is fsync.
func syncData(f *os.File) error { return f.Sync() }

// writeEarly is left to the system.
func writeEarly(*os.File, int64, int64) {}

// flushData is left to the system.
func flushData(*os.File, int64, int64) error { return nil }

// openDirect is not known here.
func openDirect(string, int64) (*dataFile, error) { return nil, errors.ErrUnsupported }

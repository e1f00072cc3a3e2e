//go:build !linux

package fsx

import "os"

// syncData is fsync.
func syncData(f *os.File) error { return f.Sync() }

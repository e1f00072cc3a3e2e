//go:build !linux

package fsx

import "os"

// syncData is fsync.
func syncData(f *os.File) error { return f.Sync() }

// writeEarly is left to the system.
func writeEarly(*os.File, int64, int64) {}

//go:build unix

package fsx

import "golang.org/x/sys/unix"

// writable asks the system, which knows of read-only file systems too.
func writable(path string) error { return unix.Access(path, unix.W_OK) }

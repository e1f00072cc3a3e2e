package fsx

import (
	"errors"
	"io/fs"
	"syscall"
)

// advice is what helps against errors of a file system. Callers add which folder or file to name instead.
var advice = [...]struct {
	err error
	do  string
}{
	{syscall.ENOSPC, "make room on the disk"},
	{syscall.EDQUOT, "make room, or raise the quota of the disk"},
	{syscall.EFBIG, "let this process write longer files (ulimit -f) or make them shorter"},
	{syscall.EMFILE, "let this process open more files (ulimit -n)"},
	{syscall.ENFILE, "let the machine open more files (fs.file-max)"},
	{syscall.EROFS, "mount the disk for writing"},
	{syscall.EIO, "check the disk: the system's log says what it reported"},
	{syscall.ESTALE, "mount the network folder again"},
	{fs.ErrPermission, "give the right to write there"},
}

// Advice returns what helps against an error of a file system, as an imperative; known is false where that is only a guess.
func Advice(err error) (do string, known bool) {
	for _, a := range advice {
		if errors.Is(err, a.err) {
			return a.do, true
		}
	}
	return "make room or give the right to write there", false
}

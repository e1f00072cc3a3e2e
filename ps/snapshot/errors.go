package snapshot

import "errors"

var (
	// ErrCorrupt means that a snapshot is not what its writer wrote: a file is missing or cut short, a checksum differs, the
	// manifest does not decode. Use an older one.
	ErrCorrupt = errors.New("snapshot is damaged")
	// ErrNoSpace means that the disk filled up while a snapshot was written; the snapshots before it are untouched. Free space, keep
	// fewer snapshots or name another folder. Errors that wrap it wrap syscall.ENOSPC too.
	ErrNoSpace = errors.New("no space left for the snapshot")
	// ErrVersion means that the snapshot was written by a newer version of the format.
	ErrVersion = errors.New("unknown snapshot format version")
)

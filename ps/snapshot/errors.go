package snapshot

import (
	"errors"

	"github.com/monolith-go/monolith/internal/failure"
)

var (
	// ErrCorrupt means that a snapshot is not what its writer wrote: a file is missing or cut short, a checksum differs, the
	// manifest does not decode. Use an older one.
	ErrCorrupt = failure.New(failure.Corrupt, "snapshot is damaged")
	// ErrNotFinite means that a parameter or its optimizer's state is NaN or infinite. Nothing that begins from there learns, so
	// such a snapshot is not written and those before it are kept. Go back to one of them with a lower learning rate.
	ErrNotFinite = errors.New("parameters are not finite; go back to an earlier snapshot with lower learning rates")
	// ErrNoSpace means that the disk filled up while a snapshot was written; the snapshots before it are untouched. Free space, keep
	// fewer snapshots or name another folder. Errors that wrap it wrap syscall.ENOSPC too.
	ErrNoSpace = failure.New(failure.NoSpace, "no space left for the snapshot")
	// ErrVersion means that the snapshot is of a version of the format that this program does not read.
	ErrVersion = errors.New("unknown snapshot format version")
)

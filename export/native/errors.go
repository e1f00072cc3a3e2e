package native

import (
	"errors"

	"github.com/monolith-go/monolith/internal/failure"
)

var (
	// ErrCorrupt means that an export is not what was written: a file is missing or cut short, a checksum differs, the disk does not give it
	// back. Export the snapshot again.
	ErrCorrupt = failure.New(failure.Corrupt, "the export is damaged; export the snapshot again")
	// ErrVersion means that an export is of a version of the format that this program does not read.
	ErrVersion = errors.New("unknown version of the native export format; export the snapshot again with this program")
	// ErrNone means that a folder has no manifest: nothing was exported there, or not to the end.
	ErrNone = failure.New(failure.Config, "no complete native export; monolith export --format native writes one")
)

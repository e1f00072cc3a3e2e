package upload

import (
	"github.com/monolith-go/monolith/internal/failure"
)

var (
	// ErrOwner means that the snapshots in the store are of another folder, another run or another life of the job. Nothing was changed there.
	// Name another place, or continue from what is there: docs/uploads.md.
	ErrOwner = failure.New(failure.Config, "the store has the snapshots of another dir")
	// ErrAhead means that the store has newer snapshots than the folder, which has lost some or was put back. Nothing was changed.
	ErrAhead = failure.New(failure.Config, "the store has newer snapshots than the dir")
	// ErrNotEmpty means that there are snapshots where a run was to start over, or to be brought back to.
	ErrNotEmpty = failure.New(failure.Config, "there are snapshots already")
)

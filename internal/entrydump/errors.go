package entrydump

import "github.com/monolith-go/monolith/internal/failure"

var (
	// ErrDamaged means that a file is not what its writer wrote, or that one is missing. Fetch the checkpoint again, or take an older one.
	ErrDamaged = failure.New(failure.Corrupt, "the checkpoint is damaged")
	// ErrNone means that a folder has no checkpoint of tables.
	ErrNone = failure.New(failure.Config, "no checkpoint of tables")
)

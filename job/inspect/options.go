package inspect

import (
	"log/slog"
	"time"
)

// Options say what to show of a source.
type Options struct {
	Logger *slog.Logger
	// Rows is how many rows to show; what is said of columns and features is of more.
	Rows int
	// Timeout bounds the whole look; 0: [Timeout].
	Timeout time.Duration
}

// Timeout is how long a look into a source takes at most.
const Timeout = 10 * time.Second

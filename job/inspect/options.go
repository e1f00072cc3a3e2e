package inspect

import (
	"log/slog"
	"time"
)

// Options say what to show of a source.
type Options struct {
	Logger *slog.Logger
	// Rows is how many rows to show; the description of columns and features is of more.
	Rows int
	// Timeout bounds the whole inspection; 0: [Timeout].
	Timeout time.Duration
}

// Timeout is how long reading a sample of a source takes at most.
const Timeout = 10 * time.Second

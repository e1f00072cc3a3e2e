package pqfile

import (
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by all errors about a file that is not as the format asks.
var ErrMalformed = errors.New("malformed parquet file")

// ErrUnsupported is wrapped by errors about a file that may be fine but that this package cannot read.
var ErrUnsupported = errors.New("unsupported parquet feature")

// ErrTooLarge is wrapped by errors about a file that may be fine but asks for more memory than [Limits] allow.
var ErrTooLarge = errors.New("larger than allowed")

func tooLarge(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrTooLarge}, args...)...)
}

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsupported}, args...)...)
}

const (
	maxFooterBytes = 64 << 20
	maxHeaderBytes = 1 << 20 // of a page, most of it statistics
	maxDepth       = 64      // of structures and of the schema
)

// Limits bounds the memory of reading one column chunk to about six times MaxPageBytes: page, uncompressed page, levels,
// values and dictionary.
type Limits struct {
	// MaxPageBytes bounds a page, compressed, uncompressed and decoded.
	MaxPageBytes int
}

// values is how many values a page may have.
func (l Limits) values() int { return l.MaxPageBytes / 8 }

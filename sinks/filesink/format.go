package filesink

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
)

// Format is a way to write batches into a file. Methods may be called from several goroutines.
type Format interface {
	// Name is what the format is called in plans and errors, such as "parquet": its package is called parquetsink.
	Name() string
	// Extension is what the names of its files end with, such as ".parquet".
	Extension() string
	// Begin begins a file of rows with these columns; what the encoder makes of them goes to w, which is buffered. Errors:
	// [pipeline.ErrSchema], all columns that cannot be written at once; those of w.
	Begin(w io.Writer, columns *arrow.Schema) (Encoder, error)
	// Metadata reads what an encoder was given to End, from a file of size bytes. Errors: those of r; [ErrDamaged] for a file that
	// is none of the format, or not complete. Whatever the file holds, memory is bounded by its size.
	Metadata(r io.ReaderAt, size int64) (map[string]string, error)
	// Fingerprint renders every setting that changes where or what is written, the folder too, not how it is cut into files
	// ([pipeline.Fingerprint]).
	Fingerprint() string
}

// Encoder writes one file. It is used by one goroutine.
type Encoder interface {
	// Write appends the rows of a batch, which stays the caller's. Its columns are those of Begin.
	Write(b *pipeline.Batch) error
	// Size is about how many bytes the file has so far.
	Size() int64
	// End completes the file, with metadata that [Format].Metadata reads back.
	End(metadata map[string]string) error
}

// ErrDamaged says that a file is none of its format, or none that this sink has completed.
var ErrDamaged = fmt.Errorf("not a complete file of this sink: %w", pipeline.ErrBadData)

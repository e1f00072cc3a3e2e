package export

import (
	"context"
	"net/url"
	"strings"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Format writes whole models as files that programs outside of monolith read.
type Format interface {
	// Name is what it is called in commands and errors, such as "safetensors".
	Name() string
	// Check refuses what the format has no form for: it names the layer, feature or table, or the size. It does no I/O. Errors: all faults at
	// once.
	Check(m *Model) error
	// Write writes a model that Check has let pass. Rows are read table by table and not held, unless the format's package says so. When the
	// error is nil all files are durable. Otherwise some may be there: the caller gives the folder its name when all is well, and removes it when
	// not. Errors: those of [Model.Rows] and of the file system; the context's.
	Write(ctx context.Context, m *Model, to Target) error
}

// Target is where a model is written.
type Target struct {
	// FS has the folder Dir, which is empty or not there.
	FS  fsx.FS
	Dir string
	// Progress is called with how many more rows were written; nil: nobody asks.
	Progress func(rows int64)
}

// Wrote tells of rows that were written.
func (t *Target) Wrote(rows int) {
	if t.Progress != nil {
		t.Progress(int64(rows))
	}
}

// Folder is what the name of a table is as part of a path: the table's name, in which what paths take for their own is escaped, the dot at the beginning too.
func Folder(table string) string {
	name := url.PathEscape(table)
	if rest, ok := strings.CutPrefix(name, "."); ok {
		return "%2E" + rest
	}
	return name
}

package parquetsource

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

// Options are the choices of a [Source]. Files and Columns are required.
type Options struct {
	// Files are paths, with the wildcards of filepath.Match and Monolith's macros ({DATE(20260301,20260331)},
	// {INT(0,7)}). Each must name at least one file. The splits of a file are named by
	// its path after the folder that its pattern begins with, and known again by its bytes wherever it lies (see Known).
	Files []string
	// Known are the identities, by name, of the splits that the source had in earlier runs ([pipeline.Split].Identity):
	// a file that begins with what one of them held has its name, whatever it is called now.
	Known map[string]string
	// Seen are what [pipeline.Split].Seen was of those that had grown, by name. No more is read of a known file than that: what has come since is
	// read when it is in Seen.
	Seen map[string]string
	// InOrder lists the splits in the order of Files, and those of one pattern by path; otherwise they are sorted by name.
	InOrder bool
	// Complete says that the files are written to the end, so that one without a footer is a malformed one. Otherwise it is
	// still being written or copied: it is left out, and a warning says so.
	Complete bool
	// Draw adds [pipeline.ColDraw]: a hash of what the row group begins with, its number in the file and the row's number in it. It costs
	// one read of 64 KiB for each row group.
	Draw bool
	// Log gets that warning; nil: nothing is logged.
	Log *slog.Logger
	// Columns are the wanted columns by their names in the files, with the types to read them as. A name is that of a
	// top-level column or the path to a nested one, its parts joined by dots. A list of null ([IDs]) is read as a list of
	// int64, floats or binary, by what is stored, which must be the same in all files.
	Columns *arrow.Schema
	// BatchRows bounds the rows of a batch, default 4096. More cost memory and time until the first row, fewer cost
	// speed.
	BatchRows int
	// MaxPageBytes bounds a page of a column, compressed and not; larger ones are not read. Reading a row
	// group takes at worst six times that for each column. Default 128 MiB, at most 1 GiB.
	MaxPageBytes int
	// MaxBatchBytes bounds the variable-length values of a column in a batch: short pages of a malformed file may decode
	// for endless ones. Default 512 MiB, at most 1 GiB.
	MaxBatchBytes int
	// FS is where the files are; nil: this machine.
	FS fsx.FS
}

const gibibyte = 1 << 30

// IDs is the type to ask for where numbers and text will both do.
func IDs() arrow.DataType { return arrow.ListOf(arrow.Null) }

// isIDs reports whether a type is [IDs].
func isIDs(dt arrow.DataType) bool {
	l, ok := dt.(*arrow.ListType)
	return ok && l.Elem().ID() == arrow.NULL
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	if o.BatchRows == 0 {
		o.BatchRows = 4096
	}
	if o.MaxPageBytes == 0 {
		o.MaxPageBytes = 128 << 20
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = 512 << 20
	}
	if o.FS == nil {
		o.FS = fsx.Local{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate returns every fault of the options at once, each wrapping [pipeline.ErrConfig]. Zero values mean defaults.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("parquetsource: "+format+": %w", append(args, pipeline.ErrConfig)...))
	}
	if len(o.Files) == 0 {
		fault("no files")
	}
	if o.Columns == nil || o.Columns.NumFields() == 0 {
		fault("no columns")
	} else {
		seen := map[string]bool{}
		for _, f := range o.Columns.Fields() {
			if seen[f.Name] || f.Name == pipeline.ColPosition || f.Name == pipeline.ColBegin || f.Name == pipeline.ColDraw {
				fault("column %q is declared twice", f.Name)
			}
			seen[f.Name] = true
			if !readable(f.Type) {
				fault("column %q is wanted as %s; there are bool, int64, float32, float64, binary, string, lists of these and lists of lists", f.Name, f.Type)
			}
		}
	}
	if o.BatchRows < 0 {
		fault("batch_rows %d is negative", o.BatchRows)
	}
	if o.MaxPageBytes < 0 || o.MaxPageBytes > gibibyte {
		fault("max_page_bytes %d is not in 1 to %d", o.MaxPageBytes, gibibyte)
	}
	if o.MaxBatchBytes < 0 || o.MaxBatchBytes > gibibyte {
		fault("max_batch_bytes %d is not in 1 to %d", o.MaxBatchBytes, gibibyte)
	}
	return errors.Join(faults...)
}

// readable reports whether columns can be read as a type.
func readable(dt arrow.DataType) bool {
	if isIDs(dt) {
		return true
	}
	for nesting(dt) > 0 {
		dt = dt.(*arrow.ListType).Elem()
	}
	switch dt.ID() {
	case arrow.BOOL, arrow.INT64, arrow.FLOAT32, arrow.FLOAT64, arrow.BINARY, arrow.STRING:
		return true
	}
	return false
}

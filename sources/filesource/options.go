package filesource

import (
	"cmp"

	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
)

// MaxBlockBytes bounds [Options].BlockBytes and the records of a [Format]: a block holds less than twice that.
const MaxBlockBytes = filesplit.MaxBlockBytes

// Options are the choices that files of every format have. Only Files is required.
type Options struct {
	// Files are paths, with the wildcards of filepath.Match and Monolith's macros ({DATE(20260301,20260331)},
	// {INT(0,7)}). Each must name at least one file. A file's split is named by its path after the folder that its pattern
	// begins with, and known again by its bytes wherever it lies (see Known).
	Files []string
	// Known are the identities, by name, of the splits that the source had in earlier runs ([pipeline.Split].Identity):
	// a file that begins with what one of them held has its name, whatever it is called now.
	Known map[string]string
	// Seen are what [pipeline.Split].Seen was of those that had grown, by name. No more is read of a known file than that: what has come since is
	// read when it is in Seen.
	Seen map[string]string
	// Follow are those of Known that a longer file has under any name, such as a log that was written to until it was rotated. Others a file has
	// that is longer under the same last name, or as long under any.
	Follow map[string]bool
	// InOrder lists the splits in the order of Files, and those of one pattern by path; otherwise they are sorted by name.
	InOrder bool
	// Compression is "auto", "none" or "gzip"; default auto: decided for each file by its first bytes. A position in a
	// gzip file is a record number, and continuing from one reads the file again from its beginning.
	Compression string
	// Complete says that nothing is appended to the files any more, so that a record that a file ends within is a bad row.
	// Otherwise reading ends in front of it, and a warning says so.
	Complete bool
	// BlockRows bounds the records of a block, default 4096. More cost memory and time until the first row, fewer cost
	// speed.
	BlockRows int
	// BlockBytes ends a block that holds as many bytes of records, default 4 MiB, at most 1 GiB.
	BlockBytes int
	// FS is where the files are; nil: this machine.
	FS fsx.FS
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	o.Compression = cmp.Or(o.Compression, string(filesplit.Auto))
	o.BlockRows = cmp.Or(o.BlockRows, 4096)
	o.BlockBytes = cmp.Or(o.BlockBytes, 4<<20)
	if o.FS == nil {
		o.FS = fsx.Local{}
	}
	return o
}

// Check calls fault for every mistake. Zero values mean defaults.
func (o Options) Check(fault func(format string, args ...any)) {
	o = o.WithDefaults()
	if len(o.Files) == 0 {
		fault("no files")
	}
	if err := filesplit.Compression(o.Compression).Check(); err != nil {
		fault("%w", err)
	}
	if o.BlockRows < 0 {
		fault("block_rows %d is negative", o.BlockRows)
	}
	if o.BlockBytes < 0 || o.BlockBytes > MaxBlockBytes {
		fault("block_bytes %d is not in 1 to %d", o.BlockBytes, MaxBlockBytes)
	}
}

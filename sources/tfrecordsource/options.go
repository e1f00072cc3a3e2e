package tfrecordsource

import (
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/filesource"
)

// Options are the choices of a source ([New]). Only Files is required.
type Options struct {
	// Files are paths, with the wildcards of filepath.Match and Monolith's macros ({DATE(20260301,20260331)},
	// {INT(0,7)}). Each must name at least one file. A file's split is named by
	// its path after the folder that its pattern begins with, and known again by its bytes wherever it lies (see Known).
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
	// MaxRecordBytes bounds a record's data, default 64 MiB, at most 1 GiB; larger ones are bad rows.
	MaxRecordBytes int64
	// BlockRows bounds the records of a block, default 4096. More cost memory and time until the first row, fewer cost
	// speed.
	BlockRows int
	// BlockBytes ends a block that holds as many bytes of records, default 4 MiB, at most 1 GiB.
	BlockBytes int
	// FS is where the files are; nil: this machine.
	FS fsx.FS
}

// files are the choices that files of every format have.
func (o Options) files() filesource.Options {
	return filesource.Options{
		Files: o.Files, Known: o.Known, Seen: o.Seen, Follow: o.Follow, InOrder: o.InOrder, Compression: o.Compression, BlockRows: o.BlockRows, BlockBytes: o.BlockBytes, Complete: o.Complete, FS: o.FS,
	}
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	files := o.files().WithDefaults()
	o.Compression, o.BlockRows, o.BlockBytes, o.FS = files.Compression, files.BlockRows, files.BlockBytes, files.FS
	if o.MaxRecordBytes == 0 {
		o.MaxRecordBytes = tfrecord.DefaultMaxRecordBytes
	}
	return o
}

// Validate returns every fault of the options at once, each wrapping [pipeline.ErrConfig]. Zero values mean defaults.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("tfrecordsource: "+format+": %w", append(args, pipeline.ErrConfig)...))
	}
	o.files().Check(fault)
	if o.MaxRecordBytes < 0 || o.MaxRecordBytes > filesource.MaxBlockBytes {
		fault("max_record_bytes %d is not in 1 to %d", o.MaxRecordBytes, filesource.MaxBlockBytes)
	}
	return errors.Join(faults...)
}

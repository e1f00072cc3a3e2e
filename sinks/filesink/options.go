package filesink

import (
	"cmp"
	"time"
)

// Options are the choices that files of every format have. Dir is required; the zero value of everything else works.
type Options struct {
	// Dir is the folder, which is made when it is missing. All workers of a job write to the same.
	Dir string
	// RowsPerFile ends a file after the batch with which it has so many rows. Default 1,048,576.
	RowsPerFile int64
	// BytesPerFile ends a file after the batch with which it has about so many bytes. Default 256 MiB.
	BytesPerFile int64
	// FileEvery ends a file so long after its first row, so that rows of a slow stream become visible. Default 1m.
	FileEvery time.Duration
	// Output is what the rows are, in the metadata of the files: a split whose last file has another one's is refused. Default "".
	Output string
	// Keys is what errors put before the name dir where they say which key of a configuration to change. Default "".
	Keys string
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	o.RowsPerFile = cmp.Or(o.RowsPerFile, 1<<20)
	o.BytesPerFile = cmp.Or(o.BytesPerFile, 256<<20)
	o.FileEvery = cmp.Or(o.FileEvery, time.Minute)
	return o
}

// Check calls fault for every mistake. Zero values mean defaults.
func (o Options) Check(fault func(format string, args ...any)) {
	o = o.WithDefaults()
	if o.Dir == "" {
		fault("no Dir")
	}
	if o.RowsPerFile < 1 || o.BytesPerFile < 1 {
		fault("RowsPerFile is %d and BytesPerFile %d; each must be at least 1", o.RowsPerFile, o.BytesPerFile)
	}
	if o.FileEvery < time.Millisecond {
		fault("FileEvery is %s, at least 1ms is needed", o.FileEvery)
	}
}

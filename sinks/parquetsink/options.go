package parquetsink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/monolith-go/monolith/pipeline"
)

// Options say where to write and how large files become. Dir is required; the zero value of everything else works.
type Options struct {
	// Dir is the folder, which is made when it is missing. All workers of a job write to the same.
	Dir string
	// RowsPerFile ends a file after the batch with which it has so many rows. Default 1,048,576.
	RowsPerFile int64
	// BytesPerFile ends a file after the batch with which it has about so many bytes. Default 256 MiB.
	BytesPerFile int64
	// FileEvery ends a file so long after its first row, so that rows of a slow stream become visible. Default 1m.
	FileEvery time.Duration
	// RowsPerGroup is the size of a row group, the unit that readers share out. A group is held in memory, for each split
	// that is written. Default 65,536.
	RowsPerGroup int64
	// Compression of pages: zstd (default), snappy, gzip, lz4 or none.
	Compression string
}

func (o Options) withDefaults() Options {
	if o.RowsPerFile == 0 {
		o.RowsPerFile = 1 << 20
	}
	if o.BytesPerFile == 0 {
		o.BytesPerFile = 256 << 20
	}
	if o.FileEvery == 0 {
		o.FileEvery = time.Minute
	}
	if o.RowsPerGroup == 0 {
		o.RowsPerGroup = 1 << 16
	}
	if o.Compression == "" {
		o.Compression = "zstd"
	}
	return o
}

// Validate returns all faults of the options at once, each an [pipeline.ErrConfig]. It opens nothing.
func (o Options) Validate() error {
	o = o.withDefaults()
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("parquetsink: "+format+": %w", append(args, pipeline.ErrConfig)...))
	}
	if o.Dir == "" {
		bad("no Dir")
	}
	if o.RowsPerFile < 1 || o.BytesPerFile < 1 || o.RowsPerGroup < 1 {
		bad("RowsPerFile is %d, BytesPerFile %d and RowsPerGroup %d; each must be at least 1", o.RowsPerFile, o.BytesPerFile, o.RowsPerGroup)
	}
	if o.FileEvery < time.Millisecond {
		bad("FileEvery is %s, at least 1ms is needed", o.FileEvery)
	}
	if _, ok := codec(o.Compression); !ok {
		bad("Compression %q is none of %s", o.Compression, strings.Join(Codecs(), ", "))
	}
	return errors.Join(faults...)
}

// Codecs are the names of the compressions that can be chosen.
func Codecs() []string { return slices.Clone(codecs) }

var codecs = []string{"none", "gzip", "lz4", "snappy", "zstd"}

func codec(name string) (compress.Codec, bool) {
	at := slices.Index(codecs, name)
	if at < 0 {
		return nil, false
	}
	return []compress.Codec{&parquet.Uncompressed, &parquet.Gzip, &parquet.Lz4Raw, &parquet.Snappy, &parquet.Zstd}[at], true
}

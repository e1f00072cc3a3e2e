package parquetsink

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/filesink"
)

// Options say where to write and how large files become. Dir is required; the zero value of everything else works.
type Options struct {
	// Options are those of files of any format.
	filesink.Options
	// RowsPerGroup is the size of a row group, the unit that readers share out. A group is held in memory, for each split
	// that is written. Default 65,536.
	RowsPerGroup int64
	// Compression of pages: zstd (default), snappy, gzip, lz4 or none.
	Compression string
}

// WithDefaults returns the options with defaults in place of zero values.
func (o Options) WithDefaults() Options {
	o.Options = o.Options.WithDefaults()
	o.RowsPerGroup = cmp.Or(o.RowsPerGroup, 1<<16)
	o.Compression = cmp.Or(o.Compression, "zstd")
	return o
}

// Validate returns all faults of the options at once, each an [pipeline.ErrConfig]. It opens nothing.
func (o Options) Validate() error {
	o = o.WithDefaults()
	var faults []error
	bad := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("parquetsink: "+format+": %w", append(args, pipeline.ErrConfig)...))
	}
	o.Check(bad)
	if o.RowsPerGroup < 1 {
		bad("RowsPerGroup is %d, must be at least 1", o.RowsPerGroup)
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

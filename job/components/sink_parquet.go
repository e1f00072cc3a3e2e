package components

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sinks/parquetsink"
)

// ParquetSink is a folder of Parquet files, each with rows of one split: SOURCE~SPLIT~POSITION.parquet. A file is visible when
// it is complete. All workers of a cluster write to one folder that they share. Short form: the folder alone.
type ParquetSink struct {
	// Dir is the folder. It is made when it is missing.
	Dir string `yaml:"dir" short:"true" required:"true"`
	// FileEvery is how long a file is written at most, so how long rows of a stream stay unseen.
	FileEvery conf.Duration `yaml:"file_every" default:"1m" min:"1ms"`
	// RowsPerFile is about how many rows a file has at most.
	RowsPerFile int64 `yaml:"rows_per_file" default:"1048576" min:"1"`
	// BytesPerFile is about how large a file becomes at most.
	BytesPerFile conf.Size `yaml:"bytes_per_file" default:"256MiB" min:"1"`
	// RowsPerGroup is the size of a row group, which is held in memory for each split.
	RowsPerGroup int64 `yaml:"rows_per_group" default:"65536" min:"1"`
	// Compression is that of pages.
	Compression string `yaml:"compression" default:"zstd" enum:"zstd|snappy|gzip|lz4|none"`
}

// Sink implements [component.SinkConfig].
func (p *ParquetSink) Sink(w component.Writing) (pipeline.Sink[*pipeline.Batch], error) {
	return parquetsink.New(parquetsink.Options{
		Dir: filepath.Join(p.Dir, w.Part), FileEvery: time.Duration(p.FileEvery), RowsPerFile: p.RowsPerFile, BytesPerFile: int64(p.BytesPerFile),
		RowsPerGroup: p.RowsPerGroup, Compression: p.Compression,
	})
}

// CanOpen implements [component.SinkConfig].
func (p *ParquetSink) CanOpen() (key string, err error) {
	if err := fsx.CanMake(p.Dir); err != nil {
		return "dir", fmt.Errorf("%w; name another place, or make this one one that can be written to", err)
	}
	return "", nil
}

// Place implements [component.SinkConfig].
func (p *ParquetSink) Place() (key, place string) { return "dir", filepath.Clean(p.Dir) }

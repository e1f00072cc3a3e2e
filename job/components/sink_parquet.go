package components

import (
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/sinks/parquetsink"
)

// ParquetSink is a folder of Parquet files, each with rows of one split: SOURCE~SPLIT~POSITION.parquet. A file is visible when
// it is complete. All workers of a cluster write to one folder that they share. Short form: the folder alone.
type ParquetSink struct {
	SinkFiles `yaml:",inline"`
	// RowsPerGroup is the size of a row group, which is held in memory for each split.
	RowsPerGroup int64 `yaml:"rows_per_group" min:"1"`
	// Compression is that of pages.
	Compression string `yaml:"compression" enum:"zstd|snappy|gzip|lz4|none"`
}

// Defaults implements [conf.Defaulted].
func (*ParquetSink) Defaults() map[string]string {
	o := parquetsink.Options{}.WithDefaults()
	return map[string]string{"rows_per_group": written(o.RowsPerGroup), "compression": o.Compression}
}

// Sink implements [component.SinkConfig].
func (p *ParquetSink) Sink(w component.Writing) (component.OutputSink, error) {
	return outputOf(parquetsink.New(parquetsink.Options{Options: p.files(w), RowsPerGroup: p.RowsPerGroup, Compression: p.Compression}))
}

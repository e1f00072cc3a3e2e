package components

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/filesplit"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// Parquet reads the columns that parse.features, parse.label and parse.weight name.
type Parquet struct {
	FileSet `yaml:",inline"`
	// MaxPageBytes bounds a page of a column, compressed and not: a row group with a larger one is not read. Reading a row
	// group takes at worst six times that for each column.
	MaxPageBytes conf.Size `yaml:"max_page_bytes" min:"1" max:"1073741824"`
}

// Defaults implements [conf.Defaulted].
func (*Parquet) Defaults() map[string]string {
	return map[string]string{"max_page_bytes": written(size(parquetsource.Options{}.WithDefaults().MaxPageBytes))}
}

// Formats implements [component.SourceConfig].
func (*Parquet) Formats() []string { return []string{"columns"} }

// UsualFormat implements [component.SourceConfig].
func (*Parquet) UsualFormat() string { return "columns" }

// InOrder implements [component.OrderedFiles].
func (f *Parquet) InOrder(files []string) component.SourceConfig {
	ordered := *f
	ordered.FileSet = f.ordered(files)
	return &ordered
}

// Brief implements [component.Brief].
func (f *Parquet) Brief(rows int, _ time.Duration) component.SourceConfig {
	brief := *f
	brief.FileSet = f.brief(rows)
	return &brief
}

// OfFiles implements [component.FileColumns].
func (*Parquet) OfFiles(files []string) component.Columns {
	return &Parquet{FileSet: FileSet{Files: files}}
}

// OpenColumns implements [component.Columns].
func (f *Parquet) OpenColumns(o component.Opening, columns *arrow.Schema) (pipeline.Source[*pipeline.Batch], error) {
	return parquetsource.New(parquetsource.Options{
		Files: f.Files, Known: o.Known, Seen: o.Seen, InOrder: f.inOrder, Complete: f.Complete, Draw: o.Draw, Log: o.Log, BatchRows: f.BlockRows, MaxPageBytes: int(f.MaxPageBytes), Columns: columns,
	})
}

// Describe implements [component.Columns]. Files that differ are a fault that the job's own columns show; here the first that
// can be read stands for all.
func (f *Parquet) Describe(ctx context.Context) (columns *arrow.Schema, unreadable []string, err error) {
	files, err := filesplit.Expand(ctx, fsx.Local{}, f.Files)
	if err != nil {
		return nil, nil, fmt.Errorf("job: %w: %w", err, pipeline.ErrConfig)
	}
	for _, file := range files {
		if columns, unreadable, err = parquetsource.Describe(ctx, fsx.Local{}, file.Path); err == nil {
			break
		}
	}
	return columns, unreadable, err
}

// isParquet recognises a file by its first bytes, or by its name.
func isParquet(head []byte, extension string) (ok, sure bool) {
	if bytes.HasPrefix(head, []byte("PAR1")) {
		return true, true
	}
	return extension == ".parquet", false
}

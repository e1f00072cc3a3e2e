package parquetsink

import (
	"bufio"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

// file is a file of one split that is not visible yet.
type file struct {
	out       fsx.Exclusive
	buf       *bufio.Writer
	w         *parquet.GenericWriter[any]
	layout    *layout
	name      string
	from      pipeline.Position
	began     time.Time
	rows      int64
	group     int64 // rows of the row group that is being made
	groupRows int64
	values    []parquet.Value // scratch
	splitName []byte
}

// begin begins the file for the rows of a split from a position on.
func begin(ctx context.Context, o Options, l *layout, stem string, from pipeline.Position) (*file, error) {
	f := &file{layout: l, name: fileName(stem, from), from: from, began: time.Now(), groupRows: o.RowsPerGroup}
	w, err := fsx.Local{}.Create(ctx, filepath.Join(o.Dir, f.name))
	if err != nil {
		return nil, unavailable(err)
	}
	f.out = w.(fsx.Exclusive)
	f.buf = bufio.NewWriterSize(f.out, 1<<18)
	c, _ := codec(o.Compression) // Validate has checked it
	f.w = parquet.NewGenericWriter[any](f.buf, l.schema, parquet.Compression(c), parquet.CreatedBy("monolith", "", ""),
		parquet.DictionaryMaxBytes(1<<20))
	return f, nil
}

// write appends the rows of a batch.
func (f *file) write(b *pipeline.Batch) error {
	rec := b.Record()
	for from, n := int64(0), rec.NumRows(); from < n; {
		take := min(n-from, f.groupRows-f.group)
		part := rec.NewSlice(from, from+take)
		err := f.writeRows(b.Origin().Split, part.NumRows(), func(leaf int, dst []parquet.Value) []parquet.Value {
			return f.layout.leaves[leaf].appendColumn(dst, part.Column(leaf), leaf)
		})
		part.Release()
		if err != nil {
			return unavailable(err)
		}
		from += take
		f.rows += take
		if f.group += take; f.group == f.groupRows {
			if err := f.w.Flush(); err != nil {
				return unavailable(err)
			}
			f.group = 0
		}
	}
	return nil
}

func (f *file) writeRows(split string, rows int64, column func(leaf int, dst []parquet.Value) []parquet.Value) error {
	for i, w := range f.w.ColumnWriters() {
		f.values = f.values[:0]
		if i == f.layout.split {
			f.splitName = append(f.splitName[:0], split...)
			f.values = slices.Grow(f.values, int(rows))
			for range rows {
				f.values = append(f.values, parquet.ByteArrayValue(f.splitName).Level(0, 0, i))
			}
		} else {
			f.values = column(i, f.values)
		}
		if _, err := w.WriteRowValues(f.values); err != nil {
			return fmt.Errorf("%s: column %d: %w", f.name, i, err)
		}
	}
	return nil
}

// size is about how many bytes the file has.
func (f *file) size() int64 { return f.w.Size() }

// publish completes the file and gives it its name. Errors: as [fsx.Exclusive].CommitNew. Whatever happens, the file is done
// with.
func (f *file) publish(ctx context.Context, c covered) error {
	meta := c.metadata()
	for _, key := range slices.Sorted(maps.Keys(meta)) {
		f.w.SetKeyValueMetadata(key, meta[key])
	}
	err := f.w.Close()
	if err == nil {
		err = f.buf.Flush()
	}
	if err == nil {
		err = f.out.CommitNew(ctx)
	}
	f.abandon()
	return err
}

// abandon removes the file unless it is published.
func (f *file) abandon() { _ = f.out.Close() } // what is left is removed by the next owner

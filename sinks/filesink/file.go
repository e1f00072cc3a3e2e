package filesink

import (
	"bufio"
	"context"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
)

// file is a file of one split that is not visible yet.
type file struct {
	Encoder

	out   fsx.Exclusive
	buf   *bufio.Writer
	from  pipeline.Position
	began time.Time
	rows  int64
}

// begin begins the file of the given name, for rows from a position on.
func begin(ctx context.Context, dir, name string, format Format, columns *arrow.Schema, from pipeline.Position) (*file, error) {
	w, err := fsx.Local{}.Create(ctx, filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	f := &file{out: w.(fsx.Exclusive), from: from, began: time.Now()}
	f.buf = bufio.NewWriterSize(f.out, 1<<18)
	if f.Encoder, err = format.Begin(f.buf, columns); err != nil {
		f.abandon()
		return nil, err
	}
	return f, nil
}

// write appends the rows of a batch.
func (f *file) write(b *pipeline.Batch) error {
	f.rows += int64(b.NumRows())
	return f.Write(b)
}

// old reports whether the first row of a file was written so long ago.
func (f *file) old(d time.Duration) bool { return time.Since(f.began) >= d }

// publish completes the file and gives it its name. Errors: as [fsx.Exclusive].CommitNew. Whatever happens, the file is done
// with.
func (f *file) publish(ctx context.Context, c covered) error {
	err := f.End(c.metadata())
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

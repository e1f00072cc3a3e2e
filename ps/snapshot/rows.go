package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/table"
)

// RowsOptions say how the rows of one shard are read. The zero value reads weights and state from the machine's disk.
type RowsOptions struct {
	// FS is where the snapshot lies; nil is [fsx.Local].
	FS fsx.FS
	// WeightsOnly leaves the optimizers' state alone.
	WeightsOnly bool
	// Verified is true for files whose checksums the caller has seen to be right, as OpenRows does otherwise: several readers of one
	// file need not read all of it each.
	Verified bool
}

// RowReader reads what one shard wrote of a table, from any row on. It holds one record batch, at most 64Ki rows, and is not for
// concurrent use.
type RowReader struct {
	of    *Snapshot
	file  FileInfo
	files *rowFiles
}

// OpenRows opens what a shard wrote of a table of a snapshot whose manifest was read, and verifies it before anything is used. Errors:
// [ErrCorrupt], which names the file; the context's; fs.ErrNotExist where the shard has no rows of the table.
func OpenRows(ctx context.Context, info *Info, tbl, shard int, o RowsOptions) (_ *RowReader, err error) {
	of := *info
	of.Files = slices.DeleteFunc(slices.Clone(info.Files), func(f FileInfo) bool {
		return f.Table != tbl || f.Shard != shard || f.Kind != KindRows && (f.Kind != KindState || o.WeightsOnly)
	})
	s := &Snapshot{info: &of, weightsOnly: o.WeightsOnly}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, f := range of.Files {
		if err := s.add(ctx, disk(o.FS), f, o.Verified); err != nil {
			return nil, s.named(f, err)
		}
	}
	r, err := s.reader(tbl, shard)
	if err == nil && r == nil {
		err = fmt.Errorf("snapshot: %s: shard %d has no rows of table %d: %w", info.Path, shard, tbl, fs.ErrNotExist)
	}
	return r, err
}

// reader reads what a shard wrote of a table; nil: nothing.
func (s *Snapshot) reader(tbl, shard int) (*RowReader, error) {
	rows, f := s.find(KindRows, tbl, shard)
	if rows == nil {
		return nil, nil
	}
	t := s.info.Tables[tbl]
	var state fsx.File
	if stateDim := t.StateDim(); stateDim > 0 && !s.weightsOnly {
		var of FileInfo
		if state, of = s.find(KindState, tbl, shard); state == nil || of.Rows != f.Rows {
			return nil, s.named(f, fmt.Errorf("%d rows, and %d have optimizer state: %w", f.Rows, of.Rows, ErrCorrupt))
		}
	}
	files, err := openRowFiles(rows, state, t)
	if err != nil {
		return nil, s.named(f, err)
	}
	return &RowReader{of: s, file: f, files: files}, nil
}

// Next returns the next rows, the first of which is row number first of the file; they are valid until the next call. Rows come in the order
// of [table.Hash]. io.EOF ends the file and repeats. Errors: [ErrCorrupt] with file and offset.
func (r *RowReader) Next() (rows *table.Rows, first int64, err error) {
	rows, first, err = r.files.next()
	if errors.Is(err, io.EOF) {
		if first == r.file.Rows {
			return nil, first, io.EOF
		}
		err = fmt.Errorf("%d rows of %d: %w", first, r.file.Rows, ErrCorrupt)
	}
	if err != nil {
		return nil, first, r.of.named(r.file, err)
	}
	return rows, first, nil
}

// SeekRow goes to the record batch that has a row: Next returns it with the rows before it in the batch. What lies before is not read.
// Errors: as Next.
func (r *RowReader) SeekRow(row int64) error {
	if err := r.files.seek(row); err != nil {
		return r.of.named(r.file, err)
	}
	return nil
}

// Close closes the files.
func (r *RowReader) Close() error { return r.of.Close() }

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

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
	of   *Snapshot
	file FileInfo
	rows rowStream
	// total is how many rows there are.
	total int64
}

// OpenRows opens what a shard wrote of a table of a snapshot whose manifest was read, and verifies it before anything is used. Errors:
// [ErrCorrupt], which names the file; the context's; fs.ErrNotExist where the shard has no rows of the table.
func OpenRows(ctx context.Context, info *Info, tbl, shard int, o RowsOptions) (_ *RowReader, err error) {
	s, err := openChain(ctx, info, opening{fs: disk(o.FS), verified: o.Verified, weightsOnly: o.WeightsOnly, which: func(f FileInfo) bool {
		return f.Table == tbl && f.Shard == shard && (!o.WeightsOnly || !f.Kind.state())
	}})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	r, err := s.reader(tbl, shard)
	if err == nil && r == nil {
		err = fmt.Errorf("snapshot: %s: shard %d has no rows of table %d: %w", info.Path, shard, tbl, fs.ErrNotExist)
	}
	return r, err
}

// reader reads what a shard has of a table; nil: nothing.
func (s *Snapshot) reader(tbl, shard int) (*RowReader, error) {
	_, f := s.find(KindRows, tbl, shard)
	r := &RowReader{of: s, file: f, total: s.info.TotalRows(f)}
	switch {
	case s.info.Base != nil && r.total == 0:
		return nil, nil
	case s.info.Base != nil:
		m, err := newMerged(append([]*Snapshot{s}, s.bases...), tbl, shard, false)
		r.rows = m
		return r, err
	}
	rows, _, err := s.single(tbl, shard)
	if rows == nil || err != nil {
		return nil, err
	}
	r.rows = rows
	return r, nil
}

// single reads the files that a shard wrote of a table for this snapshot, without bases; nil: none.
func (s *Snapshot) single(tbl, shard int) (*rowFiles, FileInfo, error) {
	rows, f := s.find(KindRows, tbl, shard)
	if rows == nil {
		return nil, f, nil
	}
	t := s.info.Tables[tbl]
	var state fsx.File
	if stateDim := t.StateDim(); stateDim > 0 && !s.weightsOnly {
		var of FileInfo
		if state, of = s.find(KindState, tbl, shard); state == nil || of.Rows != f.Rows {
			return nil, f, s.named(f, fmt.Errorf("%d rows, and %d have optimizer state: %w", f.Rows, of.Rows, ErrCorrupt))
		}
	}
	files, err := openRowFiles(rows, state, t)
	if err != nil {
		return nil, f, s.named(f, err)
	}
	return files, f, nil
}

// Next returns the next rows, the first of which is row number first of the file; they are valid until the next call. Rows come in the order
// of [table.Hash]. io.EOF ends the file and repeats. Errors: [ErrCorrupt] with file and offset.
func (r *RowReader) Next() (rows *table.Rows, first int64, err error) {
	rows, first, err = r.rows.next()
	if errors.Is(err, io.EOF) {
		if first == r.total {
			return nil, first, io.EOF
		}
		err = fmt.Errorf("%d rows of %d: %w", first, r.total, ErrCorrupt)
	}
	if err != nil {
		return nil, first, r.named(err)
	}
	return rows, first, nil
}

// named says which file an error is of, unless it does.
func (r *RowReader) named(err error) error {
	if _, ok := r.rows.(*merged); ok && !errors.Is(err, io.EOF) {
		return err
	}
	return r.of.named(r.file, err)
}

// SeekRow goes to the record batch that has a row: Next returns it with the rows before it in the batch. What lies before is not read,
// but for the bases of an incremental snapshot, which are read from their beginning.
// Errors: as Next.
func (r *RowReader) SeekRow(row int64) error {
	if err := r.rows.seek(row); err != nil {
		return r.named(err)
	}
	return nil
}

// Close closes the files.
func (r *RowReader) Close() error { return r.of.Close() }

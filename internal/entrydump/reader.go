package entrydump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/protofield"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

// Reader reads the entries of one shard. It is not for concurrent use; it holds a record and, of a compressed file, a block.
type Reader struct {
	path, metaPath string
	data, meta     fsx.File
	records        *tfrecord.Reader
	metas          *tfrecord.Reader // nil: a table by itself
	table          string
	left           uint64 // entries of the table
	entry          Entry
	err            error
}

// Open opens a shard of a file. Errors: those of the file system.
func (c *Checkpoint) Open(ctx context.Context, in fsx.FS, f File, shard int) (*Reader, error) {
	r := &Reader{path: filepath.Join(c.Assets, FileName(f.Name, shard, f.Shards)), table: f.Name}
	var err error
	if r.data, err = in.Open(ctx, r.path); err != nil {
		return nil, fmt.Errorf("entrydump: %w", err)
	}
	if !f.Multi {
		r.records = tfrecord.NewReader(fsx.NewReader(r.data), nil)
		return r, nil
	}
	r.metaPath = filepath.Join(c.Assets, MetaName(f.Name, shard, f.Shards))
	if r.meta, err = in.Open(ctx, r.metaPath); err != nil {
		return nil, errors.Join(fmt.Errorf("entrydump: %w", err), r.data.Close())
	}
	r.metas = tfrecord.NewReader(fsx.NewReader(r.meta), nil)
	r.records = tfrecord.NewReader(newBlocks(fsx.NewReader(r.data)), nil)
	return r, nil
}

// Next returns the next entry and the table that it is of: the file's name, where that holds one alone. The entry is valid until the
// next call. io.EOF ends the shard; errors repeat. Errors: [ErrDamaged] with file, record and byte.
func (r *Reader) Next() (table string, e *Entry, err error) {
	if r.err != nil {
		return "", nil, r.err
	}
	if r.metas != nil && r.left == 0 {
		if r.err = r.nextTable(); r.err != nil {
			return "", nil, r.err
		}
	}
	number, at := r.records.Records(), r.records.Offset()
	b, err := r.records.Next()
	if err != nil {
		r.err = r.broken(r.path, err)
		return "", nil, r.err
	}
	if err := r.entry.Decode(b); err != nil {
		r.err = fmt.Errorf("entrydump: %s: record %d at byte %d%s: %w: %w", r.path, number, at, r.where(r.path), err, ErrDamaged)
		return "", nil, r.err
	}
	if r.metas != nil {
		r.left--
	}
	return r.table, &r.entry, nil
}

// nextTable goes to the next table that has entries.
func (r *Reader) nextTable() error {
	for r.left == 0 {
		number, at := r.metas.Records(), r.metas.Offset()
		b, err := r.metas.Next()
		if errors.Is(err, io.EOF) {
			if _, err := r.records.Next(); err == nil {
				return fmt.Errorf("entrydump: %s has more entries than %s says: %w", r.path, r.metaPath, ErrDamaged)
			} else if !errors.Is(err, io.EOF) {
				return r.broken(r.path, err)
			}
			return io.EOF
		}
		if err != nil {
			return r.broken(r.metaPath, err)
		}
		if r.table, r.left, err = decodeMeta(b); err != nil {
			return fmt.Errorf("entrydump: %s: record %d at byte %d: MultiHashTableMetadata: %w: %w", r.metaPath, number, at, err, ErrDamaged)
		}
	}
	return nil
}

// decodeMeta reads a MultiHashTableMetadata.
func decodeMeta(b []byte) (name string, entries uint64, err error) {
	err = protofield.Each(b, func(num protowire.Number, typ protowire.Type, v []byte, n uint64) error {
		switch {
		case num == 1 && typ == protowire.BytesType:
			name = string(v)
		case num == 2 && typ == protowire.VarintType:
			entries = n
		case num == 1 || num == 2:
			return fmt.Errorf("field %d: %w", num, errWire)
		}
		return nil
	})
	return name, entries, err
}

func appendMeta(b []byte, name string, entries uint64) []byte {
	b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), name)
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), entries)
}

// where says in what the byte of a record counts.
func (r *Reader) where(path string) string {
	if r.metas == nil || path != r.path {
		return ""
	}
	return " of what is compressed"
}

// broken names the file in an error of its records.
func (r *Reader) broken(path string, err error) error {
	var corrupt *tfrecord.CorruptError
	switch {
	case errors.Is(err, io.EOF) && r.metas == nil:
		return io.EOF
	case errors.Is(err, io.EOF):
		return fmt.Errorf("entrydump: %s ends after record %d, and %s says that table %q has %d more: %w", path, r.records.Records(), r.metaPath, r.table, r.left, ErrDamaged)
	case errors.As(err, &corrupt):
		return fmt.Errorf("entrydump: %s: record %d at byte %d%s: %s (%s): %w", path, corrupt.Record, corrupt.Offset, r.where(path), corrupt.Reason, corrupt.Detail, ErrDamaged)
	}
	return fmt.Errorf("entrydump: %s: %w", path, err)
}

// Close closes the files and may be called more than once.
func (r *Reader) Close() error {
	var errs []error
	for _, f := range []*fsx.File{&r.data, &r.meta} {
		if *f != nil {
			errs = append(errs, (*f).Close())
			*f = nil
		}
	}
	if r.err == nil {
		r.err = errors.New("entrydump: read after Close")
	}
	return errors.Join(errs...)
}

package entrydump

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/tfrecord"
)

// Writer writes one shard of a file, which is visible only when it is complete. It is not for concurrent use.
type Writer struct {
	path       string
	data, meta fsx.Writer
	packed     *blockWriter // nil: not compressed
	records    *tfrecord.Writer
	metas      *tfrecord.Writer
	table      string
	entries    uint64
	begun      bool
	buf        []byte
}

// Create begins a shard of a file in a folder. Of f, Bytes is not looked at. Close must be called.
func Create(ctx context.Context, in fsx.FS, dir string, f File, shard int) (*Writer, error) {
	w := &Writer{path: filepath.Join(dir, FileName(f.Name, shard, f.Shards))}
	var err error
	if w.data, err = in.Create(ctx, w.path); err != nil {
		return nil, fmt.Errorf("entrydump: %w", err)
	}
	if !f.Multi {
		w.records = tfrecord.NewWriter(w.data, nil)
		return w, nil
	}
	if w.meta, err = in.Create(ctx, filepath.Join(dir, MetaName(f.Name, shard, f.Shards))); err != nil {
		return nil, errors.Join(fmt.Errorf("entrydump: %w", err), w.data.Close())
	}
	w.packed = &blockWriter{w: w.data}
	w.records = tfrecord.NewWriter(w.packed, nil)
	w.metas = tfrecord.NewWriter(w.meta, nil)
	return w, nil
}

// Table says which table the entries to come are of. A file of many tables needs it before the first; each table is named once, those
// without entries too.
func (w *Writer) Table(name string) error {
	if err := w.endTable(); err != nil {
		return err
	}
	w.table, w.entries, w.begun = name, 0, true
	return nil
}

func (w *Writer) endTable() error {
	if w.metas == nil || !w.begun {
		return nil
	}
	w.buf = appendMeta(w.buf[:0], w.table, w.entries)
	return w.failed(w.metas.Write(w.buf))
}

// Write appends an entry.
func (w *Writer) Write(e *Entry) error {
	w.buf = e.Append(w.buf[:0])
	w.entries++
	return w.failed(w.records.Write(w.buf))
}

func (w *Writer) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("entrydump: writing %s: %w", w.path, err)
}

// Commit makes the files whole, durable and visible: that which says what is in it last, because upstream's reader begins with the other.
func (w *Writer) Commit(ctx context.Context) error {
	err := w.records.Close()
	if err == nil && w.packed != nil {
		err = w.packed.Close()
	}
	if err == nil {
		err = w.data.Commit(ctx)
	}
	if err == nil && w.metas != nil {
		if err = w.endTable(); err == nil {
			err = w.metas.Close()
		}
		if err == nil {
			err = w.meta.Commit(ctx)
		}
	}
	return w.failed(err)
}

// Bytes is the size of what was written, before it is compressed.
func (w *Writer) Bytes() int64 { return w.records.Offset() }

// Close discards what is not committed; after Commit it does nothing.
func (w *Writer) Close() error {
	err := w.data.Close()
	if w.meta != nil {
		err = errors.Join(err, w.meta.Close())
	}
	return err
}

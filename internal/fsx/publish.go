package fsx

import (
	"context"
	"errors"
	"io/fs"
)

// Exclusive is a [Writer] that can refuse to replace a file: those of [Local] are. The file system must have hard links.
type Exclusive interface {
	Writer
	// CommitNew is Commit where there is no file of the name. Of several writers of one name, in whatever processes, exactly one
	// succeeds. One whose file was removed by somebody before it was committed fails too. Errors: one that wraps fs.ErrExist
	// when there is a file of the name, fs.ErrNotExist when the one that was written is gone; then nothing has changed.
	CommitNew(ctx context.Context) error
}

var _ Exclusive = (*localWriter)(nil)

// CommitNew implements [Exclusive].
func (w *localWriter) CommitNew(ctx context.Context) error {
	if err := w.finish(ctx); err != nil {
		return err
	}
	if err := w.disk.Link(w.tmp, w.name); err != nil { // a rename would replace what is there
		return err
	}
	w.done = true
	err := w.disk.Remove(w.tmp)
	if errors.Is(err, fs.ErrNotExist) { // another process has removed it since, which changes nothing any more
		err = nil
	}
	return errors.Join(err, w.syncNames())
}

package coordinator

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/shard"
)

// Leased is the folder of the snapshots for a coordinator that another one may follow: nothing is begun, removed or made visible while the node of shard 0 has no lease ([ps.ErrNotReady]). Files are
// read always. nil stands for [fsx.Local].
func Leased(f fsx.FS, first *shard.Node) fsx.FS {
	if f == nil {
		f = fsx.Local{}
	}
	return leased{f, first}
}

type leased struct {
	fsx.FS
	first *shard.Node
}

// may returns nil while the node is in charge. Errors: [ps.ErrNotReady].
func (l leased) may(name string) error {
	if err := l.first.Refuses(); err != nil {
		return fmt.Errorf("%s is left as it is: %w", name, err)
	}
	return nil
}

// Create implements [fsx.FS].
func (l leased) Create(ctx context.Context, name string) (fsx.Writer, error) {
	if err := l.may(name); err != nil {
		return nil, err
	}
	w, err := l.FS.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	return leasedWriter{w, l, name}, nil
}

// Remove implements [fsx.FS].
func (l leased) Remove(ctx context.Context, name string) error {
	if err := l.may(name); err != nil {
		return err
	}
	return l.FS.Remove(ctx, name)
}

// leasedWriter is a file that is made visible under a lease.
type leasedWriter struct {
	fsx.Writer
	in   leased
	name string
}

// Commit implements [fsx.Writer].
func (w leasedWriter) Commit(ctx context.Context) error {
	if err := w.in.may(w.name); err != nil {
		return err
	}
	return w.Writer.Commit(ctx)
}

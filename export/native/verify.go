package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/table"
)

// verifyBytes is how much of a file is read at a time.
const verifyBytes = 1 << 20

// Verify reads all rows and returns what is wrong with them, each fault with its file: other bytes than were written, ids that are not where their hash belongs. Nothing: the
// export is whole. err is the context's.
func (e *Export) Verify(ctx context.Context) (faults []error, err error) {
	return e.VerifyPaced(ctx, func(int) error { return nil })
}

// VerifyPaced is [Export.Verify] beside other work: before it reads bytes it calls pace with how many, which waits as long as it should take. Errors: those of pace too.
func (e *Export) VerifyPaced(ctx context.Context, pace func(bytes int) error) (faults []error, err error) {
	buf := make([]byte, verifyBytes)
	var ended error // of pace
	for _, slabs := range e.tables {
		for _, s := range slabs {
			name := filepath.Join(e.dir, filepath.FromSlash(s.Name))
			err := s.verify(ctx, name, buf, func(n int) error {
				if ended == nil {
					ended = pace(n)
				}
				return ended
			})
			if ctx.Err() != nil {
				return faults, context.Cause(ctx)
			}
			if ended != nil {
				return faults, ended
			}
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					err = fmt.Errorf("%w: %w", err, ErrCorrupt)
				}
				faults = append(faults, fmt.Errorf("native: %s: %w", name, err))
			}
		}
	}
	return faults, nil
}

// verify reads a slab, not by way of its mapping, where what the disk does not give would be a fault of the memory.
func (s *slab) verify(ctx context.Context, name string, buf []byte, pace func(int) error) (err error) {
	f, err := fsx.Local{}.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end := s.end()
	sum, err := checksum(ctx, paced{f, pace}, end, buf)
	if err != nil {
		return err
	}
	if sum != s.footer.CRC32C {
		return fmt.Errorf("bytes 0 to %d have the checksum %08x, not %08x: %w", end, sum, s.footer.CRC32C, ErrCorrupt)
	}
	// These bytes are those that were written: what is read by way of the mapping is there, unless somebody takes it away meanwhile.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { err = errors.Join(err, faulted(recover())) }()
	for row, id := range s.ids {
		if row%idsAtOnce == 0 {
			if err := pace(idsAtOnce * 8); err != nil {
				return err
			}
		}
		h := table.Hash(id)
		if from, to, ok := s.part(h); !ok || s.find(h, id, from, to) != row {
			return fmt.Errorf("id %d of row %d is not found there: %w", id, row, ErrCorrupt)
		}
	}
	return nil
}

// idsAtOnce is how many ids are looked up between two calls of pace.
const idsAtOnce = 1 << 14

// paced is what is read at a pace.
type paced struct {
	io.ReaderAt
	pace func(int) error
}

// ReadAt implements [io.ReaderAt].
func (p paced) ReadAt(b []byte, at int64) (int, error) {
	if err := p.pace(len(b)); err != nil {
		return 0, err
	}
	return p.ReaderAt.ReadAt(b, at)
}

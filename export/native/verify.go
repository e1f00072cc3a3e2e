package native

import (
	"context"
	"errors"
	"fmt"
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
	buf := make([]byte, verifyBytes)
	for _, slabs := range e.tables {
		for _, s := range slabs {
			name := filepath.Join(e.dir, filepath.FromSlash(s.Name))
			err := s.verify(ctx, name, buf)
			if ctx.Err() != nil {
				return faults, context.Cause(ctx)
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
func (s *slab) verify(ctx context.Context, name string, buf []byte) (err error) {
	f, err := fsx.Local{}.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	end := s.end()
	sum, err := checksum(ctx, f, end, buf)
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
		h := table.Hash(id)
		if from, to, ok := s.part(h); !ok || s.find(h, id, from, to) != row {
			return fmt.Errorf("id %d of row %d is not found there: %w", id, row, ErrCorrupt)
		}
	}
	return nil
}

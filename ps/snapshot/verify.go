package snapshot

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/table"
)

// Verify reads all of a snapshot, and of an incremental one its bases, and returns what is wrong with it, each fault with the file that it is in: files that
// are missing, cut short or have other bytes, rows that do not decode, counts and digests that differ. Nothing: it is whole. err is for what keeps it from
// being looked at: the context's end, a disk that cannot be read for now.
func Verify(ctx context.Context, f fsx.FS, path string) (faults []error, err error) {
	f = disk(f)
	for attempt := 1; ; attempt++ {
		info, err := ReadInfoIn(f, path)
		if err != nil {
			return fault(nil, err)
		}
		chain, err := Chain(f, info)
		if err == nil {
			faults, err = verify(ctx, f, chain)
		} else {
			faults, err = fault(nil, err)
		}
		if len(faults) == 0 || attempt == attempts {
			return faults, err
		}
		// Compacting a snapshot of the chain replaces its manifest, and then what that named goes.
		now, rerr := ReadInfoIn(f, path)
		if rerr != nil {
			return faults, err
		}
		if again, rerr := Chain(f, now); rerr != nil || sameChain(again, chain) {
			return faults, err
		}
	}
}

// verify is [Verify] of what a chain was when it was read.
func verify(ctx context.Context, f fsx.FS, chain []*Info) (faults []error, err error) {
	for i, of := range chain {
		for _, file := range of.Files {
			if i > 0 && file.Kind.whole() {
				continue // each snapshot has its own
			}
			src, err := open(ctx, f, of.Path, file, false)
			if src != nil {
				err = errors.Join(err, src.Close())
			}
			if err == nil {
				continue
			}
			if faults, err = fault(faults, (&Snapshot{info: of}).named(file, err)); err != nil {
				return faults, err
			}
		}
	}
	if len(faults) > 0 {
		return faults, nil
	}
	s, err := openAll(ctx, chain, opening{fs: f, verified: true, which: func(FileInfo) bool { return true }})
	if err != nil {
		return fault(nil, err)
	}
	return fault(nil, errors.Join(s.contents(ctx), s.Close()))
}

// fault adds an error to the faults, if it says something of what was stored.
func fault(faults []error, err error) ([]error, error) {
	switch {
	case err == nil:
		return faults, nil
	case errors.Is(err, ErrCorrupt):
		return append(faults, err), nil
	}
	return faults, err
}

// contents reads all rows and tensors and compares them with the manifest.
func (s *Snapshot) contents(ctx context.Context) error {
	var d Digest
	for t, of := range s.info.Tables {
		n := int64(0)
		err := s.Rows(t, func(rows *table.Rows) error {
			n += int64(len(rows.Keys))
			d.Rows(of.Name, of.Dim(), of.StateDim(), rows)
			return context.Cause(ctx)
		})
		if err != nil {
			return err
		}
		if err := s.digestWaiting(t, &d, func() error { return context.Cause(ctx) }); err != nil {
			return err
		}
		if n != of.Rows {
			return fmt.Errorf("snapshot: %s: table %s has %d rows, its manifest says %d: %w", s.info.Path, of.Name, n, of.Rows, ErrCorrupt)
		}
	}
	tensors, err := s.Tensors()
	if err != nil {
		return err
	}
	for _, t := range tensors {
		d.Dense(t)
	}
	if got := s.info.digest(d); s.info.Base == nil && got != s.info.Digest {
		return fmt.Errorf("snapshot: %s: digest %s, its manifest says %s: %w", s.info.Path, got, s.info.Digest, ErrCorrupt)
	}
	return nil
}

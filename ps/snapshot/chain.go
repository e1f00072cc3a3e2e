package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/fsx"
)

// Chain returns the manifests that a snapshot is read by: its own, and of an incremental one those of its bases, the newest first. The last is
// whole. Errors: [ErrCorrupt] when a base is missing, damaged or another than the one that was added to.
func Chain(f fsx.FS, info *Info) ([]*Info, error) {
	f = disk(f)
	return chainOf(info, func(path string) (*Info, error) { return ReadInfoIn(f, path) })
}

// chainOf is [Chain] with the manifests that read returns.
func chainOf(info *Info, read func(path string) (*Info, error)) ([]*Info, error) {
	chain := []*Info{info}
	for at := info; at.Base != nil; {
		path := Path(filepath.Dir(at.Path), at.Base.ID)
		base, err := read(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = fmt.Errorf("its base is missing: %w: %w", ErrCorrupt, err)
		case err != nil:
		case !base.Created.Equal(at.Base.Created):
			err = fmt.Errorf("%s was made at %v, its base at %v: it is another snapshot: %w", path, base.Created, at.Base.Created, ErrCorrupt)
		case base.Shards != at.Shards || !sameTables(base.Tables, at.Tables):
			err = fmt.Errorf("its base %s is of %d shards or other tables: %w", path, base.Shards, ErrCorrupt)
		}
		if err != nil {
			return nil, fmt.Errorf("snapshot: %s: %w", at.Path, err)
		}
		chain = append(chain, base)
		at = base
	}
	return chain, nil
}

// sameTables reports whether tables have the same shape.
func sameTables(a, b []Table) bool {
	return slices.EqualFunc(a, b, func(a, b Table) bool {
		return a.Name == b.Name && slices.Equal(a.Segments, b.Segments)
	})
}

// attempts is how often a snapshot is opened whose files go while that is done, because it is compacted.
const attempts = 3

// opening says what of a chain is opened.
type opening struct {
	fs fsx.FS
	// since is [OpenOptions].Since.
	since uint64
	// verified: the files were verified before, and are not again.
	verified, weightsOnly bool
	// threads is how many files are verified at the same time; 0: one.
	threads int
	which   func(FileInfo) bool
}

// openChain opens what which says of every snapshot of a chain, or of those alone that were added to the snapshot since, and verifies it.
func openChain(ctx context.Context, info *Info, o opening) (*Snapshot, error) {
	for attempt := 1; ; attempt++ {
		chain, err := Chain(o.fs, info)
		var s *Snapshot
		if err == nil {
			above := slices.IndexFunc(chain, func(i *Info) bool { return i.ID == o.since })
			added := above > 0
			if !added {
				above = len(chain)
			}
			if s, err = openAll(ctx, chain[:above], o); err == nil {
				s.added = added
				return s, nil
			}
		}
		if ctx.Err() != nil || attempt == attempts {
			return nil, err
		}
		// Compacting a snapshot of the chain replaces its manifest, and then what that named goes.
		now, rerr := ReadInfoIn(o.fs, info.Path)
		if rerr != nil || now.ID != info.ID || !now.Created.Equal(info.Created) {
			return nil, err
		}
		if again, rerr := Chain(o.fs, now); rerr != nil || sameChain(again, chain) {
			return nil, err
		}
		info = now
	}
}

func sameChain(a, b []*Info) bool {
	return slices.EqualFunc(a, b, func(a, b *Info) bool { return a.Checksum == b.Checksum })
}

func openAll(ctx context.Context, chain []*Info, o opening) (*Snapshot, error) {
	files, ctx := errgroup.WithContext(ctx)
	files.SetLimit(max(o.threads, 1))
	var opened []*Snapshot
	for i, of := range chain {
		one := *of
		one.Files = slices.DeleteFunc(slices.Clone(of.Files), func(f FileInfo) bool {
			return !o.which(f) || i > 0 && f.Kind.whole()
		})
		s := &Snapshot{info: &one, weightsOnly: o.weightsOnly, files: make([]fsx.File, len(one.Files))}
		opened = append(opened, s)
		for j, file := range one.Files {
			files.Go(func() (err error) {
				if s.files[j], err = open(ctx, o.fs, s.info.Path, file, o.verified); err != nil {
					err = s.named(file, err)
				}
				return err
			})
		}
	}
	if err := files.Wait(); err != nil {
		errs := []error{err}
		for _, s := range opened {
			errs = append(errs, s.Close())
		}
		return nil, errors.Join(errs...)
	}
	opened[0].bases = opened[1:]
	return opened[0], nil
}

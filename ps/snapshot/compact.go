package snapshot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
)

// Compact makes an incremental snapshot a whole one, with the same number, time and contents, and returns its manifest; a whole one it
// returns as it is. Files are written beside those that there are, then the manifest is replaced, and then what it named
// before is removed: who dies before the manifest is there leaves an incremental snapshot. What adds to the snapshot
// continues to, and its bases are no longer needed for it. pause, which may be nil, is that of [PartOptions]. Nobody else may compact or remove the
// snapshot meanwhile; others may read it. Errors: [ErrCorrupt], [ErrNoSpace], the context's; nothing is left behind.
func Compact(ctx context.Context, f fsx.FS, path string, l *param.Layout, pause func()) (_ *Info, err error) {
	f = disk(f)
	s, err := OpenWith(ctx, path, OpenOptions{FS: f})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	was := s.info
	if was.Base == nil {
		return was, nil
	}
	whole := *was
	whole.Base, whole.Files, whole.Tables = nil, nil, tablesOf(l)
	if !sameTables(whole.Tables, was.Tables) {
		return nil, fmt.Errorf("snapshot: %s has other tables than those that it is to be compacted by: %w", path, ErrCorrupt)
	}
	// Names differ from those of a Compact before, which may have been killed.
	suffix := fmt.Sprintf("-whole-%x", time.Now().UnixNano())
	var digest Digest
	discard := func(err error) error {
		errs := []error{err}
		if inside, lerr := names(f, path); lerr == nil {
			_, rerr := sweep(f, was, inside)
			errs = append(errs, rerr)
		}
		return errors.Join(errs...)
	}
	need := int64(0)
	for _, b := range s.bases {
		need += b.info.Bytes()
	}
	for shard := range was.Shards {
		p := NewPart(PartOptions{FS: f, Dir: path, Layout: l, Shard: shard, Need: need, Pause: pause, suffix: suffix})
		if err := s.copyPart(ctx, p); err != nil {
			return nil, discard(err)
		}
		for _, file := range p.part.Files {
			if file.Kind == KindRows {
				whole.Tables[file.Table].Rows += file.Rows
			}
			whole.Files = append(whole.Files, file)
		}
		digest.Add(&p.part.Digest)
	}
	whole.Digest = whole.digest(digest)
	b, err := whole.encode()
	if err == nil {
		err = whole.check()
	}
	for t := range whole.Tables {
		if n := was.Tables[t].Rows; err == nil && whole.Tables[t].Rows != n {
			err = fmt.Errorf("table %s has %d rows, its manifest says %d: %w", was.Tables[t].Name, whole.Tables[t].Rows, n, ErrCorrupt)
		}
	}
	if err != nil {
		return nil, discard(fmt.Errorf("snapshot: compacting %s: %w", path, err))
	}
	if err := put(f, filepath.Join(path, ManifestName), b); err != nil {
		// It may be there all the same; what is not named is left to Clean.
		return nil, fail(path, need, whole.Bytes(), err)
	}
	whole.Path = path
	if inside, err := names(f, path); err == nil {
		_, _ = sweep(f, &whole, inside) // what is left is for Clean
	}
	return &whole, nil
}

// copyPart writes what one shard has, rows, what counts fids without one, and tensors.
func (s *Snapshot) copyPart(ctx context.Context, p *PartWriter) error {
	for t, of := range s.info.Tables {
		if err := convertTable(ctx, s, t, p, t, &conversion{was: of, copies: true}); err != nil {
			return err
		}
	}
	tensors, err := s.tensorsOf(p.o.Shard)
	if err != nil {
		return err
	}
	return p.Dense(tensors)
}

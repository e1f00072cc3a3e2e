package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/monolith-go/monolith/internal/fsx"
)

// A snapshot is good when it can be read: its manifest, its files, and those of its bases that it needs. Two functions decide that, and everything that
// picks, keeps or removes snapshots goes by them. [ReadEntry] compares names and sizes, which finds files that are missing, empty or cut short. [Verifier]
// reads the files and compares checksums, which finds the rest.

// ReadEntry reads the manifest of a snapshot and looks at its files, and at those of its bases that it needs. Entry.Err says what is wrong; fs.ErrNotExist
// means that there is no manifest.
func ReadEntry(f fsx.FS, path string) Entry {
	id, _ := parseName(filepath.Base(filepath.Clean(path)))
	return (&looker{fs: disk(f)}).entry(id, path)
}

// looker looks at the snapshots of one folder, at each manifest and each folder once.
type looker struct {
	fs    fsx.FS
	infos map[string]*Info            // by path
	sizes map[string]map[string]int64 // by path and name
}

// entry is [ReadEntry]. What changes while it is looked at, because it is compacted or removed, is looked at again.
func (l *looker) entry(id uint64, path string) Entry {
	e := Entry{ID: id, Path: path}
	for attempt := 1; ; attempt++ {
		var chain []*Info
		if e.Info, e.Err = l.info(path); e.Err != nil {
			return e
		}
		if chain, e.Err = chainOf(e.Info, l.info); e.Err == nil {
			e.Err = l.present(chain)
		}
		if e.Err == nil || !errors.Is(e.Err, ErrCorrupt) || attempt == attempts {
			return e
		}
		again := &looker{fs: l.fs}
		now, err := again.info(path)
		if err == nil && now.Checksum == e.Info.Checksum {
			if chained, err := chainOf(now, again.info); err != nil && chain == nil || err == nil && sameChain(chained, chain) {
				return e
			}
		}
		l.infos, l.sizes = nil, nil
	}
}

// info is [ReadInfoIn].
func (l *looker) info(path string) (*Info, error) {
	if info := l.infos[path]; info != nil {
		return info, nil
	}
	info, err := ReadInfoIn(l.fs, path)
	if err != nil {
		return nil, err
	}
	if l.infos == nil {
		l.infos = map[string]*Info{}
	}
	l.infos[path] = info
	return info, nil
}

// present says which file of a chain is missing or has another size than its manifest says.
func (l *looker) present(chain []*Info) error {
	for i, of := range chain {
		sizes, err := l.in(of.Path)
		if err != nil {
			return fmt.Errorf("snapshot: %s: %w", of.Path, unreadable(err))
		}
		for _, file := range of.Files {
			if i > 0 && file.Kind.whole() {
				continue // each snapshot has its own
			}
			switch size, ok := sizes[file.Name]; {
			case !ok:
				return (&Snapshot{info: of}).named(file, fmt.Errorf("the file is missing: %w", ErrCorrupt))
			case size != file.Bytes:
				return (&Snapshot{info: of}).named(file, fmt.Errorf("%d bytes of %d: %w", size, file.Bytes, ErrCorrupt))
			}
		}
	}
	return nil
}

// in returns the sizes of the files in a folder.
func (l *looker) in(path string) (map[string]int64, error) {
	if sizes := l.sizes[path]; sizes != nil {
		return sizes, nil
	}
	infos, err := l.fs.List(context.Background(), path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	sizes := make(map[string]int64, len(infos))
	for _, info := range infos {
		if !info.Dir {
			sizes[info.Name] = info.Size
		}
	}
	if l.sizes == nil {
		l.sizes = map[string]map[string]int64{}
	}
	l.sizes[path] = sizes
	return sizes, nil
}

// Verifier compares the files of snapshots with their checksums, and remembers each answer. The zero value is ready; methods may overlap.
type Verifier struct {
	// Found, if not nil, is called with each snapshot that Verify finds damaged, once. It is set before the first call.
	Found func(info *Info, err error)

	mu    sync.Mutex
	known map[string]error // by the checksum of the manifest
}

// Verify reads a snapshot and what it needs of its bases. Errors: [ErrCorrupt], which names the file; those of reading, and the context's, which are not
// remembered.
func (v *Verifier) Verify(ctx context.Context, f fsx.FS, info *Info) error {
	v.mu.Lock()
	err, known := v.known[info.Checksum]
	v.mu.Unlock()
	if known {
		return err
	}
	s, err := OpenWith(ctx, info.Path, OpenOptions{FS: f})
	if err == nil {
		err = s.Close()
	}
	if err == nil || errors.Is(err, ErrCorrupt) && ctx.Err() == nil {
		v.Note(info, err)
		if err != nil && v.Found != nil {
			v.Found(info, err)
		}
	}
	return err
}

// Note remembers what a caller knows of a snapshot: that it is whole, because it was just written or read, or what is wrong with it.
func (v *Verifier) Note(info *Info, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.known == nil {
		v.known = map[string]error{}
	}
	v.known[info.Checksum] = err
}

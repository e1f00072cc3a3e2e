package stored

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/remote"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// folder is a folder of snapshots, of this machine or of a store, with what is asked for of it.
type folder struct {
	fs fsx.FS
	// dir is its name in fs, and called what its user knows it by.
	dir, called string
	// entries are the snapshots that are asked for, the newest first.
	entries []snapshot.Entry
	// name is what a path in fs is called.
	name  func(path string) string
	close func() error
}

// openFolder finds the snapshots that a text stands for: a job's dir, a folder of snapshots, one snapshot, or the URL of one of the last two. Errors:
// [pipeline.ErrConfig] where there are none.
func openFolder(ctx context.Context, text string) (*folder, error) {
	if fsx.IsURL(text) {
		return openURL(ctx, text)
	}
	entries, err := FindSnapshots(text)
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(entries[0].Path)
	return &folder{
		fs: fsx.Local{}, dir: dir, called: dir, entries: entries, name: func(path string) string { return path }, close: func() error { return nil },
	}, nil
}

func openURL(ctx context.Context, text string) (_ *folder, err error) {
	u, err := fsx.ParseURL(text)
	if err != nil {
		return nil, fault.Config("job: the URL %w", err)
	}
	one := ""
	if snapshot.Named(u.Path) {
		one, u.Path = path.Base(u.Path), path.Dir(u.Path)
	}
	store, err := remote.Open(ctx, u)
	if err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	f := &folder{fs: store, dir: ".", called: u.String(), name: func(path string) string { return u.Join(filepath.ToSlash(path)) }, close: store.Close}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	if f.entries, err = snapshot.ListIn(store, "."); err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	if one != "" {
		for i, e := range f.entries {
			if e.Path == one {
				f.entries = f.entries[i : i+1]
				return f, nil
			}
		}
		f.entries = nil
	}
	if len(f.entries) == 0 {
		return nil, fmt.Errorf("job: no snapshot at %s: %w", text, pipeline.ErrConfig)
	}
	return f, nil
}

// lock keeps jobs from running in a folder of this machine. What is in a store has no lock.
func (f *folder) lock() (unlock func() error, err error) {
	var locks []*fsx.Lock
	unlock = func() error {
		var errs []error
		for _, l := range locks {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	}
	if _, here := f.fs.(fsx.Local); !here {
		return unlock, nil
	}
	for _, of := range []string{f.dir, filepath.Dir(f.dir)} {
		name := filepath.Join(of, LockName(0))
		if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		l, err := fsx.TryLock(name)
		switch {
		case errors.Is(err, fsx.ErrLocked):
			return nil, errors.Join(fault.Mark(fmt.Errorf("job: a job is running in %s", of), pipeline.ErrUnavailable,
				"it removes old snapshots itself: set snapshot.keep, keep_for and exempt; or wait for it to end"), unlock())
		case err != nil:
			return nil, errors.Join(fmt.Errorf("job: %w: %w", err, pipeline.ErrUnavailable), unlock())
		}
		locks = append(locks, l)
	}
	return unlock, nil
}

package stored

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/remote"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Folder is a folder of snapshots, of this machine or of a store, with what is asked for of it. The caller calls Close.
type Folder struct {
	FS fsx.FS
	// Entries are the snapshots that are asked for, the newest first, by their paths in FS; there is one at least, which may be damaged.
	Entries []snapshot.Entry

	dir, called string // in FS, and for its user
	name        func(path string) string
	close       func() error
}

// Name is what the user knows a path in FS by: that path, or a URL.
func (f *Folder) Name(path string) string { return f.name(path) }

// Close ends what FS has open. Nothing may be read from then on.
func (f *Folder) Close() error { return f.close() }

// Local reports whether it is a folder of this machine.
func (f *Folder) Local() bool {
	_, here := f.FS.(fsx.Local)
	return here
}

// Use calls use with the snapshots, the newest first, until one is not damaged. It returns that one, and what is wrong with those it passed over. use nil: a
// snapshot is taken by its manifest and the sizes of its files. Errors: those of all snapshots where none is good; what use returns but [snapshot.ErrCorrupt].
func (f *Folder) Use(use func(info *snapshot.Info) error) (_ *snapshot.Info, damaged []error, err error) {
	for _, e := range f.Entries {
		err := e.Err
		if use != nil && (err == nil || e.Info != nil && len(f.Entries) == 1) { // there is no other, and perhaps not all of it is needed
			err = use(e.Info)
		}
		if err == nil {
			return e.Info, damaged, nil
		}
		damaged = append(damaged, err)
		if !errors.Is(err, snapshot.ErrCorrupt) {
			return nil, nil, errors.Join(damaged...)
		}
	}
	if len(damaged) > 1 {
		return nil, nil, fmt.Errorf("job: no snapshot in %s is whole: %w", f.called, errors.Join(damaged...))
	}
	return nil, nil, errors.Join(damaged...)
}

// Newest is the newest snapshot that is not damaged, as far as manifests and the sizes of files say. Errors: those of all of them.
func (f *Folder) Newest() (*snapshot.Info, error) {
	info, _, err := f.Use(nil)
	return info, err
}

// Good is the newest snapshot that is whole, for callers that cannot go back to the one before later: all bytes of it were read. It returns what is wrong with
// those that were passed over too. Where there is one snapshot alone it is left to the caller to find it damaged.
func (f *Folder) Good(ctx context.Context) (_ *snapshot.Info, damaged []error, err error) {
	if len(f.Entries) == 1 && f.Entries[0].Info != nil {
		return f.Entries[0].Info, nil, nil
	}
	return f.Use(f.whole(ctx))
}

// whole reads all of a snapshot, for Use.
func (f *Folder) whole(ctx context.Context) func(info *snapshot.Info) error {
	var v snapshot.Verifier
	return func(info *snapshot.Info) error { return v.Verify(ctx, f.FS, info) }
}

// WarnPassedOver logs, in one line, which damaged snapshots were passed over for which.
func WarnPassedOver(ctx context.Context, log *slog.Logger, damaged []error, used string) {
	if len(damaged) > 0 && log != nil {
		log.WarnContext(ctx, "damaged snapshot passed over; the one before is used", "used", used, "err", errors.Join(damaged...))
	}
}

// Texts are the texts of errors.
func Texts(errs []error) (out []string) {
	for _, err := range errs {
		out = append(out, err.Error())
	}
	return out
}

// OpenFolder finds the snapshots that a text stands for: a job's dir, a folder of snapshots, one snapshot, or the URL of one of the last two. Errors:
// [pipeline.ErrConfig] where there are none.
func OpenFolder(ctx context.Context, text string) (*Folder, error) {
	if fsx.IsURL(text) {
		return openURL(ctx, text)
	}
	entries, err := FindSnapshots(text)
	if err != nil {
		return nil, err
	}
	return Local(entries), nil
}

// Local is the folder of snapshots of this machine, of which there is one at least.
func Local(entries []snapshot.Entry) *Folder {
	dir := filepath.Dir(entries[0].Path)
	return &Folder{
		FS: fsx.Local{}, dir: dir, called: dir, Entries: entries, name: func(path string) string { return path }, close: func() error { return nil },
	}
}

func openURL(ctx context.Context, text string) (_ *Folder, err error) {
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
	f := &Folder{FS: store, dir: ".", called: u.String(), name: func(path string) string { return u.Join(filepath.ToSlash(path)) }, close: store.Close}
	defer func() {
		if err != nil {
			err = errors.Join(err, store.Close())
		}
	}()
	if f.Entries, err = snapshot.ListIn(store, "."); err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	if one != "" {
		for i, e := range f.Entries {
			if e.Path == one {
				f.Entries = f.Entries[i : i+1]
				return f, nil
			}
		}
		f.Entries = nil
	}
	if len(f.Entries) == 0 {
		return nil, noSnapshot(ctx, store, ".", "at "+u.String())
	}
	return f, nil
}

// lock keeps jobs from running in a folder of this machine. What is in a store has no lock.
func (f *Folder) lock() (unlock func() error, err error) {
	var locks []*fsx.Lock
	unlock = func() error {
		var errs []error
		for _, l := range locks {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	}
	if !f.Local() {
		return unlock, nil
	}
	dir, above := f.dir, filepath.Dir(f.dir)
	for _, name := range []string{
		filepath.Join(dir, LockName(0)), filepath.Join(dir, StandbyLockName(0)), filepath.Join(above, LockName(0)), filepath.Join(above, StandbyLockName(0)),
	} {
		of := filepath.Dir(name)
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

package upload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// FetchOptions say what is brought back.
type FetchOptions struct {
	// From is a store's folder of snapshots, URL what it is called.
	From fsx.FS
	URL  string
	// To is a folder of this machine that has no snapshots. What else it has is put aside, under its name with a number.
	To string
	// ID is the snapshot; 0: the newest that is whole.
	ID uint64
	// Logger gets what is passed over; nil discards.
	Logger *slog.Logger
}

// fetching ends the name of the folder where snapshots lie until all are there.
const fetching = ".fetching"

// Fetch brings back a snapshot with all that it adds to, and the newest one of each label, and returns it; nil where the store has none. Checksums are
// compared on the way, and a damaged snapshot is passed over for the one before, which is logged. All are there at once: who was killed leaves a
// folder beside To, and the next call continues with it. Errors: [ErrNotEmpty], [snapshot.ErrCorrupt] when none is whole, those of the store.
func Fetch(ctx context.Context, o FetchOptions) (*snapshot.Info, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if here, err := snapshot.List(o.To); err != nil {
		return nil, err
	} else if len(here) > 0 {
		return nil, fmt.Errorf("upload: %s: %w, up to number %d", o.To, ErrNotEmpty, here[0].ID)
	}
	f := fetch{FetchOptions: o, dir: o.To + fetching}
	for attempt := 1; ; attempt++ {
		entries, err := snapshot.ListIn(o.From, ".")
		if err != nil {
			return nil, fmt.Errorf("upload: %s: %w", o.URL, err)
		}
		if len(entries) == 0 {
			return nil, nil
		}
		if err := f.forget(entries); err != nil {
			return nil, fmt.Errorf("upload: %w", err)
		}
		newest, damaged, err := f.newest(ctx, entries)
		if err != nil {
			return nil, err
		}
		if len(damaged) > 0 && attempt < attempts {
			// Who uploads there replaces snapshots by compacted ones and removes old ones: what was listed may be gone.
			if now, err := snapshot.ListIn(o.From, "."); err != nil || !same(now, entries) {
				continue
			}
		}
		for _, err := range damaged {
			o.Logger.WarnContext(ctx, "damaged snapshot of the store passed over", "url", o.URL, "err", err)
		}
		if newest == nil {
			return nil, fmt.Errorf("upload: no snapshot of %s is whole; to start over, name another place: %w", o.URL, errors.Join(damaged...))
		}
		if err := f.publish(); err != nil {
			return nil, fmt.Errorf("upload: %w", err)
		}
		return snapshot.ReadInfo(snapshot.Path(o.To, newest.ID))
	}
}

// attempts is how often snapshots are fetched that change meanwhile.
const attempts = 3

// same reports whether a store has what it had.
func same(a, b []snapshot.Entry) bool {
	return slices.EqualFunc(a, b, func(a, b snapshot.Entry) bool {
		return a.ID == b.ID && (a.Err == nil) == (b.Err == nil) && (a.Err != nil || a.Info.Checksum == b.Info.Checksum)
	})
}

type fetch struct {
	FetchOptions
	dir string
}

// forget removes what an earlier call has left that is not what the store has now.
func (f *fetch) forget(entries []snapshot.Entry) error {
	left, err := snapshot.List(f.dir)
	if err != nil {
		return err
	}
	for _, e := range left {
		if e.Err != nil || find(entries, e.Info) == nil {
			if err := os.RemoveAll(e.Path); err != nil {
				return err
			}
		}
	}
	return nil
}

// find returns the entry of the same cut, which may be damaged, or nil.
func find(entries []snapshot.Entry, of *snapshot.Info) *snapshot.Entry {
	for i, e := range entries {
		if e.Info != nil && e.ID == of.ID && e.Info.Created.Equal(of.Created) {
			return &entries[i]
		}
	}
	return nil
}

// newest copies the snapshot that was asked for, and those beside it that are kept for what they are. damaged says what is wrong with those that
// are not whole; newest is nil when all are.
func (f *fetch) newest(ctx context.Context, entries []snapshot.Entry) (newest *snapshot.Info, damaged []error, err error) {
	labels := map[string]bool{"": true}
	for _, e := range entries { // newest first
		if newest == nil && f.ID != 0 && e.ID != f.ID || newest != nil && (e.Err != nil || labels[e.Info.Label]) {
			continue
		}
		err := e.Err
		if err == nil {
			err = f.chain(ctx, e.Info)
		}
		switch {
		case errors.Is(err, snapshot.ErrCorrupt):
			damaged = append(damaged, err)
			continue
		case err != nil:
			return nil, nil, fmt.Errorf("upload: fetching %s of %s: %w", filepath.Base(e.Path), f.URL, err)
		}
		labels[e.Info.Label] = true
		if newest == nil {
			newest = e.Info
		}
	}
	if newest == nil && damaged == nil {
		err = fmt.Errorf("upload: %s has no snapshot %d: %w", f.URL, f.ID, fs.ErrNotExist)
	}
	return newest, damaged, err
}

// chain copies a snapshot with its bases, which come first.
func (f *fetch) chain(ctx context.Context, info *snapshot.Info) error {
	chain, err := snapshot.Chain(f.From, info)
	if err != nil {
		return err
	}
	for _, info := range slices.Backward(chain) {
		if err := snapshot.Copy(ctx, info, snapshot.CopyOptions{From: f.From, Dir: f.dir}); err != nil {
			return err
		}
	}
	return nil
}

// publish gives the folder its name.
func (f *fetch) publish() error {
	if _, err := snapshot.Clean(fsx.Local{}, f.dir); err != nil {
		return err
	}
	if err := os.Remove(f.To); err != nil && !errors.Is(err, fs.ErrNotExist) {
		for n := 1; ; n++ {
			aside := fmt.Sprintf("%s.%d", f.To, n)
			if _, err := os.Stat(aside); !errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := os.Rename(f.To, aside); err != nil {
				return err
			}
			f.Logger.Warn("what was there without a snapshot was put aside", "path", f.To, "now", aside)
			break
		}
	}
	if err := os.Rename(f.dir, f.To); err != nil {
		return err
	}
	return fsx.OS{}.SyncDir(filepath.Dir(f.To))
}

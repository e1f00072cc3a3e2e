package stored

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/remote"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/upload"
)

// Uploader makes what copies the snapshots of a job, or nil without snapshot.upload. The job's dir must be there. Errors: [pipeline.ErrConfig],
// [pipeline.ErrUnavailable].
func Uploader(c *spec.Config, log *slog.Logger, hooks *ps.Hooks) (*upload.Uploader, error) {
	if c.Snapshot.Upload == "" {
		return nil, nil
	}
	u, err := fsx.ParseURL(c.Snapshot.Upload)
	if err != nil {
		return nil, fault.Config("snapshot.upload: %w", err)
	}
	id, err := ID(c)
	if err != nil {
		return nil, err
	}
	r := Retention(c)
	r.Keep = c.Snapshot.UploadKeep
	return upload.New(upload.Options{
		Dir: SnapshotsIn(c), URL: u.String(), Owner: id, Retention: r, Logger: log, Hooks: hooks,
		Open: func(ctx context.Context) (upload.Store, error) { return remote.Open(ctx, u) },
	}), nil
}

// FetchOptions say which snapshot is brought back from where.
type FetchOptions struct {
	// URL is a store's folder of snapshots. To is a folder of this machine that has none.
	URL, To string
	// ID is the number of the snapshot; 0: the newest that is whole.
	ID uint64
	// Logger gets what is passed over; nil discards.
	Logger *slog.Logger
}

// FetchJob is [Fetch] for a job: from its snapshot.upload into its dir, in which no process may train.
func FetchJob(ctx context.Context, c *spec.Config, o FetchOptions) (_ *result.SnapshotEntry, err error) {
	if c.Snapshot.Upload == "" {
		return nil, fault.Config("job: %s has no snapshot.upload, so there is nothing to fetch; name a URL", c.Name)
	}
	lock, err := Claim(c, LockName(0), "another process is training with")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	o.URL, o.To = c.Snapshot.Upload, SnapshotsIn(c)
	return Fetch(ctx, o)
}

// Fetch brings snapshots back from a store: see [upload.Fetch]. Errors: [pipeline.ErrConfig], [pipeline.ErrUnavailable], [snapshot.ErrCorrupt].
func Fetch(ctx context.Context, o FetchOptions) (*result.SnapshotEntry, error) {
	u, err := fsx.ParseURL(o.URL)
	if err != nil {
		return nil, fault.Config("job: the URL %w", err)
	}
	store, err := remote.Open(ctx, u)
	if err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: %w", err))
	}
	info, err := upload.Fetch(ctx, upload.FetchOptions{From: store, URL: u.String(), To: o.To, ID: o.ID, Logger: o.Logger})
	if err = errors.Join(err, store.Close()); err != nil {
		return nil, fault.Unavailable(err)
	}
	if info == nil {
		return nil, fmt.Errorf("job: no snapshot at %s: %w", u, pipeline.ErrConfig)
	}
	out := Describe(info)
	out.Path = snapshot.Path(filepath.Clean(o.To), info.ID)
	return &out, nil
}

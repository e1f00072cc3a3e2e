package run

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/upload"
)

// uploads are the copies of a job's snapshots in a store; nil where the job has none.
type uploads struct {
	*upload.Uploader
	url    string
	wait   time.Duration
	after  uint64
	notice func(string, ...any)
}

// openUploads makes the job's dir and its store fit each other: a dir without snapshots gets those of the store. The caller has the dir's lock. fresh: the
// run starts over.
func openUploads(ctx context.Context, c *spec.Config, fresh bool, log *slog.Logger, hooks *ps.Hooks, notice func(string, ...any)) (*uploads, error) {
	u, err := stored.Uploader(c, log, hooks)
	if u == nil || err != nil {
		return nil, err
	}
	got, after, err := u.Restore(ctx, fresh)
	if err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: snapshot.upload: %w", err))
	}
	if got != nil {
		notice("%s had no snapshot: number %d of %s was brought back (%d rows)", stored.SnapshotsIn(c), got.ID, c.Snapshot.Upload, got.Rows())
	}
	return &uploads{Uploader: u, url: c.Snapshot.Upload, wait: time.Duration(c.Snapshot.UploadWait), after: after, notice: notice}, nil
}

// of makes a cluster's snapshots known.
func (u *uploads) of(o *coordinator.Options) {
	if u != nil {
		o.Uploads, o.After = u, u.after
	}
}

// start begins to upload what a cluster takes, at its writers' pace.
func (u *uploads) start(ctx context.Context, c *coordinator.Cluster) {
	if u != nil {
		u.Start(ctx, c.First().Pause)
	}
}

// finish waits, for as long as the job says, until all is uploaded, and says so where it is not.
func (u *uploads) finish(ctx context.Context) {
	if u == nil {
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, u.wait, fmt.Errorf("%v (snapshot.upload_wait) are over", u.wait))
	defer cancel()
	if err := u.Wait(ctx); err != nil {
		u.notice("the last snapshot is not at %s yet, only on this machine (%v); the next run in this dir uploads it", u.url, err)
	}
}

// close ends what is under way.
func (u *uploads) close() {
	if u != nil {
		u.Close()
	}
}

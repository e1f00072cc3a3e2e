package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/rpc"
)

// Asking says how running shards are asked.
type Asking struct {
	// Wait is how long shards that do not answer, or are not ready, are waited for; 0: ps.retry, negative: not at all.
	Wait time.Duration
	// Logger gets trouble; nil discards.
	Logger *slog.Logger
}

// TakeOptions say which snapshot is asked for.
type TakeOptions struct {
	Asking
	// Pin keeps it whatever its age; Note is a remark.
	Pin  bool
	Note string
}

// Take asks the coordinator of a job whose shards are in processes of their own for a snapshot, and returns when it is durable. Training continues. Errors:
// [pipeline.ErrConfig] for a job without ps.addresses, [pipeline.ErrUnavailable], those of taking one.
func Take(ctx context.Context, cfg *spec.Config, o TakeOptions) (taken *result.SnapshotTaken, err error) {
	err = askShards(ctx, cfg, o.Asking, "send it the signal SIGUSR2: kill -USR2 PID", func(s remoteShards) error {
		info, err := s.Snapshot(ctx, ps.SnapshotOptions{Pin: o.Pin, Note: o.Note})
		if err != nil {
			return fault.Unavailable(err)
		}
		taken = &result.SnapshotTaken{SnapshotEntry: stored.Describe(&info), Took: info.Took.Seconds(), Stall: info.Stall.Seconds()}
		return nil
	})
	return taken, err
}

// Connect connects to the shards of a job in processes of their own, as one of its workers, and returns the job's model too.
// The caller closes the connection. Errors: [pipeline.ErrConfig] for a job that is not theirs, [pipeline.ErrUnavailable].
func Connect(ctx context.Context, cfg *spec.Config, how Asking) (*rpc.Remote, model.Model, error) {
	log := how.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	m, err := wiring.Model(cfg)
	if err != nil {
		return nil, nil, err
	}
	plan, err := wiring.BuildPlan(cfg)
	if err != nil {
		return nil, nil, err
	}
	remote, err := wiring.Dial(ctx, cfg, plan, m, how.Wait, log, nil)
	if err != nil {
		if how.Wait != 0 && errors.Is(err, ps.ErrUnreachable) {
			err = fmt.Errorf("%w (--wait=5m waits for shards that are starting)", err)
		}
		return nil, nil, fault.Unavailable(otherFeatures(cfg, err))
	}
	return remote, m, nil
}

// asked is the remark on a snapshot that a signal asked for.
const asked = "asked for by a signal"

// snapshotter takes snapshots of all shards.
type snapshotter interface {
	Snapshot(ctx context.Context, o ps.SnapshotOptions) (ps.SnapshotInfo, error)
}

// answerRequests takes a snapshot whenever one is asked for, until stop is called, which waits for one under way to be given up. Training continues
// also if it fails.
func answerRequests(ctx context.Context, requests <-chan struct{}, s snapshotter, notice func(string, ...any)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-requests:
			}
			info, err := s.Snapshot(ctx, ps.SnapshotOptions{Note: asked})
			switch {
			case ctx.Err() != nil:
			case err != nil:
				notice("the snapshot that was asked for could not be taken (%v); the ones before are whole", err)
			default:
				notice("snapshot %s taken", info.Path)
			}
		}
	})
	return func() {
		cancel()
		wg.Wait()
	}
}

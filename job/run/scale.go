package run

import (
	"context"
	"sync"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/wire"
)

// ScaleOptions say which shards a running job is to have.
type ScaleOptions struct {
	Asking
	// To are their addresses, that of shard 0 first; nil: the job's ps.addresses. Those of the job have the standbys that it says, all others none.
	To []string
	// Progress, if not nil, is told about once a second how far it is, and at the end, by one goroutine at a time, until Scale returns.
	Progress func(ScaleProgress)
}

// ScaleProgress is how far a change of the number of shards is.
type ScaleProgress struct {
	// Shards is how many there will be, Took the time until now.
	Shards int
	Took   time.Duration
	// Snapshots were taken since, by which rows come to their shards; the last of them wrote so many rows. The fewer, the sooner it is over.
	Snapshots, Rows int64
}

// askAfter is how often a command that waits for shard 0 asks how far it is.
const askAfter = time.Second

// Scale makes the shards of a running job others, while its workers continue, and returns when all have their state; see [coordinator.Cluster.Scale].
// Asked again for the same it waits for what was decided. Errors: [pipeline.ErrConfig] for a job without ps.addresses and a list that cannot follow the
// present one, [pipeline.ErrUnavailable].
func Scale(ctx context.Context, cfg *spec.Config, o ScaleOptions) (done *result.Scaled, err error) {
	to := o.To
	if to == nil {
		to = cfg.PS.Addresses
	}
	for _, addr := range to {
		if err := wire.CheckAddress(addr); err != nil {
			return nil, fault.Config("job: --to: %w", err)
		}
	}
	err = askShards(ctx, cfg, o.Asking, "end it, change ps.shards and start it again", func(s remoteShards) error {
		stop := o.watch(ctx, s.Remote, len(to))
		r, err := s.Scale(ctx, wiring.Addrs(&cfg.PS, to))
		stop()
		if err != nil {
			return fault.Unavailable(err)
		}
		done = &result.Scaled{
			Before: r.From, Shards: r.To, Addresses: to, Snapshot: r.Snapshot, Rows: r.Rows, Again: r.Again, Took: r.Took.Seconds(), Pause: r.Pause.Seconds(),
		}
		return nil
	})
	return done, err
}

// watch tells [ScaleOptions].Progress how far it is until stop is called, which waits for the last call, and makes one more.
func (o *ScaleOptions) watch(ctx context.Context, remote *rpc.Remote, shards int) (stop func()) {
	if o.Progress == nil {
		return func() {}
	}
	begun, p := time.Now(), ScaleProgress{Shards: shards}
	first, known := uint64(0), false
	// probe takes note of the snapshots since the first probe that was answered: shard 0 may not answer now, as while shards change, and do so the next time.
	probe := func(ctx context.Context) {
		newest, err := remote.Glance(ctx)
		if err != nil {
			return
		}
		if newest == nil {
			newest = &ps.SnapshotInfo{}
		}
		if !known {
			first, known = newest.ID, true
		}
		if newest.ID > first {
			p.Snapshots, p.Rows = int64(newest.ID-first), newest.Written()
		}
	}
	probe(ctx)
	tell := func(ctx context.Context) {
		if probe(ctx); ctx.Err() != nil {
			return
		}
		p.Took = time.Since(begun)
		o.Progress(p)
	}
	asking, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		every := time.NewTicker(askAfter)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				tell(asking)
			case <-asking.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
		tell(ctx)
	}
}

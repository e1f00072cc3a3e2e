package run

import (
	"context"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/wire"
)

// ScaleOptions say which shards a running job is to have.
type ScaleOptions struct {
	Asking
	// To are their addresses, that of shard 0 first; nil: the job's ps.addresses. Those of the job have the standbys that it says, all others none.
	To []string
}

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
	err = ask(ctx, cfg, o.Asking, "end it, change ps.shards and start it again", func(remote *rpc.Remote) error {
		r, err := remote.Scale(ctx, wiring.Addrs(&cfg.PS, to))
		if err == nil {
			done = &result.Scaled{
				Before: r.From, Shards: r.To, Addresses: to, Snapshot: r.Snapshot, Rows: r.Rows, Again: r.Again, Took: r.Took.Seconds(), Pause: r.Pause.Seconds(),
			}
		}
		return err
	})
	return done, err
}

package run

import (
	"context"
	"errors"
	"time"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
)

// PromoteOptions say whose standby is to take over.
type PromoteOptions struct {
	Asking
	// Shard is the index of the shard.
	Shard int
}

// Promote asks the coordinator of a job to put the standby of a shard in charge, and returns once it is. Workers wait meanwhile, for about the length
// of a lease. Errors: [pipeline.ErrConfig] for a shard without a standby, [pipeline.ErrUnavailable], also when the standby lacks something that was
// acknowledged.
func Promote(ctx context.Context, cfg *spec.Config, o PromoteOptions) (_ *result.Promoted, err error) {
	if n := len(cfg.PS.Addresses); o.Shard < 0 || o.Shard >= n {
		return nil, noShard(o.Shard, n)
	}
	if cfg.PS.Standby.Of(o.Shard) == "" {
		return nil, fault.Config("job: shard %d has no standby (ps.standby.addresses)", o.Shard)
	}
	remote, _, err := Connect(ctx, cfg, o.Asking)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remote.Close(context.WithoutCancel(ctx))) }()
	began := time.Now()
	if err := remote.Promote(ctx, o.Shard); err != nil {
		return nil, fault.Unavailable(err)
	}
	return &result.Promoted{Shard: o.Shard, Took: time.Since(began).Seconds()}, nil
}

// noShard refuses the index of a shard that a job does not have.
func noShard(i, n int) error {
	if n == 0 {
		return fault.Config("job: the shards of this job are in the process that trains it (ps.addresses is empty)")
	}
	return fault.Config("job: there is no shard %d: ps.addresses has %d, which are numbered from 0", i, n)
}

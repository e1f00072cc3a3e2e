package jobbench

import (
	"context"
	"errors"
	"fmt"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/run"
	"github.com/monolith-go/monolith/ps/psbench"
)

// Shards measures the shards of a job in processes of their own from this process, with the addresses, the token and the certificates of the job; see
// [psbench.Shards]. Errors: [pipeline.ErrConfig] for a job without ps.addresses and for shards that workers train on, unless o.Busy; [pipeline.ErrUnavailable];
// those of the calls.
func Shards(ctx context.Context, cfg *job.Config, how job.Asking, o psbench.ShardsOptions) (_ []psbench.ShardRates, err error) {
	if !cfg.PS.Remote() {
		return nil, fault.Config("job: the shards of this job are in the process that trains it (ps.addresses is empty); monolith bench table measures those of this machine")
	}
	remote, m, err := run.Connect(ctx, cfg, how)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remote.Close(context.WithoutCancel(ctx))) }()
	o.Layout, o.Addrs = m.Layout(), remote.Info().Addrs
	rates, err := psbench.Shards(ctx, remote, o)
	if errors.Is(err, psbench.ErrTraining) {
		return nil, fault.Config("%w; stop them, or measure beside them with --while-training", err)
	}
	if err != nil {
		return nil, fault.Unavailable(fmt.Errorf("job: measuring shards: %w", err))
	}
	return rates, nil
}

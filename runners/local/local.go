// Package local runs a plan in this process.
package local

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/pipeline"
)

// Run runs every segment of the plan at the same time, each with the same options, and returns their statistics in the
// plan's order. The first error ends all of them; it has joined every goroutine when it returns. Where options name splits
// a segment runs its own, and not at all when there are none.
func Run(ctx context.Context, plan *pipeline.Plan, opts pipeline.RunOptions) ([]pipeline.RunStats, error) {
	own := make([][]pipeline.Split, len(plan.Segments))
	if opts.Splits != nil {
		var err error
		if own, err = plan.Deal(opts.Splits); err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
	}
	stats := make([]pipeline.RunStats, len(plan.Segments))
	group, ctx := errgroup.WithContext(ctx)
	for i, s := range plan.Segments {
		if opts.Splits != nil && len(own[i]) == 0 {
			stats[i] = pipeline.Sum()
			continue
		}
		opts := opts
		opts.Splits = own[i]
		group.Go(func() (err error) {
			stats[i], err = s.Run(ctx, opts)
			return err
		})
	}
	err := group.Wait()
	if err != nil && errors.Is(err, context.Canceled) {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
	}
	return stats, err
}

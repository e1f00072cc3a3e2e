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
// plan's order. The first error ends all of them; it has joined every goroutine when it returns. Options that name
// splits need a plan of one segment.
func Run(ctx context.Context, plan *pipeline.Plan, opts pipeline.RunOptions) ([]pipeline.RunStats, error) {
	if opts.Splits != nil && len(plan.Segments) != 1 {
		return nil, fmt.Errorf("local: splits are named for a plan of %d segments: %w", len(plan.Segments), pipeline.ErrConfig)
	}
	stats := make([]pipeline.RunStats, len(plan.Segments))
	group, ctx := errgroup.WithContext(ctx)
	for i, s := range plan.Segments {
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

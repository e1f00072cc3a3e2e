// Package local runs a plan in this process.
package local

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/shuffle"
)

// Run runs every segment of the plan at the same time, each with the same options, but for those downstream of a shuffle
// ([pipeline.Shuffle]), which begin when what is in front has ended, and are left out when that has ended early. It returns
// their statistics in the plan's order. The first error ends all of them; it has joined every goroutine when it returns.
// Where options name splits a segment runs its own, and not at all when there are none; rows of some splits alone cannot
// be grouped, so a plan with shuffles takes none. MaxRows and Enough are for the segments that end in no shuffle.
func Run(ctx context.Context, plan *pipeline.Plan, opts pipeline.RunOptions) (_ []pipeline.RunStats, err error) {
	own := make([][]pipeline.Split, len(plan.Segments))
	shuffles := plan.Shuffles()
	if opts.Splits != nil {
		if len(shuffles) > 0 {
			return nil, fmt.Errorf("local: splits are named, and shuffle %q takes the rows of all: %w", shuffles[0].Name, pipeline.ErrConfig)
		}
		if own, err = plan.Deal(opts.Splits); err != nil {
			return nil, fmt.Errorf("local: %w", err)
		}
	}
	x, err := newExchanges(shuffles, opts)
	defer func() { err = errors.Join(err, x.close()) }()
	if err != nil {
		return nil, fmt.Errorf("local: %w", err)
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
		opts.Exchanges = x.all
		if x.feeds(i) {
			opts.MaxRows, opts.Enough = 0, nil
		}
		group.Go(func() (err error) {
			if goOn, err := x.wait(ctx, i); !goOn {
				stats[i] = pipeline.Sum()
				stats[i].Drained = err == nil
				return errors.Join(err, x.ended(i, false))
			}
			if stats[i], err = s.Run(ctx, opts); err != nil {
				return err
			}
			return x.ended(i, !stats[i].Drained && !stats[i].Full)
		})
	}
	err = group.Wait()
	if err != nil && errors.Is(err, context.Canceled) {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
	}
	return stats, err
}

// exchanges are the shuffles of a run.
type exchanges struct {
	infos []pipeline.ShuffleInfo
	all   map[string]pipeline.Exchange
	// over is closed when what is in front of a shuffle has ended; whole is then set if it has put everything.
	over  []chan struct{}
	whole []bool
}

func newExchanges(infos []pipeline.ShuffleInfo, o pipeline.RunOptions) (*exchanges, error) {
	x := &exchanges{infos: infos, all: map[string]pipeline.Exchange{}, whole: make([]bool, len(infos))}
	for _, info := range infos {
		rows, err := shuffle.New(info, o)
		if err != nil {
			return x, err
		}
		x.all[info.Name] = rows
		x.over = append(x.over, make(chan struct{}))
	}
	return x, nil
}

// feeds reports whether a segment ends in a shuffle.
func (x *exchanges) feeds(segment int) bool {
	for _, info := range x.infos {
		if info.From == segment {
			return true
		}
	}
	return false
}

// wait returns when everything that a segment begins with is there; goOn is false when it will not be.
func (x *exchanges) wait(ctx context.Context, segment int) (goOn bool, err error) {
	for i, info := range x.infos {
		if info.To != segment {
			continue
		}
		select {
		case <-x.over[i]:
			if !x.whole[i] {
				return false, nil
			}
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return true, nil
}

// ended lets those continue that wait for a segment.
func (x *exchanges) ended(segment int, whole bool) error {
	var errs []error
	for i, info := range x.infos {
		if info.From != segment {
			continue
		}
		if whole {
			errs = append(errs, x.all[info.Name].(*shuffle.Rows).Done())
		}
		x.whole[i] = whole
		close(x.over[i])
	}
	return errors.Join(errs...)
}

func (x *exchanges) close() error {
	var errs []error
	for _, rows := range x.all {
		errs = append(errs, rows.(*shuffle.Rows).Close())
	}
	return errors.Join(errs...)
}

package ps

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/ps/tally"
)

// ByShard divides fids among so many shards, in their order.
func ByShard(fids []int64, numShards int) [][]int64 {
	out := make([][]int64, numShards)
	for _, k := range fids {
		s := ShardOf(Bucket(k), numShards)
		out[s] = append(out[s], k)
	}
	return out
}

// TallyOf adds up what all shards say of the slots of each table. newest is the largest time that there is, from which ages count back.
func TallyOf[P interface {
	Newest(ctx context.Context) (int64, error)
	Tally(ctx context.Context, newest int64) ([]tally.Slots, error)
}](ctx context.Context, peers []P) (tables []tally.Slots, newest int64, err error) {
	times, of := make([]int64, len(peers)), make([][]tally.Slots, len(peers))
	each := func(f func(ctx context.Context, i int) error) error {
		g, ctx := errgroup.WithContext(ctx)
		for i := range peers {
			g.Go(func() error { return f(ctx, i) })
		}
		return g.Wait()
	}
	err = each(func(ctx context.Context, i int) (err error) {
		times[i], err = peers[i].Newest(ctx)
		return err
	})
	for _, at := range times {
		newest = max(newest, at)
	}
	if err == nil {
		err = each(func(ctx context.Context, i int) (err error) {
			of[i], err = peers[i].Tally(ctx, newest)
			return err
		})
	}
	if err != nil {
		return nil, 0, err
	}
	for i, tables := range of {
		if i == 0 {
			continue
		}
		for t, slots := range tables {
			of[0][t].Add(slots)
		}
	}
	return of[0], newest, nil
}

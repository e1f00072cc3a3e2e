package coordinator

import (
	"context"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// Digest names what the shards hold: rows, optimizer state, dense tensors, progress, worker state. It does not depend on
// the number of shards and equals that of a snapshot taken now. Pushes that are not committed do not count; call it after
// [ps.Client.Flush]. Errors: [ps.ErrTorn] when a commit is under way, [ps.ErrClosed], [ps.ErrUnreachable], the context's.
func (c *Cluster) Digest(ctx context.Context) (string, error) {
	peers := c.peers()
	shards := make([]*ps.ShardDigest, len(peers))
	err := c.eachOf(ctx, peers, func(ctx context.Context, i int, p ps.Peer) (err error) {
		shards[i], err = p.Digest(ctx)
		return err
	})
	if err != nil {
		return "", err
	}
	var d snapshot.Digest
	progress := make([]map[ps.SplitID]ps.Progress, len(shards))
	for i, s := range shards {
		progress[i] = s.Progress
		d.Add(&s.Digest)
	}
	// A shard's contents are a function of its positions, so shards that agree about these were seen at one moment.
	positions, err := agreed(progress, c.opts.Recovery == ps.Partial)
	if err != nil {
		return "", err
	}
	for source, splits := range positions {
		for split, p := range splits {
			d.Split(source, split, p)
		}
	}
	for k, v := range shards[0].State {
		d.State(k, v)
	}
	return d.String(), nil
}

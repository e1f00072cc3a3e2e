package ps

import (
	"fmt"
	"maps"

	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Digest names what the shards hold: rows, optimizer state, dense tensors, progress, worker state. It does not depend on
// the number of shards and equals that of a snapshot taken now. Pushes that are not committed do not count; call it after
// [Client.Flush]. Errors: [ErrTorn] when a commit is under way, [ErrClosed].
func (c *Cluster) Digest() (string, error) {
	c.use.RLock()
	defer c.use.RUnlock()
	for _, n := range c.nodes {
		n.mu.Lock()
	}
	var err error
	cuts := make([]*Cut, len(c.nodes))
	for i, n := range c.nodes {
		if n.shard.closed {
			err = ErrClosed
			break
		}
		cuts[i] = n.shard.Cut()
	}
	for _, n := range c.nodes {
		n.mu.Unlock()
	}
	defer c.closeCuts(cuts)
	if err != nil {
		return "", err
	}
	positions, err := agreed(cuts)
	if err != nil {
		return "", err
	}
	var d snapshot.Digest
	var rows table.Rows
	for i, cut := range cuts {
		for t, tc := range cut.Tables {
			spec := c.opts.Layout.Tables[t]
			for dim, stateDim := spec.Dim(), spec.StateDim(); tc.Next(c.nodes[i].mu.RLocker(), &rows, 512); rows.Reset() {
				d.Rows(spec.Name, dim, stateDim, &rows)
			}
		}
		for _, t := range cut.Tensors {
			d.Dense(t)
		}
	}
	for source, splits := range positions {
		for split, p := range splits {
			d.Split(source, split, p)
		}
	}
	for k, v := range cuts[0].State {
		d.State(k, v)
	}
	return d.String(), nil
}

// agreed returns the progress that all shards have in common. Errors: [ErrTorn].
func agreed(cuts []*Cut) (map[string]map[string]Progress, error) {
	out := map[string]map[string]Progress{}
	for id, p := range cuts[0].Progress {
		if out[id.Source] == nil {
			out[id.Source] = map[string]Progress{}
		}
		out[id.Source][id.Split] = p
	}
	for s, cut := range cuts {
		if maps.Equal(cut.Progress, cuts[0].Progress) {
			continue
		}
		both := maps.Clone(cuts[0].Progress)
		maps.Copy(both, cut.Progress)
		for id := range both {
			p, ok := cuts[0].Progress[id]
			q, okToo := cut.Progress[id]
			if p != q || ok != okToo {
				return nil, fmt.Errorf("ps: %s: shard 0 has applied %+v and shard %d %+v: %w", id, p, s, q, ErrTorn)
			}
		}
	}
	return out, nil
}

func (c *Cluster) closeCuts(cuts []*Cut) {
	for i, cut := range cuts {
		if cut != nil {
			cut.close(&c.nodes[i].mu)
		}
	}
}

package ps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/pipeline/position"
)

// Resume takes over splits of a source and returns how far each was applied: reading continues there. Former owners are
// refused from then on. Whatever a former owner had staged on every shard is committed, the rest is dropped.
// With [Partial] recovery shards may hold different parts; see [Client.Boundaries]. Errors: [ErrTorn], [ErrRolledBack],
// [ErrUnreachable], [ErrClosed], the context's.
func (c *Client) Resume(ctx context.Context, source string, splits []string) (map[string]Progress, error) {
	start := time.Now()
	out := make(map[string]Progress, len(splits))
	var err error
	for _, name := range splits {
		var p Progress
		if p, err = c.takeOver(ctx, SplitID{Source: source, Split: name}); err != nil {
			break
		}
		out[name] = p
	}
	c.done("resume", start, err)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (c *Client) takeOver(ctx context.Context, id SplitID) (Progress, error) {
	// What this client has decided so far reaches the shards first.
	if err := c.drain(ctx); err != nil {
		return Progress{}, err
	}
	epoch, states, err := c.acquire(ctx, id)
	if err != nil {
		return Progress{}, err
	}
	p, err := decided(id, states)
	var cuts []position.Position
	switch {
	case err == nil:
		c.enqueue(Control{Kind: Commit, Split: id, Epoch: epoch, To: int64(p.Position)})
	case c.partial:
		p, cuts = c.apart(id, epoch, states)
	default:
		return Progress{}, err
	}
	c.enqueue(Control{Kind: Abort, Split: id, Epoch: epoch})
	if err := c.drain(ctx); err != nil {
		return Progress{}, err
	}
	c.mu.Lock()
	c.mu.splits[id], c.mu.cuts[id], c.mu.applied[id] = epoch, cuts, p
	c.mu.Unlock()
	return p, nil
}

// Boundaries returns the positions after that of the last Resume that other shards are at: no update may reach across one,
// because a shard skips an update it has, or stages one it has not, as a whole. There are some only after a shard has
// gone back alone.
func (c *Client) Boundaries(source, split string) []position.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.cuts[SplitID{Source: source, Split: split}]
}

// apart settles a split of which shards hold different parts: each commits what it has staged of what any other has
// applied, drops the rest, and reading continues from the shard that is furthest behind.
func (c *Client) apart(id SplitID, epoch uint64, states []SplitState) (Progress, []position.Position) {
	furthest := position.None
	for _, st := range states {
		furthest = max(furthest, st.Applied.Position)
	}
	var least Progress
	var ends []position.Position
	for s, st := range states {
		p := st.Applied
		for _, staged := range st.Staged {
			if staged.Position <= furthest {
				p = staged
			}
		}
		if p != st.Applied {
			c.enqueueOn(s, Control{Kind: Commit, Split: id, Epoch: epoch, To: int64(p.Position)})
		}
		if s == 0 || p.Position < least.Position {
			least = p
		}
		ends = append(ends, p.Position)
	}
	slices.Sort(ends)
	ends = slices.DeleteFunc(slices.Compact(ends), func(e position.Position) bool { return e <= least.Position })
	return least, ends
}

// acquire becomes the owner of a split on every shard under one epoch, shard 0 first: that is where cuts begin.
func (c *Client) acquire(ctx context.Context, id SplitID) (epoch uint64, states []SplitState, err error) {
	epoch = 1
	for s := 0; s < len(c.streams); {
		if _, err := c.begin(ctx, s); err != nil {
			return 0, nil, err
		}
		st, reply, err := c.streams[s].conn.Acquire(ctx, id, epoch)
		var stale *EpochError
		switch err := c.end(s, 0, reply, err); {
		case err == nil:
			states = append(states, st)
			s++
		case errors.As(err, &stale):
			// Somebody has been here before: go round again above him.
			if err := context.Cause(ctx); err != nil {
				return 0, nil, err
			}
			if stale.Current < epoch || stale.Current >= MaxEpoch {
				return 0, nil, fmt.Errorf("ps: worker %s: no epoch is left above that of shard %d; start the job over (--resume=false): %w", c.worker, s, stale)
			}
			epoch, states, s = stale.Current+1, states[:0], 0
		default:
			return 0, nil, err
		}
	}
	return epoch, states, nil
}

// decided returns the end of what every shard has applied or staged: whatever all have acknowledged, or could have.
// Errors: [ErrTorn].
func decided(id SplitID, states []SplitState) (Progress, error) {
	applied := position.None
	for _, st := range states {
		applied = max(applied, st.Applied.Position)
	}
	// Candidates are the ends that shard 0 knows, the latest first.
	ends := append([]Progress{states[0].Applied}, states[0].Staged...)
	for _, p := range slices.Backward(ends) {
		lacking := func(st SplitState) bool { return st.Applied != p && !slices.Contains(st.Staged, p) }
		if p.Position >= applied && !slices.ContainsFunc(states, lacking) {
			return p, nil
		}
	}
	var text strings.Builder
	for s, st := range states {
		fmt.Fprintf(&text, "; shard %d has applied %+v and staged %+v", s, st.Applied, st.Staged)
	}
	return Progress{}, fmt.Errorf("ps: %s: %w%s", id, ErrTorn, text.String())
}

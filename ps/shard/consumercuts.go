package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// passCut makes a pass a cut: rows are copied on write until they were given, as for a snapshot, those alone that the pass is to give.
type passCut struct {
	tables []table.Cut // nil once all was given
	left   []int       // rows of each that were not given yet, about
	// expired are keys of rows that had expired at the cut, though nobody has removed them yet.
	expired []int64
	at      *ps.CutOfShard
	dense   uint64 // the version of the dense tensors at the cut
	// last is the last answer, which cannot be made again.
	last *ps.Changes
}

// takePass begins a cut of what changes are, or of everything. It needs the lock.
func (n *Node) takePass(c *consumer, changes []*table.Changes) *passCut {
	k := &passCut{at: &ps.CutOfShard{Generation: n.generation, Progress: n.shard.Progress()}, dense: n.shard.version}
	for t, of := range changes {
		cut := n.shard.tables[t].Cut()
		left := cut.Len()
		if !c.all {
			of.Limit(cut)
			left = of.NumRows()
		}
		table.WeightsOnly(cut)
		table.Passed(cut, &k.expired)
		k.tables, k.left = append(k.tables, cut), append(k.left, left)
	}
	if k.dense != c.dense {
		for i := range n.shard.dense {
			k.at.Dense = append(k.at.Dense, n.shard.dense[i].weights...)
		}
	}
	if c.patience == nil {
		c.patience = time.AfterFunc(ps.MaxPass, func() { n.giveUpPass(c) })
	}
	return k
}

// endCut ends the cut of the pass under way, if there is one; l is the node's lock.
func (c *consumer) endCut(l sync.Locker) {
	if c.patience != nil {
		c.patience.Stop()
		c.patience = nil
	}
	if c.pass == nil || c.pass.cut == nil {
		return
	}
	for _, t := range c.pass.cut.tables {
		t.Close(l)
	}
	c.pass.cut.tables = nil
}

// giveUpPass ends a pass that nobody asks about: no rows are copied for it any more.
func (n *Node) giveUpPass(c *consumer) {
	n.use.RLock() // the tables stay
	defer n.use.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.pass == nil || c.pass.cut == nil || c.pass.cut.tables == nil {
		return
	}
	n.mu.RLock()
	left := ps.MaxPass - time.Since(c.asked)
	n.mu.RUnlock()
	if left > 0 {
		c.patience.Reset(left)
		return
	}
	n.giveBack(c)
	if c.all { // what it was given is not whole
		c.startOver()
	}
	n.opts.Logger.Warn("a consumer of changes did not ask for the rest of what had changed, which comes again", "shard", n.opts.Index, "consumer", c.name, "after", ps.MaxPass)
}

// fillCut gives the next piece of a pass that is a cut.
func (n *Node) fillCut(ctx context.Context, c *consumer, out *ps.Changes) error {
	p, k := c.pass, c.pass.cut
	for p.to = p.from; p.to.table < len(p.changes); p.to = p.place(p.to.table + 1) {
		if err := context.Cause(ctx); err != nil {
			c.seq-- // nothing was given
			return err
		}
		removed, spec := p.removed[p.to.table], n.opts.Layout.Tables[p.to.table]
		most := int(max(1, min(answerRows, answerBytes/spec.RowBytes())))
		out.Table = p.to.table
		if some := min(most, len(removed)-p.to.removed); some > 0 {
			out.Removed = append(out.Removed, removed[p.to.removed:][:some]...)
			p.to.removed += some
		}
		out.Rows.Grow(max(0, min(most-len(out.Removed), k.left[p.to.table])), spec.Dim(), 0)
		more := true
		for more && len(out.Rows.Keys)+len(out.Removed) < most {
			more = k.tables[p.to.table].Next(n.mu.RLocker(), &out.Rows, most-len(out.Rows.Keys)-len(out.Removed))
			out.Removed, k.expired = append(out.Removed, k.expired...), k.expired[:0]
		}
		k.left[p.to.table] -= len(out.Rows.Keys)
		if err := k.tables[p.to.table].Err(); err != nil {
			n.giveBack(c)
			if c.all {
				c.startOver()
			}
			return fmt.Errorf("ps: shard %d of %d: what has changed for consumer %s: %w", n.opts.Index, n.numShards(), c.name, err)
		}
		if more {
			break
		}
		if len(out.Rows.Keys)+len(out.Removed) > 0 {
			p.to = p.place(p.to.table + 1)
			break
		}
	}
	if out.Whole = p.to.table == len(p.changes); out.Whole {
		out.At = k.at
		c.endCut(&n.mu)
	}
	k.last = out
	return nil
}

package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// passCut is a pass that is a cut: rows are copied on write until they were read, as for a snapshot, those alone that the pass gives. Answers are made as the first of those
// who share it asks for them.
type passCut struct {
	changes []*table.Changes // nil for all rows
	at      *ps.CutOfShard
	dense   uint64 // the version of the dense tensors at the cut
	taken   time.Time
	// bytes is what all answers take, about; keep says that they are kept until nobody reads the pass, in place of the last alone.
	bytes int64
	keep  bool
	refs  int // how many read it, or may; under the node's lock

	mu      sync.Mutex // after a consumer's and before the node's
	answers []*ps.Changes
	first   int // the number of the first of them
	// tables are to be read from number table on; nil once all was read. left are the rows of each that were not, about.
	tables []table.Cut
	table  int
	left   []int
	// removed are the keys of the table that were not given yet; nil: they were not asked for.
	removed []int64
	// expired are keys of rows that had expired at the cut, though nobody has removed them yet.
	expired []int64
	err     error
}

// takePass begins a cut of what changes are, or of everything, for one who has a version of the dense tensors. It needs the lock.
func (n *Node) takePass(all bool, changes []*table.Changes, dense uint64) *passCut {
	k := &passCut{at: &ps.CutOfShard{Generation: n.generation, Progress: n.shard.Progress()}, dense: n.shard.version, taken: time.Now()}
	for t, tab := range n.shard.tables {
		cut := tab.Cut()
		left := cut.Len()
		if !all {
			changes[t].Limit(cut)
			left = changes[t].NumRows()
			k.changes = changes
		}
		table.WeightsOnly(cut)
		table.Passed(cut, &k.expired)
		k.tables, k.left = append(k.tables, cut), append(k.left, left)
		k.bytes += int64(left) * int64(24+4*n.opts.Layout.Tables[t].Dim())
	}
	if k.dense != dense {
		for i := range n.shard.dense {
			k.at.Dense = append(k.at.Dense, n.shard.dense[i].weights...)
		}
	}
	return k
}

// close ends the copies of rows; l is the node's lock. nil has none.
func (p *passCut) close(l sync.Locker) {
	if p == nil {
		return
	}
	for _, t := range p.tables {
		t.Close(l)
	}
	p.tables, p.answers = nil, nil
}

// cutAnswer gives a replica the answer of its pass that follows what it has dealt with.
func (n *Node) cutAnswer(ctx context.Context, c *consumer) (*ps.Changes, error) {
	p := c.pass
	a, err := p.last, error(nil)
	if a == nil {
		a, err = p.cut.answer(ctx, n, p.dealt)
	}
	if err != nil && context.Cause(ctx) == nil {
		n.giveBack(c)
		if c.all {
			c.startOver()
		}
		return nil, fmt.Errorf("ps: shard %d of %d: what has changed for consumer %s: %w", n.opts.Index, n.numShards(), c.name, err)
	}
	if err != nil {
		return nil, err
	}
	out := *a
	if p.given = p.dealt + 1; a.Whole && p.last == nil {
		p.last = a
		n.leave(c)
	}
	if a.At != nil {
		at := *a.At
		at.Age = time.Since(p.cut.taken)
		out.At = &at
	}
	return &out, nil
}

// answer returns the answer of a number, which was given to somebody or comes next. Errors: the context's, [ps.ErrFull].
func (p *passCut) answer(ctx context.Context, n *Node, number int) (*ps.Changes, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := number - p.first; i < len(p.answers) {
		return p.answers[i], nil
	}
	if p.err != nil {
		return nil, p.err
	}
	a, err := p.next(ctx, n)
	if err != nil {
		return nil, err
	}
	if !p.keep {
		p.first += len(p.answers)
		p.answers = p.answers[:0]
	}
	p.answers = append(p.answers, a)
	return a, nil
}

// next makes the next answer.
func (p *passCut) next(ctx context.Context, n *Node) (*ps.Changes, error) {
	out := &ps.Changes{}
	for ; p.table < len(p.tables); p.table, p.removed = p.table+1, nil {
		if err := context.Cause(ctx); err != nil {
			return nil, err // nothing was read
		}
		cut, spec := p.tables[p.table], n.opts.Layout.Tables[p.table]
		if p.removed == nil && p.changes != nil {
			p.removed = p.changes[p.table].Removed()
		}
		most := int(max(1, min(answerRows, answerBytes/spec.RowBytes())))
		out.Table = p.table
		some := min(most, len(p.removed))
		out.Removed, p.removed = append(out.Removed, p.removed[:some]...), p.removed[some:]
		out.Rows.Grow(max(0, min(most-len(out.Removed), p.left[p.table])), spec.Dim(), 0)
		more := true
		for more && len(out.Rows.Keys)+len(out.Removed) < most {
			more = cut.Next(n.mu.RLocker(), &out.Rows, most-len(out.Rows.Keys)-len(out.Removed))
			out.Removed, p.expired = append(out.Removed, p.expired...), p.expired[:0]
		}
		p.left[p.table] -= len(out.Rows.Keys)
		if p.err = cut.Err(); p.err != nil {
			return nil, p.err
		}
		if more {
			break
		}
		if len(out.Rows.Keys)+len(out.Removed) > 0 {
			p.table, p.removed = p.table+1, nil
			break
		}
	}
	if out.Whole = p.table == len(p.tables); out.Whole {
		out.At = p.at
		for _, t := range p.tables {
			t.Close(&n.mu)
		}
		p.tables = nil
	}
	return out, nil
}

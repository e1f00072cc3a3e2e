package shard

import (
	"sync"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wal"
)

// offer is an update of a caller's, with the copy of it that a shard keeps when it stages the update, and its record of the log where there is one. They
// are made before the shard's lock is taken: that takes as long as many updates of rows, and no two of them need wait for each other. Nobody
// changes the update meanwhile.
type offer struct {
	u *param.Update
	// own is nil once a shard has taken it, and record once the log has.
	own    *batch
	record *wal.Record
}

// batches are copies to be used again, of the shards that a node has had one after the other. Its methods may overlap.
type batches struct {
	mu   sync.Mutex
	free []*batch
}

// offer copies an update for a shard of so many tables. Whether it fits the shard is found out when it is to be staged.
func (p *batches) offer(u *param.Update, tables int) offer {
	b := p.take(tables)
	b.from, b.to, b.rows, b.lr, b.examples = u.From, u.To, u.NumRows, u.LR, u.Examples
	for t := range b.tables {
		d := &b.tables[t]
		d.Keys, d.Counts, d.Grads = copied(d.Keys, u.Keys, t), copied(d.Counts, u.Counts, t), copied(d.Grads, u.Grads, t)
		d.Op, d.Time, d.LR, d.Examples = u.Op, u.Time, u.LR, u.Examples
		d.Found = param.Found{Numbers: d.Found.Numbers[:0]}
		if len(u.Found) == len(b.tables) {
			f := &u.Found[t]
			d.Found = param.Found{In: f.In, Removed: f.Removed, Numbers: append(d.Found.Numbers, f.Numbers...)}
		}
	}
	b.dense = append(b.dense[:0], u.Dense...)
	b.trace, _ = score.AppendTail(b.trace[:0], u.Trace) // what is no trace is refused when it is to be staged
	return offer{u: u, own: b}
}

// copied is a copy of what an update has of table t, in the memory of dst.
func copied[T any](dst []T, of [][]T, t int) []T {
	if t >= len(of) {
		return dst[:0]
	}
	return append(dst[:0], of[t]...)
}

// withdraw takes back what no shard has taken.
func (p *batches) withdraw(o *offer) {
	if o.own != nil {
		p.give(o.own)
		o.own = nil
	}
}

func (p *batches) take(tables int) *batch {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return &batch{tables: make([]table.Update, tables)}
	}
	b := p.free[n-1]
	p.free = p.free[:n-1]
	return b
}

func (p *batches) give(b *batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}

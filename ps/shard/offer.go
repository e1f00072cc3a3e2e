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
	// exchange is set where own is no copy yet: it exchanges its memory for that of the update when a shard takes it.
	exchange bool
}

// batches are copies to be used again, of the shards that a node has had one after the other. Its methods may overlap.
type batches struct {
	mu   sync.Mutex
	free []*batch
}

// offer copies an update for a shard of so many tables, or has it exchanged where the update allows that and exchange is set. Whether it fits the shard is found
// out when it is to be staged.
func (p *batches) offer(u *param.Update, tables int, exchange bool) offer {
	b := p.take(tables)
	b.from, b.to, b.rows, b.lr, b.examples = u.From, u.To, u.NumRows, u.LR, u.Examples
	o := offer{u: u, own: b, exchange: exchange && u.Exchange}
	for t := range b.tables {
		d := &b.tables[t]
		d.Op, d.Time, d.LR, d.Examples = u.Op, u.Time, u.LR, u.Examples
		if o.exchange {
			continue
		}
		d.Keys, d.Counts, d.Grads = copied(d.Keys, u.Keys, t), copied(d.Counts, u.Counts, t), copied(d.Grads, u.Grads, t)
		d.Found = param.Found{Numbers: d.Found.Numbers[:0]}
		if len(u.Found) == len(b.tables) {
			f := &u.Found[t]
			d.Found = param.Found{In: f.In, Removed: f.Removed, Numbers: append(d.Found.Numbers, f.Numbers...)}
		}
	}
	if !o.exchange {
		b.dense = append(b.dense[:0], u.Dense...)
	}
	b.trace, _ = score.AppendTail(b.trace[:0], u.Trace) // what is no trace is refused when it is to be staged
	return o
}

// keep returns what a shard that takes the offer keeps. The update must have been found good.
func (o *offer) keep() *batch {
	b, u := o.own, o.u
	o.own = nil
	if !o.exchange {
		return b
	}
	for t := range b.tables {
		d := &b.tables[t]
		exchange(&d.Keys, u.Keys, t)
		exchange(&d.Counts, u.Counts, t)
		exchange(&d.Grads, u.Grads, t)
		d.Found = param.Found{Numbers: d.Found.Numbers[:0]}
		if len(u.Found) == len(b.tables) { // what is left there must say nothing: numbers of other fids are other rows
			d.Found, u.Found[t] = u.Found[t], d.Found
		}
	}
	b.dense, u.Dense = u.Dense, b.dense
	return b
}

// exchange exchanges a slice for that of table t, or empties it where there is none.
func exchange[T any](own *[]T, of [][]T, t int) {
	if t >= len(of) {
		*own = (*own)[:0]
		return
	}
	*own, of[t] = of[t], *own
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

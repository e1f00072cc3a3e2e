package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// consumer is somebody whom changes are kept for: bits of the rows of each table that have changed. They lie in memory alone. Who has been forgotten, or asks a
// shard that has begun again, gets all rows.
type consumer struct {
	name string
	// replica says that its passes are cuts, which it shares with other replicas (sharing.go).
	replica bool
	// trackers are those of the tables, of a replica none, under the node's lock; so are asked, when it asked last, and of a replica the number of the newest shared cut that
	// it has or is being given, and what it lacks of what had changed until then; nil: nothing.
	trackers []*table.Tracker
	asked    time.Time
	at       uint64
	owed     []*table.Changes
	timer    *time.Timer

	mu sync.Mutex // before the node's
	// stream names the registration; all: the next pass, or the one under way, brings all rows.
	stream uint64
	all    bool
	seq    uint64 // of the last answer
	pass   *pass
	gone   bool // it is registered no more
	// dense is the version of the dense tensors that the consumer has, 0 for none; patience ends a pass that is a cut.
	dense    uint64
	patience *time.Timer
}

// pass gives what had changed at one moment: as rows are when they are read, or as they were at that moment (consumercuts.go).
type pass struct {
	cut *passCut // nil: rows are walked
	// dealt answers of a cut were acknowledged, of those that were given. last is its last answer, once that was given.
	dealt, given int
	last         *ps.Changes
	let          bool // the cut is not read any more

	changes []*table.Changes // of each table
	walks   []*table.Walk
	starts  []table.Place
	removed [][]int64
	// from is where the last answer began, to where it ended.
	from, to passPlace
}

// acknowledge says that all was dealt with that was given, and reports whether that is all of the pass.
func (p *pass) acknowledge() (ended bool) {
	if p.cut != nil {
		p.dealt = p.given
		return p.last != nil
	}
	p.from = p.to
	return p.from.table == len(p.walks)
}

// passPlace is how far a pass is: removed keys of a table were given before its rows.
type passPlace struct {
	table, removed int
	rows           table.Place
}

const (
	// answerRows bounds the rows, and the removed keys, of an answer, answerBytes the memory of its rows, about.
	answerRows  = 4096
	answerBytes = 4 << 20
	// answerPieces bounds the segments of the index that are looked at for one answer: a pass over a large table of which little has changed has empty
	// answers, and nobody who wants to replace the state waits for long.
	answerPieces = 256
)

// ChangesFor gives a consumer what has changed. Errors: [ps.ErrNotReady], [ps.ErrConsumers], [ps.ErrClosed], the context's.
func (n *Node) ChangesFor(ctx context.Context, r ps.ChangesRequest) (*ps.Changes, error) {
	n.use.RLock() // the tables stay
	defer n.use.RUnlock()
	c, err := n.consumer(r)
	if err != nil || c == nil {
		return &ps.Changes{}, err
	}
	defer c.mu.Unlock()
	again := uint64(0)
	switch {
	case c.pass == nil:
	case r.Stream == c.stream && r.Seq == c.seq:
		if c.pass.acknowledge() {
			n.endPass(c)
		}
	case r.Stream == c.stream && r.Seq == c.seq-1 && r.Seq > 0:
		again = 1 // the answer was lost
	default:
		n.giveBack(c)
	}
	if r.Cut && r.Stream != c.stream {
		c.startOver()
	}
	switch {
	case c.pass != nil:
	case r.Cut:
		n.beginCutFor(c)
	default:
		n.beginPass(c)
	}
	out := &ps.Changes{}
	if r.Cut {
		out, err = n.cutAnswer(ctx, c)
	} else {
		err = n.fillAnswer(ctx, c, r.Rows, out)
		out.Snapshot = n.newestCut() // after the rows were read
	}
	if err != nil {
		return nil, err
	}
	c.seq += 1 - again
	out.Stream, out.Seq, out.All = c.stream, c.seq, c.all
	return out, nil
}

// startOver makes the next pass bring all rows, to a consumer that has none.
func (c *consumer) startOver() { c.stream, c.seq, c.all, c.dense = ps.NewID(), 0, true, 0 }

// endPass is called when a pass was acknowledged to its end.
func (n *Node) endPass(c *consumer) {
	if c.pass.cut != nil {
		c.dense = c.pass.cut.dense
	}
	c.pass, c.all = nil, false
}

// consumer returns who asks, locked, and registered if need be; nil for one that leaves.
func (n *Node) consumer(r ps.ChangesRequest) (*consumer, error) {
	for {
		c, err := n.registered(r)
		if err != nil || c == nil {
			return nil, err
		}
		c.mu.Lock()
		switch {
		case c.gone: // it was forgotten meanwhile
			c.mu.Unlock()
		case r.Drop, r.Cut != c.replica: // or it is another one by the same name
			n.mu.Lock()
			n.dropConsumer(c)
			n.mu.Unlock()
			c.mu.Unlock()
			if r.Drop {
				return nil, nil
			}
		default:
			return c, nil
		}
	}
}

func (n *Node) registered(r ps.ChangesRequest) (*consumer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	me := fmt.Sprintf("ps: shard %d of %d", n.opts.Index, n.numShards())
	switch {
	case n.shard.closed:
		return nil, ps.ErrClosed
	case n.generation == 0:
		return nil, fmt.Errorf("%s: %w", me, ps.ErrNotReady)
	case r.Shards != 0 && r.Shards != n.numShards():
		return nil, ps.OtherShards(r.Shards, n.numShards())
	case r.Consumer == "" || len(r.Consumer) > ps.MaxConsumerName:
		return nil, fmt.Errorf("%s: the name of a consumer has 1 to %d bytes, not %d: %w", me, ps.MaxConsumerName, len(r.Consumer), ps.ErrConsumers)
	}
	if err := errors.Join(n.failed(), n.pair.refuses()); err != nil {
		return nil, err
	}
	c := n.consumers[r.Consumer]
	switch {
	case r.Drop:
		return c, nil
	case c != nil:
		c.asked = time.Now()
		return c, nil
	case len(n.consumers) >= ps.MaxConsumers:
		return nil, fmt.Errorf("%s: it keeps changes for %d consumers; let one leave first (monolith ps changes JOB.yaml --consumer NAME --leave): %w", me, len(n.consumers), ps.ErrConsumers)
	}
	c = &consumer{name: r.Consumer, replica: r.Cut, asked: time.Now()}
	c.startOver()
	if c.replica {
		n.joinReplicas(c)
	} else {
		c.trackers = n.shard.track(true)
	}
	idle := n.opts.ConsumerIdle
	c.timer = time.AfterFunc(idle, func() { n.forget(c) })
	if n.consumers == nil {
		n.consumers = map[string]*consumer{}
	}
	n.consumers[r.Consumer] = c
	n.opts.Logger.Info("changes are kept for a consumer", "shard", n.opts.Index, "consumer", r.Consumer)
	return c, nil
}

// forget drops a consumer that has not asked for long.
func (n *Node) forget(c *consumer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.consumers[c.name] != c {
		return
	}
	if left := n.opts.ConsumerIdle - time.Since(c.asked); left > 0 {
		c.timer.Reset(left)
		return
	}
	n.dropConsumer(c)
	n.opts.Logger.Warn("a consumer of changes has not asked for long and is forgotten: it will be given all rows (ps.consumer_idle)",
		"shard", n.opts.Index, "consumer", c.name, "idle", n.opts.ConsumerIdle)
}

// dropConsumer needs the lock, and that of the consumer or that nobody asks.
func (n *Node) dropConsumer(c *consumer) {
	c.timer.Stop()
	n.letGo(c).close(nopLocker{})
	c.gone, c.pass = true, nil
	for _, k := range c.trackers {
		k.Close()
	}
	delete(n.consumers, c.name)
	if c.replica {
		n.leaveReplicas()
	}
}

// dropConsumers forgets all, because the rows are to be others. It needs the lock.
func (n *Node) dropConsumers() {
	for _, c := range n.consumers {
		n.dropConsumer(c)
	}
}

// giveBack makes what a pass was to give count as changed again.
func (n *Node) giveBack(c *consumer) {
	if c.pass.cut != nil {
		n.giveBackCut(c)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !c.all {
		for t, of := range c.pass.changes {
			c.trackers[t].Return(of)
		}
	}
	c.pass = nil
}

// beginPass takes what has changed since the pass before.
func (n *Node) beginPass(c *consumer) {
	p := &pass{removed: make([][]int64, len(c.trackers))}
	n.mu.Lock()
	for _, k := range c.trackers {
		if k.Since().Lost() && !c.all {
			n.lostChanges(c)
		}
	}
	for t, k := range c.trackers {
		of := k.Take()
		p.changes = append(p.changes, of)
		if c.all {
			of = nil
		}
		w := n.shard.walk(t, of)
		p.walks, p.starts = append(p.walks, w), append(p.starts, w.Place())
	}
	n.mu.Unlock()
	p.from = p.place(0)
	p.to = p.from
	if !c.all {
		for t, of := range p.changes {
			p.removed[t] = of.Removed()
		}
	}
	c.pass = p
}

// lostChanges makes a consumer begin again for whom not all keys of rows are remembered that have gone.
func (n *Node) lostChanges(c *consumer) {
	c.startOver()
	n.opts.Logger.Warn("more rows have gone than are remembered for a consumer of changes: it will be given all rows", "shard", n.opts.Index, "consumer", c.name)
}

// place is where a table begins.
func (p *pass) place(table int) passPlace {
	at := passPlace{table: table}
	if table < len(p.starts) {
		at.rows = p.starts[table]
	}
	return at
}

// fillAnswer gives the piece of a pass that begins at its place, and moves its end.
func (n *Node) fillAnswer(ctx context.Context, c *consumer, rows bool, out *ps.Changes) error {
	p := c.pass
	at := p.from
	for pieces := 0; at.table < len(p.walks); {
		w, removed, spec := p.walks[at.table], p.removed[at.table], n.opts.Layout.Tables[at.table]
		most := answerRows
		if rows {
			most = int(max(1, min(answerRows, answerBytes/spec.RowBytes())))
		}
		w.Seek(at.rows)
		w.KeysOnly = !rows
		out.Table = at.table
		for len(out.Rows.Keys)+len(out.Removed) < most && (at.removed < len(removed) || !at.rows.End) {
			if pieces++; pieces > answerPieces {
				p.to = at
				return nil
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
			left := most - len(out.Rows.Keys) - len(out.Removed)
			if at.removed < len(removed) {
				some := removed[at.removed:min(at.removed+left, len(removed))]
				at.removed += len(some)
				out.Removed = n.without(at.table, some, out.Removed)
				continue
			}
			w.Next(n.mu.RLocker(), &out.Rows, left)
			at.rows = w.Place()
			out.Removed, w.Expired = append(out.Removed, w.Expired...), w.Expired[:0]
		}
		if at.removed == len(removed) && at.rows.End {
			at = p.place(at.table + 1)
		}
		if len(out.Rows.Keys)+len(out.Removed) > 0 {
			break
		}
	}
	p.to, out.Whole = at, at.table == len(p.walks)
	return nil
}

// newestCut is the newest snapshot for which the node has begun a cut, or whose state it holds. It may be too high for a row
// that was read just before, never too low: a receiver that keeps a row for too long is sent it again when it changes.
func (n *Node) newestCut() uint64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return max(n.base, n.newest, n.log.base())
}

// without appends the keys that have no row to dst.
func (n *Node) without(tbl int, keys, dst []int64) []int64 {
	n.mu.RLock()
	defer n.mu.RUnlock()
	var row table.Rows
	for _, k := range keys {
		if row.Reset(); !n.shard.tables[tbl].Get(k, &row) {
			dst = append(dst, k)
		}
	}
	return dst
}

// walk reads a table, whatever its kind. It may overlap lookups.
func (s *Shard) walk(t int, only *table.Changes) *table.Walk {
	if s.retained != nil {
		return s.retained[t].Walk(only)
	}
	return s.plain[t].Walk(only)
}

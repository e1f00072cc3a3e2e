package shard

import (
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// sharing is what replicas share: what takes note of changes for all of them, and the newest cut, which is made once for those who have the cut before it. Each replica has
// the newest cut or the one before. What it lacks of others, because it asks more seldom than they do or did not acknowledge a pass, it is owed (consumer.owed): it gets
// that by a cut of its own, and then is one of them again. All of it is under the node's lock.
type sharing struct {
	replicas int
	// trackers are those of the tables.
	trackers []*table.Tracker
	// cut numbers the newest; changes are what has changed between the one before and it.
	cut     uint64
	changes []*table.Changes
	// dense is the version of the dense tensors at the newest.
	dense uint64
	// pass gives the newest to those who have the one before, for a while; nil: to nobody else.
	pass  *passCut
	timer *time.Timer
	// kept is what answers take that are kept for several replicas, bytes.
	kept int64
}

// maxKept bounds the answers that a shard keeps for several replicas, bytes. Beyond that each is given a cut of its own.
const maxKept = 256 << 20

// joinReplicas registers a replica. It needs the lock.
func (n *Node) joinReplicas(c *consumer) {
	if n.sharing.replicas == 0 {
		n.sharing.trackers = n.shard.track(true)
	}
	n.sharing.replicas++
	c.at = n.sharing.cut
}

// leaveReplicas ends it with its last replica. It needs the lock.
func (n *Node) leaveReplicas() {
	if n.sharing.replicas--; n.sharing.replicas > 0 {
		return
	}
	for _, k := range n.sharing.trackers {
		k.Close()
	}
	n.unshare().close(nopLocker{})
	n.sharing = sharing{}
}

// beginCutFor begins a pass of a replica: the next cut, or the newest where another has begun it, or one of its own.
func (n *Node) beginCutFor(c *consumer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	f := &n.sharing
	lost := false
	for _, k := range f.trackers {
		lost = lost || k.Since().Lost()
	}
	if lost || !c.all && c.owed == nil && c.at == f.cut {
		n.nextCut(c, lost)
	}
	if !c.all && c.owed == nil && f.pass != nil { // it has the cut before
		c.at = f.cut
		n.give(c, f.pass)
		if !f.pass.keep || !n.wanted() {
			n.unshare()
		}
		return
	}
	changes := make([]*table.Changes, 0, len(f.trackers))
	for t, k := range f.trackers {
		if c.all {
			break
		}
		of := &table.Changes{}
		if c.owed != nil {
			of = c.owed[t]
		}
		if c.at < f.cut {
			k.Join(of, f.changes[t])
		}
		k.Join(of, k.Since())
		if changes = append(changes, of); of.Lost() {
			n.lostChanges(c)
		}
	}
	c.at, c.owed = f.cut, nil
	n.give(c, n.takePass(c.all, changes, c.dense))
}

// nextCut makes the next cut, for c and all others who have the one before; lost says that nobody can know what has changed since. It needs the lock.
func (n *Node) nextCut(c *consumer, lost bool) {
	f := &n.sharing
	n.unshare().close(nopLocker{})
	for _, o := range n.consumers {
		if o.replica && o.at < f.cut {
			o.owe(f.trackers, f.changes)
			o.at = f.cut
		}
	}
	changes := make([]*table.Changes, len(f.trackers))
	for t, k := range f.trackers {
		changes[t] = k.Take()
	}
	f.cut, f.changes = f.cut+1, changes
	if lost {
		return
	}
	p := n.takePass(false, changes, f.dense)
	at := c.at
	c.at = f.cut
	if n.wanted() && f.kept+p.bytes <= maxKept {
		p.keep = true
		f.kept += p.bytes
		f.timer = time.AfterFunc(ps.MaxPass, func() { n.stopSharing(p) })
	}
	c.at = at
	p.refs++
	f.pass, f.dense = p, p.dense
}

// wanted reports whether a replica is at the cut before the newest. It needs the lock.
func (n *Node) wanted() bool {
	for _, o := range n.consumers {
		if o.replica && o.at < n.sharing.cut && o.owed == nil {
			return true
		}
	}
	return false
}

// owe makes changes that a replica is not given with others count for it. It needs the lock.
func (c *consumer) owe(trackers []*table.Tracker, changes []*table.Changes) {
	owed := make([]*table.Changes, len(trackers))
	for t, k := range trackers {
		if c.owed == nil {
			owed[t] = changes[t].Clone()
		} else {
			owed[t] = c.owed[t]
			k.Join(owed[t], changes[t])
		}
	}
	c.owed = owed
}

// give gives a replica a pass. It needs the lock.
func (n *Node) give(c *consumer, p *passCut) {
	p.refs++
	c.pass = &pass{cut: p}
	c.patience = time.AfterFunc(ps.MaxPass, func() { n.giveUpPass(c) })
}

// unshare makes the newest cut one that nobody else is given, and returns it if nobody reads it. It needs the lock.
func (n *Node) unshare() *passCut {
	f := &n.sharing
	p := f.pass
	if p == nil {
		return nil
	}
	f.pass = nil
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	return n.release(p)
}

// release says that somebody reads a pass no more, and returns it if he was the last, to be closed. It needs the lock.
func (n *Node) release(p *passCut) *passCut {
	if p.refs--; p.refs > 0 {
		return nil
	}
	if p.keep {
		n.sharing.kept -= p.bytes
	}
	return p
}

// stopSharing ends the sharing of a cut that some replica has not asked for.
func (n *Node) stopSharing(p *passCut) {
	n.use.RLock() // the tables stay
	defer n.use.RUnlock()
	var last *passCut
	n.mu.Lock()
	if n.sharing.pass == p {
		last = n.unshare()
	}
	n.mu.Unlock()
	last.close(&n.mu)
}

// letGo says that a consumer reads no cut any more, and returns the cut if it was the last, to be closed. It needs the lock.
func (n *Node) letGo(c *consumer) *passCut {
	if c.pass == nil || c.pass.cut == nil || c.pass.let {
		return nil
	}
	c.pass.let = true
	c.patience.Stop()
	return n.release(c.pass.cut)
}

// leave is letGo for who has not the lock.
func (n *Node) leave(c *consumer) {
	n.mu.Lock()
	last := n.letGo(c)
	n.mu.Unlock()
	last.close(&n.mu)
}

// giveBackCut makes what a cut was to give a replica count as changed for it again.
func (n *Node) giveBackCut(c *consumer) {
	if !c.all {
		n.mu.Lock()
		since := c.owed
		c.owed = nil
		if c.owe(n.sharing.trackers, c.pass.cut.changes); since != nil {
			c.owe(n.sharing.trackers, since)
		}
		n.mu.Unlock()
	}
	n.leave(c)
	c.pass = nil
}

// giveUpPass ends a pass that nobody asks about: no rows are copied for it any more.
func (n *Node) giveUpPass(c *consumer) {
	n.use.RLock() // the tables stay
	defer n.use.RUnlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.pass == nil || c.pass.cut == nil || c.pass.let {
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

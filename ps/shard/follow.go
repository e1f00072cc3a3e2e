package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/wal"
)

type (
	// Place is up to where a standby has the log of the one in charge.
	Place = wal.Place
	// Piece is what follows a place.
	Piece = wal.Piece
)

// Feed is the log of a node that is in charge, as its standby gets it. Next is for one goroutine, Received and End for another.
type Feed struct {
	n   *Node
	f   *wal.Follower
	id  uint64
	run context.Context
	end context.CancelCauseFunc
	// ended is the last place that was the end of what was durable. It is guarded by the pair's lock.
	ended uint64
}

// Bases are the snapshots that a standby may begin with, the newest first, 0 for initial values, and how many shards there are. Errors: [ps.ErrNotReady] when
// the node is not in charge, or has no state.
func (n *Node) Bases() (bases []uint64, numShards int, err error) {
	if n.pair == nil {
		return nil, 0, fmt.Errorf("ps: shard %d of %d has no standby in the job of this process (ps.standby): %w", n.opts.Index, n.numShards(), ps.ErrMismatch)
	}
	if err := n.pair.refuses(); err != nil {
		return nil, 0, err
	}
	if st, err := n.Status(context.Background()); err != nil {
		return nil, 0, err
	} else if st.Generation == 0 {
		return nil, 0, fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
	}
	return n.log.Bases(), n.numShards(), nil
}

// Feed begins to feed the standby, until the context ends, in place of a feed before, which ends: a standby has one, and where that is another one it
// connects again. Errors: [ps.ErrGap] when the log has not what follows the place, so that the standby starts over; [ps.ErrNotReady].
func (n *Node) Feed(ctx context.Context, from Place) (*Feed, error) {
	f, err := n.log.Follow(from)
	if errors.Is(err, wal.ErrBase) {
		return nil, fmt.Errorf("%w: %w", ps.ErrGap, err)
	}
	if err != nil {
		return nil, fmt.Errorf("ps: write-ahead log: %w", logError(err))
	}
	p := n.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refused(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	p.endFeed()
	p.feeds++
	out := &Feed{n: n, f: f, id: p.feeds}
	out.run, out.end = context.WithCancelCause(ctx)
	p.feed, p.unfeed, p.progress = out.id, out.end, p.now()
	p.received = from.LSN
	if from.LSN == 0 && p.synced { // what it had, it has no more
		p.synced, p.lone = false, 0
	}
	if from.LSN == 0 {
		p.goal = math.MaxUint64
	}
	return out, nil
}

// Next is [wal.Follower.Next]. Errors: [ps.ErrGap] when the log was trimmed, [ps.ErrNotReady] when another feed is in its place, what it was ended with.
func (f *Feed) Next() (Piece, error) {
	piece, err := f.f.Next(f.run)
	if errors.Is(err, wal.ErrBase) {
		return Piece{}, fmt.Errorf("%w: %w", ps.ErrGap, err)
	}
	if err != nil {
		return Piece{}, fmt.Errorf("ps: write-ahead log: %w", logError(err))
	}
	if piece.End {
		p := f.n.pair
		p.mu.Lock()
		f.ended = piece.Upto
		p.mu.Unlock()
	}
	return piece, nil
}

// Received says that the standby has all up to a record. Once it has what was durable a moment ago, acknowledgements wait for it.
func (f *Feed) Received(upto uint64) {
	p := f.n.pair
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.feed != f.id || upto < p.received {
		return
	}
	p.received, p.progress = upto, p.now()
	if (!p.wait || p.goal == math.MaxUint64) && f.ended > 0 && upto >= f.ended {
		// All that is acknowledged without it so far lies below the next record.
		p.wait, p.goal = true, f.n.log.in.Stats().Next-1
	}
	p.wake()
}

// End makes Next return a cause.
func (f *Feed) End(cause error) { f.end(cause) }

// Close ends the feed.
func (f *Feed) Close() error {
	p := f.n.pair
	p.mu.Lock()
	if p.feed == f.id {
		p.endFeed()
	}
	p.mu.Unlock()
	f.end(errUnfed)
	return f.f.Close()
}

// AwaitStandby returns once the node is the standby of its pair, with a context that ends when it is not any more. Errors: the context's,
// [ps.ErrClosed].
func (n *Node) AwaitStandby(ctx context.Context) (context.Context, error) {
	p := n.pair
	for {
		p.mu.Lock()
		run, changed, closed := p.run, p.changed, p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return nil, ps.ErrClosed
		case run != nil:
			return run, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// InCharge reports whether the node does the work of its shard: it has no pair, or is the one in charge.
func (n *Node) InCharge() bool { return n.Refuses() == nil }

// Refuses returns why the node does not do the work of its shard at this moment, or nil where it does. Errors: [ps.ErrNotReady].
func (n *Node) Refuses() error { return n.pair.refuses() }

// FollowedTo is the place from which the standby continues; the zero one: it has to start over.
func (n *Node) FollowedTo() Place {
	n.pair.mu.Lock()
	defer n.pair.mu.Unlock()
	return n.pair.place
}

// following returns nil while the node is the standby of its pair. run is what [Node.AwaitStandby] returned. over says that it starts over, and has nothing from now on:
// that, and coming to be in charge, exclude each other.
func (p *pair) following(run context.Context, over bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.run != run || run.Err() != nil {
		return fmt.Errorf("ps: %s is not the standby any more: %w", p.who, ps.ErrNotReady)
	}
	if over {
		p.whole, p.place = false, Place{}
	}
	return nil
}

// StartOver gives the standby, of one of so many shards, the state of the first of the given snapshots that is whole; 0 stands for initial values. One that it has
// read ahead ([Node.Prepare]) is there at once. What it had is freed before, and it cannot take over until it has caught up.
// run is what [Node.AwaitStandby] returned. Errors: [ps.ErrCorrupt] when none is whole, [ps.ErrLayout], [ps.ErrFull], those of the log.
func (n *Node) StartOver(run context.Context, numShards int, bases []uint64) (base uint64, err error) {
	p := n.pair
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.following(run, true); err != nil {
		return 0, err
	}
	n.use.Lock()
	defer n.use.Unlock()
	n.mu.Lock()
	had := n.takeAhead()
	old, err := n.emptied()
	n.mu.Unlock()
	if err != nil {
		n.drop(&had)
		return 0, err
	}
	at := slices.IndexFunc(bases, func(base uint64) bool { return had.is(numShards, snapshot.Path(n.opts.Dir, base), base) })
	if at >= 0 && had.in == nil {
		bases = bases[at:]
		n.freeing.Go(old.Close)
	} else {
		n.drop(&had)
		old.Close()
	}
	var lost []error
	for _, base := range bases {
		s := had.shard
		if had = (ahead{}); s == nil {
			if s, err = n.empty(numShards); err != nil {
				return 0, err
			}
			if base > 0 {
				err = n.read(run, s, snapshot.Path(n.opts.Dir, base))
			}
		}
		if err == nil {
			if err = n.log.failed(); err == nil {
				err = n.log.fail(n.log.Reset(base))
			}
		}
		if err != nil {
			s.Close()
			if lost = append(lost, err); errors.Is(err, ps.ErrCorrupt) {
				continue
			}
			break
		}
		n.mu.Lock()
		if n.shard.closed {
			s.Close()
			n.mu.Unlock()
			return 0, ps.ErrClosed
		}
		n.shard.Close()
		n.shards.Store(int64(numShards))
		n.log.shards = numShards
		s.maxStaged = math.MaxInt // it was checked where the records were written
		n.shard, n.base, n.tracked, n.replica = s, base, 0, logDecoder{shard: s}
		if n.opts.Track {
			n.tracked = base
		}
		n.mu.Unlock()
		return base, nil
	}
	return 0, fmt.Errorf("ps: shard %d of %d: the standby cannot begin with snapshots %d: %w", n.opts.Index, n.numShards(), bases, errors.Join(lost...))
}

// ErrStartsOver is returned by [Node.Receive] when the one in charge goes to another state: connect again, and begin with that.
var ErrStartsOver = errors.New("ps: the shard goes to another state")

// Receive takes a piece of the log of the one in charge, says by ack that it has it, and applies it, which writes it to the log of the
// standby's own as well. run is what [Node.AwaitStandby] returned. After an error the standby starts over, but for ack's.
//
// A piece in which the one in charge goes to another state, by restoring, rollback or scaling, is not acknowledged, so that nothing is that was pushed to
// that state: the standby starts over, with what it has read ahead where it was told to. Until it does it has what it had, and may take over with that: then
// the shard is of a generation before, and the coordinator gives all shards a state. Errors:
// [ps.ErrCorrupt] for what no shard writes, [ps.ErrFull], those of the log and of ack.
func (n *Node) Receive(run context.Context, piece Piece, ack func(upto uint64) error) error {
	p := n.pair
	p.turn.Lock()
	defer p.turn.Unlock()
	if err := p.following(run, false); err != nil {
		return err
	}
	from, number := n.FollowedTo(), uint32(n.opts.Index)
	to, err := wal.ReadPiece(number, from, piece, func(e wal.Followed) error {
		if e.Reset {
			return ErrStartsOver
		}
		if e.Kind != recGeneration {
			return nil
		}
		// The one in charge may have gone to the same snapshot as one of another number of shards since it said of how many it was.
		shards, err := shardsIn(e.Kind, e.Payload)
		if err == nil && shards != n.numShards() {
			err = ErrStartsOver
		}
		return err
	})
	if err == nil {
		if err := ack(to.LSN); err != nil {
			return err
		}
		err = n.replicate(from, piece)
	}
	n.mu.RLock()
	begun := n.generation > 0
	n.mu.RUnlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.whole, p.place = p.whole && errors.Is(err, ErrStartsOver), Place{}
		return fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), logError(err))
	}
	if p.run == nil || p.run == run { // else it starts over for another
		p.place, p.whole = to, p.whole || piece.End && begun // else its state is of no generation yet
	}
	return nil
}

// replicate appends and applies what a piece has behind a place. The caller has the turn.
func (n *Node) replicate(from Place, piece Piece) error {
	trims := false
	apply := func() error {
		n.mu.Lock()
		defer n.mu.Unlock()
		defer n.changing()
		if n.shard.closed {
			return ps.ErrClosed
		}
		if err := n.failed(); err != nil {
			return err
		}
		_, err := wal.ReadPiece(uint32(n.opts.Index), from, piece, func(e wal.Followed) error {
			if e.Border {
				trims = true
				return n.log.fail(n.log.Rotate(e.Base))
			}
			if _, err := n.log.Append(e.Kind, e.Payload); err != nil {
				return n.log.fail(err)
			}
			return n.replica.apply(e.Kind, e.Payload)
		})
		n.generation = n.replica.generation
		n.highest = max(n.highest, n.generation)
		return err
	}
	if err := apply(); err != nil || !trims {
		return err
	}
	// What lies before the snapshot before the newest is needed no more. An error is nothing to the one who follows: the next trim continues.
	if newest, err := n.newestSnapshot(); err == nil && newest > 0 && newest <= n.log.base() {
		if err := n.log.trim(newest); err != nil {
			n.opts.Logger.Warn("the log of a standby is not trimmed", "shard", n.opts.Index, "err", err)
		}
	}
	return nil
}

// takeOver puts a standby, whose run has ended, in charge of a term: what it has becomes the state, as if it had come back with the log. It waits for the piece
// under way.
func (n *Node) takeOver(ctx context.Context, term uint64) error {
	p := n.pair
	p.turn.Lock()
	defer p.turn.Unlock()
	p.mu.Lock()
	current, err := p.role == inCharge && p.term == term, p.mayTakeOver(term)
	p.mu.Unlock()
	if current { // by the call before, which nobody waited for
		return nil
	}
	if err == nil {
		err = n.settle(term)
	}
	if err != nil {
		return err
	}
	// What it has received was acknowledged by another's word, which ends here.
	if err := n.log.Flush(context.WithoutCancel(ctx)); err != nil {
		return n.log.fail(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.mayTakeOver(term); err != nil {
		return err
	}
	p.begin(term)
	p.logger.Warn("the standby is in charge from now on", "shard", p.who, "term", term)
	return nil
}

// mayTakeOver returns nil when the node has what it takes to be in charge of a term, and no call has come since that makes it follow. It needs the lock. Errors:
// [ps.ErrNotReady], [ps.ErrClosed].
func (p *pair) mayTakeOver(term uint64) error {
	switch {
	case p.closed:
		return ps.ErrClosed
	case p.run != nil, p.role != standby, p.term+1 != term:
		return fmt.Errorf("ps: %s: the shard has gone on in term %d, and the standby does not take over in term %d: %w", p.who, p.term, term, ps.ErrNotReady)
	case !p.whole:
		return fmt.Errorf("ps: %s: the standby has not caught up and cannot take over: %w", p.who, ps.ErrNotReady)
	}
	return nil
}

// settle makes the state of a standby that of a node that serves. The caller has the turn.
func (n *Node) settle(term uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shard.closed {
		return ps.ErrClosed
	}
	if err := n.failed(); err != nil {
		return err
	}
	s, d := n.shard, &n.replica
	s.maxStaged = n.opts.MaxStaged
	s.disconnected()
	n.generation, n.highest, n.recovered = d.generation, d.generation, ps.LogRecovery{}
	n.log.seen = max(d.seen, n.log.Base())
	n.log.term = term
	n.incarnation = ps.NewID() // clients repeat their last commits
	n.wakeUp()
	_, err := n.log.termed()
	return err
}

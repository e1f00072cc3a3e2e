package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/ps"
)

// Source is the shards that are followed: a coordinator.Cluster or rpc.Remote.
type Source interface {
	ps.ChangesSource
	// NumShards asks how many there are.
	NumShards(ctx context.Context) (int, error)
}

const (
	minWait = 20 * time.Millisecond
	maxWait = time.Second
	// leaveFor bounds how long shards are told that nobody follows them any more.
	leaveFor = time.Second
)

// Follow makes the replica follow shards until the context ends, whatever becomes of them: those that do not answer are asked again. One call at a time. Errors:
// [ps.ErrMismatch] when they are those of another job or model; [ps.ErrFull], and what was read is read on; the context's.
func (r *Replica) Follow(ctx context.Context, from Source) error {
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		shards, err := from.NumShards(ctx)
		if err == nil {
			began := time.Now()
			err = r.follow(ctx, from, shards)
			if time.Since(began) > maxWait { // what had been in the way no longer was
				wait = minWait
			}
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ps.ErrRolledBack): // there are more or fewer shards
		case errors.Is(err, ps.ErrMismatch), errors.Is(err, ps.ErrFull):
			return err
		}
		r.log.WarnContext(ctx, "the shards are asked again", "err", err)
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// following is one following of so many shards.
type following struct {
	r     *Replica
	from  Source
	place ps.Placement
	c     *ps.Consumer
}

func (r *Replica) follow(ctx context.Context, from Source, shards int) (err error) {
	r.mu.Lock()
	r.drop()
	r.coming = make([]*part, shards)
	r.mu.Unlock()
	f := &following{r: r, from: from, place: ps.NewPlacement(r.layout, shards), c: ps.NewReplica(r.o.Name, from, shards)}
	g, gctx := errgroup.WithContext(ctx)
	for s := range shards {
		g.Go(func() error { return f.shard(gctx, s) })
	}
	err = g.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	_ = f.c.Leave(last) // otherwise they forget it in a while
	return err
}

// shard follows one shard until the context ends. Errors: those that the whole following ends by.
func (f *following) shard(ctx context.Context, s int) error {
	for {
		cut, took, err := f.pass(ctx, s)
		if err != nil {
			return err
		}
		// Counted from the cut, so that replicas who share one share the next.
		if err := pause(ctx, max(f.r.o.Every, 3*took)-time.Since(cut)); err != nil {
			return err
		}
	}
}

// pass takes what has changed on a shard since the pass before, and returns a time that the cut is not older than, by the clock here, and how long it took, without waits for a
// shard that did not answer.
func (f *following) pass(ctx context.Context, s int) (cut time.Time, took time.Duration, err error) {
	var changes []*ps.Changes // of rows that there are
	var all *part             // or all rows
	stream := uint64(0)
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	for {
		c, asked, err := f.next(ctx, s)
		if err != nil {
			return cut, 0, err
		}
		if c.All && (all == nil || c.Stream != stream) {
			all.close()
			all, changes, stream = newPart(f.r.layout), nil, c.Stream
		}
		if c.All != (all != nil) {
			return cut, 0, fmt.Errorf("replica: shard %d gave all of its rows in part: %w", s, ps.ErrRolledBack)
		}
		of := all
		if of == nil {
			of = f.r.latest(s)
		}
		if of == nil {
			return cut, 0, fmt.Errorf("replica: shard %d gives changes of rows that it has not given: %w", s, ps.ErrRolledBack)
		}
		if err := of.check(c, f.place.DenseLen(s)); err != nil {
			return cut, 0, fmt.Errorf("shard %d: %w", s, err)
		}
		if all == nil {
			changes = append(changes, c)
		} else if err := all.reserve([]*ps.Changes{c}); err != nil {
			return cut, 0, err
		} else {
			all.deal(c)
		}
		if c.Whole {
			cut = asked.Add(-c.At.Age)
			err = f.r.take(s, all, changes, c.At, cut)
		}
		if took += time.Since(asked); c.Whole || err != nil {
			return cut, took, err
		}
	}
}

// next asks a shard, again and again where it does not answer, and returns when it asked what was answered.
func (f *following) next(ctx context.Context, s int) (*ps.Changes, time.Time, error) {
	for wait := minWait; ; wait = min(2*wait, maxWait) {
		asked := time.Now()
		c, err := f.c.Next(ctx, s)
		switch {
		case err == nil:
			return c, asked, nil
		case ctx.Err() != nil:
			return nil, asked, context.Cause(ctx)
		case errors.Is(err, ps.ErrRolledBack), errors.Is(err, ps.ErrMismatch):
			return nil, asked, err
		}
		if wait == minWait {
			f.r.log.WarnContext(ctx, "a shard does not say what has changed; what is read is as old as its last answer", "shard", s, "err", err)
		}
		if err := pause(ctx, wait); err != nil {
			return nil, asked, err
		}
		// A shard that was removed is never ready again.
		if n, err := f.from.NumShards(ctx); err == nil && n != f.place.NumShards() {
			return nil, asked, ps.OtherShards(f.place.NumShards(), n)
		}
	}
}

// latest is what there is of a shard that is followed; nil: nothing.
func (r *Replica) latest(s int) *part {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.newest(s)
}

func (r *Replica) newest(s int) *part {
	switch {
	case r.coming[s] != nil:
		return r.coming[s]
	case r.set != nil && r.set.following && len(r.set.parts) == len(r.coming):
		return r.set.parts[s]
	}
	return nil
}

// take applies a cut of a shard, of that time: all of its rows, or what has changed. Errors: [ps.ErrFull].
func (r *Replica) take(s int, all *part, changes []*ps.Changes, at *ps.CutOfShard, asOf time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all != nil {
		r.coming[s].close()
		r.coming[s] = all
	}
	p := r.newest(s)
	if err := p.reserve(changes); err != nil { // before anything of it is read
		return err
	}
	for _, c := range changes {
		p.deal(c)
	}
	if all != nil || len(at.Dense) > 0 {
		p.dense = at.Dense
		r.number(p)
	}
	p.generation, p.progress, p.asOf = at.Generation, at.Progress, asOf
	r.show()
	return nil
}

// show makes what has come the state that is read, once the newest of all shards is of one generation. The lock is held.
func (r *Replica) show() {
	defer r.tell()
	next := &set{following: true}
	come := false
	for s := range r.coming {
		p := r.newest(s)
		if p == nil || p.generation != r.newest(0).generation {
			return
		}
		come = come || r.coming[s] != nil
		next.parts = append(next.parts, p)
	}
	if !come {
		return
	}
	r.log.Info("the state of the shards is read", "shards", len(next.parts), "generation", next.parts[0].generation)
	clear(r.coming)
	r.read(next)
}

// pause waits. Errors: the context's.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

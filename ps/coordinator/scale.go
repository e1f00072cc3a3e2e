package coordinator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/ps"
)

// Scale makes the shards those at the given addresses, as [Options].Addrs has them, while workers continue: shards are added and removed at the end of the list. Those that are
// added must run already. Snapshots are taken, each of what has changed since the one before, and all shards of the new list read them beside what they have and do. Once little changes
// between two of them commits wait, and lookups do not, while a last one is written and read; then all go to that, in a generation in which there are as many. A shard that stays keeps
// the rows that it owns before and after, and reads those that it gains ([ps.Peer].Prepare). Nothing is left to be read then, so how long lookups wait does
// not go by the number of rows, and how long pushes wait goes by what changes in a moment. Workers go
// with them, as after the loss of a shard: nothing was applied since, so nothing but what they had in flight is computed again. Where that last step takes nearly as long as [Options].Hold it is
// taken again, twice at most; where commits have gone on behind it after all, workers go back, and read again what came after the last snapshot's cut, and shards that stay read all of their rows while workers wait. So does
// a shard that has no room for what it reads ahead.
//
// Until then nothing has changed. From then on the list is decided: it is kept in [Options].Dir, and whatever dies, shard 0
// tries until every shard of it has its state. The same call again waits for that. The result is, bit for bit, that of a cluster which
// always had that many shards.
//
// A shard that has a standby keeps it, and one that is added may have one. A standby reads the same snapshots beside what it has ([ps.Peer].Prepare), and begins with the last one behind
// the change, when it finds in the log that the shard goes to another state. From there until it has caught up, a moment later, it may not take over, which shard 0 knows
// ([ps.Charge].Synced) before anything is acknowledged without it. A standby that could not read ahead reads then, and for that long its shard has none. One that takes over before it has
// begun with the new state has the one before: the shards then go to the snapshot once more, all of them. Nothing of that waits for a standby. Both processes of a shard that is removed are told.
//
// Errors: [ps.ErrScale] for a list that cannot follow the present one, [ps.ErrUnreachable] and [ps.ErrMismatch]
// of a shard that was to be added, [ps.ErrNotReady], [ps.ErrNoDir], those of [Cluster.Snapshot].
func (c *Cluster) Scale(ctx context.Context, addrs []string) (ps.Scaled, error) {
	start := time.Now()
	switch {
	case !c.opts.remote():
		return ps.Scaled{}, fmt.Errorf("ps: the shards are in the process that trains; end it, change ps.shards and start it again: %w", ps.ErrScale)
	case c.opts.Dir == "":
		return ps.Scaled{}, ps.ErrNoDir
	}
	if err := c.takeTurn(ctx); err != nil {
		return ps.Scaled{}, err
	}
	out, err := c.scale(ctx, addrs)
	<-c.turn
	if err == nil && out.From == out.To {
		err = c.awaitReady(ctx) // it was decided before, perhaps a moment ago
	}
	out.Took = time.Since(start)
	return out, err
}

// awaitReady returns when the shards have a state.
func (c *Cluster) awaitReady(ctx context.Context) error {
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		err := c.Ready()
		if err == nil || failure.Lasting(err) || errors.Is(err, ps.ErrClosed) {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, context.Cause(ctx))
		}
	}
}

// scale is Scale. The caller has the turn.
func (c *Cluster) scale(ctx context.Context, addrs []string) (out ps.Scaled, err error) {
	now := c.addresses()
	out.From, out.To = len(now), len(addrs)
	if slices.Equal(now, addrs) {
		return out, nil
	}
	if err := follows(now, addrs); err != nil {
		return out, err
	}
	if err := c.Ready(); err != nil {
		return out, err
	}
	if err := c.leave(); err != nil {
		return out, err
	}
	added, err := c.reach(ctx, now, addrs)
	if err != nil {
		return out, err
	}
	c.setScaling(true)
	defer c.setScaling(false)
	peers := slices.Concat(c.peers(), added)
	info, behind, err := c.approach(ctx, peers, len(addrs))
	defer func() { c.release(behind) }()
	if err == nil {
		err = c.decide(ctx, now, addrs)
	}
	if err != nil {
		c.end(peers)
		return out, errors.Join(err, closeAll(added))
	}
	out.Snapshot, out.Rows = info.Path, info.Rows()
	// It is decided: the caller's end does not end it any more.
	began := time.Now()
	if !behind.since.IsZero() {
		began = behind.since
	}
	c.notReady(fmt.Errorf("ps: %d shards become %d: %w", len(now), len(addrs), ps.ErrNotReady))
	c.replace(addrs, added)
	if applied, err := c.first.Progress(ctx); err == nil {
		for id, p := range applied {
			out.Again += p.Rows - info.Positions[id.Source][id.Split].Rows
		}
	}
	c.opts.Logger.InfoContext(ctx, "the number of shards changes", "from", len(now), "to", len(addrs), "path", info.Path)
	if err := c.assemble(c.run, true); err != nil {
		return out, fmt.Errorf("ps: it is decided that there are %d shards, and shard 0 tries until all have their state: %w", len(addrs), err)
	}
	out.Pause = time.Since(began)
	c.dismiss()
	c.prune(ctx)
	return out, nil
}

const (
	// maxRounds bounds how many snapshots shards read ahead of a change of their number before commits wait.
	maxRounds = 12
	// soonRound is how long a round takes, at most, after which commits wait for the next one: it will hardly take longer.
	soonRound = 250 * time.Millisecond
	// maxHolds bounds how often commits wait for a last round. One after which the hold may be over before the shards change is taken once more.
	maxHolds = 3
)

// approach takes snapshots, and has each read by the shards that there will be, until one is taken and read soon, or they get no smaller. The longer one takes beside training, the more changes meanwhile, so
// the next ones hurry, with all processors, until they get no smaller either. Commits wait for one more. It returns the
// last one, which all of them hold then, but for those that have no room, and the cut behind which commits wait, if they do. The caller has the turn, and releases it.
func (c *Cluster) approach(ctx context.Context, peers []ps.Peer, numShards int) (info ps.SnapshotInfo, behind held, err error) {
	if err := c.prepare(ctx, peers, ps.PrepareOptions{Shards: numShards}); err != nil {
		return info, behind, err
	}
	o := ps.SnapshotOptions{IfChanged: true, Note: fmt.Sprintf("for %d shards, %d until then", numShards, len(c.peers()))}
	written := int64(0)
	hurry := false
	var h *held
	holds := 0
	for round := 1; ; round++ {
		last, began := info.ID, time.Now()
		if info, err = c.takeNow(ctx, o, 0, h, hurry); err != nil || info.ID == last {
			return info, behind, err
		}
		if err = c.prepare(ctx, peers, ps.PrepareOptions{Shards: numShards, Path: info.Path, ID: info.ID, Hurry: hurry}); err != nil {
			return info, behind, err
		}
		before := written
		if written = info.Written(); round == 1 {
			written = info.Rows() // they were all read
		}
		soon := c.opts.Hold > 0 && time.Since(began) <= soonRound
		settled := round > 1 && 2*written > before
		switch last := soon || round >= maxRounds || settled && hurry; {
		case (last || settled) && c.opts.Hold < 0:
			return info, behind, c.Ready()
		case h != nil:
			if holds++; behind.lasts(c.opts.Hold) || holds == maxHolds {
				return info, behind, c.Ready()
			}
			c.release(behind)
			behind = held{}
		case last:
			h, hurry = &behind, true
		case settled:
			hurry, written = true, math.MaxInt64/2 // the next one has what changed while this one took its time
		}
	}
}

// prepare has shards read ahead. One that has no room for it reads when it is given the state.
func (c *Cluster) prepare(ctx context.Context, peers []ps.Peer, o ps.PrepareOptions) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.run, func() { cancel(ps.ErrClosed) })()
	c.onGiveUp(cancel) // a shard that has lost its state does not wait for this
	defer c.onGiveUp(nil)
	err := c.eachOf(ctx, peers, func(ctx context.Context, i int, p ps.Peer) error {
		err := p.Prepare(ctx, o)
		if errors.Is(err, ps.ErrFull) {
			c.opts.Logger.WarnContext(ctx, "a shard has no room to read its rows beside those that it has; workers will wait while it does", "shard", i, "err", err)
			return nil
		}
		if err != nil {
			cancel(err)
		}
		return err
	})
	if err != nil {
		return context.Cause(ctx) // the first one: the others have ended because of it
	}
	return nil
}

// end makes shards give up what they have read ahead. Whom it does not reach the watch tells.
func (c *Cluster) end(peers []ps.Peer) {
	ctx, cancel := context.WithTimeout(c.run, statusTimeout)
	defer cancel()
	if err := c.eachOf(ctx, peers, func(ctx context.Context, _ int, p ps.Peer) error { return p.Prepare(ctx, ps.PrepareOptions{}) }); err != nil {
		c.opts.Logger.DebugContext(ctx, "a shard was not told that the number of shards does not change", "err", err)
	}
}

// endLeft is end for the shards that prepare for what nobody is at any more.
func (c *Cluster) endLeft(peers []ps.Peer, st []ps.NodeStatus) {
	c.mu.Lock()
	scaling := c.mu.scaling
	c.mu.Unlock()
	var left []ps.Peer
	for i, p := range peers {
		if st[i].Preparing && !scaling {
			left = append(left, p)
		}
	}
	if len(left) > 0 {
		c.end(left)
	}
}

func (c *Cluster) setScaling(is bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.scaling = is
}

// follows reports whether a list of addresses can come after another. Errors: [ps.ErrScale].
func follows(now, next []string) error {
	if err := distinct(next); err != nil {
		return err
	}
	if _, standby := ps.SplitAddr(now[0]); standby != "" && ps.Witness(now) >= len(next) {
		w := ps.Witness(now)
		return fmt.Errorf("ps: shard %d, at %s, decides which process of shard 0 is in charge, and is not removed: %d shards are the fewest: %w", w, now[w], w+1, ps.ErrScale)
	}
	for i := range min(len(now), len(next)) {
		is, had := ps.SplitAddr(now[i])
		to, has := ps.SplitAddr(next[i])
		switch {
		case now[i] == next[i]:
		case i > 0 && is == to:
			return fmt.Errorf("ps: the standby of shard %d is at %q, the list has %q; a shard that stays keeps its standby: stop all shards in order, change ps.standby, and start them: %w", i, had, has, ps.ErrScale)
		case i == 0:
			return fmt.Errorf("ps: shard 0 is at %s and stays there, because it coordinates; the list begins with %s: %w", now[0], next[0], ps.ErrScale)
		default:
			return fmt.Errorf("ps: shard %d is at %s, the list has %s in its place; shards are added and removed at the end of the list: %w", i, now[i], next[i], ps.ErrScale)
		}
	}
	return nil
}

// distinct reports whether a list has as many addresses as there may be shards. Errors: [ps.ErrScale].
func distinct(addrs []string) error {
	if n := len(addrs); n < 1 || n > ps.NumBuckets {
		return fmt.Errorf("ps: %d addresses of shards, between 1 and %d are possible: %w", n, ps.NumBuckets, ps.ErrScale)
	}
	of := map[string]int{}
	for i, addr := range addrs {
		one, standby := ps.SplitAddr(addr)
		if one == "" {
			return fmt.Errorf("ps: shard %d has no address: %w", i, ps.ErrScale)
		}
		for _, addr := range []string{one, standby} {
			if first, twice := of[addr]; twice && addr != "" {
				return fmt.Errorf("ps: %s is named twice, for shard %d and for shard %d: %w", addr, first, i, ps.ErrScale)
			}
			of[addr] = i
		}
	}
	return nil
}

// reach dials the shards that are added and returns them once each has answered, and one of the processes of a pair is in charge.
func (c *Cluster) reach(ctx context.Context, now, next []string) (added []ps.Peer, err error) {
	for i := len(now); i < len(next); i++ {
		p, err := c.opts.Dial(i, next[i])
		if err == nil {
			added = append(added, p)
			asked, cancel := context.WithTimeout(ctx, statusTimeout)
			_, err = p.Status(asked)
			cancel()
		}
		if err == nil {
			err = inCharge(ctx, p)
		}
		if err != nil {
			first, _ := ps.SplitAddr(next[i])
			err = fmt.Errorf("ps: nothing has changed: shard %d, to be added at %s, must run first (monolith ps JOB.yaml --shard %d with all addresses in ps.addresses): %w", i, first, i, err)
			return nil, errors.Join(err, closeAll(added))
		}
	}
	return added, nil
}

// inCharge returns once a shard that has just been dialled takes calls which a pair takes only where somebody is in charge: that takes a part of a lease.
func inCharge(ctx context.Context, p ps.Peer) error {
	ctx, cancel := context.WithTimeout(ctx, 3*statusTimeout)
	defer cancel()
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	for {
		err := p.Prepare(ctx, ps.PrepareOptions{})
		if !errors.Is(err, ps.ErrNotReady) {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return err
		}
	}
}

func closeAll(peers []ps.Peer) error {
	var errs []error
	for _, p := range peers {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// replace makes the shards those of a new list. The caller has the turn, and the cluster is not ready.
func (c *Cluster) replace(addrs []string, added []ps.Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keep := min(len(c.mu.peers), len(addrs))
	for i, p := range c.mu.peers[keep:] {
		c.mu.removed[keep+i] = p
	}
	c.mu.peers, c.mu.addrs = slices.Concat(c.mu.peers[:keep], added), slices.Clone(addrs)
	c.mu.owed = nil // the new state knows of no cut
}

const (
	// dismissFor is for how long shard 0 tries to tell removed shards that they are: one that is being started again must not let workers of before wait.
	dismissFor = time.Minute
	// dismissTimeout bounds one attempt, and is how long the next one waits.
	dismissTimeout = time.Second
)

// dismiss makes removed shards give up what they hold, once the others have their state. One that does not answer for [dismissFor], because it was ended
// perhaps, is left alone: its state is of a generation that nobody works with. The caller has the turn.
func (c *Cluster) dismiss() {
	c.mu.Lock()
	generation, numShards, removed := c.mu.generation, len(c.mu.peers), maps.Clone(c.mu.removed)
	if generation == 0 || len(removed) == 0 {
		c.mu.Unlock()
		return
	}
	if c.mu.dismissed.IsZero() {
		c.mu.dismissed = time.Now()
	}
	over := time.Since(c.mu.dismissed) > dismissFor
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.run, dismissTimeout)
	defer cancel()
	var all sync.WaitGroup
	for i, p := range removed {
		all.Go(func() {
			err := p.Load(ctx, ps.LoadOptions{Generation: generation, Shards: numShards})
			if err != nil && !errors.Is(err, ps.ErrRolledBack) { // else it was told before
				if !over {
					return
				}
				c.opts.Logger.WarnContext(c.run, "a removed shard was not told; end its process", "shard", i, "err", err)
			}
			if err := p.Close(); err != nil {
				c.opts.Logger.DebugContext(c.run, "closing the connection to a removed shard", "shard", i, "err", err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			delete(c.mu.removed, i)
		})
	}
	all.Wait()
	c.mu.Lock()
	c.mu.dismissNext = time.Now().Add(dismissTimeout)
	left := len(c.mu.removed)
	if left == 0 {
		c.mu.dismissed, c.mu.dismissNext = time.Time{}, time.Time{}
	}
	c.mu.Unlock()
	if left > 0 {
		return
	}
	d, err := c.decided(c.run)
	if err == nil && d.Removed != nil {
		d.Removed = nil
		err = c.writeAddrs(c.run, d)
	}
	if err != nil {
		c.opts.Logger.WarnContext(c.run, "shards that were removed will be told again", "err", err)
	}
}

// dismissLeft is dismiss for those that a call of Scale has left, or a coordinator before, when nobody has the turn.
func (c *Cluster) dismissLeft() {
	c.mu.Lock()
	left := len(c.mu.removed) > 0 && c.mu.generation != 0 && !time.Now().Before(c.mu.dismissNext)
	c.mu.Unlock()
	if !left {
		return
	}
	select {
	case c.turn <- struct{}{}:
		c.dismiss()
		<-c.turn
	default:
	}
}

// leave gives up telling those that are left: they may be added again. The caller has the turn.
func (c *Cluster) leave() error {
	c.mu.Lock()
	left := c.mu.removed
	c.mu.removed, c.mu.dismissed, c.mu.dismissNext = map[int]ps.Peer{}, time.Time{}, time.Time{}
	c.mu.Unlock()
	return closeAll(slices.Collect(maps.Values(left)))
}

// addresses returns where the shards are.
func (c *Cluster) addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.addrs
}

// NumShards is how many shards there are.
func (c *Cluster) NumShards() int { return len(c.peers()) }

const (
	// addrsName is the file in the snapshots' folder that has where the shards are, once that was changed by [Cluster.Scale].
	addrsName = "shards"
	// maxAddrs bounds it, bytes.
	maxAddrs = 4 << 20
)

// decidedAddrs is what the file holds.
type decidedAddrs struct {
	// Addrs are those of the shards, Before the lists from which they have become: of a job that has one of these still, Addrs is meant.
	Addrs  []string   `json:"addresses"`
	Before [][]string `json:"before,omitempty"`
	// Removed are the shards behind those of Addrs that have not been told yet that they were removed.
	Removed []string `json:"removed,omitempty"`
}

// has reports whether a list is one of those before.
func (d *decidedAddrs) has(addrs []string) bool {
	return slices.ContainsFunc(d.Before, func(b []string) bool { return slices.Equal(b, addrs) })
}

// readAddrs reads what the file holds. Errors: [ps.ErrCorrupt].
func readAddrs(b []byte) (decidedAddrs, error) {
	var d decidedAddrs
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err := dec.Decode(&d)
	if err == nil && dec.More() {
		err = errors.New("there is more behind it")
	}
	if err == nil {
		if err = distinct(d.Addrs); err == nil {
			err = distinct(slices.Concat(d.Addrs, d.Removed))
		}
	}
	if err != nil {
		return decidedAddrs{}, fmt.Errorf("%w: %w", err, ps.ErrCorrupt)
	}
	return d, nil
}

// decided reads what was decided last, nothing where nothing was.
func (c *Cluster) decided(ctx context.Context) (decidedAddrs, error) {
	name := filepath.Join(c.opts.Dir, addrsName)
	b, err := fsx.ReadFile(ctx, c.opts.FS, name, maxAddrs)
	if errors.Is(err, fs.ErrNotExist) {
		return decidedAddrs{}, nil
	}
	var d decidedAddrs
	if err == nil {
		d, err = readAddrs(b)
	}
	if err != nil {
		return d, fmt.Errorf("ps: %s, which has the addresses of the shards: %w; where the job's ps.addresses are right, remove it", name, err)
	}
	return d, nil
}

// writeAddrs makes a decision durable.
func (c *Cluster) writeAddrs(ctx context.Context, d decidedAddrs) error {
	b, err := json.Marshal(d)
	if err == nil {
		err = fsx.WriteFile(ctx, c.opts.FS, filepath.Join(c.opts.Dir, addrsName), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ps: writing where the shards are: %w", err)
	}
	return nil
}

// decide makes it durable that the shards are those of another list. Where the file has that list, it is decided: a coordinator that is started
// again would go by it, also if writing it ended with an error.
func (c *Cluster) decide(ctx context.Context, now, next []string) error {
	ctx = context.WithoutCancel(ctx)
	d, err := c.decided(ctx)
	if err != nil {
		return err
	}
	if !d.has(now) {
		d.Before = append(d.Before, now)
	}
	d.Before = slices.DeleteFunc(d.Before, func(b []string) bool { return slices.Equal(b, next) })
	d.Addrs, d.Removed = next, slices.Clone(now[min(len(now), len(next)):])
	if err = c.writeAddrs(ctx, d); err == nil {
		return nil
	}
	if there, again := c.decided(ctx); again == nil && slices.Equal(there.Addrs, next) {
		c.opts.Logger.WarnContext(ctx, "where the shards are is written, and may not be durable", "err", err)
		return nil
	}
	return err
}

// settled returns where the shards are for a job that has them at the given addresses: there, unless that is a list from which Scale has
// made another one; and where those are behind them that were removed and not told.
func (c *Cluster) settled(ctx context.Context, addrs []string) (now, removed []string, err error) {
	if c.opts.Dir == "" {
		return addrs, nil, nil
	}
	d, err := c.decided(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case d.has(addrs):
		c.opts.Logger.WarnContext(ctx, "the number of shards was changed since; change ps.addresses of the job", "job", len(addrs), "shards", len(d.Addrs), "addresses", d.Addrs)
		return d.Addrs, d.Removed, nil
	case d.Addrs == nil:
		return addrs, nil, nil
	case slices.Equal(d.Addrs, addrs):
		removed = d.Removed
		if d.Before == nil {
			return addrs, removed, nil
		}
	}
	// The job says so: what was before is over.
	return addrs, removed, c.writeAddrs(ctx, decidedAddrs{Addrs: addrs, Removed: removed})
}

package shard

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/monolith-go/monolith/ps"
)

// ahead is what a node has read of a state that it may be given soon, as one of another number of shards, beside the one that it has. The zero value is
// nothing.
type ahead struct {
	shards int
	// shard holds snapshot id, which lies at path; nil: nothing was read. Where in is not nil it has no rows: those stay, or come in.
	shard *Shard
	in    *incoming
	path  string
	id    uint64
	// reading ends the call that reads, which frees what it has then; nil: none does.
	reading context.CancelCauseFunc
}

// close frees what was read. Where rows come in it needs the lock: [Node.drop].
func (a *ahead) close() {
	if a.in != nil {
		a.in.close()
	}
	if a.shard != nil {
		a.shard.Close()
	}
	*a = ahead{}
}

// drop is close for who has not the lock.
func (n *Node) drop(a *ahead) {
	if a.in != nil {
		n.mu.Lock()
		a.in.close()
		n.freeRows()
		n.mu.Unlock()
	}
	a.close()
}

// is reports whether what was read is what a node is to load.
func (a *ahead) is(shards int, path string, id uint64) bool {
	return a.shard != nil && a.shards == shards && a.id == id && filepath.Clean(a.path) == filepath.Clean(path)
}

// errOvertaken is why a call that reads ahead ends.
var errOvertaken = fmt.Errorf("ps: another call came in between: %w", ps.ErrDisturbed)

// Prepare reads a snapshot, but for rows that stay (incoming.go), beside the present state, for [Node.Load], and, of a standby, for [Node.StartOver]; see [ps.Peer]. A call ends one that is under way.
// A standby that takes over keeps what it has read. Errors: [ps.ErrCorrupt], [ps.ErrLayout],
// [ps.ErrFull], [ps.ErrDisturbed], [ps.ErrNotReady] of a node of a pair that is neither in charge nor the standby, [ps.ErrClosed], the context's.
func (n *Node) Prepare(ctx context.Context, o ps.PrepareOptions) error {
	stands := n.pair.stands()
	if err := n.pair.refuses(); err != nil && !stands {
		return err
	}
	if o.Shards < 0 || o.Shards > ps.NumBuckets {
		return fmt.Errorf("ps: shard %d of %d: it cannot be one of %d: %w", n.opts.Index, n.numShards(), o.Shards, ps.ErrLayout)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var now *ahead
	if o.Shards > 0 {
		now = &ahead{shards: o.Shards, reading: cancel}
	}
	n.mu.Lock()
	if n.shard.closed {
		n.mu.Unlock()
		return ps.ErrClosed
	}
	had := n.takeAhead()
	n.ahead = now
	if !stands { // who takes no snapshots takes no notes for them
		n.note(o.Shards > 0)
	}
	n.mu.Unlock()
	reads := o.Path != "" && n.opts.Index < o.Shards
	if !reads || had.shards != o.Shards {
		n.drop(&had)
	}
	if now == nil {
		return nil
	}
	var err error
	if reads && !had.is(o.Shards, o.Path, o.ID) {
		err = n.readAhead(ctx, &had, o)
	}
	if err != nil {
		n.drop(&had)
	}
	n.mu.Lock()
	current := n.ahead == now
	if current {
		had.shards = o.Shards
		*now = had
	}
	n.mu.Unlock()
	if !current {
		n.drop(&had)
		return errors.Join(err, errOvertaken)
	}
	return err
}

// takeAhead takes what was read away from the node; a call that is reading is ended, and frees it. It needs the lock.
func (n *Node) takeAhead() ahead {
	a := n.ahead
	n.ahead = nil
	switch {
	case a == nil:
		return ahead{}
	case a.reading != nil:
		a.reading(errOvertaken)
		return ahead{}
	}
	return *a
}

// note begins, or ends, to take note of which rows change, where the node does not do so always. It needs the lock.
func (n *Node) note(changes bool) {
	switch {
	case n.opts.Track || changes == (n.shard.tracked != nil):
	case changes:
		n.shard.Track()
	default:
		if n.taken != nil {
			n.taken.Changed = nil
		}
		n.shard.untrack()
	}
	if !n.opts.Track && !changes {
		n.tracked = 0
	}
}

// readAhead makes had hold a snapshot. It reads what was added to that which had holds, or all; no rows that stay.
func (n *Node) readAhead(ctx context.Context, had *ahead, o ps.PrepareOptions) error {
	if had.in != nil && !had.in.valid() {
		n.drop(had)
	}
	if had.shard == nil {
		had.in = n.expect(o.Shards)
	}
	threads := 1
	if o.Hurry {
		threads = max(runtime.GOMAXPROCS(0)/max(n.opts.Writers, 1), 1)
	}
	from, err := n.open(ctx, o.Path, o.Shards, had.id, threads, had.in)
	if err != nil {
		return err
	}
	if !from.Added() && had.in != nil && had.shard != nil {
		// It has another snapshot. What was opened are the files for what comes in, which may be more in another moment.
		n.drop(had)
		if err := from.Close(); err != nil {
			return err
		}
		return n.readAhead(ctx, had, o)
	}
	if !from.Added() {
		if had.shard != nil {
			n.drop(had)
		}
		if err = n.hasRoom(from.Info(), o.Shards, had.in); err == nil {
			had.shard, err = n.empty(o.Shards)
		}
	}
	if err == nil {
		err = n.fill(ctx, had.shard, had.in, from)
	}
	had.path, had.id = o.Path, o.ID
	return errors.Join(err, from.Close())
}

// hasRoom reports whether a part of a snapshot, or what comes in of it, has room beside what the process has, and leaves some to that. Other shards of the process read at the same time.
func (n *Node) hasRoom(info *ps.SnapshotInfo, numShards int, in *incoming) error {
	room := n.opts.Memory.Room()
	if room < 0 {
		return nil
	}
	need := int64(0)
	for _, t := range info.Tables {
		need += t.Rows * t.RowBytes()
	}
	share := 1 / float64(numShards)
	if in != nil {
		share = in.share(numShards)
	}
	need = int64(float64(need)*share) * int64(max(n.opts.Writers, 1))
	if need += need / 4; need > room {
		return fmt.Errorf("ps: shard %d of %d: to read %s beside what the process has takes about %d bytes, and %d are left: %w",
			n.opts.Index, n.numShards(), info.Path, need, room, ps.ErrFull)
	}
	return nil
}

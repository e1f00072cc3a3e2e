package ps

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/wal"
)

// LogOptions configure a node's write-ahead log: with one, staged pushes and commits that were acknowledged survive the
// end of the process.
type LogOptions struct {
	// Dir is the folder of the log of one shard ([NodeOptions]), or of those of all shards of a process ([Options]).
	Dir string
	// NoSync leaves out fsync: the log then survives the end of the process, not that of the machine.
	NoSync bool
	// SegmentBytes is the size of a file of the log; default 64 MiB.
	SegmentBytes int64
	// FS is where the log is kept; nil: [snapshot.OS].
	FS snapshot.FS
}

// LogName is the folder of a shard's log.
func LogName(index, numShards int) string { return fmt.Sprintf("shard-%04d-of-%04d", index, numShards) }

// The kinds of records. What they hold is in codec.go; each is applied to the shard as the call that wrote it was, and
// applying one that the shard has already changes nothing.
const (
	recGeneration byte = iota + 1
	recOwner
	recStage
	recCommit
	recAbort
	recLeave
	recState
)

// nodeLog is a node's log. Methods that write need the node's lock; the nil log does nothing.
type nodeLog struct {
	opts wal.Options
	log  *wal.Log
	// expected is the snapshot whose cut comes next, 0 for none or when the border is set.
	expected uint64
	head     []byte
	parts    [][]byte
	broken   atomic.Pointer[error]
}

// openLog takes up the log: what it gives back becomes the node's state.
func (n *Node) openLog(ctx context.Context) error {
	o := n.opts.Log
	l := &nodeLog{opts: wal.Options{
		FS: o.FS, Dir: o.Dir, SegmentBytes: o.SegmentBytes, NoSync: o.NoSync, Logger: n.opts.Logger,
		Identity: fmt.Sprintf("shard %d of %d, layout %s", n.opts.Index, n.opts.NumShards, n.opts.Layout.Hash()),
	}}
	var err error
	if l.log, err = wal.Open(l.opts); err != nil {
		return fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.opts.NumShards, err)
	}
	var lost []error
	for _, base := range l.log.Bases() {
		err := n.replay(ctx, l, base)
		if err == nil {
			err = l.log.Begin()
			if err != nil {
				return fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.opts.NumShards, err)
			}
			n.log = l
			return nil
		}
		if !errors.Is(err, wal.ErrCorrupt) && !errors.Is(err, ErrCorrupt) {
			return fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.opts.NumShards, err)
		}
		lost = append(lost, err)
		n.opts.Logger.WarnContext(ctx, "log cannot be replayed", "shard", n.opts.Index, "base", base, "err", err)
	}
	if n.shard, err = n.empty(); err != nil {
		return err
	}
	n.generation, n.base, n.recovered = 0, 0, LogRecovery{}
	if err := errors.Join(lost...); err != nil {
		n.recovered.Lost = err.Error()
	}
	n.log = l
	return nil
}

// replay brings the node to where its log ends.
func (n *Node) replay(ctx context.Context, l *nodeLog, base uint64) (err error) {
	s, err := n.empty()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if base > 0 {
		if _, err := n.read(ctx, s, snapshot.Path(n.opts.Dir, base)); err != nil {
			return err
		}
	}
	generation := uint64(0)
	var d logDecoder
	s.maxStaged = math.MaxInt // whatever the limit was
	tail, err := l.log.Replay(ctx, base, func(kind byte, payload []byte) error {
		g, err := d.apply(s, kind, payload)
		generation = max(generation, g)
		return err
	})
	if err != nil {
		return err
	}
	s.maxStaged = n.opts.MaxStaged
	// Nobody is connected. Whoever comes back to its session goes on; what the others left is settled.
	for _, se := range s.sessions {
		se.gone = true
	}
	n.shard.Close()
	n.shard, n.generation, n.base = s, generation, base
	n.recovered = LogRecovery{Records: int64(tail.Records), TornBytes: tail.TornBytes}
	return nil
}

// reset begins a new log behind a snapshot.
func (l *nodeLog) reset(ctx context.Context, o LoadOptions) error {
	if l == nil {
		return nil
	}
	// A log that runs is ended first; that it may be broken does not matter any more.
	_ = l.log.Close()
	fresh, err := wal.Open(l.opts)
	if err == nil {
		err = fresh.Reset(o.ID)
	}
	if err != nil {
		return l.fail(err)
	}
	l.log, l.expected = fresh, 0
	l.broken.Store(nil)
	return l.generation(ctx, o.Generation)
}

func (l *nodeLog) generation(ctx context.Context, g uint64) error {
	if l == nil {
		return nil
	}
	l.head = appendU64(l.head[:0], g)
	lsn, err := l.append(recGeneration)
	if err != nil {
		return err
	}
	return l.wait(ctx, lsn)
}

// append writes a record of head and parts.
func (l *nodeLog) append(kind byte, parts ...[]byte) (uint64, error) {
	if err := l.failed(); err != nil {
		return 0, err
	}
	l.parts = append(append(l.parts[:0], l.head), parts...)
	lsn, err := l.log.Append(kind, l.parts...)
	return lsn, l.fail(err)
}

// fail remembers what broke the log: the shard has effects then that the log has not, so it serves nobody any more.
func (l *nodeLog) fail(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, wal.ErrNoSpace) {
		err = fmt.Errorf("ps: %w: %w", ErrNoSpace, err)
	}
	l.broken.CompareAndSwap(nil, &err)
	return err
}

func (l *nodeLog) failed() error {
	if l == nil {
		return nil
	}
	if err := l.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// room waits while the log is far behind, so that nobody waits for it under the node's lock.
func (l *nodeLog) room(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.log.Room(ctx)
}

// wait returns when a record and all before it are durable. It must be called without the node's lock, but for the first
// record of a log.
func (l *nodeLog) wait(ctx context.Context, lsn uint64) error {
	if l == nil || lsn == 0 {
		return nil
	}
	err := l.log.Wait(ctx, lsn)
	if err != nil && ctx.Err() == nil && !errors.Is(err, wal.ErrClosed) {
		return l.fail(err)
	}
	return err
}

func (l *nodeLog) staged(session, epoch uint64, u *param.Update) (uint64, error) {
	if l == nil {
		return 0, nil
	}
	l.head = appendOwner(l.head[:0], session, SplitID{u.Source, u.Split}, epoch)
	l.head, l.parts = appendUpdate(l.head, l.parts[:0], u)
	if err := l.failed(); err != nil {
		return 0, err
	}
	lsn, err := l.log.Append(recStage, l.parts...)
	return lsn, l.fail(err)
}

func (l *nodeLog) acquired(session uint64, worker string, id SplitID, epoch uint64) (uint64, error) {
	if l == nil {
		return 0, nil
	}
	l.head = appendText(appendOwner(l.head[:0], session, id, epoch), worker)
	return l.append(recOwner)
}

func (l *nodeLog) left(session uint64) (uint64, error) {
	if l == nil {
		return 0, nil
	}
	l.head = appendU64(l.head[:0], session)
	return l.append(recLeave)
}

func (l *nodeLog) control(session uint64, c *Control) (uint64, error) {
	if l == nil {
		return 0, nil
	}
	l.head = appendOwner(l.head[:0], session, c.Split, c.Epoch)
	if c.Kind == Abort {
		return l.append(recAbort)
	}
	l.head = appendU64(l.head, uint64(c.To))
	return l.append(recCommit)
}

func (l *nodeLog) state(key string, value []byte) (uint64, error) {
	if l == nil {
		return 0, nil
	}
	set := uint64(0)
	if value != nil {
		set = 1
	}
	l.head = appendText(appendU64(l.head[:0], set), key)
	return l.append(recState, value)
}

// expectCut says of which snapshot the next cut is.
func (l *nodeLog) expectCut(snapshot uint64) {
	if l != nil {
		l.expected = snapshot
	}
}

// rotate sets the border of a cut that the shard has just taken. What the snapshot will not hold is written again behind
// it: owners and what is staged.
func (l *nodeLog) rotate(s *Shard, generation uint64) error {
	if l == nil || l.expected == 0 {
		return nil
	}
	number := l.expected
	l.expected = 0
	if err := l.failed(); err != nil {
		return err
	}
	if err := l.log.Rotate(number); err != nil {
		return l.fail(err)
	}
	l.head = appendU64(l.head[:0], generation)
	if _, err := l.append(recGeneration); err != nil {
		return err
	}
	var u param.Update
	for id, sp := range s.splits {
		se := s.sessions[sp.session]
		if sp.epoch == 0 {
			continue
		}
		worker := ""
		if se != nil {
			worker = se.worker
		}
		if _, err := l.acquired(sp.session, worker, id, sp.epoch); err != nil {
			return err
		}
		for _, b := range sp.staged {
			b.update(&u, id)
			if _, err := l.staged(sp.session, sp.epoch, &u); err != nil {
				return err
			}
		}
		if se == nil { // it has left, with everything committed
			if _, err := l.left(sp.session); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush returns when everything so far is durable.
func (l *nodeLog) flush(ctx context.Context) error {
	if l == nil {
		return nil
	}
	if err := l.log.Flush(ctx); err != nil {
		return l.fail(err)
	}
	return nil
}

// trim says that a snapshot is durable, 0 for none.
func (l *nodeLog) trim(ctx context.Context, durable uint64) error {
	if l == nil || durable == 0 {
		return nil
	}
	if err := l.failed(); err != nil {
		return err
	}
	return l.log.Trim(durable)
}

// base is the snapshot of the last border.
func (l *nodeLog) base() uint64 {
	if l == nil {
		return 0
	}
	return l.log.Stats().Base
}

func (l *nodeLog) close() error {
	if l == nil {
		return nil
	}
	if err := l.log.Close(); err != nil && l.failed() == nil {
		return fmt.Errorf("ps: %w", err)
	}
	return nil
}

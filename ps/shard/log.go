package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/wal"
)

// LogOptions configure the write-ahead log of a process: with one, staged pushes and commits that were acknowledged survive its
// end.
type LogOptions struct {
	// Dir is the folder of the log ([OpenLog], [Options]), or the one that has it, and those of other processes, under [LogName]
	// (coordinator.Options).
	Dir string
	// Owner is what no other job has: a log of another owner is refused. Empty: any owner may open the folder. Either way
	// one process at a time has it.
	Owner string
	// Job names the owner for people, such as "job click in /data/runs/click". It is not compared.
	Job string
	// NoSync leaves out fsync: the log then survives the end of the process, not that of the machine.
	NoSync bool
	// Identity describes what must be the same, beside the shard and the layout, for a process that continues from the log; short.
	Identity string
	// SegmentBytes is the size of a file of the log; default 64 MiB.
	SegmentBytes int64
	// Disk is where the log is kept; nil: [fsx.OS].
	Disk fsx.Disk
	// Logger is notified of torn tails and of failures; nil discards.
	Logger *slog.Logger
}

// LogName is the folder of the log of a process whose first shard is index. How many shards there are is in the log: that changes while it is
// written.
func LogName(index int) string { return fmt.Sprintf("shard-%04d", index) }

// LogPattern is what [LogName] matches, for filepath.Glob.
const LogPattern = "shard-[0-9][0-9][0-9][0-9]"

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
	recEdit
	recTerm
)

// Log is the write-ahead log of the shards of one process: their records share files, and what reaches the disk.
type Log struct {
	opts LogOptions
	lock *logLock
	log  *wal.Log
	// reported: a node has returned what ended the log.
	reported atomic.Bool
}

// OpenLog opens the log of the shards that this process has, changing nothing. It is closed after their nodes.
// Which shards a process has may change between its lives: a shard continues from its records where the log of its process has them,
// and goes back to the last snapshot where they are in the log of another one. Errors: [ps.ErrInUse], [ps.ErrMismatch], those of
// the file system.
func OpenLog(o LogOptions, l *param.Layout, shards ...int) (_ *Log, err error) {
	identity := strings.TrimSuffix(fmt.Sprintf("shape %s, %s", logShape(l), o.Identity), ", ")
	if o.Owner != "" {
		identity = "job " + o.Owner + ", " + identity
	}
	out := &Log{opts: o}
	if out.lock, err = lockLog(&o); err != nil {
		return nil, fmt.Errorf("ps: %w", err)
	}
	out.log, err = wal.Open(wal.Options{
		Disk: o.Disk, Dir: o.Dir, SegmentBytes: o.SegmentBytes, NoSync: o.NoSync, Identity: identity, Logger: o.Logger,
	})
	if errors.Is(err, wal.ErrIdentity) {
		owner, job := LogOwner(o.Dir)
		if job != "" && o.Owner != "" && owner != o.Owner {
			err = fmt.Errorf("%s is the log of %s: %w; give this job another ps.wal.dir", o.Dir, job, ps.ErrOthersLog)
		} else if job != "" && o.Owner != "" {
			err = fmt.Errorf("%s is the log of %s: %w", o.Dir, job, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ps: %w", logError(errors.Join(err, out.lock.Close())))
	}
	out.lock.own(&o)
	for _, i := range shards {
		out.log.Shard(uint32(i))
	}
	return out, nil
}

// Close writes what is left and gives the folder back. Its error is what ended the log, where no node has reported that. The nil
// log does nothing.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	err := l.log.Close()
	if l.reported.Load() {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("ps: write-ahead log: %w", logError(err))
	}
	return errors.Join(err, l.lock.Close())
}

// Stats are figures of the log: how many records were written and how often that took a sync, for instance.
func (l *Log) Stats() wal.Stats { return l.log.Stats() }

// elsewhere says where else there is a log that may have a shard's records, for a message.
func (l *Log) elsewhere() string {
	if _, real := l.opts.Disk.(fsx.OS); !real && l.opts.Disk != nil {
		return ""
	}
	found, err := filepath.Glob(filepath.Join(filepath.Dir(l.opts.Dir), LogPattern))
	if err != nil {
		return ""
	}
	var out []string
	for _, dir := range found {
		if owner, _ := LogOwner(dir); dir != l.opts.Dir && owner == l.opts.Owner {
			out = append(out, dir)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return fmt.Sprintf("; the log of another process is in %s: if the shard was of that one, start the processes with the shards that they had to continue from it", strings.Join(out, ", "))
}

// nodeLog is a node's part of its process's log. Methods that write need the node's lock; the nil log does nothing.
type nodeLog struct {
	*wal.ShardLog
	in *Log
	// own: the node has the log alone, and closes it.
	own    bool
	broken atomic.Pointer[error]
	// expected is the snapshot whose cut comes next, 0 for none or when the border is set.
	expected uint64
	// seen is the newest snapshot that there was when the log was begun, shards how many shards there were.
	seen   uint64
	shards int
	// index is the shard's number, for errors. term is that of the pair of the shard.
	index int
	term  uint64
	pair  *pair
	head  []byte
	parts [][]byte
}

// record is a record's place, to wait for. The zero record is durable.
type record struct {
	in  *nodeLog
	lsn uint64
}

// openLog takes up the log: what it gives back becomes the node's state.
func (n *Node) openLog(ctx context.Context) (err error) {
	l := &nodeLog{index: n.opts.Index}
	log := n.opts.Shared
	if log == nil {
		o := *n.opts.Log
		o.Logger = n.opts.Logger
		if log, err = OpenLog(o, n.opts.Layout, n.opts.Index); err != nil {
			return fmt.Errorf("shard %d of %d: %w", n.opts.Index, n.numShards(), err)
		}
		l.own = true
		defer func() {
			if err != nil {
				err = errors.Join(err, log.Close())
			}
		}()
	}
	l.in, l.ShardLog = log, log.log.Shard(uint32(n.opts.Index))
	n.log = l
	if err := n.takeUp(ctx, log); err != nil {
		return fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, n.numShards(), logError(err))
	}
	return nil
}

// takeUp replays the node's part of the log from the newest snapshot that it continues from.
func (n *Node) takeUp(ctx context.Context, log *Log) error {
	newest, err := n.newestSnapshot()
	if err != nil {
		return err
	}
	bases := n.log.Bases()
	if len(bases) == 0 && newest > 0 && !n.log.Found() {
		n.recovered.Lost = fmt.Sprintf("there is no log of shard %d in %s, though there is snapshot %d: what came after the snapshot is read from the source again (is the shard new, or has ps.wal.dir moved, or have the processes that the shards are in changed?)%s",
			n.opts.Index, log.opts.Dir, newest, log.elsewhere())
	}
	if len(bases) == 0 {
		bases = []uint64{0} // never begun, or so damaged that no base is left: the replay reports which
	}
	var lost []error
	for _, base := range bases {
		err := n.replay(ctx, base, newest)
		if err == nil && n.generation > 0 {
			return n.log.Begin()
		}
		if err == nil {
			break // it was begun, but never got a state
		}
		if !errors.Is(err, wal.ErrCorrupt) && !errors.Is(err, ps.ErrCorrupt) {
			return err
		}
		if errors.Is(err, errBehind) && n.opts.Pair != nil {
			// Its standby has taken over, and snapshots since. Whether this process has anything of its own is for shard 0 to say.
			n.opts.Logger.InfoContext(ctx, "this process was replaced while it was away; it follows the other process of its pair", "shard", n.opts.Index, "base", base, "newest_snapshot", newest)
			lost = append(lost, err)
			continue
		}
		lost = append(lost, err)
		n.opts.Logger.WarnContext(ctx, "log cannot be replayed", "shard", n.opts.Index, "base", base, "err", err)
	}
	if err := errors.Join(lost...); err != nil {
		n.recovered.Lost = err.Error()
	}
	return nil
}

// logShape names what a log's records must fit: the shape, what the optimizers keep, not their settings, and which rows are pushed with the weights that their
// gradients were computed with. Records after the last snapshot are applied by the rules there are now.
func logShape(l *param.Layout) string {
	b, err := json.Marshal(l.Shape())
	if err != nil {
		panic("ps: a shape does not marshal: " + err.Error()) // names and numbers only
	}
	sum := sha256.Sum256(append(b, strings.Join(l.Delayed(), "\n")...))
	return hex.EncodeToString(sum[:8])
}

// newestSnapshot is the number of the newest snapshot in the job's folder, good or not, or 0.
func (n *Node) newestSnapshot() (uint64, error) {
	if n.opts.Dir == "" {
		return 0, nil
	}
	entries, err := snapshot.ListIn(n.opts.FS, n.opts.Dir)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	return entries[0].ID, nil
}

// errBehind is a log that others have gone on without.
var errBehind = errors.New("it is of an earlier life of the cluster")

// replay brings the node to where its log ends, or leaves it without a state when that never got one.
func (n *Node) replay(ctx context.Context, base, newest uint64) (err error) {
	d := logDecoder{}
	done := false
	defer func() {
		if d.shard != nil && !done {
			d.shard.Close()
		}
	}()
	// A log begins with a generation, and so does each border: it says of how many shards this is one in what follows.
	tail, err := n.log.Replay(ctx, base, func(kind byte, payload []byte) error {
		if d.shard == nil {
			numShards, err := shardsIn(kind, payload)
			if err == nil && n.opts.Index >= numShards {
				err = fmt.Errorf("shard %d of %d: %w", n.opts.Index, numShards, wal.ErrCorrupt)
			}
			if err != nil {
				return err
			}
			if err := n.begin(ctx, &d, base, numShards); err != nil {
				return err
			}
		}
		return d.apply(kind, payload)
	})
	if err != nil || d.generation == 0 {
		return err
	}
	s := d.shard
	// The border of a snapshot is durable before the snapshot is. One without a border was taken while the shard had another
	// log, in a cluster of another number of shards for instance.
	n.log.seen = max(d.seen, n.log.Base())
	if newest > n.log.seen {
		return fmt.Errorf("ps: shard %d: the log ends before snapshot %d, at that of %d: %w: %w",
			n.opts.Index, newest, n.log.seen, errBehind, wal.ErrCorrupt)
	}
	s.maxStaged = n.opts.MaxStaged
	s.disconnected()
	n.log.term = d.term
	done = true
	n.shard.Close()
	n.log.shards = s.place.NumShards()
	n.shards.Store(int64(n.log.shards))
	n.shard, n.generation, n.highest, n.base = s, d.generation, d.generation, base
	if n.opts.Track {
		n.tracked = base
	}
	n.recovered = ps.LogRecovery{Records: int64(tail.Records), TornBytes: tail.TornBytes}
	return nil
}

// disconnected says that nobody is connected. A client that comes back to its session continues; what the others left is settled.
func (s *Shard) disconnected() {
	for _, se := range s.sessions {
		se.gone = true
	}
	s.forgetGone()
}

// begin gives a decoder the shard, one of so many, as it was in the snapshot that the replay begins at.
func (n *Node) begin(ctx context.Context, d *logDecoder, base uint64, numShards int) (err error) {
	if d.shard, err = n.empty(numShards); err != nil {
		return err
	}
	d.shard.maxStaged = math.MaxInt // whatever the limit was
	if base == 0 {
		return nil
	}
	return n.read(ctx, d.shard, snapshot.Path(n.opts.Dir, base))
}

// giveBack leaves to others what the log keeps of the disk for later.
func (l *nodeLog) giveBack() {
	if l != nil {
		l.in.log.GiveBack()
	}
}

// drop throws the log of a shard away that was removed.
func (l *nodeLog) drop() error {
	if l == nil {
		return nil
	}
	if err := l.failed(); err != nil {
		return err
	}
	l.expected = 0
	return l.fail(l.Drop())
}

// reset begins a new log, of one of so many shards, after a snapshot. newest is the newest that there is.
func (l *nodeLog) reset(ctx context.Context, o ps.LoadOptions, numShards int, newest uint64) error {
	if l == nil {
		return nil
	}
	if err := l.failed(); err != nil {
		return err // the process has to begin again
	}
	if err := l.Reset(o.ID); err != nil {
		return l.fail(err)
	}
	l.expected, l.seen, l.shards = 0, max(o.ID, newest), numShards
	return l.generation(ctx, o.Generation)
}

// generation notes a generation and returns when that is durable. The log has it from then on, so it is waited for even if
// the caller's context ended: the node must not continue in another generation than its log.
func (l *nodeLog) generation(ctx context.Context, g uint64) error {
	if l == nil {
		return nil
	}
	r, err := l.generated(g)
	if err != nil {
		return err
	}
	return r.durable(context.WithoutCancel(ctx)) // a standby has it before anything that comes after
}

// generated notes a generation, with which a log and what follows a border begin, and the term with it.
func (l *nodeLog) generated(g uint64) (record, error) {
	l.head = appendU64(appendU64(appendU64(l.head[:0], g), l.seen), uint64(l.shards))
	r, err := l.append(recGeneration)
	if err != nil || l.term == 0 {
		return r, err
	}
	return l.termed()
}

// termed notes the term.
func (l *nodeLog) termed() (record, error) {
	l.head = appendU64(l.head[:0], l.term)
	return l.append(recTerm)
}

// append writes a record of head and parts.
func (l *nodeLog) append(kind byte, parts ...[]byte) (record, error) {
	l.parts = append(append(l.parts[:0], l.head), parts...)
	return l.write(kind)
}

// write writes a record of the parts.
func (l *nodeLog) write(kind byte) (record, error) {
	if err := l.failed(); err != nil {
		return record{}, err
	}
	lsn, err := l.Append(kind, l.parts...)
	clear(l.parts) // they point into what is the caller's
	return record{l, lsn}, l.fail(err)
}

// diskError is [ps.ErrNoSpace] or [ps.ErrDisk] with the text of the log's own error.
type diskError struct {
	error

	is error
}

// Is reports whether target is what the error is.
func (e *diskError) Is(target error) bool { return target == e.is }

// Unwrap returns the log's error.
func (e *diskError) Unwrap() error { return e.error }

// logError is an error of the log as callers know it.
func logError(err error) error {
	switch {
	case errors.Is(err, wal.ErrNoSpace):
		return &diskError{err, ps.ErrNoSpace}
	case errors.Is(err, wal.ErrClosed):
		return fmt.Errorf("%w: %w", ps.ErrClosed, err)
	case errors.Is(err, ps.ErrOthersLog):
		return fmt.Errorf("%w: %w", err, ps.ErrMismatch)
	case errors.Is(err, wal.ErrIdentity):
		return fmt.Errorf("%w; give this job another ps.wal.dir, or put that log aside; what it holds after the last snapshot is then read from the source again: %w", err, ps.ErrMismatch)
	case failure.Of(err) == failure.Disk:
		return &diskError{err, ps.ErrDisk}
	}
	return err
}

// fail remembers what broke the log: the shard has effects then that the log has not, so it serves nobody any more.
func (l *nodeLog) fail(err error) error {
	if err == nil {
		return nil
	}
	why := fmt.Errorf("ps: shard %d: write-ahead log: %w", l.index, logError(err)) // of its own, so that no error costs no memory
	l.broken.CompareAndSwap(nil, &why)
	l.in.reported.Store(true)
	return why
}

// failed returns what broke the log, or nil.
func (l *nodeLog) failed() error {
	if l == nil {
		return nil
	}
	if err := l.broken.Load(); err != nil {
		return *err
	}
	return nil
}

// room waits while the log is far behind, so that nobody waits for it under the node's lock. Errors: [ps.ErrLayout] for an
// update that no record can hold, which must not get as far as the shard; those of the log.
func (l *nodeLog) room(ctx context.Context, u *param.Update) error {
	if l == nil {
		return nil
	}
	size := 256 + len(u.Source) + len(u.Split) + 4*len(u.Dense) + len(u.Trace)
	for t := range u.Keys {
		size += 64 + 8*len(u.Keys[t])
		if t < len(u.Counts) && t < len(u.Grads) {
			size += 4*len(u.Counts[t]) + 4*len(u.Grads[t])
		}
	}
	if size > wal.MaxRecord {
		return fmt.Errorf("ps: %s/%s: an update of %d bytes, a record of the log has at most %d: %w", u.Source, u.Split, size, wal.MaxRecord, ps.ErrLayout)
	}
	if err := l.Room(ctx); err != nil {
		return fmt.Errorf("ps: write-ahead log: %w", logError(err))
	}
	return nil
}

// wait returns when the record and all before it may be acknowledged: they are durable, and with the standby where there is one. It must be called
// without the node's lock.
func (r record) wait(ctx context.Context) error {
	if err := r.durable(ctx); err != nil || r.in == nil {
		return err
	}
	return r.in.pair.replicated(ctx, r.lsn)
}

// durable returns when the record and all before it are durable. It must be called without the node's lock, but for the
// first record of a log.
func (r record) durable(ctx context.Context) error {
	if r.in == nil {
		return nil
	}
	err := r.in.Wait(ctx, r.lsn)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil || errors.Is(err, wal.ErrClosed):
		// If the log is broken all the same, the next record meets that.
		return fmt.Errorf("ps: write-ahead log: %w", logError(err))
	}
	return r.in.fail(err)
}

func (l *nodeLog) staged(session, epoch uint64, u *param.Update) (record, error) {
	if l == nil {
		return record{}, nil
	}
	var kind byte
	kind, l.head, l.parts = appendStaged(l.head[:0], l.parts[:0], session, epoch, u)
	return l.write(kind)
}

// record makes the record of an offer. It needs no lock. An update without all of its columns has none, and is refused when it is to be staged.
func (l *nodeLog) record(session, epoch uint64, o *offer) (err error) {
	if l == nil || len(o.u.Counts) != len(o.u.Keys) || len(o.u.Grads) != len(o.u.Keys) {
		return nil
	}
	b := o.own
	var kind byte
	kind, b.head, b.parts = appendStaged(b.head[:0], b.parts[:0], session, epoch, o.u)
	o.record, err = l.Record(kind, b.parts...)
	clear(b.parts) // they point into what is the caller's
	if err != nil {
		return fmt.Errorf("ps: write-ahead log: %w", err)
	}
	return nil
}

// offered writes the record of an offer, once.
func (l *nodeLog) offered(o *offer) (record, error) {
	if l == nil {
		return record{}, nil
	}
	if err := l.failed(); err != nil {
		return record{}, err
	}
	lsn, err := l.AppendRecord(o.record)
	if err != nil {
		return record{}, l.fail(err)
	}
	o.record = nil
	return record{l, lsn}, nil
}

func (l *nodeLog) acquired(session uint64, worker string, id ps.SplitID, epoch uint64) (record, error) {
	if l == nil {
		return record{}, nil
	}
	l.head = appendText(appendOwner(l.head[:0], session, id, epoch), worker)
	return l.append(recOwner)
}

func (l *nodeLog) left(session uint64) (record, error) {
	if l == nil {
		return record{}, nil
	}
	l.head = appendU64(l.head[:0], session)
	return l.append(recLeave)
}

func (l *nodeLog) control(session uint64, c *ps.Control) (record, error) {
	if l == nil {
		return record{}, nil
	}
	l.head = appendOwner(l.head[:0], session, c.Split, c.Epoch)
	if c.Kind == ps.Abort {
		return l.append(recAbort)
	}
	l.head = appendU64(l.head, uint64(c.To))
	return l.append(recCommit)
}

func (l *nodeLog) state(key string, value []byte) (record, error) {
	if l == nil {
		return record{}, nil
	}
	set := uint64(0)
	if value != nil {
		set = 1
	}
	l.head = appendText(appendU64(l.head[:0], set), key)
	return l.append(recState, value)
}

// maxJump is by how much the number of a snapshot may be above that of the log's last border: numbers that nobody counts to
// would leave none for those that follow.
const maxJump = 1 << 32

// takes reports whether the border of a snapshot can come next. Errors: [ps.ErrMismatch], and the log is as it was.
func (l *nodeLog) takes(snapshot uint64) error {
	if l == nil || snapshot == 0 {
		return nil
	}
	if base := l.base(); snapshot < base || snapshot-base > maxJump {
		return fmt.Errorf("ps: the log is behind snapshot %d already and cannot have the border of snapshot %d next: %w", base, snapshot, ps.ErrMismatch)
	}
	return nil
}

// expectCut says of which snapshot the next cut is.
func (l *nodeLog) expectCut(snapshot uint64) {
	if l != nil {
		l.expected = snapshot
	}
}

// rotate sets the border of a cut that the shard has just taken. What the snapshot will not hold is written again after
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
	if err := l.Rotate(number); err != nil {
		return l.fail(err)
	}
	if _, err := l.generated(generation); err != nil {
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

// flush returns when everything so far is durable, and with the standby where there is one.
func (l *nodeLog) flush(ctx context.Context) error {
	if l == nil {
		return nil
	}
	last := l.in.Stats().Next - 1
	if err := l.Flush(ctx); err != nil {
		return fmt.Errorf("ps: write-ahead log: %w", logError(err))
	}
	return l.pair.replicated(ctx, last)
}

// trim says that a snapshot is durable, 0 for none.
func (l *nodeLog) trim(durable uint64) error {
	if l == nil || durable == 0 {
		return nil
	}
	if err := l.failed(); err != nil {
		return err
	}
	if err := l.Trim(durable); err != nil {
		return fmt.Errorf("ps: write-ahead log: %w", logError(err))
	}
	return nil
}

// base is the snapshot of the last border.
func (l *nodeLog) base() uint64 {
	if l == nil {
		return 0
	}
	return l.Base()
}

// close gives back what the node has alone. What it has appended is written when the log is closed.
func (l *nodeLog) close() error {
	if l == nil || !l.own {
		return nil
	}
	return l.in.Close()
}

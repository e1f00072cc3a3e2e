package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Options configure a [Node].
type Options struct {
	// Layout describes the parameters. It must be valid.
	Layout *param.Layout
	// Index is the shard's, of NumShards until it is given a state or its log has one: those say how many there are then.
	Index, NumShards int
	// MaxStaged is how many batches of a split may be staged at once, at least 1, the default.
	MaxStaged int
	// Dir is the folder of the job's snapshots; all shards see the same one.
	Dir string
	// Log, if not nil, makes the node keep a write-ahead log of its own, in a process that has no other shard.
	Log *LogOptions
	// Shared, if not nil, is the log that the node shares with the other shards of its process, in place of Log.
	Shared *Log
	// Pair, if not nil, makes the node one of the two processes of its shard. It needs a log.
	Pair *PairOptions
	// Logger gets life-cycle and trouble; nil discards.
	Logger *slog.Logger
	// Led reports whether the coordinator is in this process: it reports itself what its shards were given.
	Led bool
	// FS is where snapshots are kept; nil: [fsx.Local].
	FS fsx.FS
	// ReadOnly makes the shard hold weights alone, and refuse to change them; the layout is one of [param.Layout.Frozen].
	ReadOnly bool
	// Track makes the shard take note of which rows change, for incremental snapshots.
	Track bool
	// Writers is how many nodes of this process may write a snapshot at the same time; 0 means 1.
	Writers int
	// Threads is how many goroutines do a lookup or an update of many rows; 0 means 1. An update is divided where it brings what its lookup found. The bits are the same with any number.
	Threads int
	// ConsumerIdle is for how long changes are kept for a consumer that does not ask; 0 means [ps.DefaultConsumerIdle].
	ConsumerIdle time.Duration
	// Memory is what rows, and their copies while a snapshot is taken, are taken from; nil has no limit.
	Memory *table.Memory
}

// Node is a shard with its lock, its streams and its log: whatever serves it, in this process or another one's. Its
// methods may overlap.
//
// A node begins at generation 0, in which it serves nobody, unless its log brings a state back; the coordinator of the
// cluster gives it one with [Node.Load].
type Node struct {
	opts        Options
	incarnation uint64
	log         *nodeLog // nil without one
	// shards is how many there are: see numShards.
	shards atomic.Int64
	pair   *pair // nil: the shard has this process alone
	// use is held for reading while cuts are read, for writing to replace or free the memory.
	use sync.RWMutex

	mu    sync.RWMutex
	shard *Shard
	// torn, if not nil, says that a change of the state was broken off by a panic: nobody knows what it holds.
	torn error
	// generation counts the states that the cluster has gone back to; a stream belongs to one.
	generation uint64
	// highest is the highest generation that a state was loaded for, or was to be.
	highest   uint64
	base      uint64 // snapshot that this state goes back to, 0: none
	recovered ps.LogRecovery
	// wake is closed, and replaced, whenever a cut is taken, abandoned or disturbed.
	wake chan struct{}
	// streams is the number of the newest stream of each session: an older one that ends late changes nothing.
	streams map[uint64]uint64
	opened  uint64
	// taken is the cut to be written, of number cut.
	taken *Cut
	cut   uint64
	// begun is the cut begun last, and the snapshot that it is for; holds is where the state was that of a snapshot last.
	begun struct{ cut, snapshot uint64 }
	// newest is the newest snapshot for which a cut was begun here.
	newest uint64
	holds  mark
	// consumers are those whom changes are kept for, by name.
	consumers map[string]*consumer
	sharing   sharing // among replicas
	// tracked is the snapshot since which the changes of rows are known; 0: they are not.
	tracked uint64
	// replica applies what a standby receives.
	replica logDecoder
	// ahead is what was read for the state that comes next; nil: none is being prepared.
	ahead *ahead
	// free are the batches of all states that the node has had.
	free *batches
	// freeing frees states that were replaced; Close joins it.
	freeing sync.WaitGroup

	// cutting is set while a snapshot aligns streams or copies rows; stall is the longest that a push waited meanwhile.
	cutting atomic.Bool
	stall   atomic.Int64
	// calls counts how often clients took the lock to change something.
	calls atomic.Uint64
}

// Open makes a node, with the state of its log where there is one. What the log cannot give back is reported by
// [Node.Status], not an error. Errors: [ps.ErrLayout], those of the file system.
func Open(ctx context.Context, o Options) (*Node, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = fsx.Local{}
	}
	if o.ConsumerIdle <= 0 {
		o.ConsumerIdle = ps.DefaultConsumerIdle
	}
	o.MaxStaged = max(o.MaxStaged, 1)
	n := &Node{opts: o, incarnation: ps.NewID(), wake: make(chan struct{}), streams: map[uint64]uint64{}, free: &batches{}}
	n.shards.Store(int64(o.NumShards))
	var err error
	if n.shard, err = n.empty(o.NumShards); err != nil {
		return nil, err
	}
	if o.Log != nil || o.Shared != nil {
		if err := n.openLog(ctx); err != nil {
			n.shard.Close()
			return nil, err
		}
	}
	if o.Pair != nil {
		if n.log == nil {
			n.shard.Close()
			return nil, fmt.Errorf("ps: shard %d of %d: a standby follows the log, and there is none: %w", o.Index, o.NumShards, ps.ErrLayout)
		}
		n.pair = newPair(*o.Pair, fmt.Sprintf("shard %d of %d", o.Index, o.NumShards), n.log, o.Logger)
		n.log.pair = n.pair
	}
	return n, nil
}

// numShards is how many shards the state is one of. A node whose index is not below that was removed from its cluster.
func (n *Node) numShards() int { return int(n.shards.Load()) }

// empty makes a shard of so many with initial values.
func (n *Node) empty(numShards int) (*Shard, error) {
	s, err := New(n.opts.Layout, n.opts.Index, numShards, n.opts.MaxStaged, n.opts.Memory)
	if err != nil {
		return nil, err
	}
	// A client that outlives the node remembers which version of the dense tensors it has: the numbers of another start must
	// not mean other values.
	s.version = ps.NewID()<<32 | 1
	s.free = n.free
	s.SetThreads(n.opts.Threads)
	if n.opts.Track {
		s.Track()
	}
	return s, nil
}

// Connect opens the stream of a session, or opens it again after it broke. generation is that of the cluster when the
// session began. Errors: [ps.ErrNotReady], [ps.ErrRolledBack], [ps.ErrClosed].
func (n *Node) Connect(_ context.Context, session, generation uint64, worker string) (ps.Conn, error) {
	return n.connect(session, generation, worker, false)
}

func (n *Node) connect(session, generation uint64, worker string, settles bool) (ps.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := &localConn{n: n, session: session, generation: generation, incarnation: n.incarnation, settles: settles}
	if err := c.check(); err != nil {
		return nil, err
	}
	n.opened++
	c.stream, n.streams[session] = n.opened, n.opened
	n.shard.Open(session, worker)
	if n.opts.ReadOnly {
		return ps.ReadOnly(c), nil
	}
	return c, nil
}

// update runs f under the lock and wakes those that wait for the barrier, when f says so.
func (n *Node) update(f func(*Shard) (wake bool)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.changing()
	if f(n.shard) {
		n.wakeUp()
	}
}

// changing must be deferred around every change of the state, with the lock. A server turns panics into errors of their
// calls, but after one in the middle of a change nothing of the state may be believed: the node serves nobody any more, and
// its process ends and begins again with what the log or a snapshot holds.
func (n *Node) changing() {
	if p := recover(); p != nil {
		n.torn = fmt.Errorf("ps: shard %d of %d: a change of its state was broken off by a fault of the program (%v); it must be started again: %w",
			n.opts.Index, n.numShards(), p, ps.ErrNotReady)
		panic(p)
	}
}

// failed returns why the node cannot continue, or nil. It needs the lock, for reading at least.
func (n *Node) failed() error {
	if n.torn != nil {
		return n.torn
	}
	return n.log.failed()
}

// wakeUp needs the lock.
func (n *Node) wakeUp() {
	close(n.wake)
	n.wake = make(chan struct{})
}

// lock is mu.Lock for clients, which takes note of how long a snapshot kept them waiting.
func (n *Node) lock() {
	n.calls.Add(1)
	if !n.cutting.Load() {
		n.mu.Lock()
		return
	}
	start := time.Now()
	n.mu.Lock()
	n.waited(start)
}

// waited takes note of a wait during a snapshot.
func (n *Node) waited(since time.Time) {
	d := int64(time.Since(since))
	for {
		old := n.stall.Load()
		if d <= old || n.stall.CompareAndSwap(old, d) {
			return
		}
	}
}

// Status describes how the node is. Errors: [ps.ErrClosed], that of a log which cannot be written.
func (n *Node) Status(context.Context) (ps.NodeStatus, error) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	st := ps.NodeStatus{
		Shard: n.opts.Index, NumShards: n.numShards(), Incarnation: n.incarnation, Generation: n.generation, Base: n.base, LogBase: n.log.base(),
		Recovery: n.recovered,
	}
	if n.shard.closed {
		return st, ps.ErrClosed
	}
	st.Preparing = n.ahead != nil
	for _, t := range n.shard.tables {
		st.Rows += int64(t.Len())
	}
	return st, n.failed()
}

// Ready returns nil where the node has a state and does its part with it, in charge of its shard or as a standby that has caught up, and otherwise what is missing. Errors: [ps.ErrNotReady], those of [Node.Status].
func (n *Node) Ready(ctx context.Context) error {
	st, err := n.Status(ctx)
	if err == nil {
		err = n.pair.missing()
	}
	if err == nil && st.Generation == 0 {
		err = fmt.Errorf("ps: shard %d has no state yet: shard 0 gives it one when all shards are there: %w", st.Shard, ps.ErrNotReady)
	}
	return err
}

// Load makes the node go to a state. Streams of generations before are refused from then on. What [Node.Prepare] has read is there at once, beside rows that stay, where nothing was applied since they were in the
// snapshot; rows that go are freed in the background. Otherwise the old state is
// freed before the new one is read, because a machine need not hold both: when a snapshot that was whole as long as it was checked cannot
// be loaded after all, the node has no state, says so by [ps.NodeStatus].Generation, and is given one again. Errors:
// [ps.ErrCorrupt], [ps.ErrLayout], after which the node has what it had; [ps.ErrFull]; [ps.ErrRolledBack] when it has that generation or
// one above already, [ps.ErrNotReady] when there is nothing to keep, [ps.ErrClosed], those of the log.
//
// A node of a pair that is not in charge refuses it ([ps.ErrNotReady]), but for its removal: that each of the two is told. The standby learns of another state by the log
// ([Node.StartOver]).
func (n *Node) Load(ctx context.Context, o ps.LoadOptions) (err error) {
	numShards := cmp.Or(o.Shards, n.numShards())
	if !o.Keep && n.opts.Index >= numShards {
		return n.remove(o.Generation, numShards)
	}
	if err := n.pair.refuses(); err != nil {
		return err
	}
	n.use.Lock() // waits for readers of a cut, whose context the coordinator has ended
	defer n.use.Unlock()
	if o.Keep {
		return n.keep(ctx, o.Generation)
	}
	newest, err := n.newestSnapshot()
	if err != nil {
		return fmt.Errorf("ps: shard %d of %d: %w", n.opts.Index, numShards, err)
	}
	had, old, err := n.takePrepared(numShards, o)
	fits := had.is(numShards, o.Path, o.ID)
	if fits && had.in != nil && err == nil {
		n.opts.Logger.WarnContext(ctx, "a shard has applied something since the snapshot that it goes to, and reads all of its rows", "shard", n.opts.Index, "path", o.Path)
	}
	if !fits || had.in != nil || err != nil {
		n.drop(&had)
	}
	if err != nil {
		return err
	}
	var from *snapshot.Snapshot
	if o.Path != "" && had.shard == nil {
		if from, err = n.open(ctx, o.Path, numShards, 0, runtime.GOMAXPROCS(0), nil); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, from.Close()) }()
	}
	if old == nil {
		if old, err = n.giveUp(o.Generation); err != nil {
			had.close()
			return err
		}
	}
	s := had.shard
	if s != nil {
		n.freeing.Go(old.Close)
	} else {
		old.Close()
		if s, err = n.empty(numShards); err != nil {
			return err
		}
	}
	if from != nil {
		if err := n.fill(ctx, s, nil, from); err != nil {
			s.Close()
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shard.closed {
		err = ps.ErrClosed
	} else {
		err = n.log.reset(ctx, o, numShards, newest)
	}
	if err != nil {
		s.Close()
		return err
	}
	n.shard.Close()
	s.changes = 0 // it is what the snapshot holds
	n.shards.Store(int64(numShards))
	n.shard, n.generation, n.base, n.recovered = s, o.Generation, o.ID, ps.LogRecovery{}
	n.tracked = 0
	if n.opts.Track && o.Path != "" && filepath.Dir(filepath.Clean(o.Path)) == filepath.Clean(n.opts.Dir) {
		n.tracked = o.ID
	}
	clear(n.streams)
	n.wakeUp()
	if n.holds = (mark{}); o.Path != "" {
		n.holds = n.marked(o.Path, o.ID, s.commits)
	}
	n.freeRows()
	if o.Path != "" {
		level := slog.LevelInfo
		if n.opts.Led {
			level = slog.LevelDebug
		}
		n.opts.Logger.Log(ctx, level, "snapshot restored", "shard", n.opts.Index, "path", snapshot.Absolute(o.Path), "generation", o.Generation)
	}
	return nil
}

// takePrepared takes what was read ahead for a state. Where rows stay it takes the state before away, as [Node.giveUp] does, and returns it; where those may not, it returns what comes in.
func (n *Node) takePrepared(numShards int, o ps.LoadOptions) (had ahead, old *Shard, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if had = n.takeAhead(); had.in != nil && had.is(numShards, o.Path, o.ID) {
		old, err = n.takeRows(&had, o)
	}
	return had, old, err
}

// giveUp takes the state away for one of a generation, and returns it for the caller to free. Errors: those of above.
func (n *Node) giveUp(generation uint64) (old *Shard, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.above(generation); err != nil {
		return nil, err
	}
	if old, err = n.emptied(); err == nil {
		n.highest = generation
	}
	return old, err
}

// emptied takes the state away, and what is prepared; there is none then. It needs the lock, the caller frees the state without.
func (n *Node) emptied() (old *Shard, err error) {
	if n.shard.closed {
		return nil, ps.ErrClosed
	}
	none, err := n.empty(max(n.numShards(), n.opts.Index+1))
	if err != nil {
		return nil, err
	}
	had := n.takeAhead()
	had.close()
	n.dropCut()
	n.dropConsumers()
	n.shard.EndCut()
	n.cutting.Store(false)
	old = n.shard
	n.shard, n.generation, n.base, n.tracked = none, 0, 0, 0
	clear(n.streams)
	n.wakeUp()
	return old, nil
}

// remove gives the state up for good, log included: the cluster has so few shards that this is none of them. Errors: those of above and of
// the log.
func (n *Node) remove(generation uint64, numShards int) error {
	n.mu.RLock()
	err := n.above(generation)
	n.mu.RUnlock()
	if err != nil {
		return err
	}
	if p := n.pair; p != nil {
		p.retire()
		p.turn.Lock() // what a standby was at has ended
		defer p.turn.Unlock()
	}
	n.use.Lock()
	defer n.use.Unlock()
	old, err := n.giveUp(generation)
	if err != nil {
		return err
	}
	old.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.shard.closed {
		return ps.ErrClosed
	}
	if err := n.log.drop(); err != nil {
		return err
	}
	n.shards.Store(int64(numShards))
	n.recovered = ps.LogRecovery{}
	n.opts.Logger.Info("shard removed: its rows are on others", "shard", n.opts.Index, "shards", numShards, "generation", generation)
	return nil
}

// removed says that the cluster has no such shard any more, or returns nil.
func (n *Node) removed() error {
	if numShards := n.numShards(); n.opts.Index >= numShards {
		return fmt.Errorf("ps: shard %d was removed: the job has %d shards now (monolith ps scale), and this process of it may be ended: %w", n.opts.Index, numShards, ps.ErrMismatch)
	}
	return nil
}

// above reports whether the node may go to a generation. A call of a coordinator that is gone may arrive late. It needs the
// lock. Errors: [ps.ErrClosed], [ps.ErrRolledBack].
func (n *Node) above(generation uint64) error {
	switch {
	case n.shard.closed:
		return ps.ErrClosed
	case generation <= n.highest:
		return fmt.Errorf("ps: shard %d of %d: the state is of generation %d already, not below %d: %w",
			n.opts.Index, n.numShards(), n.highest, generation, ps.ErrRolledBack)
	case generation > max(n.highest, uint64(time.Now().UnixMicro()))+maxAhead:
		return fmt.Errorf("ps: shard %d of %d: generation %d is far above %d, and none would be left above it: %w",
			n.opts.Index, n.numShards(), generation, n.highest, ps.ErrMismatch)
	}
	return nil
}

// maxAhead is by how much a generation may be above the one before and the clock, in microseconds: 285 years, of which there are 2,000 below the largest number. It is no clock's fault then.
// A generation never comes down: one that was made while the clock of shard 0's machine was ahead stays in the logs when that is set, and shards that are new or have lost theirs must take it.
const maxAhead = 1 << 53

// keep only changes the generation: clients connect again and settles what it left.
func (n *Node) keep(ctx context.Context, generation uint64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.above(generation); err != nil {
		return err
	}
	if n.generation == 0 {
		return fmt.Errorf("ps: shard %d of %d has no state to keep: %w", n.opts.Index, n.numShards(), ps.ErrNotReady)
	}
	n.dropCut()
	n.shard.EndCut()
	if err := n.log.generation(ctx, generation); err != nil {
		return err
	}
	for session := range n.shard.sessions {
		n.shard.Leave(session, false)
	}
	n.generation, n.highest = generation, generation
	clear(n.streams)
	n.wakeUp()
	return nil
}

// Close gives the memory back. Every later call is answered with [ps.ErrClosed]. It may be called more than once.
func (n *Node) Close() error {
	n.pair.close()
	n.use.Lock()
	defer n.use.Unlock()
	n.mu.Lock()
	closed := n.shard.closed
	if !closed {
		had := n.takeAhead()
		had.close()
		n.dropCut()
		n.dropConsumers()
		n.shard.EndCut()
		n.shard.Close()
		n.wakeUp()
	}
	n.mu.Unlock()
	if closed {
		return nil
	}
	n.freeing.Wait() // for who needs the lock
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.log.close()
}

// Stats returns what the shard holds.
func (n *Node) Stats(context.Context) (ps.Stats, error) {
	st := ps.Stats{Tables: make([]ps.TableStats, len(n.opts.Layout.Tables))}
	for i, t := range n.opts.Layout.Tables {
		st.Tables[i].Name = t.Name
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.shard.closed {
		return st, ps.ErrClosed
	}
	n.shard.Stats(&st)
	return st, nil
}

// Progress returns what is applied of every split.
func (n *Node) Progress(context.Context) (map[ps.SplitID]ps.Progress, error) {
	if err := n.pair.refuses(); err != nil {
		return nil, err
	}
	n.mu.RLock()
	defer n.mu.RUnlock()
	if n.shard.closed {
		return nil, ps.ErrClosed
	}
	return n.shard.Progress(), nil
}

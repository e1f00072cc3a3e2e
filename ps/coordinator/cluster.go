package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// Options configure a [Cluster]. The zero value of every field but Layout works.
type Options struct {
	// Layout describes the parameters. It must be valid.
	Layout *param.Layout
	// NumShards is how many shards there are, 1 to [ps.NumBuckets]; default 1, or as many as Addrs. More shards let more workers update at
	// once; the result is the same bit for bit.
	NumShards int
	// Addrs are the addresses of the shards, that of shard 0 first, where they are in other processes, as the job has them. Shard 0 is always
	// in this one, and coordinates. A shard that has a standby is there with both addresses ([ps.JoinAddr]). nil: all shards are in this process. What [Cluster.Scale] has made of them is kept in Dir and goes
	// before a list that it came from.
	Addrs []string
	// Dial makes the peer of a shard, 1 and up, that is at an address of Addrs, or of Scale; of a shard with a standby, of both processes. The cluster closes it.
	Dial func(shard int, addr string) (ps.Peer, error)
	// First, if not nil, is the node of shard 0, which is there already and is in charge: with the state that it has the cluster continues. It is the caller's, who closes it after the
	// cluster; where the node has a pair the caller closes the cluster when the node is not in charge any more ([shard.Node.AwaitCharge]). Until then, and while the node has no
	// lease, the cluster changes nothing in Dir. It goes with Addrs. nil: Open opens one, which the cluster closes.
	First *shard.Node
	// Dir is the folder of the job's snapshots; "" keeps none. All shards must see it under this name.
	Dir string
	// Restore is the folder of one snapshot to start from instead of the newest good one in Dir. Those that are taken later
	// come before it when the shards have to go back.
	Restore string
	// From is the folder of a snapshot of another run whose parameters a run begins with that has no snapshot in Dir yet.
	// They become the first snapshot of Dir, without positions and worker state.
	From string
	// Fit describes what to do with parameters of a snapshot that do not fit the layout, in Dir and From; what is renamed is
	// renamed in both. A snapshot that fits only by it becomes a new snapshot in Dir first.
	Fit param.Policies
	// ConsumerIdle is for how long shards keep changes for a consumer that does not ask; 0 means [ps.DefaultConsumerIdle].
	ConsumerIdle time.Duration
	// ReadOnly makes the shards hold weights alone, without the optimizers' state. Pushes are refused, and no snapshots are
	// taken.
	ReadOnly bool
	// Keep is how many snapshots stay in Dir, apart from pinned ones; default 3. Those younger than KeepFor and those with the numbers
	// Exempt stay too; see [snapshot.Retention].
	Keep    int
	KeepFor time.Duration
	Exempt  []uint64
	// Incremental is how many snapshots may follow a whole one that hold only what has changed since the one before; then the newest is made a
	// whole one in the background. 0: all are whole. It costs a bit of memory for every row, and 8 bytes for every removed one.
	Incremental int
	// Every is the time between snapshots taken by the cluster itself; 0 takes none, and a turn in which nothing has changed
	// takes none either. One that fails, or for which a worker
	// does not pass its marker within Every (at least a minute), is logged and counted, and the next is tried in its turn.
	Every time.Duration
	// Soon is the time until the first snapshot of a Dir that has none, where that is shorter than Every: until then a process that dies has lost all.
	// Default 30 s.
	Soon time.Duration
	// Tolerate is how many of those snapshots in a row may fail before GaveUp is called, once, with the error of the last
	// one: from then on nothing that is trained is safe. Of those that fail because a shard is away or has no state yet one a
	// minute counts. 0, or a Log, which keeps what is acknowledged: it is never called.
	Tolerate int
	// GaveUp must return soon and not close the cluster itself; nil: none.
	GaveUp func(error)
	// MaxStaged is how many batches of a split may be staged at once, at least 1, the default.
	MaxStaged int
	// Precision is the format in which clients' rows and gradients travel; see [ps.ClientOptions].
	Precision param.Precision
	// Log, if not nil, makes the shards of this process keep a write-ahead log, in a folder below Log.Dir.
	Log *shard.LogOptions
	// Shared is that log where the process has opened it itself ([Options.OpenLog]), because it has more shards than Open knows of;
	// it is closed after the cluster then.
	Shared *shard.Log
	// Recovery is for a shard that has lost its state.
	Recovery ps.RecoveryMode
	// Grace is how long a session may be without its stream before its splits count as left behind. It is for clients in
	// other processes, whose connections may break.
	Grace time.Duration
	// Hold is for how long commits wait, at most, while the last small snapshot of a change of the number of shards is written and read, so that nothing is trained again; default [ps.MaxHold],
	// below 0 they never do. See [Cluster.Scale].
	Hold time.Duration
	// Lease is after how much silence a member is replaced; default 10 s. See [Cluster.Join].
	Lease time.Duration
	// Meta is stored with every snapshot: the job's name, the plan's hash.
	Meta map[string]string
	// Carry are keys of worker state that go with parameters: those of [Options].From bring what is stored under these, and nothing else.
	Carry []string
	// Recipe is stored with every snapshot too: JSON that says what examples are made of. So is Model, which may be nil.
	Recipe json.RawMessage
	Model  *snapshot.Model
	// Logger gets life-cycle and trouble; nil discards.
	Logger *slog.Logger
	// Hooks observes; nil: nothing does.
	Hooks *ps.Hooks
	// FS is where snapshots are kept; nil: [fsx.Local].
	FS fsx.FS
	// Uploads, if not nil, is notified of snapshots, and reads some that must stay meanwhile.
	Uploads Uploads
	// After is a number that those of new snapshots are above: copies elsewhere have had it.
	After uint64
	// Writers is how many shards of this process may write their parts of a snapshot at the same time; 0: all shards are in it.
	Writers int
	// Threads is how many goroutines do a worker's lookup or update of many rows in the shards of this process, which share them; 0: one a shard.
	Threads int
	// Memory is what the rows of the shards of this process, and their copies while a snapshot is taken, are taken from; nil
	// has no limit.
	Memory *table.Memory
	// WrapConn, if not nil, gets every stream that a client opens and returns what is used in its place: tests put faults
	// there.
	WrapConn func(worker string, shard int, conn ps.Conn) ps.Conn
}

// Uploads copies snapshots of a cluster elsewhere. Its methods return at once.
type Uploads interface {
	// Taken is called when a snapshot was taken or compacted.
	Taken()
	// Holds returns the numbers of the snapshots that are being read.
	Holds() []uint64
}

const (
	defaultKeep  = 3
	defaultSoon  = 30 * time.Second
	defaultLease = 10 * time.Second
	defaultHold  = ps.MaxHold
	// rowsInterval is how often [ps.Hooks].TableRows and TableBytes are called.
	rowsInterval = 5 * time.Second
	// minPatience is how long, at least, a periodic snapshot waits for a worker that is busy with something else.
	minPatience = time.Minute
	// watchEvery is how often shards in other processes are asked how they are.
	watchEvery = 200 * time.Millisecond
	// statusTimeout bounds one such question.
	statusTimeout = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.remote() {
		o.NumShards = len(o.Addrs)
	}
	if o.NumShards == 0 {
		o.NumShards = 1
	}
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	if o.Soon <= 0 {
		o.Soon = defaultSoon
	}
	switch {
	case !o.remote():
		o.Lease = time.Duration(math.MaxInt64) // workers in this process die with it
	case o.Lease <= 0:
		o.Lease = defaultLease
	}
	o.Hold = cmp.Or(o.Hold, defaultHold)
	o.MaxStaged = max(o.MaxStaged, 1)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = fsx.Local{}
	}
	if _, is := o.FS.(leased); o.First != nil && !is {
		o.FS = Leased(o.FS, o.First)
	}
	if o.ReadOnly && o.Layout != nil {
		o.Layout, o.Every = o.Layout.Frozen(), 0
	}
	return o
}

// remote reports whether the shards but 0 are in other processes.
func (o *Options) remote() bool { return len(o.Addrs) > 0 }

// Validate reports every fault at once. Errors: [ps.ErrLayout].
func (o Options) Validate() error {
	o = o.withDefaults()
	if o.Layout == nil {
		return fmt.Errorf("ps: no layout: %w", ps.ErrLayout)
	}
	var errs []error
	if err := o.Layout.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: %w: %w", ps.ErrLayout, err))
	}
	if o.NumShards < 1 || o.NumShards > ps.NumBuckets {
		errs = append(errs, fmt.Errorf("ps: %d shards, between 1 and %d are possible: %w", o.NumShards, ps.NumBuckets, ps.ErrLayout))
	}
	if o.Restore != "" && o.Log != nil {
		errs = append(errs, fmt.Errorf("ps: a log continues from the snapshots of its own folder, not from %s: %w", o.Restore, ps.ErrLayout))
	}
	if o.First != nil && !o.remote() {
		errs = append(errs, fmt.Errorf("ps: a node of shard 0 that is there already goes with addresses of all shards: %w", ps.ErrLayout))
	}
	if o.From != "" && (o.Restore != "" || o.Dir == "" || o.ReadOnly) {
		errs = append(errs, fmt.Errorf("ps: a run that begins with the parameters of %s keeps them in a folder of its own, restores nothing else and trains: %w", o.From, ps.ErrLayout))
	}
	if o.ReadOnly && (o.Log != nil || o.Dir != "") {
		errs = append(errs, fmt.Errorf("ps: shards that are only read keep no log and no snapshots: %w", ps.ErrLayout))
	}
	if err := o.Fit.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: %w: %w", ps.ErrLayout, err))
	}
	return errors.Join(errs...)
}

// Cluster is a parameter server of any number of shards, seen from the process of shard 0: it gives the shards their
// state, coordinates cuts and knows the workers. Its methods may overlap. It owns one goroutine, for periodic work, and one
// while a snapshot is compacted, which Close joins.
type Cluster struct {
	opts   Options
	first  *shard.Node
	log    *shard.Log // that Open has opened, or nil
	groups *groups
	run    context.Context // ends with Close
	stop   context.CancelCauseFunc
	done   chan struct{}
	// before is the number of the newest snapshot that there was when the cluster was opened.
	before uint64
	// turn is held by the one that takes a snapshot or gives the shards a state.
	turn chan struct{}
	// removals is the loop's.
	removals removals
	// verified knows which snapshots are whole; see prune.
	verified snapshot.Verifier
	// ages are those of the snapshots, since the cluster was opened.
	ages snapshot.Ages
	// compactions is the one that is under way; see compact.
	compactions sync.WaitGroup

	mu struct {
		sync.Mutex
		peers   []ps.Peer       // all shards; replaced, never changed
		addrs   []string        // where they are, in other processes
		removed map[int]ps.Peer // shards that Scale has removed and that have not been told
		// dismissed is when they were told first, dismissNext when they are told again.
		dismissed, dismissNext time.Time
		scaling                bool   // Scale is at work, and shards may read ahead
		generation             uint64 // 0: not ready
		notReady               error  // why
		missing                bool   // a shard did not answer when it was asked last
		restored               *ps.SnapshotInfo
		continued              bool             // the shards had their state
		last                   *ps.SnapshotInfo // the newest that this cluster has taken
		skipped                []error
		changes                []string // what is not as in the snapshot that was restored
		newest                 uint64   // number of the newest snapshot there is or was to be
		floor                  uint64   // the lowest generation whose state a shard may keep, 0: not known yet
		cuts                   uint64
		giveUp                 context.CancelCauseFunc // of the snapshot under way
		saved                  uint64                  // changes of shard 0 that the newest snapshot holds
		owed                   map[int]cutEnd          // to shards that could not be notified of the end of a cut
		failures               int
		failed                 failures // since the last snapshot that was taken
		compacting             uint64   // the snapshot that is made a whole one, 0: none
		closed                 bool
	}
}

// Open starts a cluster. When all shards are in this process it is ready at once: from the newest good snapshot in
// [Options].Dir, or with initial values when there is none. A damaged snapshot is logged and reported by [Cluster.Skipped],
// and the one before it is used; when none is good that is an error, because starting over would not be what anybody
// wants. With shards in other processes Open does not wait for them; until they all answer, [Cluster.Ready] says what is
// missing. Errors: [ps.ErrLayout], which says what differs, [ps.ErrCorrupt], [ps.ErrFull].
func Open(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c := &Cluster{opts: o, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	c.verified.Found = func(info *snapshot.Info, err error) {
		o.Logger.Warn("damaged snapshot found; the one before it stays instead", "path", snapshot.Absolute(info.Path), "err", err)
	}
	c.mu.removed = map[int]ps.Peer{}
	c.groups = newGroups(o.Lease, o.Grace)
	// Clients that outlive a coordinator remember the last cut they have passed: the next one must not use its number again.
	c.mu.cuts = ps.NewID()
	c.mu.notReady = fmt.Errorf("ps: the shards have not been asked yet: %w", ps.ErrNotReady)
	if o.Log != nil && o.Shared == nil && o.First == nil {
		var here []int
		for i := range o.NumShards {
			if i == 0 || !o.remote() {
				here = append(here, i)
			}
		}
		var err error
		if c.log, err = o.OpenLog(here...); err != nil {
			return nil, err
		}
		o.Shared = c.log
	}
	if err := c.open(ctx, o); err != nil {
		return nil, errors.Join(err, c.closePeers())
	}
	// The run context ends with Close; it does not end with that of Open.
	c.run, c.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	go c.loop()
	return c, nil
}

// open opens the shards of this process, reaches the others, and gives them a state where all are in this process.
func (c *Cluster) open(ctx context.Context, o Options) error {
	numShards := o.NumShards
	if o.remote() {
		addrs, removed, err := c.settled(ctx, o.Addrs)
		if err != nil {
			return err
		}
		numShards, c.mu.addrs = len(addrs), addrs
		for i, addr := range removed {
			p, err := o.Dial(numShards+i, addr)
			if err != nil {
				o.Logger.WarnContext(ctx, "a removed shard is not told; end its process", "shard", numShards+i, "err", err)
				continue
			}
			c.mu.removed[numShards+i] = p
		}
	}
	for i := range numShards {
		var p ps.Peer
		var err error
		if i > 0 && o.remote() {
			p, err = o.Dial(i, c.mu.addrs[i])
		} else if o.First != nil {
			c.first, p = o.First, o.First
		} else {
			led := o.Node(i, numShards)
			led.Led = true
			var n *shard.Node
			if n, err = shard.Open(ctx, led); i == 0 {
				c.first = n
			}
			p = n
		}
		if err != nil {
			return err
		}
		c.mu.peers = append(c.mu.peers, p)
	}
	if err := c.prepareDir(ctx); err != nil || o.remote() {
		return err
	}
	return c.assemble(ctx, false)
}

// peers returns all shards. They must not be changed.
func (c *Cluster) peers() []ps.Peer {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.peers
}

// Node returns the options of one shard, of so many, that fit those of the cluster.
func (o Options) Node(index, numShards int) shard.Options {
	n := shard.Options{
		Layout: o.Layout, Index: index, NumShards: numShards, MaxStaged: o.MaxStaged, Dir: o.Dir, Logger: o.Logger, FS: o.FS, Memory: o.Memory, ReadOnly: o.ReadOnly,
		Track: o.Incremental > 0 && !o.ReadOnly, ConsumerIdle: o.ConsumerIdle,
	}
	if n.Writers = o.Writers; n.Writers == 0 {
		n.Writers = min(numShards, runtime.GOMAXPROCS(0)) // see Cluster.write
	}
	n.Threads = o.Threads / numShards
	if o.Log != nil {
		n.Shared = o.Shared
	}
	return n
}

// OpenLog opens the log of the shards that this process has, for Shared. Errors: those of [shard.OpenLog].
func (o Options) OpenLog(shards ...int) (*shard.Log, error) {
	l := *o.Log
	l.Dir, l.Logger = filepath.Join(l.Dir, shard.LogName(slices.Min(shards))), o.Logger
	return shard.OpenLog(l, o.Layout, shards...)
}

// Ready returns nil when the cluster can be worked with, and otherwise what is missing. Errors: [ps.ErrNotReady],
// [ps.ErrMismatch], [ps.ErrClosed].
func (c *Cluster) Ready() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.missing()
}

// missing is Ready. It needs the lock.
func (c *Cluster) missing() error {
	switch {
	case c.mu.closed:
		return ps.ErrClosed
	case c.mu.generation != 0:
		return nil
	}
	if failure.Lasting(c.mu.notReady) || failure.Has(c.mu.notReady, failure.Full, failure.NotReady) {
		return c.mu.notReady // it will not get better by itself, or says what this would
	}
	return fmt.Errorf("%w: %w", c.mu.notReady, ps.ErrNotReady)
}

// Client opens a client to all shards. worker names it in errors and logs. Errors: [ps.ErrNotReady], [ps.ErrClosed].
func (c *Cluster) Client(ctx context.Context, worker string) (*ps.Client, error) {
	in, err := c.Info()
	if err != nil {
		return nil, err
	}
	return c.clientAt(ctx, worker, in.Generation, false)
}

// ClientAt opens a client to the shards' state of a generation. Errors: [ps.ErrRolledBack], [ps.ErrNotReady], [ps.ErrClosed].
func (c *Cluster) ClientAt(ctx context.Context, worker string, generation uint64) (*ps.Client, error) {
	return c.clientAt(ctx, worker, generation, false)
}

// Reader opens a client that can look up and read dense tensors, and neither push nor take over splits ([ps.ErrReadOnly]).
// Errors: [ps.ErrNotReady], [ps.ErrClosed].
func (c *Cluster) Reader(ctx context.Context, worker string) (*ps.Client, error) {
	in, err := c.Info()
	if err != nil {
		return nil, err
	}
	conns, err := c.connect(ctx, worker, in.Generation, false)
	if err != nil {
		return nil, err
	}
	for i := range conns {
		conns[i] = ps.ReadOnly(conns[i])
	}
	return c.client(worker, conns), nil
}

// clientAt opens a client; settles, if it may take over orphaned splits only.
func (c *Cluster) clientAt(ctx context.Context, worker string, generation uint64, settles bool) (*ps.Client, error) {
	conns, err := c.connect(ctx, worker, generation, settles)
	if err != nil {
		return nil, err
	}
	return c.client(worker, conns), nil
}

// client makes a client of open streams.
func (c *Cluster) client(worker string, conns []ps.Conn) *ps.Client {
	return ps.NewClient(ps.ClientOptions{
		Layout: c.opts.Layout, Worker: worker, Conns: conns, Precision: c.opts.Precision, Hooks: c.opts.Hooks, Partial: c.opts.Recovery == ps.Partial,
	})
}

// connect opens the streams of a new session.
func (c *Cluster) connect(ctx context.Context, worker string, generation uint64, settles bool) ([]ps.Conn, error) {
	session := ps.NewID()
	peers := c.peers()
	conns := make([]ps.Conn, len(peers))
	for i, p := range peers {
		var conn ps.Conn
		var err error
		if i == 0 && settles {
			conn, err = c.first.ConnectHeir(session, generation, worker)
		} else {
			conn, err = p.Connect(ctx, session, generation, worker)
		}
		if err != nil {
			for _, open := range conns[:i] {
				err = errors.Join(err, open.Close(ctx, true))
			}
			return nil, err
		}
		if conns[i] = conn; c.opts.WrapConn != nil {
			conns[i] = c.opts.WrapConn(worker, i, conn)
		}
	}
	return conns, nil
}

// Restored returns the snapshot that the cluster's state goes back to, or nil.
func (c *Cluster) Restored() *ps.SnapshotInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.restored
}

// Continued reports whether the shards have the state that they had, from their logs or because they did not end: none was given to them. The snapshot that it goes back to
// may be gone by now ([Cluster.Restored]).
func (c *Cluster) Continued() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.continued
}

// Changes returns what is not as in the snapshot that was restored, one a line: rules that are others now, parameters that did
// not fit and what became of them under [Options].Fit.
func (c *Cluster) Changes() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.changes
}

// Skipped returns, for each damaged snapshot that was passed over, which it was and why.
func (c *Cluster) Skipped() []error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.skipped
}

// each calls f for every shard at the same time and joins the errors.
func (c *Cluster) each(ctx context.Context, f func(ctx context.Context, i int, p ps.Peer) error) error {
	return c.eachOf(ctx, c.peers(), f)
}

// eachOf is each for the given shards: a call that keeps what each has said must know how many there are.
func (c *Cluster) eachOf(ctx context.Context, peers []ps.Peer, f func(ctx context.Context, i int, p ps.Peer) error) error {
	if !c.opts.remote() { // calls into this process gain nothing from goroutines
		var errs []error
		for i, p := range peers {
			errs = append(errs, f(ctx, i, p))
		}
		return errors.Join(errs...)
	}
	var g errgroup.Group
	errs := make([]error, len(peers))
	for i, p := range peers {
		g.Go(func() error { errs[i] = f(ctx, i, p); return nil })
	}
	_ = g.Wait()
	return errors.Join(errs...)
}

// Progress returns how far the splits of a source are applied on all shards. Splits of which nothing is applied are left
// out. Errors: [ps.ErrClosed], [ps.ErrUnreachable], the context's.
func (c *Cluster) Progress(ctx context.Context, source string) (map[string]ps.Progress, error) {
	peers := c.peers()
	all := make([]map[ps.SplitID]ps.Progress, len(peers))
	err := c.eachOf(ctx, peers, func(ctx context.Context, i int, p ps.Peer) (err error) {
		all[i], err = p.Progress(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := map[string]ps.Progress{}
	for i, of := range all {
		for id, p := range of {
			if id.Source != source {
				continue
			}
			if have, ok := out[id.Split]; i == 0 || ok && p.Position < have.Position {
				out[id.Split] = p
			}
		}
		for split := range out {
			if _, ok := of[ps.SplitID{Source: source, Split: split}]; !ok {
				delete(out, split)
			}
		}
	}
	return out, nil
}

// Stats returns what the cluster holds. Errors: [ps.ErrClosed], [ps.ErrUnreachable], the context's.
func (c *Cluster) Stats(ctx context.Context) (ps.Stats, error) {
	all, err := c.statsOf(ctx)
	st := c.sum(all)
	c.mu.Lock()
	st.SnapshotFailures = c.mu.failures
	c.mu.Unlock()
	return st, err
}

// statsOf returns what each shard holds.
func (c *Cluster) statsOf(ctx context.Context) ([]ps.Stats, error) {
	peers := c.peers()
	all := make([]ps.Stats, len(peers))
	err := c.eachOf(ctx, peers, func(ctx context.Context, i int, p ps.Peer) (err error) {
		all[i], err = p.Stats(ctx)
		return err
	})
	return all, err
}

// sum adds up what shards hold.
func (c *Cluster) sum(all []ps.Stats) ps.Stats {
	st := ps.Stats{Tables: make([]ps.TableStats, len(c.opts.Layout.Tables))}
	for i, t := range c.opts.Layout.Tables {
		st.Tables[i].Name = t.Name
	}
	for _, s := range all {
		for i := range s.Tables {
			st.Tables[i].Rows += s.Tables[i].Rows
			st.Tables[i].Bytes += s.Tables[i].Bytes
			st.Tables[i].Removed.Expired += s.Tables[i].Removed.Expired
			st.Tables[i].Removed.Evicted += s.Tables[i].Removed.Evicted
		}
		st.DenseBytes += s.DenseBytes
		st.Staged += s.Staged
	}
	return st
}

// Row is Entries of one fid and reports whether it has a row.
func (c *Cluster) Row(ctx context.Context, tbl int, fid int64, dst *table.Rows) (bool, error) {
	n := len(dst.Keys)
	err := c.Entries(ctx, tbl, []int64{fid}, dst)
	return len(dst.Keys) > n, err
}

// Entries appends the rows of those fids that have one, in table number tbl of the layout, to dst, shard by shard. Errors:
// [ps.ErrLayout], [ps.ErrClosed], [ps.ErrUnreachable], the context's.
func (c *Cluster) Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error {
	peers := c.peers()
	for i, of := range ps.ByShard(fids, len(peers)) {
		if len(of) == 0 {
			continue
		}
		if err := peers[i].Entries(ctx, tbl, of, dst); err != nil {
			return err
		}
	}
	return nil
}

// Tally describes the rows of each table by slots, while updates continue: a row that comes or goes meanwhile counts or does not. newest is the largest time of
// a row, or of a fid that waits for one, which ages count back from; 0 where none has any. Errors: those of [ps.Peer], [ps.ErrUnreachable], the context's.
func (c *Cluster) Tally(ctx context.Context) (tables []tally.Slots, newest int64, err error) {
	return ps.TallyOf(ctx, c.peers())
}

// ChangesFor asks one shard for what has changed for a consumer; see [ps.Consumer]. Errors: [ps.ErrNotReady], [ps.ErrConsumers], [ps.ErrClosed],
// [ps.ErrUnreachable], the context's.
func (c *Cluster) ChangesFor(ctx context.Context, shard int, r ps.ChangesRequest) (*ps.Changes, error) {
	peers := c.peers()
	if shard >= len(peers) {
		return nil, ps.OtherShards(shard, len(peers))
	}
	return peers[shard].ChangesFor(ctx, r)
}

// SetState stores a blob of worker state, kept with every later snapshot; nil removes it. See also [ps.Client.OnMarker]. The
// cluster keeps value. Errors: [ps.ErrLayout] for a [ps.TraceState] that is no trace, [ps.ErrClosed].
func (c *Cluster) SetState(ctx context.Context, key string, value []byte) error {
	return c.first.SetState(ctx, 0, key, value)
}

// InitState is SetState where nothing is stored under the key yet, and returns what is stored there then: of several who store at the same
// moment one does, and all get that. Errors: as SetState.
func (c *Cluster) InitState(ctx context.Context, key string, value []byte) (stored []byte, err error) {
	return c.first.InitState(ctx, key, value)
}

// SetStateAt is SetState for what the leader of the workers has decided on a state of the shards: a leader that was
// replaced meanwhile, or one that speaks of a state that the shards have gone back from, changes nothing. The state of a
// split, under [ps.SourceState] or [ps.StageState], is its owner's instead. Errors: [ps.ErrFenced] for who does not lead or own (any more), [ps.ErrRolledBack] for another generation, [ps.ErrRejoin], [ps.ErrClosed].
func (c *Cluster) SetStateAt(ctx context.Context, member, generation uint64, key string, value []byte) error {
	may := c.groups.leads
	if id, ok := ps.SplitOfState(key); ok {
		may = func(member uint64) error { return c.groups.owns(member, id) }
	}
	if err := may(member); err != nil {
		return err
	}
	return c.first.SetState(ctx, generation, key, value)
}

// State returns a blob of worker state as of the last marker or snapshot restored, or nil. It must not be changed.
// Errors: [ps.ErrClosed].
func (c *Cluster) State(_ context.Context, key string) ([]byte, error) { return c.first.State(key) }

// Close stops periodic snapshots, cancels one under way and waits for that, and frees the memory. It takes no snapshot.
// Clients that are still open get [ps.ErrClosed]. It may be called more than once.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.stop(ps.ErrClosed)
	c.groups.close()
	<-c.done
	c.compactions.Wait()
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("ps: waiting for a snapshot to end: %w", context.Cause(ctx))
	}
	return c.closePeers()
}

func (c *Cluster) closePeers() error {
	var errs []error
	for _, p := range c.peers() {
		if p != ps.Peer(c.opts.First) {
			errs = append(errs, p.Close())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.mu.removed {
		errs = append(errs, p.Close())
	}
	errs = append(errs, c.log.Close())
	return errors.Join(errs...)
}

// loop takes periodic snapshots, watches shards in other processes and reports table sizes until the cluster is closed.
func (c *Cluster) loop() {
	defer close(c.done)
	var wg sync.WaitGroup
	defer wg.Wait()
	if c.opts.remote() {
		wg.Go(c.watch)
	}
	wg.Go(func() { c.groups.tick(c.run, c.opts.Logger, c.first.Forsake) })
	var due, first <-chan time.Time
	if c.opts.Every > 0 && c.opts.Dir != "" {
		t := time.NewTicker(c.opts.Every)
		defer t.Stop()
		due = t.C
		if c.opts.Soon < c.opts.Every {
			t := time.NewTicker(c.opts.Soon)
			defer t.Stop()
			first = t.C
		}
	}
	report := time.NewTicker(rowsInterval)
	defer report.Stop()
	shards := c.reportRows(0)
	gaveUp := false
	for {
		turn, early := false, false
		select {
		case <-c.run.Done():
			c.reportRows(shards)
			return
		case <-report.C:
			shards = c.reportRows(shards)
		case <-first:
			if newest, _ := c.Newest(c.run); newest != nil {
				first = nil
			} else {
				turn, early = true, true
			}
		case <-due:
			turn = true
		}
		if turn {
			c.mu.Lock()
			missing := c.mu.missing
			c.mu.Unlock()
			if missing || c.Ready() != nil {
				continue // that has been logged
			}
			if !c.changed() {
				continue
			}
			// Failure is counted and logged by Snapshot; training continues and the next turn tries again.
			_, err := c.take(c.run, ps.SnapshotOptions{}, max(c.opts.Every, minPatience))
			if early {
				first = nil // Tolerate counts turns of Every
			}
			c.mu.Lock()
			unsafe := c.mu.failed.unsafe
			c.mu.Unlock()
			if tolerate := c.opts.Tolerate; err != nil && tolerate > 0 && unsafe >= tolerate && !gaveUp && c.opts.Log == nil && c.opts.GaveUp != nil {
				gaveUp = true
				c.opts.GaveUp(fmt.Errorf("ps: %d snapshots in a row have failed: %w", unsafe, err))
			}
		}
	}
}

// changed reports whether the newest snapshot, or what the shards began with, is not what they hold now. Every update goes to
// every shard, so shard 0 knows for all.
func (c *Cluster) changed() bool {
	c.mu.Lock()
	saved := c.mu.saved
	c.mu.Unlock()
	return c.first.Changes() != saved
}

// reportRows tells the hooks how large tables are, and returns of how many shards it has told; had is what it returned before.
func (c *Cluster) reportRows(had int) int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.run), statusTimeout)
	defer cancel()
	all, err := c.statsOf(ctx)
	if err != nil {
		return had // a part of the rows would be no number to show; the watch says what is wrong
	}
	c.removals.report(all, c.opts.Hooks, c.opts.Logger)
	for _, t := range c.sum(all).Tables {
		c.opts.Hooks.TableRows(t.Name, t.Rows)
	}
	for i, st := range all {
		for _, t := range st.Tables {
			c.opts.Hooks.TableBytes(i, t.Name, t.Bytes)
		}
	}
	for i := len(all); i < had; i++ {
		for _, t := range c.opts.Layout.Tables {
			c.opts.Hooks.TableBytes(i, t.Name, -1)
		}
	}
	return len(all)
}

// Info describes how the cluster is. Errors: those of [Cluster.Ready].
func (c *Cluster) Info() (ps.ClusterInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.missing(); err != nil {
		return ps.ClusterInfo{}, err
	}
	return ps.ClusterInfo{
		Generation: c.mu.generation, Addrs: c.mu.addrs, Dir: c.opts.Dir, Recovery: c.opts.Recovery, Restored: c.mu.restored, Newest: c.mu.last, Skipped: c.mu.skipped,
	}, nil
}

// Newest returns the last snapshot that was taken, or what the cluster was restored from, or nil.
func (c *Cluster) Newest(context.Context) (*ps.SnapshotInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.last != nil {
		return c.mu.last, nil
	}
	return c.mu.restored, nil
}

// Promote lets the standby of a shard take over. Errors: [ps.ErrMismatch] for a shard without one, [ps.ErrNotReady] when it lacks something
// that was acknowledged, those of reaching it.
func (c *Cluster) Promote(ctx context.Context, shard int) error {
	peers := c.peers()
	if shard >= 0 && shard < len(peers) {
		if p, ok := peers[shard].(ps.Promoter); ok {
			return p.Promote(ctx)
		}
	}
	return fmt.Errorf("ps: shard %d of %d has no standby (ps.standby): %w", shard, len(peers), ps.ErrMismatch)
}

// First returns the node of shard 0, for the server of this process.
func (c *Cluster) First() *shard.Node { return c.first }

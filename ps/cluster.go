package ps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// Options configure a [Cluster]. The zero value of every field but Layout works.
type Options struct {
	// Layout describes the parameters. It must be valid.
	Layout *param.Layout
	// NumShards is how many shards there are, 1 to [NumBuckets]; default 1. More shards let more workers update at once;
	// the result is the same bit for bit.
	NumShards int
	// Dir is the folder of the job's snapshots; "" keeps none.
	Dir string
	// Restore is the folder of one snapshot to start from instead of the newest good one in Dir.
	Restore string
	// Keep is how many snapshots stay in Dir, apart from pinned ones; default 3.
	Keep int
	// Every is the time between snapshots taken by the cluster itself; 0 takes none. One that fails, or for which a worker
	// does not pass its marker within Every (at least a minute), is logged and counted, and the next is tried in its turn.
	Every time.Duration
	// MaxStaged is how many batches of a split may be staged at once, at least 1, the default.
	MaxStaged int
	// Meta is stored with every snapshot: the job's name, the plan's hash.
	Meta map[string]string
	// Logger gets life-cycle and trouble; nil discards.
	Logger *slog.Logger
	// Hooks observes; nil: nothing does.
	Hooks Hooks
	// FS is where snapshots are kept; nil: [snapshot.OS].
	FS snapshot.FS
	// WrapConn, if not nil, gets every stream that a client opens and returns what is used in its place: tests put faults
	// there.
	WrapConn func(worker string, shard int, conn Conn) Conn
}

const (
	defaultKeep = 3
	// rowsInterval is how often [Hooks].TableRows is called.
	rowsInterval = 5 * time.Second
	// minPatience is how long, at least, a periodic snapshot waits for a worker that is busy with something else.
	minPatience = time.Minute
)

func (o Options) withDefaults() Options {
	if o.NumShards == 0 {
		o.NumShards = 1
	}
	if o.Keep <= 0 {
		o.Keep = defaultKeep
	}
	o.MaxStaged = max(o.MaxStaged, 1)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Hooks == nil {
		o.Hooks = NopHooks{}
	}
	if o.FS == nil {
		o.FS = snapshot.OS{}
	}
	return o
}

// Validate reports every fault at once. Errors: [ErrLayout].
func (o Options) Validate() error {
	o = o.withDefaults()
	if o.Layout == nil {
		return fmt.Errorf("ps: no layout: %w", ErrLayout)
	}
	var errs []error
	if err := o.Layout.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("ps: %w: %w", ErrLayout, err))
	}
	if o.NumShards < 1 || o.NumShards > NumBuckets {
		errs = append(errs, fmt.Errorf("ps: %d shards, between 1 and %d are possible: %w", o.NumShards, NumBuckets, ErrLayout))
	}
	return errors.Join(errs...)
}

// Cluster is a parameter server of any number of shards in this process. Its methods may overlap. It owns one goroutine,
// for periodic work, which Close joins.
type Cluster struct {
	opts     Options
	nodes    []*node
	restored *SnapshotInfo
	skipped  []error
	store    store
	run      context.Context // ends with Close
	stop     context.CancelCauseFunc
	done     chan struct{}
	// use is held for reading while cuts are read, for writing to free the memory.
	use sync.RWMutex
	// turn is held by whoever takes a snapshot.
	turn chan struct{}

	mu struct {
		sync.Mutex
		sessions   uint64
		cuts       uint64
		onSnapshot []func(SnapshotInfo)
		failures   int
		closed     bool
	}
}

// Open starts a cluster from the newest good snapshot in [Options].Dir, or with initial values when there is none. A
// damaged snapshot is logged and told by [Cluster.Skipped], and the one before it is used; when none is good that is
// an error, because starting over would not be what anybody wants. Errors: [ErrLayout], which says what differs,
// [ErrCorrupt], [ErrFull].
func Open(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	c := &Cluster{opts: o, done: make(chan struct{}), turn: make(chan struct{}, 1)}
	for i := range o.NumShards {
		s, err := NewShard(o.Layout, i, o.NumShards, o.MaxStaged)
		if err != nil {
			return nil, errors.Join(err, c.closeShards())
		}
		c.nodes = append(c.nodes, newNode(s))
	}
	if err := c.restore(ctx); err != nil {
		return nil, errors.Join(err, c.closeShards())
	}
	// The run context ends with Close; it does not end with that of Open.
	c.run, c.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	go c.loop()
	return c, nil
}

// Client opens a client to all shards. worker names it in errors and logs. Errors: [ErrClosed].
func (c *Cluster) Client(_ context.Context, worker string) (*Client, error) {
	c.mu.Lock()
	c.mu.sessions++
	session, closed := c.mu.sessions, c.mu.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	conns := make([]Conn, len(c.nodes))
	for i, n := range c.nodes {
		conns[i] = openLocal(n, session, worker)
		if c.opts.WrapConn != nil {
			conns[i] = c.opts.WrapConn(worker, i, conns[i])
		}
	}
	return NewClient(ClientOptions{Layout: c.opts.Layout, Worker: worker, Conns: conns, Hooks: c.opts.Hooks}), nil
}

// Restored returns what the cluster started from, or nil.
func (c *Cluster) Restored() *SnapshotInfo { return c.restored }

// Skipped returns, for each damaged snapshot that Open passed over, which it was and why.
func (c *Cluster) Skipped() []error { return c.skipped }

// Progress returns how far the splits of a source are applied on all shards. Splits of which nothing is applied are left
// out.
func (c *Cluster) Progress(source string) map[string]Progress {
	out := map[string]Progress{}
	for i, n := range c.nodes {
		n.mu.RLock()
		all := n.shard.Progress()
		n.mu.RUnlock()
		for id, p := range all {
			if id.Source != source {
				continue
			}
			if have, ok := out[id.Split]; i == 0 || ok && p.Position < have.Position {
				out[id.Split] = p
			}
		}
		for split := range out {
			if _, ok := all[SplitID{source, split}]; !ok {
				delete(out, split)
			}
		}
	}
	return out
}

// Stats says what a cluster holds.
type Stats struct {
	Tables []TableStats
	// DenseBytes is the memory of dense tensors and their state.
	DenseBytes int64
	// Staged counts batches that shards have staged, each shard for itself.
	Staged int
	// SnapshotFailures counts snapshots that failed.
	SnapshotFailures int
}

// TableStats says what a table holds on all shards.
type TableStats struct {
	Name  string
	Rows  int64
	Bytes int64
}

// Rows is the number of rows of all tables.
func (s Stats) Rows() int64 {
	n := int64(0)
	for _, t := range s.Tables {
		n += t.Rows
	}
	return n
}

// Stats returns what the cluster holds.
func (c *Cluster) Stats() Stats {
	st := Stats{Tables: make([]TableStats, len(c.opts.Layout.Tables))}
	for i, t := range c.opts.Layout.Tables {
		st.Tables[i].Name = t.Name
	}
	for _, n := range c.nodes {
		n.mu.RLock()
		n.shard.Stats(&st)
		n.mu.RUnlock()
	}
	c.mu.Lock()
	st.SnapshotFailures = c.mu.failures
	c.mu.Unlock()
	return st
}

// Row appends the row of a fid in table number tbl of the layout to dst and tells whether there is one.
func (c *Cluster) Row(tbl int, fid int64, dst *table.Rows) bool {
	n := c.nodes[ShardOf(Bucket(fid), len(c.nodes))]
	n.mu.RLock()
	defer n.mu.RUnlock()
	return n.shard.Row(tbl, fid, dst)
}

// SetState stores a blob of worker state, kept with every later snapshot; nil removes it. See also [Client.OnMarker]. The
// cluster keeps value.
func (c *Cluster) SetState(key string, value []byte) {
	c.nodes[0].update(func(s *Shard) bool { s.SetState(key, value); return false })
}

// State returns a blob of worker state as of the last marker or snapshot restored, or nil. It must not be changed.
func (c *Cluster) State(key string) []byte {
	c.nodes[0].mu.RLock()
	defer c.nodes[0].mu.RUnlock()
	return c.nodes[0].shard.State(key)
}

// OnSnapshot adds a function that is called with every snapshot taken, before it is the next one's turn.
func (c *Cluster) OnSnapshot(f func(SnapshotInfo)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.onSnapshot = append(c.mu.onSnapshot, f)
}

// Close stops periodic snapshots, makes one under way give up and waits for that, and frees the memory. It takes no snapshot.
// Clients that are still open get [ErrClosed]. It may be called more than once.
func (c *Cluster) Close(ctx context.Context) error {
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.closed = true
	c.mu.Unlock()
	if closed {
		return nil
	}
	c.stop(ErrClosed)
	<-c.done
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return fmt.Errorf("ps: waiting for a snapshot to end: %w", context.Cause(ctx))
	}
	return c.closeShards()
}

func (c *Cluster) closeShards() error {
	c.use.Lock()
	defer c.use.Unlock()
	for _, n := range c.nodes {
		n.update(func(s *Shard) bool { s.Close(); return true })
	}
	return nil
}

// loop takes periodic snapshots and reports table sizes until the cluster is closed.
func (c *Cluster) loop() {
	defer close(c.done)
	var due <-chan time.Time
	if c.opts.Every > 0 && c.opts.Dir != "" {
		t := time.NewTicker(c.opts.Every)
		defer t.Stop()
		due = t.C
	}
	report := time.NewTicker(rowsInterval)
	defer report.Stop()
	c.reportRows()
	for {
		select {
		case <-c.run.Done():
			c.reportRows()
			return
		case <-report.C:
			c.reportRows()
		case <-due:
			// Failure is counted and logged by Snapshot; training goes on and the next turn tries again.
			_, _ = c.Snapshot(c.run, SnapshotOptions{patience: max(c.opts.Every, minPatience)})
		}
	}
}

func (c *Cluster) reportRows() {
	for _, t := range c.Stats().Tables {
		c.opts.Hooks.TableRows(t.Name, t.Rows)
	}
}

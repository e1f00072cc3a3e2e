package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/position"
)

// closeTimeout bounds how long [Client.Close] tries to commit what is decided. Nothing is lost when it passes: the next
// owner of a split, or the next snapshot, settles it.
const closeTimeout = time.Second

// Client is one worker's way to all shards. Lookup and Dense may be called from one goroutine while Push, Flush, Idle and
// Resume are called from another; Close from anywhere.
//
// A push is staged on every shard before Push returns. It is then decided, and its commit rides in front of the client's
// next message of any kind to each shard. All commits and markers travel in one order on every stream, so that a marker
// divides the client's updates in the same place everywhere.
type Client struct {
	place   Placement
	worker  string
	hooks   *Hooks
	streams []stream
	// Scratch of the two goroutines.
	parts   []rowsPart
	updates []param.Update
	dense   denseCache
	ahead   atomic.Int64 // lookups without their push
	partial bool
	fan     fan
	// What a call gives to its shards, and the functions that do it for one: made once, so that a call allocates nothing.
	rows  *param.Rows
	dst   []float32
	u     *param.Update
	epoch uint64
	do    struct {
		lookup, dense, stage, drain func(ctx context.Context, s int) error
	}

	mu struct {
		sync.Mutex
		queues   [][]Control // by shard
		splits   map[SplitID]uint64
		cuts     map[SplitID][]position.Position
		wanted   uint64 // newest cut whose marker shard 0 wants
		passed   uint64 // newest cut whose marker is queued or sent
		onMarker func() map[string][]byte
		closed   bool
	}
}

// stream is a connection and the right to send on it.
type stream struct {
	conn Conn
	turn chan struct{}
}

// denseCache remembers which versions of the shards make up the last version handed out.
type denseCache struct {
	sum   uint64
	of    []uint64
	parts [][]float32 // of the shards, where there is more than one
}

// ClientOptions say who a client is and how it reaches the shards.
type ClientOptions struct {
	Layout *param.Layout
	// Worker names the client in errors and logs.
	Worker string
	// Conns are the streams to the shards, in their order, at least one. The client closes them.
	Conns []Conn
	// Hooks observes; nil: nothing does.
	Hooks *Hooks
	// Partial lets the client take splits over of which shards hold different parts ([Partial]).
	Partial bool
	// Parallel makes the client call all shards at the same time. It is for shards behind a network; those in this
	// process answer faster than a goroutine starts.
	Parallel bool
}

// NewClient makes a client over streams to all shards. Those of a coordinator.Cluster come from coordinator.Cluster.Client.
func NewClient(o ClientOptions) *Client {
	n := len(o.Conns)
	c := &Client{place: NewPlacement(o.Layout, n), worker: o.Worker, hooks: o.Hooks, partial: o.Partial, fan: fan{o.Parallel}}
	c.do.lookup, c.do.dense, c.do.stage, c.do.drain = c.lookupPart, c.denseOn, c.stageOn, c.drainOn
	c.dense.of = make([]uint64, n)
	for s, conn := range o.Conns {
		c.streams = append(c.streams, stream{conn, make(chan struct{}, 1)})
		c.parts = append(c.parts, newRowsPart(len(o.Layout.Tables)))
		c.updates = append(c.updates, newUpdatePart(len(o.Layout.Tables)))
		c.dense.parts = append(c.dense.parts, make([]float32, c.place.denseLen[s]))
	}
	c.mu.queues = make([][]Control, n)
	c.mu.splits, c.mu.cuts = map[SplitID]uint64{}, map[SplitID][]position.Position{}
	return c
}

// Lookup fills the values of rows. It creates no row: a fid without one gets its initial value. Errors: [ErrLayout],
// [ErrClosed], the context's.
func (c *Client) Lookup(ctx context.Context, rows *param.Rows) error {
	start := time.Now()
	err := c.lookup(ctx, rows)
	c.done("lookup", start, err)
	if err == nil {
		c.ahead.Add(1)
	}
	return err
}

func (c *Client) lookup(ctx context.Context, rows *param.Rows) error {
	if err := c.place.CheckRows(rows); err != nil {
		return err
	}
	if len(c.streams) == 1 {
		return c.lookupOn(ctx, 0, rows)
	}
	c.place.split(c.parts, rows)
	c.rows = rows
	return c.fan.each(ctx, len(c.parts), c.do.lookup)
}

// lookupPart looks up the part of c.rows that lies on one shard.
func (c *Client) lookupPart(ctx context.Context, s int) error {
	part := &c.parts[s]
	if part.n == 0 {
		return nil
	}
	if err := c.lookupOn(ctx, s, &part.rows); err != nil {
		return err
	}
	c.place.join(part, c.rows)
	return nil
}

func (c *Client) lookupOn(ctx context.Context, s int, rows *param.Rows) error {
	ctl, err := c.begin(ctx, s)
	if err != nil {
		return err
	}
	reply, err := c.streams[s].conn.Lookup(ctx, ctl, rows)
	return c.end(s, len(ctl), reply, err)
}

// Dense writes all dense tensors, [param.Layout.DenseLen] values, to dst, and returns their version. have is the version
// that dst holds already, 0 for none: what has not changed since is not copied. Errors: [ErrLayout], [ErrClosed], the
// context's.
func (c *Client) Dense(ctx context.Context, have uint64, dst []float32) (version uint64, err error) {
	start := time.Now()
	version, err = c.readDense(ctx, have, dst)
	c.done("dense", start, err)
	return version, err
}

func (c *Client) readDense(ctx context.Context, have uint64, dst []float32) (uint64, error) {
	total := 0
	for _, n := range c.place.denseLen {
		total += n
	}
	if len(dst) != total {
		return 0, fmt.Errorf("ps: %d dense values of %d: %w", len(dst), total, ErrLayout)
	}
	d := &c.dense
	if have == 0 || have != d.sum {
		clear(d.of) // dst does not hold what was handed out last
	}
	d.sum = 0
	c.dst = dst
	if err := c.fan.each(ctx, len(c.streams), c.do.dense); err != nil {
		return 0, err
	}
	// Versions of a shard only grow, so one sum stands for one set of versions.
	for _, version := range d.of {
		d.sum += version
	}
	return d.sum, nil
}

// denseOn reads the tensors of one shard into c.dst.
func (c *Client) denseOn(ctx context.Context, s int) error {
	if c.place.denseLen[s] == 0 {
		return nil
	}
	d, dst, part := &c.dense, c.dst, c.dense.parts[s]
	if len(c.place.tensors[s]) == len(c.place.layout.Dense) {
		part = dst
	}
	ctl, err := c.begin(ctx, s)
	if err != nil {
		return err
	}
	version, reply, err := c.streams[s].conn.Dense(ctx, ctl, d.of[s], part)
	if err := c.end(s, len(ctl), reply, err); err != nil {
		return err
	}
	if version != d.of[s] && len(c.place.tensors[s]) != len(c.place.layout.Dense) {
		for _, r := range c.place.tensors[s] {
			part = part[copy(dst[r.from:r.to], part):]
		}
	}
	d.of[s] = version
	return nil
}

// Push stages an update on every shard and returns when all have it. From then on it is decided: it will be applied on
// all shards, by this client's next call or by the next owner of the split. Pushing an update again after an error is
// safe. u may be changed afterwards. Errors: [ErrFenced], [ErrGap], [ErrOverlap], [ErrFull], [ErrLayout], [ErrClosed], the
// context's.
func (c *Client) Push(ctx context.Context, u *param.Update) error {
	start := time.Now()
	err := c.push(ctx, u)
	c.done("push", start, err)
	if err == nil && u.NumRows > 0 {
		if n := c.ahead.Add(-1); n >= 0 {
			c.hooks.Staleness(n)
		} else {
			c.ahead.Add(1)
		}
	}
	return err
}

func (c *Client) push(ctx context.Context, u *param.Update) error {
	total := 0
	for _, n := range c.place.denseLen {
		total += n
	}
	if err := c.place.CheckUpdate(u, total); err != nil {
		return err
	}
	id := SplitID{Source: u.Source, Split: u.Split}
	c.mu.Lock()
	epoch, ok := c.mu.splits[id]
	c.mu.Unlock()
	if !ok {
		return fmt.Errorf("ps: worker %s has not resumed %s: %w", c.worker, id, ErrFenced)
	}
	c.mark()
	if len(c.streams) > 1 {
		c.place.splitUpdate(c.updates, u)
	}
	c.u, c.epoch = u, epoch
	if err := c.fan.each(ctx, len(c.streams), c.do.stage); err != nil {
		if errors.Is(err, ErrFenced) {
			c.mu.Lock()
			delete(c.mu.splits, id)
			c.mu.Unlock()
		}
		return err
	}
	// Invariant 2: every shard has it, so it may be committed, and only now.
	c.enqueue(Control{Kind: Commit, Split: id, Epoch: epoch, To: u.To})
	return nil
}

// stageOn stages one shard's part of c.u.
func (c *Client) stageOn(ctx context.Context, s int) error {
	u := c.u
	if len(c.streams) > 1 {
		u = &c.updates[s]
	}
	ctl, err := c.begin(ctx, s)
	if err != nil {
		return err
	}
	reply, err := c.streams[s].conn.Stage(ctx, ctl, c.epoch, u)
	return c.end(s, len(ctl), reply, err)
}

// Flush returns when everything pushed is applied on all shards. Errors: [ErrClosed], the context's.
func (c *Client) Flush(ctx context.Context) error {
	start := time.Now()
	c.mark()
	err := c.drain(ctx)
	c.done("flush", start, err)
	return err
}

// Idle does what is to be done while no input arrives: it commits what is decided and passes a snapshot's marker. Workers
// call it some times a second when they have nothing to push. Errors: [ErrClosed], the context's.
func (c *Client) Idle(ctx context.Context) error {
	start := time.Now()
	err := c.drain(ctx)
	if err == nil && c.mark() {
		err = c.drain(ctx)
	}
	c.done("idle", start, err)
	return err
}

// OnMarker sets what is called when the client passes the marker of a cut: it returns worker state to be stored in the
// cut, blobs by key; nil removes one. It runs inside of Push, Flush or Idle, before what they do, so it sees the worker
// between two pushes.
func (c *Client) OnMarker(f func() map[string][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.onMarker = f
}

// Close commits what is decided, as far as that takes no long wait, and ends the streams. Later calls return [ErrClosed].
// It may be called more than once.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.mu.closed
	c.mu.Unlock()
	if closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	clean := c.drain(ctx) == nil
	c.mu.Lock()
	closed, c.mu.closed = c.mu.closed, true
	c.mu.Unlock()
	if closed {
		return nil
	}
	// Shard 0 first: a cut waits everywhere for the sessions that shard 0 knows when it begins. One that has left another shard
	// before would be waited for there for ever, and so would everybody who has passed the marker.
	errs := make([]error, len(c.streams))
	errs[0] = c.streams[0].conn.Close(ctx, clean)
	_ = c.fan.each(ctx, len(errs)-1, func(_ context.Context, s int) error {
		errs[s+1] = c.streams[s+1].conn.Close(ctx, clean)
		return nil
	})
	return errors.Join(errs...)
}

func (c *Client) done(method string, start time.Time, err error) {
	c.hooks.RequestDone(method, failure.Of(err).Label(), time.Since(start))
}

// begin waits for its turn on a stream and returns the controls that ride in front of the message. The slice stays valid
// until end: others only append after it.
func (c *Client) begin(ctx context.Context, s int) ([]Control, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("ps: worker %s: %w", c.worker, context.Cause(ctx))
	}
	select {
	case c.streams[s].turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("ps: worker %s: %w", c.worker, context.Cause(ctx))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		<-c.streams[s].turn
		return nil, fmt.Errorf("ps: worker %s: %w", c.worker, ErrClosed)
	}
	return c.mu.queues[s], nil
}

// end takes the controls that were delivered out of the queue and gives the turn away.
func (c *Client) end(s, sent int, reply Reply, err error) error {
	c.mu.Lock()
	if err == nil {
		q := c.mu.queues[s]
		n := copy(q, q[sent:])
		clear(q[n:])
		c.mu.queues[s] = q[:n]
		if reply.Cut != 0 { // shard 0 alone wants markers, so the last answer is the newest
			c.mu.wanted = reply.Cut
		}
	}
	c.mu.Unlock()
	<-c.streams[s].turn
	return err
}

// enqueue puts a control on all streams at once; state is for shard 0.
func (c *Client) enqueue(ctl Control) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.mu.queues {
		c.mu.queues[s] = append(c.mu.queues[s], ctl)
		ctl.State = nil
	}
}

// mark queues the marker of a cut that is wanted, and reports whether there was one.
func (c *Client) mark() bool {
	c.mu.Lock()
	cut, f := c.mu.wanted, c.mu.onMarker
	due := cut != c.mu.passed // numbers of cuts have no order: another coordinator may count from elsewhere
	c.mu.passed = cut
	c.mu.Unlock()
	if !due {
		return false
	}
	m := Control{Kind: Marker, Cut: cut}
	if f != nil {
		m.State = maps.Clone(f())
	}
	c.enqueue(m)
	return true
}

// enqueueOn puts a control on one stream.
func (c *Client) enqueueOn(s int, ctl Control) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.queues[s] = append(c.mu.queues[s], ctl)
}

// drain delivers all controls. Shard 0 gets a message in any case, to be notified of cuts.
func (c *Client) drain(ctx context.Context) error {
	return c.fan.each(ctx, len(c.streams), c.do.drain)
}

func (c *Client) drainOn(ctx context.Context, s int) error {
	ctl, err := c.begin(ctx, s)
	if err != nil {
		return err
	}
	var reply Reply
	if s == 0 || len(ctl) > 0 {
		reply, err = c.streams[s].conn.Control(ctx, ctl)
	}
	return c.end(s, len(ctl), reply, err)
}

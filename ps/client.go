package ps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/position"
)

// closeTimeout bounds how long [Client.Close] tries to commit what is decided. Nothing is lost when it passes: the next
// owner of a split, or the next snapshot, settles it.
const closeTimeout = time.Second

// Client is one worker's way to all shards. Lookup may be called from any goroutine, Dense and DenseState from one, while Push,
// Flush, Idle and Resume are called from another; Close from anywhere.
//
// A push is staged on every shard before Push returns. It is then decided, and its commit rides in front of the client's
// next message of any kind to each shard. All commits and markers travel in one order on every stream, so that a marker
// divides the client's updates in the same place everywhere.
//
// # What a read has seen
//
// A worker may read ahead of its pushes. Of its own updates a read has every one that was decided when the read began
// ([Client.Pushed]), and none that was decided after it ended. Of those of others it has as many as it says ([param.Rows].Seen):
// every answer of a shard carries how many updates of all and of this client were applied there, and [Client.Behind] compares a
// read with the newest answer. Where a shard did not apply an update of this client's, because it had that already, or begins
// to count again, Behind reports [Unknown]: read again then.
//
// # Precision
//
// In another precision than float32 the client rounds rows that were looked up without state, and a copy of the gradients of rows before it
// divides them among the shards ([param.Precision]), so that shards of this process and others, one or many, give the same bits.
type Client struct {
	place     Placement
	precision param.Precision
	worker    string
	hooks     *Hooks
	streams   []stream
	// Scratch of the two goroutines.
	parts   []rowsPart
	updates []updatePart
	rounded param.Update // its gradients, where they are rounded
	dense   denseCache
	partial bool
	fan     fan
	// What a call gives to its shards, and the functions that do it for one: made once, so that a call allocates nothing.
	looking sync.Mutex // held by a lookup, which goes before everything else
	rows    *param.Rows
	dst     []float32
	u       *param.Update
	epoch   uint64
	do      struct {
		lookup, dense, state, stage, drain func(ctx context.Context, s int) error
	}
	reading read // of DenseState

	mu struct {
		sync.Mutex
		queues   [][]Control // by shard
		splits   map[SplitID]uint64
		cuts     map[SplitID][]position.Position
		wanted   uint64 // newest cut whose marker shard 0 wants
		passed   uint64 // newest cut whose marker is queued or sent
		onMarker func() (map[string][]byte, error)
		closed   bool
		// applied is how far each split was applied when it was resumed.
		applied map[SplitID]Progress
		// pushed counts updates that are decided. more is closed, and replaced, whenever it grows and somebody waits.
		pushed uint64
		more   chan struct{}
		// others is, for each shard, how many updates of others it had applied at its newest answer, less [untold] for each
		// commit that was delivered and is not counted as applied. delivered counts commits.
		others, delivered []int64
	}
}

// read is where the dense tensors and their state go.
type read struct {
	weights, state []float32
	parts          [][]float32 // of the shards
	seen           []int64
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
	// Precision is the format in which rows and gradients travel. Streams to other processes must have been opened with it.
	Precision param.Precision
}

// NewClient makes a client over streams to all shards. Those of a coordinator.Cluster come from coordinator.Cluster.Client.
func NewClient(o ClientOptions) *Client {
	n := len(o.Conns)
	c := &Client{place: NewPlacement(o.Layout, n), precision: o.Precision, worker: o.Worker, hooks: o.Hooks, partial: o.Partial}
	c.do.lookup, c.do.dense, c.do.state, c.do.stage, c.do.drain = c.lookupPart, c.denseOn, c.denseStateOn, c.stageOn, c.drainOn
	c.dense.of = make([]uint64, n)
	for s, conn := range o.Conns {
		c.streams = append(c.streams, stream{conn, make(chan struct{}, 1)})
		c.parts = append(c.parts, newRowsPart(len(o.Layout.Tables)))
		c.updates = append(c.updates, newUpdatePart(len(o.Layout.Tables)))
		c.dense.parts = append(c.dense.parts, make([]float32, c.place.denseLen[s]))
	}
	c.mu.queues = make([][]Control, n)
	c.mu.splits, c.mu.cuts, c.mu.applied = map[SplitID]uint64{}, map[SplitID][]position.Position{}, map[SplitID]Progress{}
	c.mu.others, c.mu.delivered = make([]int64, n), make([]int64, n)
	return c
}

// Lookup fills the values of rows, their state where it is wanted, Seen, and Found where that is wanted. It creates no row: a fid without one gets its
// initial value. Without state the values are rounded to the client's precision. Errors: [ErrLayout], [ErrClosed], the context's.
func (c *Client) Lookup(ctx context.Context, rows *param.Rows) error {
	start := time.Now()
	err := c.lookup(ctx, rows)
	c.done("lookup", start, err)
	return err
}

func (c *Client) lookup(ctx context.Context, rows *param.Rows) error {
	if err := c.place.CheckRows(rows); err != nil {
		return err
	}
	c.looking.Lock()
	defer c.looking.Unlock()
	rows.Seen = c.told(rows.Seen)
	if rows.Found != nil {
		rows.Found = c.place.found(rows.Found)
	}
	var err error
	if len(c.streams) == 1 {
		err = c.lookupOn(ctx, 0, rows)
	} else {
		c.place.split(c.parts, rows)
		c.rows = rows
		err = c.fan.each(ctx, len(c.parts), c.do.lookup)
	}
	if err == nil && rows.State == nil && c.precision != param.Float32 {
		for _, v := range rows.Values {
			c.precision.RoundRows(v, v)
		}
	}
	return err
}

// lookupPart looks up the part of c.rows that lies on one shard.
func (c *Client) lookupPart(ctx context.Context, s int) error {
	part := &c.parts[s]
	if part.n == 0 {
		return nil
	}
	part.rows.Seen = c.rows.Seen
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
	return c.endRead(s, len(ctl), reply, err, rows.Seen)
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

// DenseState writes all dense tensors, [param.Layout.DenseLen] values, and the state of their optimizers,
// [param.Layout.DenseStateLen], and returns what they have seen, as [param.Rows].Seen, in the memory of seen. Errors: [ErrLayout], [ErrClosed], the
// context's.
func (c *Client) DenseState(ctx context.Context, weights, state []float32, seen []int64) ([]int64, error) {
	start := time.Now()
	r := &c.reading
	r.weights, r.state, r.seen = weights, state, c.told(seen)
	var err error
	if l := c.place.layout; len(weights) != l.DenseLen() || len(state) != l.DenseStateLen() {
		err = fmt.Errorf("ps: %d dense values of %d, with %d of state of %d: %w", len(weights), l.DenseLen(), len(state), l.DenseStateLen(), ErrLayout)
	} else {
		r.parts = slices.Grow(r.parts[:0], len(c.streams))[:len(c.streams)]
		err = c.fan.each(ctx, len(c.streams), c.do.state)
	}
	c.done("dense", start, err)
	seen, r.weights, r.state, r.seen = r.seen, nil, nil, nil
	return seen, err
}

// denseStateOn reads the tensors of one shard into c.reading.
func (c *Client) denseStateOn(ctx context.Context, s int) error {
	n := c.place.denseLen[s]
	if n == 0 {
		return nil
	}
	r := &c.reading
	r.parts[s] = sized(r.parts[s], n+c.place.stateLen[s])
	part := r.parts[s]
	ctl, err := c.begin(ctx, s)
	if err != nil {
		return err
	}
	_, reply, err := c.streams[s].conn.Dense(ctx, ctl, 0, part)
	if err := c.endRead(s, len(ctl), reply, err, r.seen); err != nil {
		return err
	}
	for _, t := range c.place.tensors[s] {
		part = part[copy(r.weights[t.from:t.to], part):]
	}
	for _, t := range c.place.states[s] {
		part = part[copy(r.state[t.from:t.to], part):]
	}
	return nil
}

// told writes what the shards have said last to seen: a read has seen at least that much, also of shards that it need not ask.
func (c *Client) told(seen []int64) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(seen[:0], c.mu.others...)
}

// untold makes numbers of others incomparable where a shard did not apply what this client thinks it has.
const untold = 1 << 40

// Unknown is what [Client.Behind] returns where numbers of two answers cannot be compared.
const Unknown = math.MaxInt64

// Behind returns how many updates of others have been applied since a read that has seen so many, as far as this client has
// been told: the most on any shard. Where a shard has begun to count again it is [Unknown].
func (c *Client) Behind(seen []int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	behind := int64(0)
	for s, n := range seen {
		d := c.mu.others[s] - n
		if d < 0 || d >= untold/2 {
			return Unknown
		}
		behind = max(behind, d)
	}
	return behind
}

// Pushed is how many updates of this client's are decided: what is read from now on has them.
func (c *Client) Pushed() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.pushed
}

// AwaitPushed waits until so many updates are decided. Errors: the context's.
func (c *Client) AwaitPushed(ctx context.Context, n uint64) error {
	for {
		c.mu.Lock()
		if c.mu.pushed >= n {
			c.mu.Unlock()
			return nil
		}
		if c.mu.more == nil {
			c.mu.more = make(chan struct{})
		}
		more := c.mu.more
		c.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return fmt.Errorf("ps: worker %s: waiting for its pushes: %w", c.worker, context.Cause(ctx))
		}
	}
}

// Applied is how far a split had been applied when it was resumed, or [position.None].
func (c *Client) Applied(source, split string) position.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p, ok := c.mu.applied[SplitID{Source: source, Split: split}]; ok {
		return p.Position
	}
	return position.None
}

// EachResumed calls f with how far each split had been applied when it was resumed, in no order. f must not call the client.
func (c *Client) EachResumed(f func(id SplitID, p Progress)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, p := range c.mu.applied {
		f(id, p)
	}
}

// Push stages an update on every shard and returns when all have it. From then on it is decided: it will be applied on
// all shards, by this client's next call or by the next owner of the split. Pushing an update again after an error is
// safe. u may be changed afterwards; with Exchange it has been. Errors: [ErrFenced], [ErrGap], [ErrOverlap], [ErrFull], [ErrLayout], [ErrClosed], the
// context's.
func (c *Client) Push(ctx context.Context, u *param.Update) error {
	start := time.Now()
	err := c.push(ctx, u)
	c.done("push", start, err)
	if err == nil && u.NumRows > 0 && len(u.Seen) == len(c.streams) {
		if n := c.Behind(u.Seen); n != Unknown {
			c.hooks.Staleness(n)
		}
	}
	return err
}

func (c *Client) push(ctx context.Context, u *param.Update) error {
	total := 0
	for _, n := range c.place.pushLen {
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
	if _, err := c.mark(); err != nil {
		return err
	}
	given := u
	if c.precision != param.Float32 && u.Op == param.Train {
		u = c.round(u)
	}
	if len(c.streams) > 1 {
		c.place.splitUpdate(c.updates, u)
	}
	c.u, c.epoch = u, epoch
	err := c.fan.each(ctx, len(c.streams), c.do.stage)
	given.Dense = u.Dense // a shard may have exchanged it
	if err != nil {
		if errors.Is(err, ErrFenced) {
			c.mu.Lock()
			delete(c.mu.splits, id)
			c.mu.Unlock()
		}
		return err
	}
	// Invariant 2: every shard has it, so it may be committed, and only now.
	c.enqueue(Control{Kind: Commit, Split: id, Epoch: epoch, To: u.To})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.pushed++; c.mu.more != nil {
		close(c.mu.more)
		c.mu.more = nil
	}
	return nil
}

// round returns the update with rounded gradients of rows.
func (c *Client) round(u *param.Update) *param.Update {
	r := &c.rounded
	grads := slices.Grow(r.Grads[:0], len(u.Grads))[:len(u.Grads)]
	for t, g := range u.Grads {
		grads[t] = sized(grads[t], len(g))
		c.precision.RoundGradients(grads[t], g)
	}
	*r = *u
	r.Grads = grads
	return r
}

// stageOn stages one shard's part of c.u.
func (c *Client) stageOn(ctx context.Context, s int) error {
	u := c.u
	if len(c.streams) > 1 {
		c.place.fill(&c.updates[s], s, u)
		u = &c.updates[s].update
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
	_, err := c.mark()
	if err == nil {
		err = c.drain(ctx)
	}
	c.done("flush", start, err)
	return err
}

// Idle does what is to be done while no input arrives: it commits what is decided and passes a snapshot's marker. Workers
// call it some times a second when they have nothing to push. Errors: [ErrClosed], the context's.
func (c *Client) Idle(ctx context.Context) error {
	start := time.Now()
	err := c.drain(ctx)
	if err == nil {
		var passed bool
		if passed, err = c.mark(); passed {
			err = c.drain(ctx)
		}
	}
	c.done("idle", start, err)
	return err
}

// OnMarker sets what is called when the client passes the marker of a cut: it returns worker state to be stored in the
// cut, blobs by key; nil removes one. It runs inside of Push, Flush or Idle, before what they do, so it sees the worker
// between two pushes. Its error is theirs, and the marker is not passed: a cut waits until f succeeds or the client has gone.
// Close calls f too, because a client that leaves cleanly passes every marker; when f fails there the client leaves as one that
// was lost.
func (c *Client) OnMarker(f func() (map[string][]byte, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.onMarker = f
}

// Close commits what is decided, as far as that takes no long wait, and ends the streams. Later calls return [ErrClosed].
// It may be called more than once. A shard that does not hear of it in time, because it is away or slow, is no error: it finds the stream broken, and
// what it has staged is settled by the next owner of the split, or the next snapshot.
func (c *Client) Close() error {
	c.mu.Lock()
	closed, f := c.mu.closed, c.mu.onMarker
	c.mu.Unlock()
	if closed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	clean := c.drain(ctx) == nil
	if clean && f != nil {
		_, err := f()
		clean = err == nil
	}
	c.mu.Lock()
	closed, c.mu.closed = c.mu.closed, true
	c.mu.Unlock()
	if closed {
		return nil
	}
	// Shard 0 first: a cut waits everywhere for the sessions that shard 0 knows when it begins. One that has left another shard
	// before would be waited for there for ever, and so would everybody who has passed the marker.
	errs := make([]error, len(c.streams))
	end := func(s int) {
		if err := c.streams[s].conn.Close(ctx, clean); !errors.Is(err, ErrUnreachable) {
			errs[s] = err
		}
	}
	end(0)
	_ = c.fan.each(ctx, len(errs)-1, func(_ context.Context, s int) error {
		end(s + 1)
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
	return c.endRead(s, sent, reply, err, nil)
}

// endRead is end of a call that reads, and enters what it has seen.
func (c *Client) endRead(s, sent int, reply Reply, err error, seen []int64) error {
	c.mu.Lock()
	if err == nil {
		q := c.mu.queues[s]
		for i := range q[:sent] {
			if q[i].Kind == Commit {
				c.mu.delivered[s]++
			}
		}
		c.mu.others[s] = int64(reply.Commits-reply.Own) - untold*(c.mu.delivered[s]-int64(reply.Own))
		if seen != nil {
			seen[s] = c.mu.others[s]
		}
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

// mark queues the marker of a cut that is wanted, and reports whether there was one. Errors: those of OnMarker's function.
func (c *Client) mark() (passed bool, err error) {
	c.mu.Lock()
	cut, f := c.mu.wanted, c.mu.onMarker
	due := cut != c.mu.passed // numbers of cuts have no order: another coordinator may count from elsewhere
	c.mu.Unlock()
	if !due {
		return false, nil
	}
	m := Control{Kind: Marker, Cut: cut}
	if f != nil {
		state, err := f()
		if err != nil {
			return false, fmt.Errorf("ps: worker %s at a snapshot's marker: %w", c.worker, err)
		}
		m.State = maps.Clone(state)
	}
	c.mu.Lock()
	c.mu.passed = cut
	c.mu.Unlock()
	c.enqueue(m)
	return true, nil
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

package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// ConnOptions configure a [Conn]. The zero value works.
type ConnOptions struct {
	// CallTimeout is how long nothing may arrive while a call is under way before its stream is closed and the call is
	// sent again; default 10 s. A server that is still busy with a call says so every second or more often.
	CallTimeout time.Duration
	// RetryFor is how long a call tries to reach its shard from the first failure on before it returns [ErrUnreachable];
	// default 30 s, negative: it does not try again. Longer survives longer restarts, shorter fails sooner.
	RetryFor time.Duration
	// MinBackoff and MaxBackoff bound the waits between attempts, which double and are drawn at random from zero up to the
	// bound; default 20 ms and 2 s.
	MinBackoff, MaxBackoff time.Duration
	// MaxMessage is the largest request or reply, bytes; default 256 MiB. The server's own limit counts too.
	MaxMessage int
	// Other, if not nil, is a connection to the other process of the shard: when the one does not answer, or is not in charge, the
	// other is tried. CallTimeout is 1 s by default then, and MaxBackoff 200 ms, so that a take-over is found soon.
	Other *Client
	// From names the process that gave the shard's address, such as "shard 0 at a:1", for errors; empty: the user gave it.
	From string
	// OnReconnect, if not nil, is called when a new stream is in for one that broke of cause.
	OnReconnect func(shard int, cause error)
	// Logger gets streams that broke and were begun again; nil discards.
	Logger *slog.Logger
}

func (o ConnOptions) withDefaults() ConnOptions {
	if o.Other != nil {
		o.CallTimeout, o.MaxBackoff = cmp.Or(o.CallTimeout, time.Second), cmp.Or(o.MaxBackoff, 200*time.Millisecond)
	}
	if o.CallTimeout <= 0 {
		o.CallTimeout = 10 * time.Second
	}
	if o.RetryFor == 0 {
		o.RetryFor = 30 * time.Second
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = 20 * time.Millisecond
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = 2 * time.Second
	}
	o.MaxBackoff = max(o.MaxBackoff, o.MinBackoff)
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMaxMessage
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

const (
	// closeFor bounds how long [Conn.Close] waits for a call under way, and then how long it tries to say goodbye.
	closeFor = 2 * time.Second
	// goodbyeFor is how long it tries at least.
	goodbyeFor = 200 * time.Millisecond
)

// Conn is a [ps.Conn] whose shard is in another process. Calls are made one at a time; those that overlap wait for each
// other, and Close may be called from anywhere. A call whose stream breaks is sent again in a new one until it is answered,
// which is safe because repeating a call is. It runs no goroutine of its own.
type Conn struct {
	cc    *Client
	hello hello
	opts  ConnOptions
	watch *watch

	// closing is closed when Close cannot wait for the call under way any longer.
	closing   chan struct{}
	closeOnce sync.Once

	run  context.Context // ends when the Conn is closed
	stop context.CancelCauseFunc
	turn chan struct{} // held by the goroutine that makes a call; it guards everything below

	silence *silence
	logged  atomic.Bool // that it waits

	stream  *stream // nil: there is none
	broke   error   // what the last stream ended with
	lost    bool    // the shard could not be reached for as long as was allowed
	seq     uint64
	attempt uint64
	limit   uint64 // of the server
	// incarnation is that of the shard's process which has all of commits.
	incarnation uint64
	// commits holds the last commit of each split that the shard has acknowledged.
	commits map[ps.SplitID]ps.Control
	replay  []ps.Control
	request call
	again   call
}

var _ ps.Conn = (*Conn)(nil)

// Dial begins a session with a shard over cc, which stays the caller's. It tries as
// long as a call would. Errors: [ErrUnreachable], [ErrVersion], [ErrNotAdmitted], [ErrProtocol], the host's, the context's.
func Dial(ctx context.Context, cc *Client, h Hello, o ConnOptions) (*Conn, error) {
	o = o.withDefaults()
	h.Version, h.Resumed = ProtocolVersion, false
	c := &Conn{
		cc: cc, hello: hello{h, o.CallTimeout / 4}, opts: o, silence: &cc.silence,
		turn: make(chan struct{}, 1), closing: make(chan struct{}), commits: map[ps.SplitID]ps.Control{}, limit: uint64(o.MaxMessage),
	}
	c.watch = newWatch(o.CallTimeout, c.silent)
	// The session continues when the context of Dial ends.
	c.run, c.stop = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := c.persist(ctx, nil, o.RetryFor); err != nil {
		c.stop(err)
		c.watch.close()
		return nil, err
	}
	return c, nil
}

// Lookup implements [ps.Conn].
func (c *Conn) Lookup(ctx context.Context, ctl []ps.Control, rows *param.Rows) (ps.Reply, error) {
	if err := c.acquire(ctx); err != nil {
		return ps.Reply{}, err
	}
	defer c.release()
	c.request = call{kind: kindLookup, ctl: ctl, precision: c.hello.Precision, rows: rows}
	err := c.do(ctx)
	return c.request.reply, err
}

// Dense implements [ps.Conn].
func (c *Conn) Dense(ctx context.Context, ctl []ps.Control, have uint64, dst []float32) (uint64, ps.Reply, error) {
	if err := c.acquire(ctx); err != nil {
		return 0, ps.Reply{}, err
	}
	defer c.release()
	c.request = call{kind: kindDense, ctl: ctl, have: have, dst: dst}
	err := c.do(ctx)
	return c.request.version, c.request.reply, err
}

// Stage implements [ps.Conn].
func (c *Conn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if err := c.acquire(ctx); err != nil {
		return ps.Reply{}, err
	}
	defer c.release()
	c.request = call{kind: kindStage, ctl: ctl, precision: c.hello.Precision, epoch: epoch, update: u}
	err := c.do(ctx)
	return c.request.reply, err
}

// Control implements [ps.Conn].
func (c *Conn) Control(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	if err := c.acquire(ctx); err != nil {
		return ps.Reply{}, err
	}
	defer c.release()
	c.request = call{kind: kindControl, ctl: ctl}
	err := c.do(ctx)
	return c.request.reply, err
}

// Acquire implements [ps.Conn]. An answer that was lost makes it fail with a [*ps.EpochError] although the split is this
// client's; it takes over again under a higher epoch.
func (c *Conn) Acquire(ctx context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	if err := c.acquire(ctx); err != nil {
		return ps.SplitState{}, ps.Reply{}, err
	}
	defer c.release()
	c.request = call{kind: kindAcquire, id: id, epoch: epoch}
	err := c.do(ctx)
	return c.request.state, c.request.reply, err
}

// Close implements [ps.Conn]. It tries for no more than some seconds to reach the shard, which otherwise finds the stream
// broken. Later calls return [ps.ErrClosed]; it may be called more than once.
func (c *Conn) Close(ctx context.Context, clean bool) error {
	select {
	case <-c.run.Done():
		return nil
	default:
	}
	wait := time.NewTimer(closeFor)
	defer wait.Stop()
	select {
	case c.turn <- struct{}{}:
	case <-wait.C:
		c.interrupt()
	case <-ctx.Done():
		c.interrupt()
	}
	defer c.release()
	if c.run.Err() != nil {
		return nil
	}
	// A context that has ended leaves time for a goodbye to a shard that answers.
	left := closeFor
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, max(time.Until(deadline), goodbyeFor))
	} else if ctx.Err() != nil {
		left = goodbyeFor
	}
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), left, errUnheard)
	defer cancel()
	c.request = call{kind: kindClose, clean: clean}
	var err error
	if clean || !c.lost { // else the caller knows already, and a goodbye would only repeat it
		err = c.persist(ctx, &c.request, min(c.opts.RetryFor, left/2)) // the other half is for the last attempt
	}
	c.stop(ps.ErrClosed)
	c.drop(ps.ErrClosed)
	c.watch.close()
	return err
}

// silent notes that a call has heard nothing of the shard since a time. err is why its last attempt failed; nil: the first one waits still.
func (c *Conn) silent(since time.Time, err error) {
	c.logged.Store(true)
	if err == nil {
		err = errSilent
	}
	err, _ = Learnt(err, c.who(), c.opts.From)
	c.silence.waits(c, since, err)
}

// waitsNoMore notes how the call that was begun has ended.
func (c *Conn) waitsNoMore(err error) {
	if c.logged.Swap(false) {
		_, refused := errors.AsType[*remoteError](err)
		c.silence.left(c, err == nil || refused)
	}
}

// interrupt ends the call under way, and takes its turn.
func (c *Conn) interrupt() {
	c.closeOnce.Do(func() { close(c.closing) })
	c.watch.abort(ps.ErrClosed)
	c.turn <- struct{}{}
}

func (c *Conn) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// acquire waits for the right to make a call.
func (c *Conn) acquire(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	default:
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return c.named(context.Cause(ctx))
		}
	}
	err := error(nil)
	switch {
	case c.run.Err() != nil:
		err = ps.ErrClosed
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	if err != nil {
		<-c.turn
		return c.named(err)
	}
	return nil
}

func (c *Conn) release() {
	c.request = call{}
	<-c.turn
}

func (c *Conn) named(err error) error {
	return fmt.Errorf("wire: worker %s, shard %d at %s: %w", c.hello.Worker, c.hello.Shard, c.addr(), err)
}

// who names the shard as messages do.
func (c *Conn) who() string { return fmt.Sprintf("shard %d at %s", c.hello.Shard, c.addr()) }

// addr is the shard's address as the user wrote it.
func (c *Conn) addr() string { return strings.TrimPrefix(c.cc.Target(), "passthrough:///") }

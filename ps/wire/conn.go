package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// ConnOptions configure a [Conn]. The zero value works.
type ConnOptions struct {
	// CallTimeout is how long nothing may arrive while a call is under way before its stream is given up and the call is
	// sent again; default 10 s. A server that is still busy with a call says so every second or more often.
	CallTimeout time.Duration
	// RetryFor is how long a call tries to reach its shard from the first failure on before it returns [ErrUnreachable];
	// default 30 s, negative: it does not try again. Longer survives longer restarts, shorter tells sooner.
	RetryFor time.Duration
	// MinBackoff and MaxBackoff bound the waits between attempts, which double and are drawn at random from zero up to the
	// bound; default 20 ms and 2 s.
	MinBackoff, MaxBackoff time.Duration
	// MaxMessage is the largest request or reply, bytes; default 256 MiB. The server's own limit counts too.
	MaxMessage int
	// OnReconnect, if not nil, is called when a new stream stands in for one that broke of cause.
	OnReconnect func(shard int, cause error)
	// Logger gets streams that broke and were begun again; nil discards.
	Logger *slog.Logger
}

func (o ConnOptions) withDefaults() ConnOptions {
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

// closeFor bounds how long [Conn.Close] waits for a call under way, and then how long it tries to say goodbye.
const closeFor = 2 * time.Second

// Conn is a [ps.Conn] whose shard is in another process. Calls are made one at a time; those that overlap wait for each
// other, and Close may be called from anywhere. A call whose stream breaks is sent again in a new one until it is answered,
// which is safe because repeating a call is. It runs no goroutine of its own.
type Conn struct {
	cc    *grpc.ClientConn
	hello hello
	opts  ConnOptions
	codec rawCodec
	pool  chunkPool
	watch *watch

	run  context.Context // ends when the Conn is closed
	stop context.CancelCauseFunc
	turn chan struct{} // held by whoever makes a call; everything below belongs to him

	stream  *stream // nil: there is none
	broke   error   // what the last stream ended with
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

// stream is one gRPC stream.
type stream struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	grpc   grpc.ClientStream
	enc    encoder
	dec    decoder
}

// Dial begins a session with a shard over cc, which should be made with [DialOptions] and stays the caller's. It tries as
// long as a call would. Errors: [ErrUnreachable], [ErrVersion], [ErrNotAdmitted], [ErrProtocol], the host's, the context's.
func Dial(ctx context.Context, cc *grpc.ClientConn, h Hello, o ConnOptions) (*Conn, error) {
	o = o.withDefaults()
	h.Version, h.Resumed = ProtocolVersion, false
	c := &Conn{
		cc: cc, hello: hello{h, o.CallTimeout / 4}, opts: o, codec: newCodec(), watch: newWatch(o.CallTimeout),
		turn: make(chan struct{}, 1), commits: map[ps.SplitID]ps.Control{}, limit: uint64(o.MaxMessage),
	}
	// The session goes on when the context of Dial ends.
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
	c.request = call{kind: kindLookup, ctl: ctl, rows: rows}
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
	c.request = call{kind: kindStage, ctl: ctl, epoch: epoch, update: u}
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

// Close implements [ps.Conn]. It tries for no more than some seconds to tell the shard, which otherwise finds the stream
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
		c.watch.abort(ps.ErrClosed)
		c.turn <- struct{}{}
	case <-ctx.Done():
		c.watch.abort(ps.ErrClosed)
		c.turn <- struct{}{}
	}
	defer c.release()
	if c.run.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, closeFor, errSilent)
	defer cancel()
	c.request = call{kind: kindClose, clean: clean}
	err := c.persist(ctx, &c.request, min(c.opts.RetryFor, closeFor))
	c.stop(ps.ErrClosed)
	c.drop(ps.ErrClosed)
	c.watch.close()
	return err
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
	return fmt.Errorf("wire: worker %s, shard %d at %s: %w", c.hello.Worker, c.hello.Shard, c.cc.Target(), err)
}

// do makes the call in c.request.
func (c *Conn) do(ctx context.Context) error {
	r := &c.request
	if err := c.persist(ctx, r, c.opts.RetryFor); err != nil {
		r.reply, r.version, r.state = ps.Reply{}, 0, ps.SplitState{}
		return err
	}
	for i := range r.ctl {
		if r.ctl[i].Kind == ps.Commit {
			c.commits[r.ctl[i].Split] = r.ctl[i]
		}
	}
	return nil
}

// persist makes a call, in as many streams as it takes; without one it only sees to it that there is a stream.
func (c *Conn) persist(ctx context.Context, r *call, budget time.Duration) error {
	b := waits{bound: c.opts.MinBackoff, limit: c.opts.MaxBackoff, budget: budget}
	c.seq++
	for {
		err := c.try(ctx, r)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return c.named(context.Cause(ctx))
		}
		err, again := verdict(err)
		if errors.Is(err, ps.ErrClosed) || !again {
			if remote, ok := errors.AsType[*remoteError](err); ok {
				return remote
			}
			return c.named(err)
		}
		c.broke = err
		c.opts.Logger.Debug("stream is broken", "shard", c.hello.Shard, "attempt", b.tries, "err", err)
		if !b.wait(ctx, c.run.Done()) {
			return fmt.Errorf("wire: shard %d at %s did not answer worker %s for %v (%d attempts); is it running? (monolith ps): %w: %w",
				c.hello.Shard, c.cc.Target(), c.hello.Worker, time.Since(b.since).Round(time.Millisecond), b.tries, ErrUnreachable, err)
		}
		if ctx.Err() != nil {
			return c.named(context.Cause(ctx))
		}
		// The channel has a backoff of its own, which would answer for us with what it has seen before.
		c.cc.ResetConnectBackoff()
	}
}

// try makes a call in the stream that there is, or in a new one.
func (c *Conn) try(ctx context.Context, r *call) error {
	fresh := c.stream == nil
	if fresh {
		s := &stream{}
		s.ctx, s.cancel = context.WithCancelCause(c.run)
		c.stream = s
	}
	c.watch.begin(ctx, c.stream.cancel)
	defer c.watch.end()
	if fresh {
		if err := c.connect(); err != nil {
			return c.failed(err)
		}
	}
	if r == nil {
		return nil
	}
	err := c.exchange(r, c.seq)
	if err == nil {
		return nil
	}
	if remote, ok := errors.AsType[*remoteError](err); ok {
		return remote // the stream is as good as before
	}
	if local, ok := errors.AsType[*localError](err); ok {
		return local.err
	}
	return c.failed(err)
}

// failed drops the stream and returns why it ended.
func (c *Conn) failed(err error) error {
	if _, ok := errors.AsType[*remoteError](err); !ok {
		if cause := context.Cause(c.stream.ctx); cause != nil {
			err = cause // ours: the context's, or the watch's
		}
	}
	c.drop(err)
	return err
}

// drop ends the stream.
func (c *Conn) drop(cause error) {
	if c.stream == nil {
		return
	}
	c.stream.cancel(cause)
	if c.stream.grpc != nil {
		c.stream.dec.free()
	}
	c.stream = nil
}

// connect begins a stream, says hello, and repeats commits to a shard that may have lost them.
func (c *Conn) connect() error {
	s := c.stream
	gs, err := c.cc.NewStream(s.ctx, &grpc.StreamDesc{StreamName: "Session", ServerStreams: true, ClientStreams: true}, methodName,
		grpc.ForceCodecV2(c.codec), grpc.MaxCallRecvMsgSize(maxGRPCMessage), grpc.MaxCallSendMsgSize(maxGRPCMessage))
	if err != nil {
		return err
	}
	s.grpc, s.enc, s.dec = gs, newEncoder(gs, &c.pool), newDecoder(gs)
	s.enc.sent, s.dec.arrived = c.watch.touch, c.watch.touch
	c.attempt++
	h, err := c.hello.header(c.attempt)
	if err != nil {
		return err
	}
	s.enc.begin(h)
	c.hello.put(&s.enc)
	if err := s.enc.end(); err != nil {
		return s.cause(err)
	}
	reply, err := s.dec.next(maxHello, "of a welcome")
	if err != nil {
		return err
	}
	if reply.kind == kindError {
		return s.refused()
	}
	if reply.kind != kindWelcome || reply.seq != c.attempt {
		return violation("%s %d where welcome %d is due", reply.kind, reply.seq, c.attempt)
	}
	var w Welcome
	if err := w.read(&s.dec); err != nil {
		return err
	}
	c.limit = uint64(w.MaxMessage)
	if c.hello.Resumed && w.Incarnation != c.incarnation {
		if err := c.repeat(); err != nil {
			return err
		}
	}
	c.incarnation = w.Incarnation
	if c.hello.Resumed {
		c.opts.Logger.Info("stream goes on", "shard", c.hello.Shard, "worker", c.hello.Worker, "incarnation", w.Incarnation, "cause", c.broke)
		if c.opts.OnReconnect != nil {
			c.opts.OnReconnect(c.hello.Shard, c.broke)
		}
	}
	c.hello.Resumed = true
	return nil
}

// repeat sends the last commit of each split again.
func (c *Conn) repeat() error {
	c.replay = c.replay[:0]
	for _, ctl := range c.commits {
		c.replay = append(c.replay, ctl)
	}
	if len(c.replay) == 0 {
		return nil
	}
	c.again = call{kind: kindControl, ctl: c.replay}
	if err := c.exchange(&c.again, c.seq); err != nil {
		if remote, ok := errors.AsType[*remoteError](err); ok {
			// The shard was welcomed, but not brought to where it was: the next call must begin with that.
			return fmt.Errorf("wire: repeating commits to shard %d, which was started again: %w", c.hello.Shard, remote)
		}
		return err
	}
	return nil
}

// localError is a fault of a request of which nothing was sent.
type localError struct{ err error }

// Error returns the fault's text.
func (e *localError) Error() string { return e.err.Error() }

// exchange sends a request and reads its reply.
func (c *Conn) exchange(r *call, seq uint64) error {
	s := c.stream
	h, err := r.header(seq)
	if err != nil {
		return &localError{err}
	}
	for _, x := range [...]struct {
		what string
		size uint64
	}{{"request", h.size()}, {"reply", r.replySize()}} {
		if limit := uint64(c.opts.MaxMessage); x.size > limit {
			return &localError{tooLarge(r.kind.String()+" "+x.what, x.size, limit, "MaxMessage of the client")}
		}
		if x.size > c.limit {
			return &localError{tooLarge(r.kind.String()+" "+x.what, x.size, c.limit, "MaxMessage of the server")}
		}
	}
	s.enc.begin(h)
	r.put(&s.enc)
	if err := s.enc.end(); err != nil {
		return s.cause(err)
	}
	for {
		h, err := s.dec.next(uint64(c.opts.MaxMessage), "MaxMessage of the client")
		switch {
		case err != nil:
			return err
		case h.seq != seq:
			return violation("%s for call %d while %d is under way", h.kind, h.seq, seq)
		case h.kind == kindReply:
			return r.readReply(&s.dec)
		case h.kind == kindError:
			return s.refused()
		case h.kind != kindAlive || s.dec.end() != nil:
			return violation("%s where a reply is due", h.kind)
		}
	}
}

// refused reads the error that a call was answered with.
func (s *stream) refused() error {
	remote, err := readError(&s.dec)
	if err != nil {
		return err
	}
	return remote
}

// cause is what the stream ended with, of which sending only says that it did.
func (s *stream) cause(err error) error {
	if !errors.Is(err, io.EOF) {
		return err
	}
	for {
		// An answer that was under way says more than the status: the server refuses a hello with one.
		h, err := s.dec.next(maxHello, "of an error")
		if err != nil {
			return err
		}
		if h.kind == kindError {
			return s.refused()
		}
		if s.dec.end() != nil {
			return errStreamOver
		}
	}
}

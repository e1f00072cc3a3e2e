package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/monolith-go/monolith/ps"
)

// stream is one gRPC stream with its line.
type stream struct {
	who    string // the shard, and the address of the process that the stream goes to
	ctx    context.Context
	cancel context.CancelCauseFunc
	grpc   grpc.ClientStream
	line   net.Conn // nil until it is opened
	enc    encoder
	dec    decoder
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

// persist makes a call, in as many streams as it takes; without one it only ensures that there is a stream.
func (c *Conn) persist(ctx context.Context, r *call, budget time.Duration) (err error) {
	c.watch.called()
	defer func() { c.waitsNoMore(err) }()
	b := waits{bound: c.opts.MinBackoff, limit: c.opts.MaxBackoff, budget: budget}
	c.seq++
	stop := c.closing
	if r != nil && r.kind == kindClose {
		stop = nil // the goodbye itself
	}
	for {
		err := c.try(ctx, r)
		if err == nil {
			c.lost = false
			return nil
		}
		if ctx.Err() != nil {
			return c.named(context.Cause(ctx))
		}
		err, again := verdict(err)
		if errors.Is(err, ps.ErrClosed) || !again {
			if _, ok := errors.AsType[*remoteError](err); ok {
				return err // its text says which shard and where: see refused
			}
			return c.named(err)
		}
		c.broke = err
		c.watch.failed(err)
		who := c.who()
		c.opts.Logger.Debug("stream is broken", "shard", c.hello.Shard, "addr", c.addr(), "attempt", b.tries, "err", err)
		if c.opts.Other != nil {
			c.drop(err)
			c.cc, c.opts.Other = c.opts.Other, c.cc
		}
		if !b.wait(ctx, stop) {
			c.lost = true
			err, _ = Learnt(err, who, c.opts.From)
			return fmt.Errorf("wire: %s does not answer worker %s: %w: %w; tried for %v (ps.retry, %d attempts); is it running (monolith ps JOB.yaml --shard %d)?",
				who, c.hello.Worker, err, ErrUnreachable, time.Since(b.since).Round(time.Millisecond), b.tries, c.hello.Shard)
		}
		if ctx.Err() != nil {
			return c.named(context.Cause(ctx))
		}
	}
}

// try makes a call in the stream that there is, or in a new one.
func (c *Conn) try(ctx context.Context, r *call) error {
	fresh := c.stream == nil
	if fresh {
		s := &stream{who: c.who()}
		s.ctx, s.cancel = context.WithCancelCause(c.run)
		c.stream = s
	}
	c.watch.begin(ctx, c.stream.cancel)
	defer c.watch.end()
	// After the watch has begun: either Close finds the call there, or the call finds Close here.
	if (r == nil || r.kind != kindClose) && c.isClosing() {
		if fresh {
			c.drop(ps.ErrClosed)
		}
		return ps.ErrClosed
	}
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
		if c.stream.line != nil && c.stream.ctx.Err() == nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrTooLarge) {
			err = c.stream.reason(err)
		}
		if cause := context.Cause(c.stream.ctx); cause != nil {
			err = cause // ours: the context's, or the watch's
		}
	}
	c.drop(err)
	return err
}

// reason is what the stream ended with, once its line broke of err: a server closes the line first, and then says why. Who has only lost the line
// says nothing.
func (s *stream) reason(err error) error {
	t := time.AfterFunc(reasonFor, func() {
		s.cancel(&transportError{text: "the connection for its frames broke (" + err.Error() + ")", err: err})
	})
	defer t.Stop()
	var m wrapperspb.BytesValue
	if err := s.grpc.RecvMsg(&m); err != nil {
		return err
	}
	return violation("message where the stream's end is due")
}

// drop ends the stream.
func (c *Conn) drop(cause error) {
	if c.stream == nil {
		return
	}
	c.stream.cancel(cause)
	if c.stream.line != nil {
		_ = c.stream.line.Close() // cancel does so too, in a while
	}
	c.stream = nil
}

// connect begins a stream, says hello, and repeats commits to a shard that may have lost them.
func (c *Conn) connect() error {
	s := c.stream
	gs, err := c.cc.NewStream(s.ctx, &grpc.StreamDesc{StreamName: "Session", ServerStreams: true, ClientStreams: true}, methodName)
	if err != nil {
		return err
	}
	first := &letters{stream: gs}
	s.grpc, s.enc, s.dec = gs, newEncoder(first), newDecoder(first)
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
	var w welcome
	if err := w.read(&s.dec); err != nil {
		return err
	}
	if err := c.open(w.ticket); err != nil {
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
		c.opts.Logger.Warn("stream begun again", "shard", c.hello.Shard, "addr", c.addr(), "worker", c.hello.Worker, "incarnation", w.Incarnation, "err", c.broke)
		if c.opts.OnReconnect != nil {
			c.opts.OnReconnect(c.hello.Shard, c.broke)
		}
	}
	c.hello.Resumed = true
	return nil
}

// open opens the line of the stream.
func (c *Conn) open(t ticket) error {
	s := c.stream
	c.watch.touch()
	conn, err := c.cc.line(s.ctx, s.grpc, t)
	if err != nil {
		return err
	}
	s.line = conn
	context.AfterFunc(s.ctx, func() { _ = conn.Close() }) // what was under way fails
	l := newLine(conn, c.watch.touch)
	s.enc, s.dec = newEncoder(l), newDecoder(l)
	c.watch.touch()
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
		return err
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
	remote.text = PlacedOrNamed(remote.text, s.who)
	return remote
}

// cause is what the stream ended with, of which sending a hello only says that it did.
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

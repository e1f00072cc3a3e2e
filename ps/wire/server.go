package wire

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/ps"
)

const (
	serviceName = "monolith.ps.v1.Stream"
	methodName  = "/" + serviceName + "/Session"

	defaultMaxMessage = 256 << 20
	defaultAlive      = time.Second
	minAlive          = time.Millisecond
)

// Host is what a server serves: the shards of a process.
type Host interface {
	// Open begins a stream, or continues a session whose stream broke (Hello.Resumed). The server calls Close(ctx, clean) of
	// the Conn once: clean as the client asked, or false when the stream broke; see [Breaker]. Streams of one session never
	// overlap: the one before is closed when Open is called. An error is sent to the client, which stops, unless it is
	// [ps.ErrNotReady].
	Open(ctx context.Context, h Hello) (ps.Conn, Welcome, error)
}

// Breaker is a Conn of a [Host] that wants to know a stream that broke, and may be continued, from a client that left.
type Breaker interface {
	// Break is called in place of Close(ctx, false) when a stream ended without a goodbye. cause wraps [ErrBroken].
	Break(cause error)
}

// HostOptions configure [RegisterServer]. The zero value works.
type HostOptions struct {
	// MaxMessage is the largest request or reply, bytes; default 256 MiB. What announces more is refused.
	MaxMessage int
	// Alive is the time between two heartbeat while a call is being handled; default 1 s. A client that is less patient
	// gets them more often.
	Alive time.Duration
	// Logger gets streams that begin and end, at debug, and those that break the protocol; nil discards.
	Logger *slog.Logger
}

func (o HostOptions) withDefaults() HostOptions {
	if o.MaxMessage <= 0 {
		o.MaxMessage = defaultMaxMessage
	}
	if o.Alive <= 0 {
		o.Alive = defaultAlive
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// sessionServer is the type that gRPC wants of the service.
type sessionServer interface {
	session(st grpc.ServerStream) error
}

// RegisterServer lets a server serve a host; other services may be registered beside. Calls of one stream are handled one after another by the
// goroutine that gRPC gives it; streams overlap.
func RegisterServer(s *Server, h Host, o HostOptions) {
	srv := &server{host: h, opts: o.withDefaults(), lines: s.lines, streams: map[streamKey]*served{}}
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: serviceName,
		HandlerType: (*sessionServer)(nil),
		Streams: []grpc.StreamDesc{{
			StreamName: "Session", ServerStreams: true, ClientStreams: true,
			Handler: func(srv any, st grpc.ServerStream) error {
				x, ok := srv.(sessionServer)
				if !ok {
					return status.Error(codes.Internal, "wire: not a server of streams")
				}
				return x.session(st)
			},
		}},
	}, srv)
}

// server is a host behind frames.
type server struct {
	host  Host
	opts  HostOptions
	lines *lines

	mu      sync.Mutex
	streams map[streamKey]*served
}

type streamKey struct {
	job, worker string
	session     uint64
	shard       int
}

// served is a stream's hold on its session. turn is held while a call is handled, so that the client that continues the session in
// another stream can wait for that. A call may take long, which is why it is no mutex.
type served struct {
	attempt uint64
	cancel  context.CancelCauseFunc

	turn chan struct{}
	conn ps.Conn // this and over belong to who has the turn
	over bool
}

func (x *served) lock()   { x.turn <- struct{}{} }
func (x *served) unlock() { <-x.turn }

// finish closes the conn, once. It needs the lock.
func (x *served) finish(ctx context.Context, answered, clean bool, cause error) error {
	if x.over {
		return nil
	}
	x.over = true
	if x.conn == nil {
		return nil
	}
	if b, ok := x.conn.(Breaker); ok && !answered {
		b.Break(errors.Join(ErrBroken, cause))
		return nil
	}
	return x.conn.Close(context.WithoutCancel(ctx), clean)
}

// enter makes x the stream of its session, once the one before has ended. A client begins one stream after another, so one
// that was begun earlier is left over. x is locked.
func (s *server) enter(ctx context.Context, key streamKey, x *served) error {
	s.mu.Lock()
	old := s.streams[key]
	if old != nil && old.attempt >= x.attempt {
		s.mu.Unlock()
		return status.Errorf(codes.Aborted, "wire: %v", errContinued)
	}
	s.streams[key] = x
	s.mu.Unlock()
	if old == nil {
		return nil
	}
	old.cancel(errContinued)
	old.lock()
	defer old.unlock()
	if err := old.finish(ctx, false, false, errContinued); err != nil {
		s.opts.Logger.Warn("closing a stream that is continued", "worker", key.worker, "shard", key.shard, "err", err)
	}
	return nil
}

// leave ends x's hold. The conn is closed before the session is free for another stream.
func (s *server) leave(ctx context.Context, key streamKey, x *served, cause error) {
	x.lock()
	if err := x.finish(ctx, false, false, cause); err != nil {
		s.opts.Logger.Warn("closing a broken stream", "worker", key.worker, "shard", key.shard, "err", err)
	}
	x.unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams[key] == x {
		delete(s.streams, key)
	}
}

// session serves one stream from hello to close.
func (s *server) session(st grpc.ServerStream) error {
	first := &letters{stream: st}
	l := &link{enc: newEncoder(first), dec: newDecoder(first)}
	hd, err := l.dec.next(maxHello, "of a hello")
	if err != nil {
		return streamError(err)
	}
	if hd.kind != kindHello {
		return streamError(violation("stream begins with %s", hd.kind))
	}
	var h hello
	if err := h.read(&l.dec); err != nil {
		if errors.Is(err, ErrVersion) {
			return l.refuse(hd.seq, err)
		}
		return streamError(err)
	}
	ctx, cancel := context.WithCancelCause(st.Context())
	defer cancel(nil)
	x := &served{attempt: hd.seq, cancel: cancel, turn: make(chan struct{}, 1)}
	key := streamKey{h.Job, h.Worker, h.Session, h.Shard}
	x.lock()
	if err := s.enter(ctx, key, x); err != nil {
		x.unlock()
		return err
	}
	var ended error
	defer func() { s.leave(ctx, key, x, ended) }() // also when the host panics
	conn, w, err := s.open(ctx, x, h.Hello)
	if err == nil {
		if w.MaxMessage <= 0 {
			w.MaxMessage = s.opts.MaxMessage
		}
		l.conn, l.limit, l.precision = conn, uint64(w.MaxMessage), h.Precision
		l.alive = max(min(s.opts.Alive, h.alive), minAlive)
	} else {
		x.lock()
		x.conn, x.over = nil, true
		x.unlock()
		err = l.refuse(hd.seq, err)
	}
	if err == nil && l.conn != nil {
		s.opts.Logger.Debug("stream begins", "worker", h.Worker, "shard", h.Shard, "session", h.Session, "attempt", hd.seq)
		err = s.overLine(ctx, l, x, hd.seq, w)
		s.opts.Logger.Debug("stream ends", "worker", h.Worker, "shard", h.Shard, "session", h.Session, "err", err)
	}
	if errors.Is(err, ErrProtocol) || errors.Is(err, ErrTooLarge) {
		s.opts.Logger.Warn("stream is ended", "worker", h.Worker, "shard", h.Shard, "err", err)
	}
	ended = err
	if errors.Is(err, io.EOF) {
		return nil
	}
	return streamError(err)
}

// overLine welcomes a client, waits for its line, and serves it there until one of the two ends or breaks.
func (s *server) overLine(ctx context.Context, l *link, x *served, seq uint64, w Welcome) error {
	t, arrived := s.lines.expect()
	defer s.lines.forget(t, arrived)
	if err := l.welcome(seq, welcome{w, t}); err != nil {
		return err
	}
	conn, err := s.lines.await(ctx, arrived)
	if err != nil {
		return err
	}
	hangUp := func() { _ = conn.Close() } // what was under way fails
	defer hangUp()
	defer context.AfterFunc(ctx, hangUp)()
	to := newLine(conn, nil)
	l.enc, l.dec = newEncoder(to), newDecoder(to)
	if err = l.serve(ctx, x); err != nil && ctx.Err() != nil && !errors.Is(err, ErrProtocol) && !errors.Is(err, ErrTooLarge) {
		err = context.Cause(ctx)
	}
	return err
}

// open asks the host for the stream's conn and gives back the turn that x begins with.
func (s *server) open(ctx context.Context, x *served, h Hello) (ps.Conn, Welcome, error) {
	defer x.unlock()
	conn, w, err := s.host.Open(ctx, h)
	x.conn = conn
	return conn, w, err
}

// streamError is the status that a stream ends with.
func streamError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrProtocol):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, ErrTooLarge):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, errContinued):
		return status.Error(codes.Aborted, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unavailable, err.Error())
}

package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/monolith-go/monolith/ps"
)

// rawHost opens conns that block, and reports them.
type rawHost struct {
	opened, broken, entered chan uint64 // generations of hellos
}

type rawConn struct {
	ps.Conn
	h  *rawHost
	id uint64
}

func (h *rawHost) Open(_ context.Context, x Hello) (ps.Conn, Welcome, error) {
	h.opened <- x.Generation
	return &rawConn{h: h, id: x.Generation}, Welcome{}, nil
}

func (c *rawConn) Break(error) { c.h.broken <- c.id }

func (c *rawConn) Control(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
	c.h.entered <- c.id
	<-ctx.Done()
	return ps.Reply{}, context.Cause(ctx)
}

func (c *rawConn) Acquire(context.Context, ps.SplitID, uint64) (ps.SplitState, ps.Reply, error) {
	return ps.SplitState{}, ps.Reply{}, nil
}

// rawClient sends frames as it likes.
type rawClient struct {
	t   *testing.T
	cc  *Client
	srv *Server
}

func newRaw(t *testing.T, h Host, o HostOptions) *rawClient {
	t.Helper()
	srv, err := NewServer(ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c := &rawClient{t: t, srv: srv}
	RegisterServer(c.srv, h, o)
	l := bufconn.Listen(1 << 20)
	done := make(chan error, 1)
	go func() { done <- c.srv.Serve(l) }()
	c.cc, err = NewClient("localhost:1", ClientConfig{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.cc.Close(); err != nil {
			t.Error(err)
		}
		c.srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// rawStream is a stream without a line, or one with a line.
type rawStream struct {
	grpc.ClientStream
	c   *rawClient
	to  writer
	enc encoder
	dec decoder
}

func (c *rawClient) open() *rawStream {
	c.t.Helper()
	gs, err := c.cc.NewStream(c.t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, methodName)
	if err != nil {
		c.t.Fatal(err)
	}
	first := &letters{stream: gs}
	return &rawStream{gs, c, first, newEncoder(first), newDecoder(first)}
}

// welcomed reads the welcome and opens the line.
func (s *rawStream) welcomed(t *testing.T) ticket {
	t.Helper()
	h, err := s.dec.next(1<<20, "")
	if err != nil || h.kind != kindWelcome {
		t.Fatalf("%+v, %v", h, err)
	}
	var w welcome
	if err := w.read(&s.dec); err != nil {
		t.Fatal(err)
	}
	conn, err := s.c.cc.line(t.Context(), s.ClientStream, w.ticket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := newLine(conn, nil)
	s.to, s.enc, s.dec = l, newEncoder(l), newDecoder(l)
	return w.ticket
}

// frame sends a frame of which the body may be shorter than announced.
func (s *rawStream) frame(t *testing.T, h header, body []byte) {
	t.Helper()
	var b [headerLen]byte
	h.put(&b)
	if err := s.to.writev(&net.Buffers{slices.Concat(b[:], body)}); err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
}

func (s *rawStream) hello(t *testing.T, h hello, attempt uint64) {
	t.Helper()
	hd, err := h.header(attempt)
	if err != nil {
		t.Fatal(err)
	}
	s.enc.begin(hd)
	h.put(&s.enc)
	if err := s.enc.end(); err != nil {
		t.Fatal(err)
	}
}

// ends reads until the stream ends, and returns its status.
func (s *rawStream) ends(t *testing.T) error {
	t.Helper()
	for {
		h, err := s.dec.next(1<<20, "")
		if err != nil {
			if _, ok := s.to.(*line); ok {
				var m wrapperspb.BytesValue
				err = s.RecvMsg(&m)
			}
			return err
		}
		if h.kind == kindError {
			return s.refusedBy()
		}
		for range h.bodyLen {
			s.dec.u8()
		}
	}
}

func (s *rawStream) refusedBy() error {
	remote, err := readError(&s.dec)
	if err != nil {
		return err
	}
	return remote
}

// TestBadFramesEndTheStream with an error that says what is wrong, and the server continues.
func TestBadFramesEndTheStream(t *testing.T) {
	t.Parallel()
	h := &rawHost{make(chan uint64, 100), make(chan uint64, 100), make(chan uint64, 100)}
	c := newRaw(t, h, HostOptions{MaxMessage: 100_000})
	good := hello{Hello: Hello{Version: ProtocolVersion, Session: 1}}
	for name, x := range map[string]struct {
		first, then header
		body        []byte
		code        codes.Code
		text        string
	}{
		"no hello":         {first: header{kind: kindControl}, code: codes.InvalidArgument, text: "begins with control"},
		"no frame":         {body: []byte(strings.Repeat("x", 100)), code: codes.InvalidArgument, text: "0x78787878"},
		"hello too long":   {first: header{kind: kindHello, bodyLen: 1 << 40}, code: codes.ResourceExhausted, text: "of a hello"},
		"short hello":      {first: header{kind: kindHello, bodyLen: 4}, body: []byte{ProtocolVersion, 0, 0, 0}, code: codes.InvalidArgument, text: "early"},
		"second hello":     {then: header{kind: kindHello, bodyLen: 4}, body: make([]byte, 4), code: codes.InvalidArgument, text: "where a request is due"},
		"reply":            {then: header{kind: kindReply, bodyLen: 8}, body: make([]byte, 8), code: codes.InvalidArgument, text: "reply where a request"},
		"message too long": {then: header{kind: kindStage, bodyLen: 100_000}, code: codes.ResourceExhausted, text: "stage of 100032 bytes, the limit is 100000 (MaxMessage of the server)"},
		"two frames":       {then: header{kind: kindAcquire, bodyLen: 16}, body: make([]byte, 17), code: codes.InvalidArgument, text: "bytes after a frame"},
		"unknown control":  {then: header{kind: kindControl, numCtl: 1, ctlLen: minControl}, body: make([]byte, minControl), code: codes.InvalidArgument, text: "unknown kind 0"},
		"controls too few": {then: header{kind: kindControl, ctlLen: 3}, body: make([]byte, 3), code: codes.InvalidArgument, text: "another length"},
		"unknown kind":     {then: header{kind: 99}, code: codes.InvalidArgument, text: "unknown kind 99"},
	} {
		s := c.open()
		if x.then.kind != 0 {
			s.hello(t, good, 1)
			s.welcomed(t)
			good.Session++
			s.frame(t, x.then, x.body)
		} else {
			s.frame(t, x.first, x.body)
		}
		if name == "no frame" {
			s = c.open()
			if err := s.SendMsg(wrapperspb.Bytes(x.body)); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.ends(t); status.Code(err) != x.code || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: %v, want %s with %q", name, err, x.code, x.text)
		}
	}
	s := c.open()
	s.hello(t, hello{Hello: Hello{Version: ProtocolVersion + 1}}, 1)
	if err := s.ends(t); !errors.Is(err, ErrVersion) {
		t.Errorf("other version: %v, want ErrVersion", err)
	}
}

// TestOneStreamASession lets a newer stream take an older one's place while a call is under way.
func TestOneStreamASession(t *testing.T) {
	t.Parallel()
	h := &rawHost{make(chan uint64, 100), make(chan uint64, 100), make(chan uint64, 100)}
	c := newRaw(t, h, HostOptions{})
	x := hello{Hello: Hello{Version: ProtocolVersion, Session: 1, Generation: 1}, alive: 1e9}
	begin := func(attempt uint64) *rawStream {
		s := c.open()
		x.Generation = attempt
		s.hello(t, x, attempt)
		return s
	}
	first := begin(5)
	if got := <-h.opened; got != 5 {
		t.Fatalf("opened %d", got)
	}
	first.welcomed(t)
	first.frame(t, header{kind: kindControl, seq: 1}, nil)
	if got := <-h.entered; got != 5 {
		t.Fatalf("call of %d", got)
	}
	older := begin(4)
	if err := older.ends(t); status.Code(err) != codes.Aborted {
		t.Errorf("a stream left over: %v, want Aborted", err)
	}
	begin(6)
	if got := <-h.broken; got != 5 {
		t.Errorf("%d was closed, want 5", got)
	}
	if got := <-h.opened; got != 6 {
		t.Errorf("%d was opened, want 6", got)
	}
	if len(h.broken) != 0 {
		t.Errorf("%d was closed too", <-h.broken)
	}
}

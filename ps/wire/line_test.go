package wire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// TestLineHoldsFrames: a frame of more than a unix socket holds by itself is written before anybody reads.
func TestLineHoldsFrames(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	client, err := net.Dial("unix", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	for _, way := range []struct{ from, to net.Conn }{{client, server}, {server, client}} {
		l, frame := newLine(way.from, nil), make([]byte, 300<<10)
		frame[len(frame)-1] = 7
		if err := l.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil { // it would take for ever
			t.Fatal(err)
		}
		if err := l.writev(&net.Buffers{frame[:10], frame[10:]}); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(frame))
		if _, err := io.ReadFull(newLine(way.to, nil), got); err != nil || !bytes.Equal(got, frame) {
			t.Errorf("what came is not what was sent: %v", err)
		}
	}
}

// knock opens a connection as a line and sends what the line begins with.
func (c *rawClient) knock(first string) net.Conn {
	c.t.Helper()
	conn, err := c.cc.dial(c.t.Context(), "", "")
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, first); err != nil {
		c.t.Fatal(err)
	}
	return conn
}

func (c *rawClient) closes(conn net.Conn) {
	c.t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		c.t.Fatal(err)
	}
	n, err := conn.Read(make([]byte, 1))
	if late, ok := errors.AsType[net.Error](err); n != 0 || err == nil || ok && late.Timeout() {
		c.t.Errorf("%d bytes, %v, want that the server hangs up", n, err)
	}
}

// TestTickets: a line of no stream is closed, and so is a second one of the same stream, whose first continues.
func TestTickets(t *testing.T) {
	t.Parallel()
	h := &rawHost{make(chan uint64, 100), make(chan uint64, 100), make(chan uint64, 100)}
	c := newRaw(t, h, HostOptions{})
	c.closes(c.knock(lineMagic + strings.Repeat("\x00", ticketLen)))
	s := c.open()
	s.hello(t, hello{Hello: Hello{Version: ProtocolVersion, Session: 1}}, 1)
	used := s.welcomed(t)
	call := func() {
		s.frame(t, header{kind: kindAcquire, seq: 1, bodyLen: 16}, make([]byte, 16))
		h, err := s.dec.next(1<<20, "")
		for err == nil && s.dec.left > 0 {
			s.dec.u8()
			err = s.dec.err
		}
		if err != nil || h.kind != kindReply {
			t.Fatalf("%+v, %v, want a reply", h, err)
		}
	}
	call() // so that the server has the line
	c.closes(c.knock(lineMagic + string(used[:])))
	call()
	// What is half a ticket is waited for no longer than a handshake may take.
	synctest.Test(t, func(t *testing.T) {
		c := newRaw(t, h, HostOptions{})
		start := time.Now()
		c.closes(c.knock(lineMagic + "half"))
		if took := time.Since(start); took > 2*connectTimeout {
			t.Errorf("closed after %v", took)
		}
	})
}

// TestLineThatNeverComes ends the stream, which says why, and frees the session.
func TestLineThatNeverComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &rawHost{make(chan uint64, 100), make(chan uint64, 100), make(chan uint64, 100)}
		c := newRaw(t, h, HostOptions{})
		s := c.open()
		s.hello(t, hello{Hello: Hello{Version: ProtocolVersion, Session: 1, Generation: 3}}, 1)
		start := time.Now()
		err := error(nil)
		for err == nil {
			var m wrapperspb.BytesValue
			err = s.RecvMsg(&m)
		}
		if took := time.Since(start); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "has not opened the line") || took != lineTimeout {
			t.Errorf("after %v: %v", took, err)
		}
		if got := <-h.broken; got != 3 {
			t.Errorf("session %d is free", got)
		}
	})
}

// TestLateLine: a line that arrives while nobody waits any more is closed, by whichever of the two comes second.
func TestLateLine(t *testing.T) {
	t.Parallel()
	l := &lines{waiting: map[ticket]chan net.Conn{}}
	tk, c := l.expect()
	ours, theirs := net.Pipe()
	if !l.arrive(tk, ours) {
		t.Error("the line is of no stream")
	}
	if err := theirs.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	l.forget(tk, c)
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("%v, want that the line is closed", err)
	}
	if l.arrive(tk, ours) || len(l.waiting) > 0 {
		t.Error("the line of a stream that waits no more is taken")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errContinued)
	if _, err := l.await(ctx, make(chan net.Conn)); !errors.Is(err, errContinued) {
		t.Errorf("%v, want the context's cause", err)
	}
}

// TestBound takes as many connections as there may be, and the next when one is closed.
func TestBound(t *testing.T) {
	t.Parallel()
	in, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &bound{Listener: in, room: make(chan struct{}, 2), closed: make(chan struct{})}
	taken := make(chan net.Conn)
	done := make(chan error, 1)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				done <- err
				return
			}
			taken <- c
		}
	}()
	var held []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	for range 2 {
		held = append(held, <-taken)
	}
	if n := len(l.room); n != 2 {
		t.Errorf("%d places are taken, want 2", n)
	}
	for range 2 { // the second time nothing happens
		_ = held[0].Close()
	}
	third := <-taken
	if err := errors.Join(third.Close(), held[1].Close(), l.Close()); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept of what is closed: %v", err)
	}
}

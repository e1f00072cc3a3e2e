package wire

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"
)

// writer is where an encoder's frames go. It may change the slice, and is done with the memory when it returns.
type writer interface{ writev(b *net.Buffers) error }

// messenger is either half of a gRPC stream.
type messenger interface {
	SendMsg(m any) error
	RecvMsg(m any) error
}

// letters are frames that go as messages of the gRPC stream: hello, and what answers it.
type letters struct {
	stream messenger
	rest   []byte // of the last message
}

func (l *letters) writev(b *net.Buffers) error {
	var all []byte
	for _, p := range *b {
		all = append(all, p...)
	}
	if err := l.stream.SendMsg(wrapperspb.Bytes(all)); err != nil {
		return err // a status, or io.EOF where the status says why
	}
	return nil
}

// Read implements [io.Reader].
func (l *letters) Read(p []byte) (int, error) {
	if len(l.rest) == 0 {
		var m wrapperspb.BytesValue
		if err := l.stream.RecvMsg(&m); err != nil {
			return 0, err // a status, or io.EOF
		}
		if l.rest = m.Value; len(l.rest) == 0 {
			return 0, violation("empty message")
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// line is the connection on which the frames of a stream go after its welcome.
type line struct {
	net.Conn
	to    io.Writer // Conn, or what is behind it and takes several buffers at once
	moved func()    // called when bytes have gone or come; may be nil
	batch *batch    // below TLS; nil without
}

// lineBuffer is what the kernel is to hold of the frames in a unix socket, bytes: a frame that is written need not wait for its reader time and again, as
// with the usual 208 KiB. The system gives as much as net.core.wmem_max allows. TCP's buffers grow by themselves.
const lineBuffer = 2 << 20

func newLine(c net.Conn, moved func()) *line {
	l := &line{Conn: c, to: c, moved: moved, batch: batchOf(c)}
	if b, ok := c.(*boundConn); ok {
		l.to = b.Conn
	}
	if u, ok := l.to.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(lineBuffer) // with less it works too
	}
	return l
}

// Read implements [io.Reader].
func (l *line) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if n > 0 && l.moved != nil {
		l.moved()
	}
	return n, err
}

func (l *line) writev(b *net.Buffers) error {
	if l.batch != nil {
		l.batch.begin()
	}
	_, err := b.WriteTo(l.to)
	if l.batch != nil {
		err = cmp.Or(l.batch.flush(), err) // TLS has none where what it wrote was kept
	}
	if l.moved != nil {
		l.moved()
	}
	if err != nil {
		return fmt.Errorf("wire: %w", err)
	}
	return nil
}

const (
	// lineMagic is how a client begins a line. HTTP/2 begins otherwise.
	lineMagic = "MPSL"
	ticketLen = 32
)

// ticket says to which stream a line belongs. The server makes it up, and sends it to the client that it has let in: who has it may do what
// that client may.
type ticket [ticketLen]byte

// lines are the streams of a server that wait for their line.
type lines struct {
	mu      sync.Mutex
	waiting map[ticket]chan net.Conn
}

// expect makes a ticket and where its line will arrive.
func (l *lines) expect() (ticket, chan net.Conn) {
	var t ticket
	_, _ = rand.Read(t[:]) // never fails
	c := make(chan net.Conn, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[t] = c
	return t, c
}

// forget ends the wait. A line that has arrived and that nobody has taken is closed.
func (l *lines) forget(t ticket, c chan net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, t)
	select {
	case late := <-c:
		_ = late.Close() // nobody uses it
	default:
	}
}

// arrive gives a connection to the stream that it belongs to. A ticket is good for one.
func (l *lines) arrive(t ticket, conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, ok := l.waiting[t]
	if ok {
		delete(l.waiting, t)
		c <- conn
	}
	return ok
}

// await waits until the client has opened the line.
func (l *lines) await(ctx context.Context, c <-chan net.Conn) (net.Conn, error) {
	t := time.NewTimer(lineTimeout)
	defer t.Stop()
	select {
	case conn := <-c:
		return conn, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.C:
		return nil, errNoLine
	}
}

// begun is a connection whose first bytes have been read.
type begun struct {
	net.Conn
	first []byte
}

// Read implements [net.Conn].
func (c *begun) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// sort finds out whether a new connection is a line, and gives that to its stream. What else it is begins with what was read.
func (l *lines) sort(conn net.Conn) (other net.Conn, err error) {
	var b [len(lineMagic) + ticketLen]byte
	if _, err := io.ReadFull(conn, b[:len(lineMagic)]); err != nil {
		return nil, err
	}
	if string(b[:len(lineMagic)]) != lineMagic {
		return &begun{conn, b[:len(lineMagic):len(lineMagic)]}, nil
	}
	if _, err := io.ReadFull(conn, b[len(lineMagic):]); err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil { // that of the handshake
		return nil, fmt.Errorf("wire: %w", err)
	}
	if !l.arrive(ticket(b[len(lineMagic):]), conn) {
		return nil, errNoStream
	}
	return nil, nil
}

var (
	errNoLine   = errors.New("wire: the client has not opened the line for its frames")
	errNoStream = errors.New("wire: a line of no stream that waits for one")
)

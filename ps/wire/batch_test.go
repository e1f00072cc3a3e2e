package wire

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/monolith-go/monolith/internal/testbed"
)

// counted counts writes, and fails from a number of them on.
type counted struct {
	net.Conn
	writes, failFrom atomic.Int64
}

var errCounted = errors.New("the cable is cut")

func (c *counted) Write(p []byte) (int, error) {
	if n := c.writes.Add(1); c.failFrom.Load() > 0 && n >= c.failFrom.Load() {
		return 0, errCounted
	}
	return c.Conn.Write(p)
}

// alone is a stream of nothing but a context.
type alone struct {
	grpc.ClientStream
	ctx context.Context
}

func (a alone) Context() context.Context { return a.ctx }

// linesOverTLS makes both ends of a line as client and server do, and what is below them.
func linesOverTLS(t *testing.T) (ends [2]*line, below [2]*counted) {
	t.Helper()
	dir := t.TempDir()
	ca := testbed.NewAuthority(t, dir, "ca")
	cert, key := ca.Issue(t, "localhost")
	serverConf, err := (&TLS{Cert: cert, Key: key}).Server(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", lineProtocol}})
	if err != nil {
		t.Fatal(err)
	}
	clientConf, err := (&TLS{CA: ca.File}).Client(&tls.Config{MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	streams := &lines{waiting: map[ticket]chan net.Conn{}}
	of, arrives := streams.expect()
	served := make(chan error, 1)
	go func() {
		raw, err := listener.Accept()
		if err == nil {
			below[1] = &counted{Conn: raw}
			_, _, err = (&serverCreds{credentials.NewTLS(serverConf), streams}).ServerHandshake(below[1])
		}
		served <- err
	}()
	address := listener.Addr().String()
	c := &Client{addr: address, tls: func() *tls.Config { return lineTLS(clientConf(), "tcp", address) }, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := (&net.Dialer{}).DialContext(ctx, network, address)
		below[0] = &counted{Conn: raw}
		return below[0], err
	}}
	conn, err := c.line(t.Context(), alone{ctx: t.Context()}, of)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := <-served; !errors.Is(err, credentials.ErrConnDispatched) {
		t.Fatal(err)
	}
	other := <-arrives
	t.Cleanup(func() { _ = other.Close() })
	return [2]*line{newLine(conn, nil), newLine(other, nil)}, below
}

// TestBatch: over TLS a frame comes as it was sent, both ways, in few writes, and what fails is said and stays so.
func TestBatch(t *testing.T) {
	t.Parallel()
	ends, below := linesOverTLS(t)
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{1, 100, 16 << 10, batchSize - 22, batchSize, 3*batchSize + 7, 1 << 20} {
		for from, l := range ends {
			frame := make([]byte, size)
			for i := range frame {
				frame[i] = byte(r.Uint32())
			}
			cut := r.IntN(size)
			before := below[from].writes.Load()
			sent := make(chan error, 1)
			go func() { sent <- l.writev(&net.Buffers{frame[:cut], frame[cut:]}) }()
			got := make([]byte, size)
			if _, err := io.ReadFull(ends[1-from], got); err != nil || !bytes.Equal(got, frame) {
				t.Errorf("end %d, %d bytes: what came is not what was sent: %v", from, size, err)
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			// A batch has whole records, so that each lacks less than one to be full.
			if n, most := below[from].writes.Load()-before, int64(size/(batchSize-17<<10)+1); n > most {
				t.Errorf("end %d, %d bytes: %d writes, want %d at most", from, size, n, most)
			}
		}
	}
	for i, l := range ends {
		below[i].failFrom.Store(below[i].writes.Load() + int64(2-i)) // the second of a frame, and the only one
		for range 2 {
			if err := l.writev(&net.Buffers{make([]byte, 100+(1-i)*2*batchSize)}); !errors.Is(err, errCounted) {
				t.Errorf("end %d: %v, want that the write failed", i, err)
			}
		}
	}
}

// TestBatchHoldsNothing: what TLS writes by itself, here the alert that ends the connection, goes at once.
func TestBatchHoldsNothing(t *testing.T) {
	t.Parallel()
	ends, _ := linesOverTLS(t)
	if err := errors.Join(ends[0].writev(&net.Buffers{[]byte("x")}), ends[0].SetDeadline(time.Now().Add(time.Minute)), ends[1].SetDeadline(time.Now().Add(time.Minute))); err != nil {
		t.Fatal(err)
	}
	closer, ok := ends[0].Conn.(*tls.Conn)
	if !ok {
		t.Fatalf("the line is on %T", ends[0].Conn)
	}
	if err := closer.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(ends[1]); err != nil || string(got) != "x" {
		t.Errorf("%q, %v; want what was sent and the end", got, err)
	}
}

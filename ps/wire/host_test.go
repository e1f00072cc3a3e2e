package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/wire"
)

// localHost serves conns of this process. A session whose stream breaks keeps its conn.
type localHost struct {
	incarnation atomic.Uint64
	granted     atomic.Uint32          // what the newest stream may do
	open        func(wire.Hello) error // may refuse
	welcome     wire.Welcome

	mu     sync.Mutex
	conns  map[uint64]ps.Conn
	next   uint64
	breaks int
	inUse  map[uint64]bool
	faults []string
}

func newHost() *localHost { return &localHost{conns: map[uint64]ps.Conn{}, inUse: map[uint64]bool{}} }

func (h *localHost) add(c ps.Conn) (session uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	h.conns[h.next] = c
	return h.next
}

// Open implements [wire.Host].
func (h *localHost) Open(ctx context.Context, hello wire.Hello) (ps.Conn, wire.Welcome, error) {
	h.granted.Store(uint32(wire.Granted(ctx)))
	if h.open != nil {
		if err := h.open(hello); err != nil {
			return nil, wire.Welcome{}, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.conns[hello.Session]
	if c == nil {
		return nil, wire.Welcome{}, fmt.Errorf("no session %d", hello.Session)
	}
	if h.inUse[hello.Session] {
		h.faults = append(h.faults, fmt.Sprintf("streams of session %d overlap", hello.Session))
	}
	h.inUse[hello.Session] = true
	w := h.welcome
	w.Incarnation = h.incarnation.Load()
	return &keptConn{Conn: c, h: h, session: hello.Session}, w, nil
}

func (h *localHost) free(session uint64, broken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if broken {
		h.breaks++
	}
	if !h.inUse[session] {
		h.faults = append(h.faults, fmt.Sprintf("session %d is closed twice", session))
	}
	h.inUse[session] = false
}

// check reports what the server should not have done.
func (h *localHost) check(t testing.TB) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, f := range h.faults {
		t.Error(f)
	}
}

type keptConn struct {
	ps.Conn
	h       *localHost
	session uint64
}

func (c *keptConn) Break(cause error) {
	if !errors.Is(cause, wire.ErrBroken) {
		c.h.mu.Lock()
		c.h.faults = append(c.h.faults, fmt.Sprintf("broken of %v", cause))
		c.h.mu.Unlock()
	}
	c.h.free(c.session, true)
}

func (c *keptConn) Close(ctx context.Context, clean bool) error {
	c.h.free(c.session, false)
	return c.Conn.Close(ctx, clean)
}

// remote is a server of a host with a client of it.
type remote struct {
	host *localHost
	srv  *wire.Server
	lis  net.Listener
	cc   *wire.Client
	done chan error
	opts wire.ConnOptions
}

type remoteOptions struct {
	network string // tcp or unix
	wrap    func(net.Listener) net.Listener
	dialed  func(net.Conn) net.Conn // of newRemote
	host    wire.HostOptions
	conn    wire.ConnOptions
	server  wire.ServerConfig
	client  wire.ClientConfig
}

func serve(t testing.TB, h wire.Host, o remoteOptions) *remote {
	t.Helper()
	addr := "127.0.0.1:0"
	if o.network == "unix" {
		addr = "unix:" + filepath.Join(t.TempDir(), "s")
	}
	l, err := wire.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	if o.network != "unix" {
		addr = l.Addr().String()
	}
	if o.wrap != nil {
		l = o.wrap(l)
	}
	srv, err := wire.NewServer(o.server)
	if err != nil {
		t.Fatal(err)
	}
	r := &remote{srv: srv, lis: l, done: make(chan error, 1), opts: o.conn}
	r.host, _ = h.(*localHost)
	wire.RegisterServer(r.srv, h, o.host)
	go func() { r.done <- r.srv.Serve(l) }()
	if r.cc, err = wire.NewClient(addr, o.client); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *remote) close(t testing.TB) {
	t.Helper()
	if err := r.cc.Close(); err != nil {
		t.Error(err)
	}
	r.srv.Stop()
	if err := <-r.done; err != nil {
		t.Error(err)
	}
	if r.host != nil {
		r.host.check(t)
	}
}

// wrap puts a conn of this process behind the wire.
func (r *remote) wrap(t testing.TB, worker string, shard int, c ps.Conn) *wire.Conn {
	t.Helper()
	conn, err := wire.Dial(context.WithoutCancel(t.Context()), r.cc, wire.Hello{Job: "j", Worker: worker, Shard: shard, Session: r.host.add(c)}, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// remoteCluster is a cluster of this process whose clients are behind the wire.
type remoteCluster struct {
	*coordinator.Cluster
	t testing.TB
	r *remote
}

// Close implements [pstest.Cluster].
func (c *remoteCluster) Close(ctx context.Context) error {
	err := c.Cluster.Close(ctx)
	c.r.close(c.t)
	return err
}

func openRemote(t testing.TB, o remoteOptions) pstest.OpenFunc {
	return func(ctx context.Context, po coordinator.Options) (pstest.Cluster, error) {
		r := serve(t, newHost(), o)
		inner := po.WrapConn
		po.WrapConn = func(worker string, shard int, c ps.Conn) ps.Conn {
			out := ps.Conn(r.wrap(t, worker, shard, c))
			if inner != nil {
				out = inner(worker, shard, out)
			}
			return out
		}
		c, err := coordinator.Open(ctx, po)
		if err != nil {
			r.close(t)
			return nil, err
		}
		return &remoteCluster{c, t, r}, nil
	}
}

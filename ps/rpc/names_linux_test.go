package rpc_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/wire"
)

// names is a name server with one name.
type names struct {
	conn net.PacketConn
	wg   sync.WaitGroup

	mu    sync.Mutex
	addr  [4]byte
	asked int
}

// newNames answers questions for the IPv4 address of whatever name until the test ends, and is this process's name server meanwhile.
func newNames(t *testing.T) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn}
	n.wg.Go(n.serve)
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	t.Cleanup(func() {
		net.DefaultResolver = before
		_ = conn.Close()
		n.wg.Wait()
	})
	return n
}

func (n *names) set(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	copy(n.addr[:], net.ParseIP(addr).To4())
}

func (n *names) serve() {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		m.Response, m.Authoritative, m.Additionals = true, true, nil
		if q := m.Questions[0]; q.Type == dnsmessage.TypeA {
			n.mu.Lock()
			n.asked++
			m.Answers = []dnsmessage.Resource{{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 3600}, Body: &dnsmessage.AResource{A: n.addr},
			}}
			n.mu.Unlock()
		}
		if out, err := m.Pack(); err == nil {
			_, _ = n.conn.WriteTo(out, from)
		}
	}
}

// TestNameMoves: a shard that comes back at another address behind its name is found, by workers in the midst of a session and by shard 0,
// and nothing that was pushed before or meanwhile is lost or counted twice.
func TestNameMoves(t *testing.T) {
	n := newNames(t)
	n.set("127.0.0.2")
	l, name := pstest.SmallJob().Layout(), ""
	c, err := startAt(t.Context(), coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir()}, func(shard int) (net.Listener, string, error) {
		if shard == 0 {
			ln, err := wire.Listen("127.0.0.1:0")
			if err != nil {
				return nil, "", err
			}
			return ln, ln.Addr().String(), nil
		}
		ln, err := wire.Listen("127.0.0.2:0")
		if err != nil {
			return nil, "", err
		}
		_, port, err := net.SplitHostPort(ln.Addr().String())
		name = net.JoinHostPort("shard-1.monolith.test", port)
		return ln, name, err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	w := resumed(t, c)
	push := func(from int64) {
		t.Helper()
		if err := w.Push(t.Context(), pstest.RandomUpdate(l, "x", from, from+7)); err != nil {
			t.Fatalf("push from %d: %v", from, err)
		}
	}
	push(0)
	push(7)
	// The process ends, and continues on another host.
	c.servers[1].Stop()
	ln, err := wire.Listen("127.0.0.3" + name[strings.LastIndexByte(name, ':'):])
	if err != nil {
		t.Fatal(err)
	}
	s, err := rpc.NewServer(c.options[1])
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(ln) })
	defer func() { s.Stop(); wg.Wait() }()
	time.AfterFunc(300*time.Millisecond, func() { n.set("127.0.0.3") }) // name servers are late
	push(14)
	push(21)
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Shard 0 reaches it too: the digest and progress are of all shards.
	var progress int64 = -1
	for deadline := time.Now().Add(3 * time.Minute); progress < 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if p, err := c.Progress(t.Context(), "s"); err == nil {
			progress = int64(p["x"].Position)
		}
	}
	if progress != 28 {
		t.Errorf("applied to %d of 28", progress)
	}
	moved, err := c.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	n.mu.Lock()
	asked := n.asked
	n.mu.Unlock()
	if asked < 4 { // two connections, each at least twice
		t.Errorf("the name was looked up %d times", asked)
	}
	// The same pushes where nothing moved.
	still, err := start(t.Context(), coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir()}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = still.Close(t.Context()) }()
	w = resumed(t, still)
	for from := int64(0); from < 28; from += 7 {
		push(from)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want, err := still.Digest(t.Context()); err != nil || moved != want {
		t.Errorf("digest %s after the move, %s without, %v", moved, want, err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

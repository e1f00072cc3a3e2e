package wire_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/wire"
)

// TestCluster runs the parameter server's own suite with every client behind the wire.
func TestCluster(t *testing.T) {
	pstest.TestCluster(t, openRemote(t, remoteOptions{network: "unix"}))
}

// breaker is a listener whose connections are reset after a random number of bytes.
type breaker struct {
	net.Listener
	mean int64

	mu     sync.Mutex
	rng    *rand.Rand
	resets int
}

// Accept implements [net.Listener].
func (b *breaker) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	x := &brokenConn{Conn: c, b: b}
	x.left.Store(200 + b.rng.Int64N(2*b.mean)) // enough to say hello now and then
	return x, nil
}

func (b *breaker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resets
}

type brokenConn struct {
	net.Conn
	b    *breaker
	left atomic.Int64
	once sync.Once
}

func (c *brokenConn) use(n int) error {
	if c.left.Add(-int64(n)) > 0 {
		return nil
	}
	c.once.Do(func() {
		c.b.mu.Lock()
		c.b.resets++
		c.b.mu.Unlock()
	})
	return errors.Join(errors.New("reset by the test"), c.Close())
}

// Read implements [net.Conn].
func (c *brokenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p[:min(len(p), 500)])
	return n, errors.Join(err, c.use(n))
}

// Write implements [net.Conn]. It writes what is left, so that frames are cut anywhere.
func (c *brokenConn) Write(p []byte) (int, error) {
	n := int(max(0, min(int64(len(p)), c.left.Load())))
	k, err := c.Conn.Write(p[:n])
	if err := errors.Join(err, c.use(len(p))); err != nil {
		return k, err
	}
	return k, nil
}

func runJob(t *testing.T, c pstest.Cluster, j pstest.Job) string {
	t.Helper()
	ctx := t.Context()
	client, err := c.Client(ctx, "w")
	if err != nil {
		t.Fatal(err)
	}
	w, err := pstest.NewWorker(ctx, j, client)
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		if more, err = w.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	d, err := c.Digest(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
	return d
}

// TestBrokenStreams breaks connections anywhere, and the result is the same bit for bit.
func TestBrokenStreams(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	local, err := coordinator.Open(t.Context(), coordinator.Options{Layout: j.Layout()})
	if err != nil {
		t.Fatal(err)
	}
	want := runJob(t, local, j)
	for _, shards := range []int{1, 3} {
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("shards=%d/seed=%d", shards, seed), func(t *testing.T) {
				t.Parallel()
				b := &breaker{mean: 6000, rng: rand.New(rand.NewPCG(seed, 5))}
				var reconnects atomic.Int64
				open := openRemote(t, remoteOptions{
					wrap: func(l net.Listener) net.Listener { b.Listener = l; return b },
					conn: wire.ConnOptions{
						MinBackoff: time.Millisecond, MaxBackoff: 4 * time.Millisecond,
						OnReconnect: func(int, error) { reconnects.Add(1) },
					},
				})
				c, err := open(t.Context(), coordinator.Options{Layout: j.Layout(), NumShards: shards})
				if err != nil {
					t.Fatal(err)
				}
				if got := runJob(t, c, j); got != want {
					t.Errorf("digest %s, want %s", got, want)
				}
				if b.count() < 3 || reconnects.Load() < 3 {
					t.Errorf("%d connections broken, %d streams begun again: the test tests nothing", b.count(), reconnects.Load())
				}
				t.Logf("%d connections broken, %d streams begun again", b.count(), reconnects.Load())
			})
		}
	}
}

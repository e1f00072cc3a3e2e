package rpc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/wire"
)

// cluster is a cluster whose shards are behind addresses, with its worker's view.
type cluster struct {
	*rpc.Remote
	id    rpc.Identity
	addrs []string
	// servers are those of the shards, and options what they were made of.
	servers []*rpc.Server
	options []rpc.ServerOptions
	stop    []func(context.Context) error
}

// resumed is a client of a cluster that owns split x of source s.
func resumed(t *testing.T, c *cluster) *ps.Client {
	t.Helper()
	w, err := c.Client(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Resume(t.Context(), "s", []string{"x"}); err != nil {
		t.Fatal(err)
	}
	return w
}

// Close ends the worker's view, the servers and the shards.
func (c *cluster) Close(ctx context.Context) error {
	errs := []error{c.Remote.Close(ctx)}
	for _, f := range c.stop {
		errs = append(errs, f(ctx))
	}
	c.stop = nil
	return errors.Join(errs...)
}

// open starts a server for each shard on loopback and connects to them.
func open(ctx context.Context, o coordinator.Options) (pstest.Cluster, error) {
	return start(ctx, o, "127.0.0.1:0")
}

func start(ctx context.Context, o coordinator.Options, listen string) (*cluster, error) {
	return startAt(ctx, o, func(shard int) (net.Listener, string, error) {
		addr := strings.Replace(listen, "SHARD", strconv.Itoa(shard), 1)
		l, err := wire.Listen(addr)
		if err == nil && !strings.HasPrefix(addr, "unix:") {
			addr = l.Addr().String()
		}
		return l, addr, err
	})
}

// startAt is start where listen says where each shard listens, and by which address the others find it.
func startAt(ctx context.Context, o coordinator.Options, listen func(shard int) (net.Listener, string, error)) (*cluster, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n := max(o.NumShards, 1)
	first := n // that the coordinator begins with
	if o.Addrs != nil {
		first = len(o.Addrs)
	}
	id := rpc.Identity{
		Job: "test", Source: "examples", Plan: "p", Model: "m", Layout: o.Layout.Hash(), Shape: o.Layout.Shape().Hash(), Recipe: rpc.Recipe{Hash: "r"}, Precision: o.Precision,
	}
	me := &rpc.Coordinator{ID: rand.Uint64(), Process: "this test", Dir: o.Dir}
	addrs := make([]string, n)
	c := &cluster{id: id, addrs: addrs, servers: make([]*rpc.Server, n), options: make([]rpc.ServerOptions, n)}
	serve := func(shard int, node *shard.Node, cl *coordinator.Cluster) error {
		c.options[shard] = rpc.ServerOptions{Identity: id, Shard: shard, Node: node, Cluster: cl, Dir: o.Dir}
		s, err := rpc.NewServer(c.options[shard])
		if err != nil {
			return err
		}
		c.servers[shard] = s
		var l net.Listener
		if l, addrs[shard], err = listen(shard); err != nil {
			return err
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		c.stop = append(c.stop, func(context.Context) error { s.Stop(); return <-done })
		return nil
	}
	wrap := o.WrapConn
	o.WrapConn = nil
	for i := 1; i < n; i++ {
		node, err := shard.Open(ctx, o.Node(i, n))
		if err != nil {
			return nil, err
		}
		if err := serve(i, node, nil); err != nil {
			return nil, err
		}
		c.stop = append(c.stop, func(context.Context) error { return node.Close() })
	}
	o.Addrs, o.Dial = addrs[:first], func(shard int, addr string) (ps.Peer, error) {
		return rpc.NewPeer(rpc.Target{Identity: id, Shard: shard, Addr: addr, Coordinator: me})
	}
	cl, err := coordinator.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := serve(0, cl.First(), cl); err != nil {
		return nil, err
	}
	c.stop = append(c.stop, cl.Close)
	c.Remote, err = rpc.Dial(ctx, rpc.Options{Identity: id, Layout: o.Layout, Addrs: addrs, RetryFor: patience, WrapConn: wrap})
	if err != nil {
		return nil, errors.Join(err, cl.Close(ctx))
	}
	return c, nil
}

// TestRoles: who reads needs the shape alone and may change nothing; who trains on another source needs the model and its
// rules, and has a plan of its own.
func TestRoles(t *testing.T) {
	t.Parallel()
	l := pstest.SmallJob().Layout()
	c, err := start(t.Context(), coordinator.Options{Layout: l, NumShards: 2, Dir: t.TempDir()}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	dial := func(change func(*rpc.Identity)) (*rpc.Remote, error) {
		id := c.id
		change(&id)
		r, err := rpc.Dial(t.Context(), rpc.Options{Identity: id, Layout: l, Addrs: c.addrs, RetryFor: time.Second})
		if err == nil {
			t.Cleanup(func() { _ = r.Close(t.Context()) })
		}
		return r, err
	}
	reader, err := dial(func(id *rpc.Identity) { *id = rpc.Identity{Role: ps.Reader, Job: id.Job, Shape: id.Shape} })
	if err != nil {
		t.Fatal(err)
	}
	pstest.TestReader(t, reader.Client, l)
	pstest.TestReader(t, reader.Reader, l)
	_, joined := reader.Join(t.Context(), ps.JoinOptions{Worker: "r"})
	_, taken := reader.Snapshot(t.Context(), ps.SnapshotOptions{})
	for what, err := range map[string]error{
		"joins": joined, "takes a snapshot": taken, "rolls back": reader.RollBack(t.Context(), 1, "so"), "sets state": reader.SetState(t.Context(), "k", nil),
	} {
		if !errors.Is(err, ps.ErrReadOnly) {
			t.Errorf("a reader %s: %v, want ErrReadOnly", what, err)
		}
	}
	if _, err := reader.Stats(t.Context()); err != nil {
		t.Errorf("a reader asks for statistics: %v", err)
	}
	for p, faulty := range map[param.Precision]bool{param.Float32: false, param.BF16: true, param.FP16: true} {
		for _, role := range []ps.Role{ps.Trainer, ps.Reader} {
			r, err := dial(func(id *rpc.Identity) { id.Precision, id.Role = p, role })
			if role == ps.Reader || !faulty {
				if err == nil {
					_, err = r.Reader(t.Context(), "p")
				}
				if err != nil {
					t.Errorf("%s in %s: %v", role, p, err)
				}
				continue
			}
			want := "rows and gradients travel in other formats (ps.precision): the caller has " + p.String() + ", shard 0 another"
			if !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s in %s: %v, want %q", role, p, err, want)
			}
		}
	}
	stream, err := dial(func(id *rpc.Identity) { id.Source, id.Plan = "stream", "q" })
	if err != nil {
		t.Fatal(err)
	}
	cl, err := stream.Client(t.Context(), "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Resume(t.Context(), "stream", []string{"x"}); err != nil {
		t.Error(err)
	}
	if err := cl.Close(); err != nil {
		t.Error(err)
	}
	for what, x := range map[string]struct {
		change func(*rpc.Identity)
		want   string
	}{
		"reader of another shape":   {func(id *rpc.Identity) { id.Role, id.Shape = ps.Reader, "x" }, "the parameters differ"},
		"trainer of another recipe": {func(id *rpc.Identity) { id.Source, id.Recipe.Hash = "stream", "x" }, "the features differ"},
		"trainer of another model":  {func(id *rpc.Identity) { id.Source, id.Model = "stream", "x" }, "the models differ"},
		"trainer of other rules":    {func(id *rpc.Identity) { id.Source, id.Layout = "stream", "x" }, "the rules differ"},
		"trainer with another plan": {func(id *rpc.Identity) { id.Plan = "x" }, `the plans of source "examples" differ`},
	} {
		if _, err := dial(x.change); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: %v, want ErrMismatch and %q", what, err, x.want)
		}
	}
	// Two workers of a source that the shards' own job does not read agree among each other.
	if _, err := stream.Join(t.Context(), ps.JoinOptions{Worker: "w", Source: "stream", Plan: "q", Splits: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Join(t.Context(), ps.JoinOptions{Worker: "v", Source: "stream", Plan: "other"}); !errors.Is(err, ps.ErrMismatch) {
		t.Errorf("another plan: %v, want ErrMismatch", err)
	}
}

func TestCluster(t *testing.T) { pstest.TestCluster(t, open) }

// BenchmarkCluster measures shards behind loopback TCP and unix sockets, and behind a log.
func BenchmarkCluster(b *testing.B) {
	for _, c := range []struct {
		transport, log string
	}{{"grpc", "none"}, {"unix", "none"}, {"unix", "wal"}, {"unix", "wal-nosync"}} {
		b.Run("transport="+c.transport+"/log="+c.log, func(b *testing.B) {
			pstest.BenchmarkCluster(b, func(ctx context.Context, o coordinator.Options) (pstest.Cluster, error) {
				listen := "127.0.0.1:0"
				if c.transport == "unix" {
					listen = "unix:" + filepath.Join(b.TempDir(), "SHARD")
				}
				if c.log != "none" {
					o.Log = &shard.LogOptions{Dir: b.TempDir(), NoSync: c.log == "wal-nosync"}
				}
				return start(ctx, o, listen)
			})
		})
	}
}

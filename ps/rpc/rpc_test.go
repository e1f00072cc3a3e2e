package rpc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/wire"
)

// cluster is a cluster whose shards are behind addresses, with its worker's view.
type cluster struct {
	*rpc.Remote
	stop []func(context.Context) error
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
func open(ctx context.Context, o ps.Options) (pstest.Cluster, error) {
	return start(ctx, o, "127.0.0.1:0")
}

func start(ctx context.Context, o ps.Options, listen string) (*cluster, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n := max(o.NumShards, 1)
	id := rpc.Identity{Job: "test", Plan: "p", Layout: o.Layout.Hash(), Shards: n}
	me := &rpc.Coordinator{ID: rand.Uint64(), Process: "this test", Dir: o.Dir}
	c := &cluster{}
	addrs := make([]string, n)
	serve := func(shard int, node *ps.Node, cl *ps.Cluster) error {
		s, err := rpc.NewServer(rpc.ServerOptions{Identity: id, Shard: shard, Node: node, Cluster: cl, Dir: o.Dir})
		if err != nil {
			return err
		}
		addr := strings.Replace(listen, "SHARD", strconv.Itoa(shard), 1)
		l, err := wire.Listen(addr)
		if err != nil {
			return err
		}
		if addrs[shard] = l.Addr().String(); strings.HasPrefix(addr, "unix:") {
			addrs[shard] = addr
		}
		done := make(chan error, 1)
		go func() { done <- s.Serve(l) }()
		c.stop = append(c.stop, func(context.Context) error { s.Stop(); return <-done })
		return nil
	}
	wrap := o.WrapConn
	o.WrapConn = nil
	o.Peers = []ps.Peer{}
	for i := 1; i < n; i++ {
		node, err := ps.OpenNode(ctx, o.Node(i, n))
		if err != nil {
			return nil, err
		}
		if err := serve(i, node, nil); err != nil {
			return nil, err
		}
		c.stop = append(c.stop, func(context.Context) error { return node.Close() })
		p, err := rpc.NewPeer(rpc.Target{Identity: id, Shard: i, Addr: addrs[i], Coordinator: me})
		if err != nil {
			return nil, err
		}
		o.Peers = append(o.Peers, p)
	}
	cl, err := ps.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := serve(0, cl.First(), cl); err != nil {
		return nil, err
	}
	c.stop = append(c.stop, cl.Close)
	c.Remote, err = rpc.Dial(ctx, rpc.Options{Identity: id, Layout: o.Layout, Addrs: addrs, RetryFor: 5 * time.Second, WrapConn: wrap})
	if err != nil {
		return nil, errors.Join(err, cl.Close(ctx))
	}
	return c, nil
}

func TestCluster(t *testing.T) { pstest.TestCluster(t, open) }

// BenchmarkCluster measures shards behind loopback TCP and unix sockets, and behind a log.
func BenchmarkCluster(b *testing.B) {
	for _, c := range []struct {
		transport, log string
	}{{"grpc", "none"}, {"unix", "none"}, {"unix", "wal"}, {"unix", "wal-nosync"}} {
		b.Run("transport="+c.transport+"/log="+c.log, func(b *testing.B) {
			pstest.BenchmarkCluster(b, func(ctx context.Context, o ps.Options) (pstest.Cluster, error) {
				listen := "127.0.0.1:0"
				if c.transport == "unix" {
					listen = "unix:" + filepath.Join(b.TempDir(), "SHARD")
				}
				if c.log != "none" {
					o.Log = &ps.LogOptions{Dir: b.TempDir(), NoSync: c.log == "wal-nosync"}
				}
				return start(ctx, o, listen)
			})
		})
	}
}

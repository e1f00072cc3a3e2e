package rpc_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/internal/secure"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
)

// bearing lets the bearer of a token do everything.
func bearing(token string) []secure.Rule {
	return []secure.Rule{{Right: secure.Coordinate, Token: secure.Fixed(token)}}
}

// countingListener counts what its connections receive.
type countingListener struct {
	net.Listener
	received atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countingConn{c, l}, nil
}

type countingConn struct {
	net.Conn
	l *countingListener
}

func (c *countingConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.l.received.Add(int64(n))
	return n, err
}

// serveShard serves a shard of a new cluster, 0 or 1 of two, and returns a plain connection to it.
func serveShard(t *testing.T, index int, config wire.ServerConfig, dir string) (*grpc.ClientConn, *countingListener, rpc.Identity) {
	t.Helper()
	l := pstest.SmallJob().Layout()
	id := rpc.Identity{Job: "job", Plan: "p", Layout: l.Hash()}
	o := rpc.ServerOptions{Identity: id, Shard: index, Config: config, Dir: dir}
	var err error
	if index == 0 {
		if o.Cluster, err = coordinator.Open(t.Context(), coordinator.Options{Layout: l, Dir: dir}); err == nil {
			o.Node = o.Cluster.First()
			t.Cleanup(func() { _ = o.Cluster.Close(context.WithoutCancel(t.Context())) })
		}
	} else if o.Node, err = shard.Open(t.Context(), shard.Options{Layout: l, Dir: dir, Index: index, NumShards: index + 1}); err == nil {
		t.Cleanup(func() { _ = o.Node.Close() })
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := rpc.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := wire.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	count := &countingListener{Listener: ln}
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Serve(count) })
	t.Cleanup(func() { s.Stop(); wg.Wait() })
	cc, err := grpc.NewClient("passthrough:///"+ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cc.Close() })
	return cc, count, id
}

func as(ctx context.Context, id rpc.Identity) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "monolith-version", strconv.Itoa(wire.ProtocolVersion), "monolith-job", id.Job, "monolith-plan", id.Plan, "monolith-shape", id.Shape,
		"monolith-layout", id.Layout)
}

// TestBeforeTheToken: of what a stranger sends, a server receives no more than is under way anyway, and keeps none of it.
func TestBeforeTheToken(t *testing.T) {
	cc, count, _ := serveShard(t, 0, wire.ServerConfig{Rules: bearing("secret")}, "")
	value := make([]byte, 64<<20)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			_, err := psv1.NewCoordinatorClient(cc).SetState(ctx, &psv1.SetStateRequest{Key: "k", Value: value}, grpc.MaxCallSendMsgSize(256<<20))
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("a call without the token: %v", err)
			}
		})
	}
	wg.Wait()
	if got := count.received.Load(); got > 64<<20 {
		t.Errorf("%d MiB of 6 times 64 were received", got>>20)
	}
}

// TestTooLarge: a request of a control call has a limit, and one that is above it is not received either.
func TestTooLarge(t *testing.T) {
	cc, count, id := serveShard(t, 0, wire.ServerConfig{}, "")
	_, err := psv1.NewCoordinatorClient(cc).SetState(as(t.Context(), id), &psv1.SetStateRequest{Key: "k", Value: make([]byte, 200<<20)}, grpc.MaxCallSendMsgSize(256<<20))
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("200 MiB of worker state: %v", err)
	}
	if got := count.received.Load(); got > 64<<20 {
		t.Errorf("%d MiB of 200 were received", got>>20)
	}
	if _, err := psv1.NewCoordinatorClient(cc).SetState(as(t.Context(), id), &psv1.SetStateRequest{Key: "k", Value: make([]byte, 3<<20)}); err != nil {
		t.Errorf("3 MiB of worker state: %v", err)
	}
}

// TestTableOutOfRange is an error of its caller alone.
func TestTableOutOfRange(t *testing.T) {
	cc, _, id := serveShard(t, 0, wire.ServerConfig{}, "")
	s := psv1.NewShardClient(cc)
	tables := uint32(len(pstest.SmallJob().Layout().Tables))
	for _, tbl := range []uint32{tables, 99, 1<<31 - 1, 1 << 31, 1<<32 - 1} {
		if _, err := s.Entries(as(t.Context(), id), &psv1.EntriesRequest{Table: tbl, Fids: []int64{1}}); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("table %d: %v", tbl, err)
		}
	}
	if r, err := s.Entries(as(t.Context(), id), &psv1.EntriesRequest{Fids: []int64{1}}); err != nil || len(r.Rows.GetKeys()) > 0 {
		t.Errorf("table 0: %v, %v", r, err)
	}
}

// TestWhatStrangersHear names no value of the job that a shard serves.
func TestWhatStrangersHear(t *testing.T) {
	for _, token := range []string{"", "secret"} {
		var rules []secure.Rule
		if token != "" {
			rules = bearing(token)
		}
		cc, _, id := serveShard(t, 0, wire.ServerConfig{Rules: rules}, "")
		for _, their := range []rpc.Identity{{}, {Job: "other"}, {Job: id.Job}, {Job: id.Job, Layout: id.Layout}} {
			_, err := psv1.NewCoordinatorClient(cc).Info(as(t.Context(), their), &psv1.InfoRequest{})
			if err == nil {
				t.Errorf("token %q: %+v is let in", token, their)
				continue
			}
			for _, s := range []string{"plan p", id.Layout} {
				if strings.Contains(err.Error(), s) && s != their.Layout {
					t.Errorf("token %q: %+v hears %q in %v", token, their, s, err)
				}
			}
		}
	}
}

// TestStreamOfAnotherJob: a worker's error names the shard with its address.
func TestStreamOfAnotherJob(t *testing.T) {
	cc, _, id := serveShard(t, 1, wire.ServerConfig{}, "")
	id.Job = "c"
	addr := strings.TrimPrefix(cc.Target(), "passthrough:///")
	p, err := rpc.NewPeer(rpc.Target{Identity: id, Shard: 1, Addr: addr})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	_, err = p.Connect(t.Context(), 1, 1, "w/0")
	if want := "ps: shard 1 at " + addr + `: the jobs have other names: worker w/0 has "c", shard 1 another`; !errors.Is(err, ps.ErrMismatch) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestTwoCoordinators: a shard obeys one shard 0, names the folder or the process of another, and obeys the next when the
// first is gone.
func TestTwoCoordinators(t *testing.T) {
	dir := t.TempDir()
	cc, _, id := serveShard(t, 1, wire.ServerConfig{}, dir)
	peer := func(name, dir string) ps.Peer {
		p, err := rpc.NewPeer(rpc.Target{Identity: id, Shard: 1, Addr: cc.Target()[len("passthrough:///"):], Coordinator: &rpc.Coordinator{ID: rand.Uint64(), Process: name, Dir: dir}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	first, second, elsewhere := peer("the first", dir), peer("the second", dir), peer("the stray", dir+"2")
	if _, err := first.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := elsewhere.Status(t.Context()); !errors.Is(err, ps.ErrMismatch) || !strings.Contains(err.Error(), dir+"2") || !strings.Contains(err.Error(), "the stray") {
		t.Errorf("a shard 0 with another dir: %v", err)
	}
	if err := elsewhere.Load(t.Context(), ps.LoadOptions{Generation: 7}); !errors.Is(err, ps.ErrMismatch) {
		t.Errorf("a shard 0 with another dir gives a state: %v", err)
	}
	err := second.Load(t.Context(), ps.LoadOptions{Generation: 7})
	if !errors.Is(err, ps.ErrNotReady) || !strings.Contains(err.Error(), "the first") {
		t.Errorf("a second shard 0: %v", err)
	}
	deadline := time.Now().Add(2 * time.Minute)
	for {
		if err = second.Load(t.Context(), ps.LoadOptions{Generation: 7}); err == nil || time.Now().After(deadline) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		t.Errorf("the next shard 0, when the first is gone: %v", err)
	}
	// Workers coordinate nobody.
	worker, err := rpc.NewPeer(rpc.Target{Identity: id, Shard: 1, Addr: cc.Target()[len("passthrough:///"):]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = worker.Close() }()
	if err := worker.Load(t.Context(), ps.LoadOptions{Generation: 8}); !errors.Is(err, ps.ErrMismatch) {
		t.Errorf("a worker gives a state: %v", err)
	}
	var row table.Rows
	if err := worker.Entries(t.Context(), 0, []int64{onShard1()}, &row); err != nil {
		t.Errorf("a worker asks for a row: %v", err)
	}
}

package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/monolith-go/monolith/internal/secure"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/wire"
)

// ServerOptions configure a [Server].
type ServerOptions struct {
	Identity Identity
	// Shard is the index of the shard that Node is.
	Shard int
	Node  *shard.Node
	// Cluster is nil for every shard but 0, whose node is its first, and for shard 0 where that has a standby: there [Server.Coordinate] says when.
	Cluster *coordinator.Cluster
	// Witness, if not nil, decides which of the two processes of shard 0 is in charge, in this process of another shard.
	Witness ps.Promoter
	// Config describes how the server is reached, MaxMessage the largest request or reply of a worker, bytes; default 256 MiB.
	Config     wire.ServerConfig
	MaxMessage int
	// Dir is the folder of the job's snapshots, as in [coordinator.Options]; a coordinator with another one is refused.
	Dir    string
	Logger *slog.Logger
}

const (
	// maxControl is the largest request of a control call: worker state and lists of splits travel in one.
	maxControl = 16 << 20
	// maxAnswer is the largest answer to one: a snapshot's manifest with all worker state.
	maxAnswer = 256 << 20
)

// Server serves one shard. It owns goroutines from Serve to Stop.
type Server struct {
	o         ServerOptions
	grpc      *wire.Server
	health    *health.Server
	admission *admission
	cluster   atomic.Pointer[coordinator.Cluster] // what coordinates here now, or nil
	scratch   scratch
	run       context.Context // ends with Stop
	stop      context.CancelFunc
	wg        sync.WaitGroup
}

// NewServer makes a server. Errors: of reading certificates.
func NewServer(o ServerOptions) (*Server, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, health: health.NewServer()}
	s.admission = &admission{o: &s.o, now: time.Now}
	config := o.Config
	config.Admit, config.Logger = s.admission.admit, o.Logger
	var err error
	if s.grpc, err = wire.NewServer(config, grpc.ChainUnaryInterceptor(s.coordinating), grpc.MaxRecvMsgSize(maxControl), grpc.WaitForHandlers(true)); err != nil {
		return nil, err
	}
	s.cluster.Store(o.Cluster)
	s.run, s.stop = context.WithCancel(context.Background())
	wire.RegisterServer(s.grpc, host{s}, wire.HostOptions{MaxMessage: o.MaxMessage, Logger: o.Logger})
	psv1.RegisterShardServer(s.grpc, &shardService{n: o.Node})
	psv1.RegisterStandbyServer(s.grpc, &standbyService{s})
	if o.Shard == 0 || o.Witness != nil {
		psv1.RegisterCoordinatorServer(s.grpc, &coordinatorService{s: s})
	} else { // for an answer that says which shard this is
		psv1.RegisterCoordinatorServer(s.grpc, psv1.UnimplementedCoordinatorServer{})
	}
	healthpb.RegisterHealthServer(s.grpc, s.health)
	reflection.Register(s.grpc)
	s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	return s, nil
}

// Serve answers calls from l, which it closes, until Stop.
func (s *Server) Serve(l net.Listener) error {
	s.wg.Add(1)
	go s.watch()
	if err := s.grpc.Serve(wire.Bound(l)); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("ps: serving %s: %w", l.Addr(), err)
	}
	return nil
}

// watch reports to the health service whether there is a state to serve.
func (s *Server) watch() {
	defer s.wg.Done()
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	for {
		st, err := s.o.Node.Status(s.run)
		if c := s.cluster.Load(); err == nil && c != nil {
			err = c.Ready()
		}
		serving := healthpb.HealthCheckResponse_NOT_SERVING
		if err == nil && st.Generation > 0 && s.o.Node.InCharge() {
			serving = healthpb.HealthCheckResponse_SERVING
		}
		s.health.SetServingStatus("", serving)
		select {
		case <-s.run.Done():
			return
		case <-t.C:
		}
	}
}

// Coordinate says which cluster coordinates in this process from now on, nil for none: shard 0 has another process. It is for shard 0.
func (s *Server) Coordinate(c *coordinator.Cluster) { s.cluster.Store(c) }

// Cluster is what coordinates in this process now, or nil.
func (s *Server) Cluster() *coordinator.Cluster { return s.cluster.Load() }

// coordinating answers calls to the coordinator that this process is not, or was not to the end of the call: somebody else may be.
func (s *Server) coordinating(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if s.o.Shard != 0 || !strings.HasPrefix(info.FullMethod, "/"+psv1.Coordinator_ServiceDesc.ServiceName+"/") {
		return next(ctx, req)
	}
	c := s.cluster.Load()
	if c == nil {
		if err := s.o.Node.Refuses(); err != nil {
			return nil, failed(err)
		}
		return nil, failed(errNotYet)
	}
	resp, err := next(ctx, req)
	if why := s.o.Node.Refuses(); why != nil {
		return nil, failed(why)
	}
	if s.cluster.Load() != c {
		return nil, failed(errNotYet)
	}
	return resp, err
}

// errNotYet is that of a process of shard 0 that has just come to be in charge.
var errNotYet = fmt.Errorf("ps: shard 0: this process begins to coordinate: %w", ps.ErrNotReady)

// Drain takes no new calls and streams, and returns once those under way have ended, at the latest with the context. A node that has failed answers them with the reason
// meanwhile, where Stop alone would break them off: a worker that waits for its push learns why it fails. It is called once, before Stop.
func (s *Server) Drain(ctx context.Context) {
	ended := make(chan struct{})
	s.wg.Go(func() {
		defer close(ended)
		s.grpc.GracefulStop() // Stop ends it
	})
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Stop ends every call and stream at once and waits for their handlers. It may be called more than once.
func (s *Server) Stop() {
	s.stop()
	s.health.Shutdown()
	s.grpc.Stop()
	s.wg.Wait()
}

// host gives streams of workers to the node.
type host struct{ s *Server }

// Open implements [wire.Host].
func (h host) Open(ctx context.Context, hello wire.Hello) (ps.Conn, wire.Welcome, error) {
	o := &h.s.o
	if may := wire.Granted(ctx); hello.Role != ps.Reader && may < secure.Train {
		return nil, wire.Welcome{}, notGranted("the stream of a "+hello.Role.String(), fmt.Sprintf("shard %d", o.Shard), secure.Train, may)
	}
	// A worker has sent its recipe to the coordinator before; here the plan's hash stands for it.
	theirs := Identity{
		Role: hello.Role, Precision: hello.Precision, Job: hello.Job, Plan: hello.Plan, Source: hello.Source, Model: hello.Model, Layout: hello.Layout, Shape: hello.Shape,
		Recipe: o.Identity.Recipe,
	}
	if err := h.s.admission.same(fmt.Sprintf("shard %d", o.Shard), "worker "+hello.Worker, theirs); err != nil {
		return nil, wire.Welcome{}, err
	}
	if hello.Shard != o.Shard {
		return nil, wire.Welcome{}, notShard(o.Shard, hello.Shard)
	}
	st, err := o.Node.Status(ctx)
	if err != nil {
		return nil, wire.Welcome{}, err
	}
	if hello.Role == ps.Bench {
		conn, err := h.s.scratch.connect(ctx, o.Node, hello)
		return conn, wire.Welcome{Incarnation: st.Incarnation}, err
	}
	// A client's placement belongs to a generation: with another number of shards it would look for rows where they are not.
	if hello.Shards != 0 && st.Generation == hello.Generation && st.NumShards != hello.Shards && o.Node.InCharge() {
		return nil, wire.Welcome{}, fmt.Errorf("ps: worker %.80s knows of %d shards, shard %d of %d: %w", hello.Worker, hello.Shards, o.Shard, st.NumShards, ps.ErrMismatch)
	}
	conn, err := o.Node.Connect(ctx, hello.Session, hello.Generation, hello.Worker)
	if err == nil && hello.Role == ps.Reader {
		conn = ps.ReadOnly(conn)
	}
	return conn, wire.Welcome{Incarnation: st.Incarnation}, err
}

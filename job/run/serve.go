package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// ServeOptions are what serving shards takes beside the job. The zero value serves all of the job's shards.
type ServeOptions struct {
	// Shards are the indexes of the shards to serve, of ps.addresses; nil: all of them.
	Shards []int
	// Standby makes the process the second one of its shards, at their addresses of ps.standby; nil for Shards are all that have one.
	Standby bool
	// Listen, if not empty, is the address to listen at instead of the shard's own in ps.addresses, for one shard.
	Listen string
	// Insecure allows an address that others than this machine's processes can reach though nothing asks them who they are.
	Insecure bool
	// Logger is never a global; nil: discard.
	Logger *slog.Logger
	// Registerer takes the metrics; nil: none are kept.
	Registerer prometheus.Registerer
	// Notice is called with one line for the user. nil: none.
	Notice func(string)
	// Ready is called several times a second, with nil while all shards of the process have a state and do their part with it, and otherwise with what is missing; from one goroutine. nil: nobody is notified.
	Ready func(error)
	// Drain, once closed, makes the process take a last snapshot if it coordinates the shards, and return without an
	// error. nil: never.
	Drain <-chan struct{}
	// TakeSnapshot makes a process that coordinates the shards take a snapshot and continue, once for each value. nil: never.
	TakeSnapshot <-chan struct{}
	// Resume is nil to continue from what there is; false to start over, which shard 0's process does for all.
	Resume *bool
	// Memory is what the rows of the shards are taken from; nil has no limit.
	Memory *table.Memory
}

// lastSnapshotFor bounds the last snapshot of a process that ends: workers that are gone are not waited for.
const lastSnapshotFor = 10 * time.Second

// Serve serves shards of a job's parameter server until it is drained or the context ends. The process of shard 0
// coordinates the others and the workers.
//
// Errors: [*spec.ConfigError] and [pipeline.ErrConfig] for what the user can fix in the job, [pipeline.ErrUnavailable] for an
// address that cannot be listened at or a disk that is full.
func Serve(ctx context.Context, cfg *spec.Config, opts ServeOptions) (*result.ServeResult, error) {
	s := &serving{cfg: cfg, opts: opts, log: opts.Logger, began: time.Now()}
	s.run, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	certificates, err := watchSecrets(s.log, opts.Registerer, tlsOf(cfg), tokensOf(&cfg.PS))
	if err != nil {
		return nil, err
	}
	defer certificates.Close()
	err = s.open(ctx)
	if err == nil {
		stop := func() {}
		if s.zero != nil {
			stop = answerRequests(ctx, opts.TakeSnapshot, s, s.notice)
		}
		err = s.wait(ctx)
		stop()
	}
	err = errors.Join(err, s.close())
	if err != nil {
		return nil, fault.Unavailable(err)
	}
	return &result.ServeResult{Shards: s.opts.Shards, Snapshot: s.last, Seconds: time.Since(s.began).Seconds()}, nil
}

// serving is a process that serves shards.
type serving struct {
	cfg     *spec.Config
	opts    ServeOptions
	log     *slog.Logger
	began   time.Time
	id      rpc.Identity
	cluster *coordinator.Cluster // nil without shard 0, and where that has two processes
	nodes   []*shard.Node
	walog   *shard.Log // of all shards of this process, or nil
	servers []*rpc.Server
	zero    *rpc.Server // that of shard 0, or nil
	witness ps.Peer     // shard 0 as its witness sees it, or nil
	locks   []*fsx.Lock
	uploads *uploads // nil without, and in a process without shard 0
	failed  chan error
	// run ends before the servers do.
	run  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
	last string
}

// check completes the options.
func (s *serving) check() error {
	n := len(s.cfg.PS.Addresses)
	if n == 0 {
		return fault.Config("job: ps.addresses is not set: say where each shard listens, such as [127.0.0.1:7000, 127.0.0.1:7001]")
	}
	if len(s.opts.Shards) == 0 {
		for i := range n {
			if !s.opts.Standby || s.cfg.PS.Standby.Of(i) != "" {
				s.opts.Shards = append(s.opts.Shards, i)
			}
		}
	}
	if s.opts.Standby {
		if len(s.opts.Shards) == 0 {
			return fault.Config("job: no shard has a standby: say in ps.standby.addresses where they listen")
		}
		for _, i := range s.opts.Shards {
			if s.cfg.PS.Standby.Of(i) == "" {
				return fault.Config("job: shard %d has no standby: say in ps.standby.addresses[%d] where it listens", i, i)
			}
		}
	}
	slices.Sort(s.opts.Shards)
	s.opts.Shards = slices.Compact(s.opts.Shards)
	for _, i := range s.opts.Shards {
		if i < 0 || i >= n {
			return noShard(i, n)
		}
	}
	if w := s.cfg.PS.Standby.Witness(n); w > 0 && slices.Contains(s.opts.Shards, 0) && slices.Contains(s.opts.Shards, w) {
		return fault.Config("job: shard %d decides which of the two processes of shard 0 is in charge (ps.standby.addresses[0]), so it must not end with one of them: give it a process of its own, with --shard", w)
	}
	if s.opts.Listen != "" && len(s.opts.Shards) != 1 {
		return fault.Config("job: --listen is for one shard, and this process has %d; name it with --shard", len(s.opts.Shards))
	}
	if s.opts.Listen != "" {
		if err := wire.CheckAddress(s.opts.Listen); err != nil {
			return fault.Config("job: --listen: %w", err)
		}
	}
	if _, err := wiring.ClientConfig(&s.cfg.PS); err != nil { // before anything is opened
		return err
	}
	return s.guarded()
}

// guarded refuses an address that strangers can reach where nothing asks them who they are: who reaches a shard can
// read and change parameters.
func (s *serving) guarded() error {
	conf, err := wiring.ServerConfig(&s.cfg.PS)
	if err != nil {
		return err
	}
	if s.opts.Insecure || conf.TLS != nil && conf.Authenticates() {
		return nil
	}
	for _, i := range s.opts.Shards {
		if addr := s.listens(i); !wire.IsLocal(addr) {
			return fault.Config("job: shard %d would listen at %s, which others than this machine can reach, and nothing keeps strangers from reading and changing parameters: "+
				"set ps.tls with ps.token (or with ps.tls.ca, for certificates on both sides), or say --insecure on a network that you trust", i, addr)
		}
	}
	return nil
}

// listens is where a shard of this process listens.
func (s *serving) listens(shard int) string {
	if s.opts.Listen != "" {
		return s.opts.Listen
	}
	mine, _ := s.pair(shard)
	return mine
}

// pair are the addresses of this process for a shard, and of the other one of its pair.
func (s *serving) pair(shard int) (mine, other string) {
	mine, other = s.cfg.PS.Addresses[shard], s.cfg.PS.Standby.Of(shard)
	if s.opts.Standby {
		return other, mine
	}
	return mine, other
}

// open opens the shards of this process and serves them. What it has opened when it fails close closes.
func (s *serving) open(ctx context.Context) error {
	m, err := wiring.Model(s.cfg)
	if err != nil {
		return err
	}
	plan, err := wiring.TrainGraph(s.cfg, m, wiring.TrainReading(s.cfg, s.cfg.Epochs), nil, nil, trainstep.StepOptions{Seed: s.cfg.Seed})
	if err != nil {
		return err
	}
	s.id = wiring.Identity(s.cfg, plan, m)
	if err := s.claim(); err != nil {
		return err
	}
	metrics, err := newTelemetry(s.opts.Registerer)
	if err != nil {
		return err
	}
	if err := s.prepareDir(ctx, m.Layout(), psHooks(metrics)); err != nil {
		return err
	}
	// Listening comes before loading: clients get that the shard is starting.
	listeners, err := s.listen()
	defer func() {
		for _, l := range listeners { // those that no server has taken
			_ = l.Close()
		}
	}()
	if err != nil {
		return err
	}
	o, err := wiring.ClusterOptions(ctx, s.cfg, plan, m, s.log)
	if err != nil {
		return err
	}
	o.Hooks = psHooks(metrics)
	if err := s.complete(ctx, &o); err != nil {
		return err
	}
	for _, i := range s.opts.Shards {
		if err := s.openShard(ctx, o, i, listeners); err != nil {
			return err
		}
	}
	return nil
}

// paired reports whether a shard has two processes.
func (s *serving) paired(shard int) bool { return s.cfg.PS.Standby.Of(shard) != "" }

// claim makes the shards in the job's dir this process's.
func (s *serving) claim() error {
	for _, i := range s.opts.Shards {
		name, what := stored.LockName(i), fmt.Sprintf("shard %d is served already, by another process that uses", i)
		if s.opts.Standby {
			name, what = stored.StandbyLockName(i), fmt.Sprintf("shard %d has a standby already, another process that uses", i)
		}
		lock, err := stored.Claim(s.cfg, name, what)
		if err != nil {
			return err
		}
		s.locks = append(s.locks, lock)
	}
	return nil
}

// prepareDir has the process of shard 0, which does so for all, bring snapshots back from a store, put them aside where all starts over, and compare the job with them.
func (s *serving) prepareDir(ctx context.Context, l *param.Layout, hooks *ps.Hooks) (err error) {
	first := s.opts.Shards[0] == 0 && !s.opts.Standby
	fresh := s.opts.Resume != nil && !*s.opts.Resume
	switch {
	case fresh && !first:
		return fault.Config("job: --resume=false is for the process of shard 0")
	case fresh && s.paired(0):
		return fault.Config("job: --resume=false is not for a job whose shard 0 has a standby, which may be the one that has the state: end all processes, move %s and the logs of both away (ps.wal.dir), and start them again",
			stored.SnapshotsIn(s.cfg))
	case !first:
		return nil
	}
	if s.uploads, err = openUploads(ctx, s.cfg, fresh, s.log, hooks, s.notice); err != nil {
		return err
	}
	if fresh {
		if err := stored.BeginAnew(s.cfg, s.notice); err != nil {
			return err
		}
	}
	return stored.FitsNewest(s.cfg, l, s.notice)
}

// listen opens the addresses of the shards, by shard. The caller closes them, also where there is an error.
func (s *serving) listen() (map[int]net.Listener, error) {
	listeners := map[int]net.Listener{}
	for _, i := range s.opts.Shards {
		addr := s.listens(i)
		if _, err := wire.Target(addr); err != nil {
			return listeners, fault.Config("job: --listen: %w", err)
		}
		l, err := wire.Listen(addr)
		if err != nil {
			return listeners, fault.Mark(
				fmt.Errorf("job: shard %d: %w", i, err), pipeline.ErrUnavailable,
				"end what listens there (this shard, perhaps), fix ps.addresses, or say with --listen where else to listen on this machine",
			)
		}
		listeners[i] = l
	}
	return listeners, nil
}

// complete adds to the options of the cluster what is this process's: memory, logger, and the log of its shards, which it opens.
func (s *serving) complete(ctx context.Context, o *coordinator.Options) (err error) {
	o.Memory, o.Writers = tableMemory(s.cfg, s.opts.Memory), len(s.opts.Shards)
	if err := watchMemory(s.opts.Registerer, o.Memory); err != nil {
		return err
	}
	sayMemory(ctx, s.log, o.Layout, o.Memory)
	s.failed = make(chan error, 2*len(s.opts.Shards)+1)
	o.Logger, o.Grace = s.log, min(grace, o.Lease/2)
	o.GaveUp = func(err error) { s.failed <- unsafe(err) } // once, and there is room for it
	if o.Log == nil {
		return nil
	}
	if s.opts.Standby { // the first process may keep its logs in the same folder
		o.Log.Dir = filepath.Join(o.Log.Dir, "standby")
	}
	if s.walog, err = o.OpenLog(s.opts.Shards...); err != nil {
		return err
	}
	o.Shared = s.walog
	return nil
}

// openShard opens a shard, serves it at its address, which it takes out of listeners, and has it follow the other process of its pair. Shard 0 comes with what coordinates, where that is
// this process always.
func (s *serving) openShard(ctx context.Context, o coordinator.Options, i int, listeners map[int]net.Listener) (err error) {
	var node *shard.Node
	if i == 0 && !s.paired(0) {
		o.Addrs = wiring.Addrs(&s.cfg.PS, s.cfg.PS.Addresses)
		if o.Dial, err = s.dialer(s.coordinator(o.Dir), o.FS, o.Hooks); err != nil {
			return err
		}
		s.uploads.of(&o)
		if s.cluster, err = coordinator.Open(ctx, o); err != nil {
			return err
		}
		s.uploads.start(ctx, s.cluster)
		node = s.cluster.First()
	} else {
		no := o.Node(i, len(s.cfg.PS.Addresses))
		no.Led = i == 0
		if s.paired(i) {
			no.Pair = &shard.PairOptions{Standby: s.opts.Standby, Lease: time.Duration(s.cfg.PS.Standby.Lease)}
		}
		if node, err = shard.Open(ctx, no); err != nil {
			return err
		}
		s.nodes = append(s.nodes, node)
	}
	if i == s.cfg.PS.Standby.Witness(len(s.cfg.PS.Addresses)) && i > 0 {
		dial, err := s.dialer(s.coordinator(o.Dir), o.FS, o.Hooks)
		if err != nil {
			return err
		}
		if s.witness, err = dial(0, wiring.Addrs(&s.cfg.PS, s.cfg.PS.Addresses[:1])[0]); err != nil {
			return err
		}
	}
	if err := s.serve(i, node, o.Dir, listeners[i]); err != nil {
		return err
	}
	delete(listeners, i)
	if err := s.stand(i, node); err != nil {
		return err
	}
	if i == 0 && s.paired(0) {
		s.lead(o, node)
	}
	return nil
}

// lead lets this process, one of the two of shard 0, coordinate whenever it is in charge. o are the options of the cluster without who coordinates.
func (s *serving) lead(o coordinator.Options, node *shard.Node) {
	open := func(ctx context.Context, term uint64) (_ *coordinator.Cluster, err error) {
		me, o := s.coordinator(o.Dir), o
		me.Term, me.Refuses = term, node.Refuses
		o.First, o.Addrs = node, wiring.Addrs(&s.cfg.PS, s.cfg.PS.Addresses)
		if o.Dial, err = s.dialer(me, coordinator.Leased(o.FS, node), o.Hooks); err != nil {
			return nil, err
		}
		return coordinator.Open(ctx, o)
	}
	s.wg.Go(func() {
		if err := rpc.Lead(s.run, s.zero, open, s.log); err != nil {
			s.failed <- err
		}
	})
}

// Snapshot takes a snapshot, in the process that coordinates. Errors: [ps.ErrNotReady] in another one, those of [coordinator.Cluster.Snapshot].
func (s *serving) Snapshot(ctx context.Context, o ps.SnapshotOptions) (ps.SnapshotInfo, error) {
	if c := s.coordinates(); c != nil {
		return c.Snapshot(ctx, o)
	}
	return ps.SnapshotInfo{}, fmt.Errorf("ps: the other process of shard 0 coordinates, or none does at the moment: %w", ps.ErrNotReady)
}

// coordinates is the coordinator where it is in this process now, or nil.
func (s *serving) coordinates() *coordinator.Cluster {
	if s.zero == nil {
		return nil
	}
	return s.zero.Cluster()
}

// grace is how long a worker's connection may be broken before its splits count as left behind.
const grace = 2 * time.Second

// coordinator is this process as one that calls shards to coordinate them, or to decide which process of shard 0 does. dir is where the snapshots are.
func (s *serving) coordinator(dir string) *rpc.Coordinator {
	host, err := os.Hostname()
	if err != nil {
		host = "a host without a name"
	}
	return &rpc.Coordinator{ID: rand.Uint64(), Process: fmt.Sprintf("process %d on %s", os.Getpid(), host), Dir: dir}
}

// dialer makes shards as who coordinates them sees them, also those of this process.
func (s *serving) dialer(me *rpc.Coordinator, fs fsx.FS, hooks *ps.Hooks) (func(shard int, addr string) (ps.Peer, error), error) {
	conf, err := wiring.ClientConfig(&s.cfg.PS)
	if err != nil {
		return nil, err
	}
	return func(shard int, addr string) (ps.Peer, error) {
		from := ""
		if !slices.Contains(wiring.Addrs(&s.cfg.PS, s.cfg.PS.Addresses), addr) { // dir keeps what the command said
			from = "monolith ps scale"
		}
		addr, second := ps.SplitAddr(addr)
		t := rpc.Target{
			From:     from,
			Identity: s.id, Shard: shard, Addr: addr, Config: conf, Coordinator: me,
			Conn: wire.ConnOptions{RetryFor: wiring.RetryFor(&s.cfg.PS), MaxMessage: int(s.cfg.PS.MaxMessage), Logger: s.log},
		}
		if second != "" {
			return rpc.NewPair(t, second, rpc.PairOptions{Lease: time.Duration(s.cfg.PS.Standby.Lease), FS: fs, Logger: s.log, Hooks: hooks})
		}
		return rpc.NewPeer(t)
	}, nil
}

// stand lets a shard of this process follow the other process of its pair, where it has one, whenever that is in charge.
func (s *serving) stand(i int, node *shard.Node) error {
	_, other := s.pair(i)
	if other == "" {
		return nil
	}
	conf, err := wiring.ClientConfig(&s.cfg.PS)
	if err != nil {
		return err
	}
	s.wg.Go(func() {
		if err := rpc.Stand(s.run, node, rpc.Target{Identity: s.id, Shard: i, Addr: other, Config: conf}, s.log); err != nil {
			s.failed <- err
		}
	})
	return nil
}

func (s *serving) serve(shard int, node *shard.Node, dir string, l net.Listener) error {
	conf, err := wiring.ServerConfig(&s.cfg.PS)
	if err != nil {
		return err
	}
	o := rpc.ServerOptions{
		Identity: s.id, Shard: shard, Node: node, Config: conf,
		MaxMessage: int(s.cfg.PS.MaxMessage), Dir: dir, Logger: s.log,
	}
	if shard == 0 {
		o.Cluster = s.cluster
	}
	if s.witness != nil && shard == s.cfg.PS.Standby.Witness(len(s.cfg.PS.Addresses)) {
		o.Witness = s.witness.(ps.Promoter)
	}
	server, err := rpc.NewServer(o)
	if err != nil {
		return fault.Config("ps.tls: %w", err)
	}
	if s.servers = append(s.servers, server); shard == 0 {
		s.zero = server
	}
	s.wg.Go(func() {
		if err := server.Serve(l); err != nil {
			s.failed <- err
		}
	})
	what := "shard"
	if s.opts.Standby {
		what = "the standby of shard"
	}
	s.notice("%s %d of %d listens at %s", what, shard, len(s.cfg.PS.Addresses), l.Addr())
	return nil
}

// wait returns when the process is asked to end, or a shard cannot continue.
func (s *serving) wait(ctx context.Context) error {
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	ready, removed := false, map[int]bool{}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-s.failed:
			return err
		case <-s.opts.Drain:
			s.ready(errEnds)
			s.snapshot(ctx)
			s.uploads.finish(ctx)
			return nil
		case <-poll.C:
		}
		for _, n := range s.all() {
			st, err := n.Status(ctx)
			if err != nil { // its log cannot be written: nothing more can be promised
				s.lastWords(ctx)
				return err
			}
			if gone := st.Shard >= st.NumShards; gone != removed[st.Shard] {
				if removed[st.Shard] = gone; gone {
					s.notice("shard %d was removed: the job has %d shards now; it is empty, and its process may be ended", st.Shard, st.NumShards)
				}
			}
		}
		s.ready(s.missing(ctx))
		c := s.coordinates()
		if c == nil {
			ready = false
			continue
		}
		err := c.Ready()
		if failure.Lasting(err) && s.coordinates() == c {
			return err
		}
		if err == nil && !ready {
			s.notice("%s", state(c))
		}
		ready = err == nil
	}
}

// errEnds is why a process that drains is not ready.
var errEnds = errors.New("job: the process ends")

// missing returns what shards of this process wait for, or nil.
func (s *serving) missing(ctx context.Context) error {
	var errs []error
	for _, n := range s.all() {
		errs = append(errs, n.Ready(ctx))
	}
	if c := s.coordinates(); c != nil {
		errs = append(errs, c.Ready())
	}
	return errors.Join(errs...)
}

func (s *serving) ready(missing error) {
	if s.opts.Ready != nil {
		s.opts.Ready(missing)
	}
}

// lastWordsFor bounds how long calls under way are answered by a shard that has failed. Workers end their streams when they get the reason; who only looks rows up may not.
const lastWordsFor = time.Second

// lastWords has a shard that has failed answer the calls under way with the reason; who calls later finds nobody.
func (s *serving) lastWords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastWordsFor)
	defer cancel()
	var wg sync.WaitGroup
	for _, server := range s.servers {
		wg.Go(func() { server.Drain(ctx) })
	}
	wg.Wait()
}

// state says in a line what the shards hold.
func state(c *coordinator.Cluster) string {
	var b strings.Builder
	if n := c.NumShards(); n == 1 {
		b.WriteString("1 shard is ready")
	} else {
		fmt.Fprintf(&b, "%d shards are ready", n)
	}
	switch r := c.Restored(); {
	case r != nil:
		fmt.Fprintf(&b, ", continuing from snapshot %s (%d rows)", r.Path, r.Rows())
	case c.Continued():
		b.WriteString(", continuing from what they have")
	default:
		b.WriteString(", with initial values")
	}
	for _, err := range c.Skipped() {
		fmt.Fprintf(&b, "; passed over: %v", err)
	}
	for _, line := range c.Changes() {
		fmt.Fprintf(&b, "; %s", line)
	}
	return b.String()
}

func (s *serving) all() []*shard.Node {
	if s.cluster == nil {
		return s.nodes
	}
	return append([]*shard.Node{s.cluster.First()}, s.nodes...)
}

// snapshot takes the last snapshot.
func (s *serving) snapshot(ctx context.Context) {
	c := s.coordinates()
	if c == nil {
		s.notice("shard(s) %v end; workers wait %v for them to come back", s.opts.Shards, s.cfg.PS.Retry)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastSnapshotFor)
	defer cancel()
	newest, err := c.Newest(ctx)
	if err != nil {
		s.notice("no last snapshot could be taken (%v); the ones before are whole", err)
		return
	}
	info, err := c.Snapshot(ctx, ps.SnapshotOptions{IfChanged: true})
	if err != nil {
		s.notice("no last snapshot could be taken (%v); the ones before are whole", err)
		if newest != nil {
			s.last = newest.Path
		}
		return
	}
	s.last = info.Path
	if newest != nil && newest.Path == info.Path {
		s.notice("nothing has changed since snapshot %s", info.Path)
		return
	}
	s.notice("snapshot %s taken", info.Path)
}

func (s *serving) close() error {
	// Streams end before shards do: a client whose stream breaks tries again, one that gets the end stops.
	s.stop()
	for _, server := range s.servers {
		server.Stop()
	}
	s.wg.Wait()
	s.uploads.close()
	var errs []error
	if s.witness != nil {
		errs = append(errs, s.witness.Close())
	}
	if s.cluster != nil {
		errs = append(errs, s.cluster.Close(context.Background()))
	}
	for _, n := range s.nodes {
		errs = append(errs, n.Close())
	}
	errs = append(errs, s.walog.Close())
	for _, l := range s.locks {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

func (s *serving) notice(format string, args ...any) {
	if s.opts.Notice != nil {
		s.opts.Notice(fmt.Sprintf(format, args...))
	}
}

package rpc

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/monolith-go/monolith/model/param"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
	"github.com/monolith-go/monolith/ps/wire"
)

// Options configure a [Remote].
type Options struct {
	Identity Identity
	Layout   *param.Layout
	// Addrs are the addresses of the shards, in their order: host:port or unix:path, of a shard with a standby those of both processes ([ps.JoinAddr]). The first must be that of shard 0; where there are
	// more or fewer shards now, which it says, the others are where it says too.
	Addrs  []string
	Config wire.ClientConfig
	// RetryFor is how long a call retries to reach its process; default 30 s.
	RetryFor time.Duration
	// WaitFor is how long Dial waits for a cluster that does not answer or is not ready. Default:
	// RetryFor; negative: one attempt. It also bounds each attempt, to at least a second. Later
	// calls retry for as long while shard 0 answers that another shard is away or not ready.
	WaitFor time.Duration
	// MaxMessage is the largest request or reply, bytes; default 256 MiB.
	MaxMessage int
	Logger     *slog.Logger
	Hooks      *ps.Hooks
	// WrapConn is as in [coordinator.Options].
	WrapConn func(worker string, shard int, conn ps.Conn) ps.Conn
}

const (
	defaultRetryFor = 30 * time.Second
	minBackoff      = 20 * time.Millisecond
	maxBackoff      = time.Second
	leastAttempt    = time.Second // of a call that is not made for as long as it takes
)

// Remote is a cluster in other processes, as a worker sees it. Its methods may overlap. Calls whose process does not
// answer are repeated with growing waits for Options.RetryFor; then they return [ps.ErrUnreachable].
type Remote struct {
	o Options
	// coords are the processes of shard 0, one or two, and at which of them has coordinated last.
	coords []coordinating
	at     atomic.Int32

	mu    sync.Mutex
	info  ps.ClusterInfo
	peers []*peer // of the generation of info; replaced, never changed
	old   []*peer // that streams of former generations may use
	// silent is since when the log says that we wait for the cluster; zero: we do not.
	silent time.Time
	// silentBy is the call that waits for what shard 0 reports of other shards; nil: shard 0 itself
	// is silent.
	silentBy *waiting
}

// coordinating is a process of shard 0.
type coordinating struct {
	t *Target
	c psv1.CoordinatorClient
}

// Dial connects to a cluster and waits until it is ready. Errors: [ps.ErrUnreachable], [ps.ErrMismatch],
// [wire.ErrVersion], [wire.ErrNotAdmitted], the context's.
func Dial(ctx context.Context, o Options) (*Remote, error) {
	if o.RetryFor == 0 {
		o.RetryFor = defaultRetryFor
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	r := &Remote{o: o}
	if err := r.adopt(ps.ClusterInfo{Addrs: o.Addrs}); err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	for p := r.peers[0]; p != nil; p = p.other {
		r.coords = append(r.coords, coordinating{&p.t, psv1.NewCoordinatorClient(p.cc)})
	}
	if err := r.meet(ctx); err != nil {
		return nil, errors.Join(err, r.Close(ctx))
	}
	return r, nil
}

// meet asks for the first time.
func (r *Remote) meet(ctx context.Context) error {
	if r.o.WaitFor == 0 {
		return r.refresh(ctx)
	}
	in, err := until(ctx, r, patience{total: r.o.WaitFor, each: max(r.o.WaitFor, leastAttempt)}, psv1.CoordinatorClient.Info, &psv1.InfoRequest{})
	if err != nil {
		return err
	}
	return r.learn(in)
}

// refresh asks for the generation that clients begin in.
func (r *Remote) refresh(ctx context.Context) error {
	in, err := again(ctx, r, psv1.CoordinatorClient.Info, &psv1.InfoRequest{})
	if err != nil {
		return err
	}
	return r.learn(in)
}

// learn adopts what shard 0 has answered.
func (r *Remote) learn(in *psv1.InfoResponse) (err error) {
	info := ps.ClusterInfo{Generation: in.Generation, Addrs: in.Addresses, Dir: in.Dir}
	if in.Partial {
		info.Recovery = ps.Partial
	}
	for _, s := range in.Skipped {
		info.Skipped = append(info.Skipped, errors.New(s))
	}
	if info.Restored, err = fromManifest(in.Restored, in.RestoredPath); err != nil {
		return err
	}
	if info.Newest, err = fromManifest(in.Newest, in.NewestPath); err != nil {
		return err
	}
	return r.adopt(info)
}

// adopt takes note of what the cluster is like now, and where its shards are: where they are as many as the caller has addresses for, there.
func (r *Remote) adopt(info ps.ClusterInfo) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if info.Generation < r.info.Generation {
		return nil // two have asked, and the older answer comes last
	}
	if n := len(info.Addrs); n == 0 || n == len(r.o.Addrs) {
		info.Addrs = r.o.Addrs
	}
	var peers, gone []*peer
	for i, of := range info.Addrs {
		addr, standby := ps.SplitAddr(of)
		if i < len(r.peers) && (i == 0 || r.peers[i].t.Addr == addr && r.peers[i].t.Standby == standby) { // shard 0 is where the caller says
			peers = append(peers, r.peers[i])
			continue
		}
		from := ""
		if !r.given(addr) || !r.given(standby) {
			from = r.coords[r.at.Load()].t.String()
		}
		p, err := newPeer(Target{
			Identity: r.o.Identity, Shard: i, Addr: addr, Standby: standby, Config: r.o.Config, From: from,
			Conn: wire.ConnOptions{RetryFor: r.o.RetryFor, MaxMessage: r.o.MaxMessage, Logger: r.o.Logger},
		})
		if err != nil {
			return err
		}
		peers = append(peers, p)
	}
	for _, p := range r.peers {
		if !slices.Contains(peers, p) {
			gone = append(gone, p)
		}
	}
	r.info, r.peers, r.old = info, peers, append(r.old, gone...)
	return nil
}

// given reports whether the caller named an address, rather than shard 0. The address of no process is.
func (r *Remote) given(addr string) bool {
	return addr == "" || slices.ContainsFunc(r.o.Addrs, func(of string) bool {
		first, standby := ps.SplitAddr(of)
		return addr == first || addr == standby
	})
}

// now returns the shards and the generation in which they are those.
func (r *Remote) now() ([]*peer, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers, r.info.Generation
}

// again makes a call to the coordinator, and makes it again for as long as Options.RetryFor; see until.
func again[Req, Resp any](ctx context.Context, r *Remote, f func(psv1.CoordinatorClient, context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req) (*Resp, error) {
	return until(ctx, r, patience{total: r.o.RetryFor, of: "ps.retry", relayed: r.o.WaitFor}, f, req)
}

// waiting identifies a call that may wait. It is not empty, so that each has its own address.
type waiting struct{ _ byte }

// patience is how long a call is made again.
type patience struct {
	total time.Duration
	// each bounds an attempt; 0: it takes what it takes.
	each time.Duration
	// of names the setting that says so, if not empty.
	of string
	// relayed replaces total and of where shard 0 answers that another shard is away or not ready;
	// 0: it does not.
	relayed time.Duration
}

// after returns how long to retry after a failure, and the setting that says so, if any.
func (p patience) after(relayed bool) (total time.Duration, of string) {
	if relayed && p.relayed != 0 {
		return p.relayed, ""
	}
	return p.total, p.of
}

// attempt returns the context of one attempt.
func (p patience) attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.each == 0 {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, p.each)
}

// until makes a call to the coordinator, and retries while shard 0 does not answer or the cluster is
// not ready. It asks the two processes of shard 0 in turn where it has a standby. Where shard 0 worked
// on the call for as long as we retry, and then answered, we did not wait for it: the time counts from
// that failure, once.
func until[Req, Resp any](ctx context.Context, r *Remote, p patience, f func(psv1.CoordinatorClient, context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req) (*Resp, error) {
	began, worked := time.Now(), false
	by := &waiting{}
	defer r.ended(by)
	for wait, tries := minBackoff, 1; ; tries++ {
		at := r.at.Load()
		to := r.coords[at]
		one, cancel := p.attempt(ctx)
		asked := time.Now()
		resp, err := f(to.c, to.t.Identity.outgoing(one), req, callOptions()...)
		known := from(one, to.t.String(), err)
		cancel()
		if err == nil {
			r.answered(ctx, by)
			return resp, nil
		}
		if ctx.Err() != nil || !lost(err, known) {
			return nil, known
		}
		relayed := relayed(err)
		total, of := p.after(relayed)
		if relayed && !worked && time.Since(asked) >= total {
			began, worked = time.Now(), true
		}
		r.at.CompareAndSwap(at, (at+1)%int32(len(r.coords)))
		if tries%len(r.coords) > 0 {
			continue // the other one may be in charge
		}
		tried := time.Since(began)
		if tried >= total {
			return nil, gaveUp(to.t, known, relayed, tried, of)
		}
		if !relayed {
			r.unanswered(ctx, nil, to.t.Addr, total, known)
		} else {
			r.unanswered(ctx, by, to.t.Addr, total, known)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(mathrand.N(wait)+1, total-tried)): // the last attempt is made when the time is over
		}
		wait = min(2*wait, maxBackoff)
	}
}

// unanswered logs that we wait for shard 0, once for all calls until one is answered. Where shard 0
// answers that another shard is away, by is the call that waits: the answers to other calls do not end
// that.
func (r *Remote) unanswered(ctx context.Context, by *waiting, addr string, atMost time.Duration, err error) {
	r.mu.Lock()
	logged := !r.silent.IsZero()
	if !logged {
		r.silent, r.silentBy = time.Now(), by
	}
	r.mu.Unlock()
	if !logged {
		r.o.Logger.WarnContext(ctx, "waiting for the parameter server", "addr", addr, "at_most", atMost, "err", err)
	}
}

// answered logs that shard 0 answers again, where the log says that we wait for it.
func (r *Remote) answered(ctx context.Context, by *waiting) {
	r.mu.Lock()
	since := r.silent
	if r.silentBy != nil && r.silentBy != by {
		since = time.Time{} // another call still waits
	} else {
		r.silent, r.silentBy = time.Time{}, nil
	}
	r.mu.Unlock()
	if !since.IsZero() {
		r.o.Logger.InfoContext(ctx, "the parameter server answers again", "duration", time.Since(since))
	}
}

// ended forgets a call that waited for another shard and gave up: its error says so.
func (r *Remote) ended(by *waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silentBy == by {
		r.silent, r.silentBy = time.Time{}, nil
	}
}

// gaveUp says that shard 0, or what it waits for, has not come for as long as was allowed.
func gaveUp(first *Target, known error, relayed bool, tried time.Duration, setting string) error {
	took := tried.Round(time.Millisecond).String()
	if setting != "" {
		took += " (" + setting + ")"
	}
	if relayed {
		text := strings.TrimPrefix(known.Error(), "ps: ")
		return &waitedError{fmt.Sprintf("ps: %s answers, and waits itself: %s; tried for %s; are all shards running (monolith ps)?", first, text, took), known}
	}
	return fmt.Errorf("%w; tried for %s; is it running (monolith ps JOB.yaml --shard 0)?", known, took)
}

// waitedError is a cluster that did not become ready. It is an [ps.ErrUnreachable].
type waitedError struct {
	text string
	err  error
}

// Error describes who waits for what.
func (e *waitedError) Error() string { return e.text }

// Unwrap returns the coordinator's error, and that waiting did not help.
func (e *waitedError) Unwrap() []error { return []error{e.err, ps.ErrUnreachable} }

// Client opens a client to all shards, as of now. Errors: [ps.ErrUnreachable], [ps.ErrRolledBack] when the shards go back
// at this moment, [ps.ErrMismatch], the context's.
func (r *Remote) Client(ctx context.Context, worker string) (*ps.Client, error) {
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	return r.ClientAt(ctx, worker, r.Info().Generation)
}

// ClientAt opens a client to the shards' state of a generation.
func (r *Remote) ClientAt(ctx context.Context, worker string, generation uint64) (*ps.Client, error) {
	conns, err := r.connect(ctx, worker, generation, r.o.Identity.Role)
	if err != nil {
		return nil, err
	}
	return r.client(worker, conns), nil
}

// client makes a client of open streams.
func (r *Remote) client(worker string, conns []ps.Conn) *ps.Client {
	return ps.NewClient(ps.ClientOptions{
		Layout: r.o.Layout, Worker: worker, Conns: conns, Precision: r.o.Identity.Precision, Hooks: r.o.Hooks, Partial: r.Info().Recovery == ps.Partial,
	})
}

// connect opens the streams of a new session, in a role.
func (r *Remote) connect(ctx context.Context, worker string, generation uint64, role ps.Role) ([]ps.Conn, error) {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	session := binary.LittleEndian.Uint64(b[:]) | 1
	// Which shards there are belongs to a generation.
	peers, of := r.now()
	if of != generation && role != ps.Bench { // whose scratch is of no generation
		if err := r.refresh(ctx); err != nil {
			return nil, err
		}
		if peers, of = r.now(); of != generation {
			return nil, fmt.Errorf("ps: the shards' state is of generation %d now, not %d: %w", of, generation, ps.ErrRolledBack)
		}
	}
	conns := make([]ps.Conn, len(peers))
	for i, p := range peers {
		t := p.t
		t.Identity.Role = role
		conn, err := connect(ctx, p.cc, t, len(peers), session, generation, worker)
		if err != nil {
			for _, open := range conns[:i] {
				err = errors.Join(err, open.Close(ctx, true))
			}
			return nil, err
		}
		if conns[i] = conn; r.o.WrapConn != nil {
			conns[i] = r.o.WrapConn(worker, i, conn)
		}
	}
	return conns, nil
}

// Reader opens a client that can look up and read dense tensors, and neither push nor take over splits.
func (r *Remote) Reader(ctx context.Context, worker string) (*ps.Client, error) {
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	conns, err := r.connect(ctx, worker, r.Info().Generation, ps.Reader)
	if err != nil {
		return nil, err
	}
	return r.client(worker, conns), nil
}

// Bench opens a stream to each shard in which rows are looked up and pushed that are the benchmarks' alone ([shard.Node.Scratch]): the model does not
// change. Streams of all benchmarks work on the same rows of a shard, which are gone when the last one ends; each has a split of its own. One that breaks is not continued ([ps.ErrRolledBack]). The caller closes them.
func (r *Remote) Bench(ctx context.Context, name string) ([]ps.Conn, error) {
	return r.connect(ctx, name, shard.ScratchGeneration, ps.Bench)
}

// Probe asks a shard what it has to work with, and has it make so many blocks durable on each of its disks; see [shard.Node.Probe].
func (r *Remote) Probe(ctx context.Context, index, blocks int) (ps.Probe, error) {
	peers, _ := r.now()
	p := peers[index]
	resp, err := call(ctx, &p.t, p.s.Probe, &psv1.ProbeRequest{Blocks: uint32(max(blocks, 0))})
	if err != nil {
		return ps.Probe{}, err
	}
	return fromProbe(resp), nil
}

// connect opens the stream of a session to a shard, of so many; 0: that is not compared.
func connect(ctx context.Context, cc *wire.Client, t Target, shards int, session, generation uint64, worker string) (ps.Conn, error) {
	c, err := wire.Dial(ctx, cc, wire.Hello{
		Role: t.Identity.Role, Job: t.Identity.Job, Plan: t.Identity.Plan, Source: t.Identity.Source, Model: t.Identity.Model,
		Precision: t.Identity.Precision, Layout: t.Identity.Layout, Shape: t.Identity.Shape, Shards: shards, Shard: t.Shard, Generation: generation, Session: session, Worker: worker,
	}, t.Conn)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func wrongShard(t Target, is int) error {
	return fmt.Errorf("ps: what answers at %s is shard %d, not %d: ps.addresses are in another order there: %w", t.Addr, is, t.Shard, ps.ErrMismatch)
}

// Info returns what the cluster was like when it was asked last.
func (r *Remote) Info() ps.ClusterInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.info
}

// NumShards asks how many shards there are.
func (r *Remote) NumShards(ctx context.Context) (int, error) {
	if err := r.refresh(ctx); err != nil {
		return 0, err
	}
	peers, _ := r.now()
	return len(peers), nil
}

// Restored returns the snapshot that the cluster's state goes back to, or nil.
func (r *Remote) Restored() *ps.SnapshotInfo { return r.Info().Restored }

// Skipped returns, for each damaged snapshot that was passed over, which it was and why.
func (r *Remote) Skipped() []error { return r.Info().Skipped }

// Newest is [coordinator.Cluster.Newest]. Worker state is left out.
func (r *Remote) Newest(ctx context.Context) (*ps.SnapshotInfo, error) {
	if err := r.refresh(ctx); err != nil {
		return nil, err
	}
	if in := r.Info(); in.Newest != nil {
		return in.Newest, nil
	}
	return r.Info().Restored, nil
}

// Glance is Newest for one who looks how far shard 0 is: it is asked once, not waited for if it is not ready or silent, and not followed to other shards. nil: there is none.
func (r *Remote) Glance(ctx context.Context) (*ps.SnapshotInfo, error) {
	in, err := until(ctx, r, patience{each: leastAttempt}, psv1.CoordinatorClient.Info, &psv1.InfoRequest{})
	if err != nil {
		return nil, err
	}
	if newest, err := fromManifest(in.Newest, in.NewestPath); newest != nil || err != nil {
		return newest, err
	}
	return fromManifest(in.Restored, in.RestoredPath)
}

// Snapshot is [coordinator.Cluster.Snapshot]. A call whose connection breaks is made again, so there may be one snapshot more.
func (r *Remote) Snapshot(ctx context.Context, o ps.SnapshotOptions) (ps.SnapshotInfo, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Snapshot, &psv1.SnapshotRequest{Pin: o.Pin, Note: o.Note, Label: o.Label, IfChanged: o.IfChanged})
	if err != nil {
		return ps.SnapshotInfo{}, err
	}
	info, err := fromManifest(resp.Manifest, resp.Path)
	if err != nil {
		return ps.SnapshotInfo{}, err
	}
	info.Took, info.Stall = time.Duration(resp.TookNanos), time.Duration(resp.StallNanos)
	return *info, nil
}

// Scale is [coordinator.Cluster.Scale]. A call whose connection breaks is made again, and waits then for what was decided.
func (r *Remote) Scale(ctx context.Context, addrs []string) (ps.Scaled, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Scale, &psv1.ScaleRequest{Addresses: addrs})
	if err != nil {
		return ps.Scaled{}, err
	}
	return ps.Scaled{
		From: int(resp.From), To: int(resp.To), Snapshot: resp.Snapshot, Rows: resp.Rows, Again: resp.Again,
		Took: time.Duration(resp.TookNanos), Pause: time.Duration(resp.PauseNanos),
	}, nil
}

// Progress is [coordinator.Cluster.Progress].
func (r *Remote) Progress(ctx context.Context, source string) (map[string]ps.Progress, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Progress, &psv1.ProgressRequest{Source: source})
	if err != nil {
		return nil, err
	}
	out := map[string]ps.Progress{}
	for id, p := range fromSplits(resp.Progress) {
		out[id.Split] = p
	}
	return out, nil
}

// Stats is [coordinator.Cluster.Stats].
func (r *Remote) Stats(ctx context.Context) (ps.Stats, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Stats, &psv1.StatsRequest{})
	if err != nil {
		return ps.Stats{}, err
	}
	return fromStats(resp), nil
}

// Row is [coordinator.Cluster.Row].
func (r *Remote) Row(ctx context.Context, tbl int, fid int64, dst *table.Rows) (bool, error) {
	n := len(dst.Keys)
	err := r.Entries(ctx, tbl, []int64{fid}, dst)
	return len(dst.Keys) > n, err
}

// Entries is [coordinator.Cluster.Entries].
func (r *Remote) Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error {
	had := *dst
	err := r.entries(ctx, tbl, fids, dst)
	if !errors.Is(err, ps.ErrRolledBack) {
		return err
	}
	if err := r.refresh(ctx); err != nil {
		return err
	}
	*dst = had
	return r.entries(ctx, tbl, fids, dst)
}

func (r *Remote) entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error {
	peers, _ := r.now()
	for i, of := range ps.ByShard(fids, len(peers)) {
		if len(of) == 0 {
			continue
		}
		if err := peers[i].Entries(ctx, tbl, of, dst); err != nil {
			return err
		}
	}
	return nil
}

// Tally is [coordinator.Cluster.Tally].
func (r *Remote) Tally(ctx context.Context) (tables []tally.Slots, newest int64, err error) {
	peers, _ := r.now()
	return ps.TallyOf(ctx, peers)
}

// Held is what one shard holds.
type Held struct {
	// Addr is as in [ps.JoinAddr].
	Addr  string
	Stats ps.Stats
	// Err says why it is not known.
	Err error
}

// TallyHeld is Tally of the shards that say what they hold, and what each of them does, in their order. Errors: the context's, and those of a shard that does not answer
// any more; one that does not answer from the beginning is left out, and its Held says why.
func (r *Remote) TallyHeld(ctx context.Context) (tables []tally.Slots, newest int64, held []Held, err error) {
	peers, _ := r.now()
	held = make([]Held, len(peers))
	var g sync.WaitGroup
	for i, p := range peers {
		g.Go(func() {
			held[i].Addr = p.t.Addr
			held[i].Stats, held[i].Err = p.Stats(ctx)
		})
	}
	g.Wait()
	var answer []*peer
	for i, h := range held {
		if h.Err == nil {
			answer = append(answer, peers[i])
		}
	}
	if len(answer) == 0 {
		return nil, 0, held, errors.Join(context.Cause(ctx), held[0].Err)
	}
	tables, newest, err = ps.TallyOf(ctx, answer)
	return tables, newest, held, err
}

// ChangesFor is [coordinator.Cluster.ChangesFor]. It is asked once: see [ps.Consumer].
func (r *Remote) ChangesFor(ctx context.Context, shard int, req ps.ChangesRequest) (*ps.Changes, error) {
	peers, _ := r.now()
	if shard >= len(peers) {
		return nil, ps.OtherShards(req.Shards, len(peers))
	}
	return peers[shard].ChangesFor(ctx, req)
}

// Promote lets the standby of a shard take over: it asks the coordinator, or for shard 0 its witness ([ps.Witness]). Errors: [ps.ErrMismatch] for a shard without one, [ps.ErrNotReady] when it
// lacks something that was acknowledged, those of reaching who decides.
func (r *Remote) Promote(ctx context.Context, shard int) error {
	req := &psv1.PromoteRequest{Shard: uint32(shard)}
	peers, _ := r.now()
	if w := ps.Witness(r.Info().Addrs); shard == 0 && w > 0 && w < len(peers) {
		_, err := call(ctx, &peers[w].t, psv1.NewCoordinatorClient(peers[w].cc).Promote, req)
		return err
	}
	to := r.coords[r.at.Load()]
	_, err := call(ctx, to.t, to.c.Promote, req)
	return err
}

// SetState is [coordinator.Cluster.SetState].
func (r *Remote) SetState(ctx context.Context, key string, value []byte) error {
	_, err := again(ctx, r, psv1.CoordinatorClient.SetState, &psv1.SetStateRequest{Key: key, Value: value})
	return err
}

// InitState is [coordinator.Cluster.InitState].
func (r *Remote) InitState(ctx context.Context, key string, value []byte) ([]byte, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.SetState, &psv1.SetStateRequest{Key: key, Value: value, Initial: true})
	if err != nil {
		return nil, err
	}
	return resp.Value, nil
}

// SetStateAt is [coordinator.Cluster.SetStateAt].
func (r *Remote) SetStateAt(ctx context.Context, member, generation uint64, key string, value []byte) error {
	_, err := again(ctx, r, psv1.CoordinatorClient.SetState, &psv1.SetStateRequest{Key: key, Value: value, Member: member, Generation: generation})
	return err
}

// State is [coordinator.Cluster.State].
func (r *Remote) State(ctx context.Context, key string) ([]byte, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.GetState, &psv1.GetStateRequest{Key: key})
	if err != nil {
		return nil, err
	}
	return resp.Value, nil
}

// Digest is [coordinator.Cluster.Digest].
func (r *Remote) Digest(ctx context.Context) (string, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Digest, &psv1.DigestRequest{})
	if err != nil {
		return "", err
	}
	return resp.Digest, nil
}

// RollBack is [coordinator.Cluster.RollBack].
func (r *Remote) RollBack(ctx context.Context, generation uint64, why string) error {
	_, err := again(ctx, r, psv1.CoordinatorClient.RollBack, &psv1.RollBackRequest{Generation: generation, Why: why})
	return err
}

// Join is [coordinator.Cluster.Join].
func (r *Remote) Join(ctx context.Context, o ps.JoinOptions) (uint64, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Join, &psv1.JoinRequest{Worker: o.Worker, Source: o.Source, Plan: o.Plan, Single: o.Single, Splits: o.Splits, Report: toReport(0, o.Report), Delegation: toDelegation(&o.Delegation)})
	if err != nil {
		return 0, err
	}
	return resp.Member, nil
}

// Await is [coordinator.Cluster.Await].
func (r *Remote) Await(ctx context.Context, member, have uint64) (ps.Assignment, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Await, &psv1.AwaitRequest{Member: member, Have: have})
	if err != nil {
		return ps.Assignment{}, err
	}
	return ps.Assignment{
		Version: resp.Version, Generation: resp.Generation, Phase: resp.Phase, Task: ps.Task(resp.Task), Splits: resp.Splits,
		Leader: resp.Leader, Members: int(resp.Members), Snapshot: resp.Snapshot, Rows: resp.Rows,
		Delegation: fromDelegation(resp.Delegation),
	}, nil
}

// Follow is [coordinator.Cluster.Follow].
func (r *Remote) Follow(ctx context.Context, worker, run string, have ps.Ending, ended []int) (ps.Ending, error) {
	req := &psv1.FollowRequest{Worker: worker, Run: run, Have: uint32(have)}
	for _, task := range ended {
		req.Ended = append(req.Ended, int32(task))
	}
	resp, err := again(ctx, r, psv1.CoordinatorClient.Follow, req)
	if err != nil {
		return 0, err
	}
	return ps.Ending(resp.Ending), nil
}

// Report is [coordinator.Cluster.Report].
func (r *Remote) Report(ctx context.Context, member uint64, p ps.Report) error {
	_, err := again(ctx, r, psv1.CoordinatorClient.Report, toReport(member, p))
	return err
}

// Leave is [coordinator.Cluster.Leave].
func (r *Remote) Leave(ctx context.Context, member uint64) (bool, error) {
	resp, err := again(ctx, r, psv1.CoordinatorClient.Leave, &psv1.LeaveRequest{Member: member})
	if err != nil {
		return false, err
	}
	return resp.Last, nil
}

// Close ends the connections. The cluster continues.
func (r *Remote) Close(context.Context) error {
	var errs []error
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range slices.Concat(r.peers, r.old) {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

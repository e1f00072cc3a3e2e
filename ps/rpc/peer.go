package rpc

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
	"github.com/monolith-go/monolith/ps/wire"
)

// Target is a shard after an address.
type Target struct {
	Identity Identity
	Shard    int
	Addr     string
	// Standby is the address of the shard's other process for a worker, "" for none.
	Standby string
	Config  wire.ClientConfig
	// From names the process that gave the addresses, for errors; empty: the user gave them.
	From string
	// Coordinator, if not nil, is the shard 0 that calls; nil for workers.
	Coordinator *Coordinator
	// Conn configures workers' streams.
	Conn wire.ConnOptions
}

// Coordinator is a shard 0 as the other shards know it.
type Coordinator struct {
	// ID is another one after every start of it.
	ID uint64
	// Term is that of the pair of shard 0 in which it coordinates; 0 also where that has no standby. Who was called in a later term refuses it.
	Term uint64
	// Refuses, if not nil, returns why it may not call now: shard 0 has no lease.
	Refuses func() error
	// Process says for messages where it runs.
	Process string
	// Dir is the folder of its snapshots.
	Dir string
	// calls numbers its lease calls, to all pairs: a shard that is removed and added again has another [NewPair], and processes that remember the numbers of the one before.
	calls atomic.Uint64
}

// String names the shard as messages do.
func (t Target) String() string { return fmt.Sprintf("shard %d at %s", t.Shard, t.Addr) }

// learnt adds to a failure to connect which process gave the address.
func (t *Target) learnt(err error) error {
	if err, learnt := wire.Learnt(err, t.String(), t.From); learnt {
		return fmt.Errorf("ps: %w", err)
	}
	return err
}

// peer is a [ps.Peer] in another process.
type peer struct {
	t  Target
	cc *wire.Client
	s  psv1.ShardClient
	// other is the shard's other process, or nil.
	other *peer
}

// NewPeer makes the coordinator's view of a shard in another process. It does no I/O. Errors: of the address and of
// reading certificates.
func NewPeer(t Target) (ps.Peer, error) { return newPeer(t) }

func newPeer(t Target) (*peer, error) {
	t.Conn.From = t.From
	cc, err := wire.NewClient(t.Addr, t.Config)
	if err != nil {
		return nil, err
	}
	p := &peer{t: t, cc: cc, s: psv1.NewShardClient(cc)}
	if t.Standby != "" {
		second := t
		second.Addr, second.Standby = t.Standby, ""
		if p.other, err = newPeer(second); err != nil {
			return nil, errors.Join(err, cc.Close())
		}
		p.t.Conn.Other = p.other.cc
	}
	return p, nil
}

// callOptions let control messages be as large as a server takes and sends them.
func callOptions() []grpc.CallOption {
	return []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxControl)}
}

// call makes a control call as the peer's identity.
func call[Req, Resp any](ctx context.Context, t *Target, f func(context.Context, *Req, ...grpc.CallOption) (*Resp, error), req *Req) (*Resp, error) {
	if c := t.Coordinator; c != nil && c.Refuses != nil {
		if err := c.Refuses(); err != nil {
			return nil, err
		}
	}
	r, err := f(t.outgoing(ctx), req, callOptions()...)
	if err != nil {
		return nil, t.learnt(from(ctx, t.String(), err))
	}
	return r, nil
}

// outgoing puts who calls into a call.
func (t *Target) outgoing(ctx context.Context) context.Context {
	ctx = t.Identity.outgoing(ctx)
	if c := t.Coordinator; c != nil {
		ctx = metadata.AppendToOutgoingContext(ctx, keyCoordinator, strconv.FormatUint(c.ID, 16), keyTerm, strconv.FormatUint(c.Term, 16), keyProcess, c.Process, keyDir, filepath.Clean(c.Dir))
	}
	return ctx
}

// Status implements [ps.Peer].
func (p *peer) Status(ctx context.Context) (ps.NodeStatus, error) {
	r, err := call(ctx, &p.t, p.s.Status, &psv1.StatusRequest{})
	if err != nil {
		return ps.NodeStatus{}, err
	}
	st := ps.NodeStatus{
		Shard: int(r.Shard), NumShards: int(r.NumShards), Incarnation: r.Incarnation, Generation: r.Generation, Base: r.Base, LogBase: r.LogBase,
		Recovery: ps.LogRecovery{Records: r.Records, TornBytes: r.TornBytes, Lost: r.Lost}, Rows: r.Rows, Preparing: r.Preparing,
	}
	if st.Shard != p.t.Shard {
		err = wrongShard(p.t, st.Shard)
	}
	return st, err
}

// Load implements [ps.Peer].
func (p *peer) Load(ctx context.Context, o ps.LoadOptions) error {
	if p.removes(o) {
		if _, err := p.Status(ctx); err != nil { // somebody else may be at its address by now
			return err
		}
	}
	_, err := call(ctx, &p.t, p.s.Load, &psv1.LoadRequest{Generation: o.Generation, Keep: o.Keep, Path: o.Path, Id: o.ID, Shards: uint32(o.Shards)})
	return err
}

// removes reports whether a state is one in which the shard is not there.
func (p *peer) removes(o ps.LoadOptions) bool {
	return !o.Keep && o.Shards != 0 && p.t.Shard >= o.Shards
}

// Prepare implements [ps.Peer].
func (p *peer) Prepare(ctx context.Context, o ps.PrepareOptions) error {
	_, err := call(ctx, &p.t, p.s.Prepare, &psv1.PrepareRequest{Shards: uint32(o.Shards), Path: o.Path, Id: o.ID, Hurry: o.Hurry})
	return err
}

// Connect implements [ps.Peer].
func (p *peer) Connect(ctx context.Context, session, generation uint64, worker string) (ps.Conn, error) {
	return connect(ctx, p.cc, p.t, 0, session, generation, worker)
}

// BeginCut implements [ps.Peer].
func (p *peer) BeginCut(ctx context.Context, id, snapshot uint64, sessions []uint64, hold time.Duration) error {
	_, err := call(ctx, &p.t, p.s.BeginCut, &psv1.BeginCutRequest{Id: id, Snapshot: snapshot, Sessions: sessions, HoldNanos: int64(hold)})
	return err
}

// AwaitCut implements [ps.Peer].
func (p *peer) AwaitCut(ctx context.Context, id uint64) (*ps.CutState, error) {
	r, err := call(ctx, &p.t, p.s.AwaitCut, &psv1.AwaitCutRequest{Id: id})
	if err != nil {
		return nil, err
	}
	return &ps.CutState{Progress: fromSplits(r.Progress), Bytes: r.Bytes, Base: r.Base, BaseBytes: r.BaseBytes}, nil
}

// WriteCut implements [ps.Peer].
func (p *peer) WriteCut(ctx context.Context, id uint64, o ps.WriteOptions) (*snapshot.Part, error) {
	r, err := call(ctx, &p.t, p.s.WriteCut, &psv1.WriteCutRequest{Id: id, Dir: o.Dir, Base: o.Base, Hurry: o.Hurry})
	if err != nil {
		return nil, err
	}
	return fromPart(r)
}

// EndCut implements [ps.Peer].
func (p *peer) EndCut(ctx context.Context, id, durable uint64) (time.Duration, error) {
	r, err := call(ctx, &p.t, p.s.EndCut, &psv1.EndCutRequest{Id: id, Durable: durable})
	if err != nil {
		return 0, err
	}
	return time.Duration(r.StallNanos), nil
}

// Progress implements [ps.Peer].
func (p *peer) Progress(ctx context.Context) (map[ps.SplitID]ps.Progress, error) {
	r, err := call(ctx, &p.t, p.s.Progress, &psv1.ProgressRequest{})
	if err != nil {
		return nil, err
	}
	return fromSplits(r.Progress), nil
}

// Digest implements [ps.Peer].
func (p *peer) Digest(ctx context.Context) (*ps.ShardDigest, error) {
	r, err := call(ctx, &p.t, p.s.Digest, &psv1.DigestRequest{})
	if err != nil {
		return nil, err
	}
	d := &ps.ShardDigest{Progress: fromSplits(r.Progress)}
	return d, d.Digest.UnmarshalBinary(r.Digest)
}

// Stats implements [ps.Peer].
func (p *peer) Stats(ctx context.Context) (ps.Stats, error) {
	r, err := call(ctx, &p.t, p.s.Stats, &psv1.StatsRequest{})
	if p.elsewhere(err) {
		return p.other.Stats(ctx)
	}
	if err != nil {
		return ps.Stats{}, err
	}
	return fromStats(r), nil
}

// elsewhere reports whether err of a reader's call says to ask the shard's other process, which is in charge where this one is not.
func (p *peer) elsewhere(err error) bool {
	return p.other != nil && (errors.Is(err, ps.ErrNotReady) || errors.Is(err, ps.ErrUnreachable))
}

// Entries implements [ps.Peer].
func (p *peer) Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error {
	for len(fids) > 0 {
		some := fids[:min(len(fids), entriesAtOnce)]
		r, err := call(ctx, &p.t, p.s.Entries, &psv1.EntriesRequest{Table: uint32(tbl), Fids: some})
		if p.elsewhere(err) {
			return p.other.Entries(ctx, tbl, fids, dst)
		}
		if err == nil {
			err = fromRows(r.Rows, dst)
		}
		if err != nil {
			return err
		}
		fids = fids[len(some):]
	}
	return nil
}

// entriesAtOnce is how many fids go in one call.
const entriesAtOnce = 4096

// Newest implements [ps.Peer].
func (p *peer) Newest(ctx context.Context) (int64, error) {
	r, err := call(ctx, &p.t, p.s.Newest, &psv1.NewestRequest{})
	if p.elsewhere(err) {
		return p.other.Newest(ctx)
	}
	if err != nil {
		return 0, err
	}
	return r.Time, nil
}

// Tally implements [ps.Peer].
func (p *peer) Tally(ctx context.Context, newest int64) ([]tally.Slots, error) {
	r, err := call(ctx, &p.t, p.s.Tally, &psv1.TallyRequest{Newest: newest})
	if p.elsewhere(err) {
		return p.other.Tally(ctx, newest)
	}
	if err != nil {
		return nil, err
	}
	return fromTally(r)
}

// ChangesFor implements [ps.Peer].
func (p *peer) ChangesFor(ctx context.Context, c ps.ChangesRequest) (*ps.Changes, error) {
	r, err := call(ctx, &p.t, p.s.Changes, &psv1.ChangesRequest{Consumer: c.Consumer, Stream: c.Stream, Seq: c.Seq, Rows: c.Rows, Cut: c.Cut, Drop: c.Drop, Shards: uint32(c.Shards)})
	if p.elsewhere(err) {
		return p.other.ChangesFor(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	out := &ps.Changes{Stream: r.Stream, Seq: r.Seq, All: r.All, Whole: r.Whole, Table: int(r.Table), Removed: r.Removed, Snapshot: r.Snapshot}
	if r.At != nil {
		out.At = &ps.CutOfShard{Generation: r.At.Generation, Age: time.Duration(max(0, r.At.AgeNanos)), Progress: fromSplits(r.At.Progress), Dense: r.At.Dense}
	}
	return out, fromRows(r.Rows, &out.Rows)
}

// Close implements [ps.Peer]: it ends the connection, not the shard.
func (p *peer) Close() error {
	if p.other != nil {
		return errors.Join(p.cc.Close(), p.other.Close())
	}
	return p.cc.Close()
}

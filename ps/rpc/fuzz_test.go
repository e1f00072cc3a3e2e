package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/model/param"
	psv1 "github.com/monolith-go/monolith/proto/monolith/ps/v1"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/shard"
	"github.com/monolith-go/monolith/ps/snapshot"
)

// fuzzLayout has a table and nothing else.
func fuzzLayout() *param.Layout {
	return &param.Layout{Tables: []param.Table{{Name: "n", Segments: []param.Segment{{Name: "n", Dim: 1, Optimizer: pstest.Counting{}}}}}}
}

// calls makes the calls that data describes, each a method's number, a length and a message, as gRPC would.
func calls(ctx context.Context, desc *grpc.ServiceDesc, srv any, data []byte) {
	for range 8 {
		if len(data) < 3 {
			return
		}
		m, n := desc.Methods[int(data[0])%len(desc.Methods)], int(binary.LittleEndian.Uint16(data[1:]))
		data = data[3:]
		n = min(n, len(data))
		msg := data[:n]
		data = data[n:]
		ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		_, _ = m.Handler(srv, ctx, func(v any) error {
			to, ok := v.(proto.Message)
			if !ok {
				return errors.New("no message")
			}
			return proto.Unmarshal(msg, to)
		}, nil)
		cancel()
	}
}

// script renders calls for the corpus.
func script(desc *grpc.ServiceDesc, name string, msgs ...proto.Message) []byte {
	var out []byte
	i := slices.IndexFunc(desc.Methods, func(m grpc.MethodDesc) bool { return m.MethodName == name })
	for _, m := range msgs {
		b, _ := proto.Marshal(m)
		out = append(binary.LittleEndian.AppendUint16(append(out, byte(i)), uint16(len(b))), b...)
	}
	return out
}

// FuzzShard makes calls of a shard's control service. Whatever they are, the shard lives and serves a worker that comes
// after them, and the next coordinator.
func FuzzShard(f *testing.F) {
	desc := &psv1.Shard_ServiceDesc
	f.Add(script(desc, "Probe", &psv1.ProbeRequest{Blocks: 1}))
	f.Add(script(desc, "Entries", &psv1.EntriesRequest{Table: 99, Fids: []int64{1}}, &psv1.EntriesRequest{Table: math.MaxUint32, Fids: []int64{1}}))
	f.Add(script(desc, "Changes", &psv1.ChangesRequest{Consumer: "a", Rows: true}, &psv1.ChangesRequest{Consumer: "a", Stream: 1, Seq: 7}, &psv1.ChangesRequest{Consumer: "a", Cut: true}, &psv1.ChangesRequest{Consumer: "a", Drop: true}))
	f.Add(script(desc, "Tally", &psv1.TallyRequest{Newest: math.MinInt64}, &psv1.TallyRequest{Newest: math.MaxInt64}))
	f.Add(script(desc, "BeginCut", &psv1.BeginCutRequest{Id: 77, Snapshot: math.MaxUint64}, &psv1.BeginCutRequest{Id: 77, Sessions: []uint64{1, 1, 2}}))
	f.Add(script(desc, "Load", &psv1.LoadRequest{Generation: 3, Path: "none"}, &psv1.LoadRequest{Generation: 4}, &psv1.LoadRequest{Generation: 5, Keep: true}))
	f.Add(script(desc, "Prepare", &psv1.PrepareRequest{Shards: 2}, &psv1.PrepareRequest{Shards: 2, Path: "none", Id: 1}, &psv1.PrepareRequest{Shards: math.MaxUint32}, &psv1.PrepareRequest{}))
	f.Add(append(script(desc, "BeginCut", &psv1.BeginCutRequest{Id: 7}), append(script(desc, "AwaitCut", &psv1.AwaitCutRequest{Id: 7}),
		script(desc, "EndCut", &psv1.EndCutRequest{Id: 7, Durable: math.MaxUint64})...)...))
	f.Add(script(desc, "WriteCut", &psv1.WriteCutRequest{Id: 0, Dir: "/"}))
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := shard.Open(t.Context(), coordinator.Options{Layout: fuzzLayout()}.Node(0, 1))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = n.Close() }()
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: 1}); err != nil {
			t.Fatal(err)
		}
		calls(t.Context(), desc, &shardService{n: n}, data)
		st, err := n.Status(t.Context())
		if err != nil || st.Generation == 0 {
			t.Fatalf("the shard is gone: %+v, %v", st, err)
		}
		if _, err := n.EndCut(t.Context(), ps.AnyCut, 0); err != nil {
			t.Fatal(err)
		}
		conn, err := n.Connect(t.Context(), 9, st.Generation, "after")
		if err != nil {
			t.Fatal(err)
		}
		id := ps.SplitID{Source: "s", Split: "x"}
		if _, _, err := conn.Acquire(t.Context(), id, 1); err != nil {
			t.Fatal(err)
		}
		u := &param.Update{
			Source: "s", Split: "x", To: 2, NumRows: 2, LR: 1,
			Keys: [][]int64{{5}}, Counts: [][]uint32{{2}}, Grads: [][]float32{{2}},
		}
		if _, err := conn.Stage(t.Context(), nil, 1, u); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Control(t.Context(), []ps.Control{{Kind: ps.Commit, Split: id, Epoch: 1, To: 2}}); err != nil {
			t.Fatal(err)
		}
		if p, err := n.Progress(t.Context()); err != nil || p[id].Position != 2 {
			t.Fatalf("progress %+v, %v", p, err)
		}
		if err := n.Load(t.Context(), ps.LoadOptions{Generation: st.Generation + 1}); err != nil {
			t.Fatalf("the next coordinator gives a state: %v", err)
		}
	})
}

// FuzzCoordinator makes calls of the coordinator's service. Whatever they are, it lives, and a worker that joins after
// them is given work that it sees, and no other.
func FuzzCoordinator(f *testing.F) {
	desc := &psv1.Coordinator_ServiceDesc
	f.Add(script(desc, "Join", &psv1.JoinRequest{Worker: "x", Splits: []string{"made up", "a"}}, &psv1.JoinRequest{Worker: "y", Splits: []string{"b"}, Report: &psv1.ReportRequest{Generation: 1, Phase: math.MaxUint64, Concluded: true, Owned: []string{"a"}}}))
	f.Add(script(desc, "Join", &psv1.JoinRequest{}, &psv1.JoinRequest{Worker: "x", Single: true}))
	f.Add(script(desc, "SetState", &psv1.SetStateRequest{Key: "k", Value: []byte("v")}, &psv1.SetStateRequest{Key: ps.TraceState, Value: []byte("no trace")}))
	f.Add(script(desc, "RollBack", &psv1.RollBackRequest{Generation: 1, Why: "so"}, &psv1.RollBackRequest{Generation: math.MaxUint64}))
	f.Add(script(desc, "Await", &psv1.AwaitRequest{Member: math.MaxUint64, Have: math.MaxUint64}))
	f.Add(script(desc, "Report", &psv1.ReportRequest{Member: 1, Concluded: true}))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := coordinator.Open(t.Context(), coordinator.Options{Layout: fuzzLayout()})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close(t.Context()) }()
		var server Server
		server.Coordinate(c)
		calls(t.Context(), desc, &coordinatorService{s: &server}, data)
		in, err := c.Info()
		if err != nil || in.Generation == 0 {
			t.Fatalf("the cluster is gone: %+v, %v", in, err)
		}
		splits := []string{"a", "b"}
		id, err := c.Join(t.Context(), ps.JoinOptions{Worker: "after", Splits: splits})
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Await(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range a.Splits {
			if !slices.Contains(splits, s) {
				t.Errorf("a worker that sees %q is given %q", splits, s)
			}
		}
		cl, err := c.Client(t.Context(), "after")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cl.Resume(t.Context(), "s", splits); err != nil {
			t.Error(err)
		}
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSnapshotIsAsLargeElsewhere: a snapshot has as many bytes to who asks for it as to who took it.
func TestSnapshotIsAsLargeElsewhere(t *testing.T) {
	t.Parallel()
	b, err := toManifest(&ps.SnapshotInfo{Manifest: 1 << 20, Files: []snapshot.FileInfo{{Bytes: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fromManifest(b, "p"); err != nil || got.Bytes() != 1<<20+100 {
		t.Errorf("%d bytes, %v", got.Bytes(), err)
	}
}

// FuzzManifest reads what a coordinator says of a snapshot: an error, or something that reads the same when it is sent on.
func FuzzManifest(f *testing.F) {
	b, err := toManifest(&ps.SnapshotInfo{ID: 3, Positions: map[string]map[string]ps.Progress{"s": {"x": {Position: 5, Rows: 4, Batches: 3}}}, State: map[string][]byte{"k": {1, 2}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`null`))
	f.Add([]byte(`{"id":-1}`))
	f.Add([]byte(`{"files":[{"shard":-5,"rows":9223372036854775807}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		info, err := fromManifest(b, "p")
		if err != nil || info == nil {
			return
		}
		_, _ = info.Rows(), info.Bytes()
		once, err := toManifest(info)
		if err != nil {
			t.Fatalf("what was read cannot be sent: %v", err)
		}
		again, err := fromManifest(once, "p")
		if err != nil {
			t.Fatalf("what was sent cannot be read: %v\n%s", err, once)
		}
		if twice, err := toManifest(again); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("%v:\n%s\n%s", err, once, twice)
		}
		if _, err := fromPart(&psv1.WriteCutResponse{Digest: b}); err == nil && len(b) == 0 {
			t.Error("a part without a digest")
		}
	})
}

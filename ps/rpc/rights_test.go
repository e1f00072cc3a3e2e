package rpc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/secure"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
)

// rights are a token for each grant.
func rights() []secure.Rule {
	return []secure.Rule{
		{Right: secure.Read, Token: secure.Fixed("reader's")},
		{Right: secure.Train, Token: secure.Fixed("worker's")},
		{Right: secure.Coordinate, Token: secure.Fixed("shard's")},
	}
}

// denied: a call was refused for want of a right, which the error names with what was asked for.
func denied(t *testing.T, what string, err error, need string) {
	t.Helper()
	if !errors.Is(err, wire.ErrNotAdmitted) || !strings.Contains(err.Error(), "the right to "+need+",") || !strings.Contains(err.Error(), "ps.allow") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestRights: with the token of a reader nobody trains, whatever role he says that he has, and with that of a worker nobody coordinates.
func TestRights(t *testing.T) {
	t.Parallel()
	l := pstest.SmallJob().Layout()
	cc, _, id := serveShard(t, 0, wire.ServerConfig{Rules: rights()}, "")
	addr := cc.Target()[len("passthrough:///"):]
	dial := func(token string) *rpc.Remote {
		r, err := rpc.Dial(t.Context(), rpc.Options{Identity: id, Layout: l, Addrs: []string{addr}, Config: wire.ClientConfig{Token: secure.Fixed(token)}})
		if err != nil {
			t.Fatalf("%s token: %v", token, err)
		}
		t.Cleanup(func() { _ = r.Close(t.Context()) })
		return r
	}
	rows := func() *param.Rows {
		r := &param.Rows{}
		for _, tbl := range l.Tables {
			r.Keys, r.Values = append(r.Keys, []int64{1}), append(r.Values, make([]float32, tbl.Dim()))
		}
		return r
	}
	for _, token := range []string{"worker's", "shard's"} {
		w, err := dial(token).Client(t.Context(), "w "+token)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Resume(t.Context(), "s", []string{token}); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Push(t.Context(), pstest.RandomUpdate(l, token, 0, 7)), w.Flush(t.Context()), w.Close()); err != nil {
			t.Errorf("%s token: %v", token, err)
		}
	}
	// A reader looks up, and says in vain that he is a trainer.
	r := dial("reader's")
	before, err := r.Digest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c, err := r.Reader(t.Context(), "reader")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Lookup(t.Context(), rows()); err != nil {
		t.Errorf("a reader looks up: %v", err)
	}
	_, err = r.Client(t.Context(), "liar")
	denied(t, "a reader's stream as a trainer", err, "train")
	denied(t, "a reader sets state", r.SetState(t.Context(), "k", []byte("v")), "train")
	_, err = r.InitState(t.Context(), "k", []byte("v"))
	denied(t, "a reader sets first state", err, "train")
	_, err = r.Join(t.Context(), ps.JoinOptions{Worker: "liar", Source: "s", Plan: "p", Splits: []string{"worker's"}})
	denied(t, "a reader joins the workers", err, "train")
	_, err = r.Snapshot(t.Context(), ps.SnapshotOptions{})
	denied(t, "a reader asks for a snapshot", err, "train")
	denied(t, "a reader rolls back", r.RollBack(t.Context(), 1, "for fun"), "train")
	_, err = r.Bench(t.Context(), "liar")
	denied(t, "a reader measures shards", err, "train")
	_, err = r.Probe(t.Context(), 0, 1)
	denied(t, "a reader has files written", err, "train")
	if p, err := dial("worker's").Probe(t.Context(), 0, 1); err != nil || p.Rows == 0 || p.Bytes == 0 {
		t.Errorf("a worker asks what a shard has: %+v, %v", p, err)
	}
	if after, err := r.Digest(t.Context()); after != before || err != nil {
		t.Errorf("the shards have changed: %s, %s, %v", before, after, err)
	}
}

// TestRightToCoordinate: a worker cannot give a shard a state, though he says that he is shard 0 and knows its folder.
func TestRightToCoordinate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cc, _, id := serveShard(t, 1, wire.ServerConfig{Rules: rights()}, dir)
	addr := cc.Target()[len("passthrough:///"):]
	peer := func(token string) ps.Peer {
		p, err := rpc.NewPeer(rpc.Target{
			Identity: id, Shard: 1, Addr: addr, Config: wire.ClientConfig{Token: secure.Fixed(token)}, Coordinator: &rpc.Coordinator{ID: 1, Process: token, Dir: dir},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		return p
	}
	shard0 := peer("shard's")
	before, err := shard0.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"reader's", "worker's"} {
		p := peer(token)
		denied(t, token+" load", p.Load(t.Context(), ps.LoadOptions{Generation: 7}), "coordinate")
		denied(t, token+" cut", p.BeginCut(t.Context(), 1, 1, nil, 0), "coordinate")
		_, err := p.EndCut(t.Context(), ps.AnyCut, 0)
		denied(t, token+" end of cuts", err, "coordinate")
		_, err = p.WriteCut(t.Context(), 1, ps.WriteOptions{Dir: dir})
		denied(t, token+" file", err, "coordinate")
		if err := p.Entries(t.Context(), 0, []int64{onShard1()}, &table.Rows{}); err != nil {
			t.Errorf("%s entries: %v", token, err)
		}
		if _, err := p.Stats(t.Context()); err != nil && !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("%s stats: %v", token, err)
		}
		if _, err := p.Tally(t.Context(), 0); !errors.Is(err, ps.ErrNotReady) { // let in; it has no state yet
			t.Errorf("%s tally: %v", token, err)
		}
		if _, err := p.ChangesFor(t.Context(), ps.ChangesRequest{Consumer: token}); !errors.Is(err, ps.ErrNotReady) {
			t.Errorf("%s changes: %v", token, err)
		}
	}
	if after, err := shard0.Status(t.Context()); err != nil || after.Generation != before.Generation {
		t.Errorf("the shard's state has changed: %+v, %+v, %v", before, after, err)
	}
	if err := shard0.Load(t.Context(), ps.LoadOptions{Generation: 7}); err != nil {
		t.Errorf("shard 0 gives a state: %v", err)
	}
}

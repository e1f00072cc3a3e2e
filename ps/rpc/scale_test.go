package rpc_test

import (
	"errors"
	"testing"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/rpc"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
)

// TestScale: workers find the shards that there are, whichever they were told of, and none works with those of another generation.
func TestScale(t *testing.T) {
	t.Parallel()
	j := pstest.SmallJob()
	l := j.Layout()
	c, err := start(t.Context(), coordinator.Options{Layout: l, NumShards: 4, Addrs: make([]string, 2), Dir: t.TempDir()}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	late, err := rpc.Dial(t.Context(), rpc.Options{Identity: c.id, Layout: l, Addrs: c.addrs[:1]})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Close(t.Context()) }()
	train := func(r *rpc.Remote, steps int) (*ps.Client, *pstest.Worker) {
		t.Helper()
		cl, err := r.Client(t.Context(), "worker")
		if err != nil {
			t.Fatal(err)
		}
		w, err := pstest.NewWorker(t.Context(), j, cl)
		for more := true; more && err == nil && w.Steps < steps; {
			more, err = w.Step(t.Context())
		}
		if err == nil {
			err = cl.Flush(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		return cl, w
	}
	digest := func() string {
		t.Helper()
		d, err := c.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for i, to := range []int{4, 1, 3} {
		r := []*rpc.Remote{c.Remote, late}[i%2]
		cl, w := train(r, 10)
		before, generation := digest(), r.Info().Generation
		had := map[int64]bool{}
		for fid := range int64(20) {
			var row table.Rows
			if had[fid], err = r.Row(t.Context(), 0, fid, &row); err != nil {
				t.Fatal(err)
			}
		}
		// The call waits for the worker to pass a marker.
		done := make(chan error, 1)
		go func() { _, err := c.Scale(t.Context(), c.addrs[:to]); done <- err }()
		var stepped, err error
		for open := true; open; {
			select {
			case err = <-done:
				open = false
			default:
				if stepped == nil {
					stepped = cl.Idle(t.Context())
				}
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if stepped == nil {
			_, stepped = w.Step(t.Context())
		}
		if !errors.Is(stepped, ps.ErrRolledBack) {
			t.Errorf("a worker of the generation before: %v, want ErrRolledBack", stepped)
		}
		_ = cl.Close()
		if got := digest(); got != before {
			t.Errorf("on %d shards: digest %s, want %s", to, got, before)
		}
		// A worker that is told of the generation finds its shards, whatever it knew before.
		if _, err := late.Newest(t.Context()); err != nil {
			t.Fatal(err)
		}
		if cl, err := c.ClientAt(t.Context(), "worker", late.Info().Generation); err != nil {
			t.Errorf("a client of the generation on %d shards: %v", to, err)
		} else if err := cl.Close(); err != nil {
			t.Error(err)
		}
		for _, r := range []*rpc.Remote{c.Remote, late} {
			if _, err := r.ClientAt(t.Context(), "worker", generation); !errors.Is(err, ps.ErrRolledBack) {
				t.Errorf("a client of the generation before: %v, want ErrRolledBack", err)
			}
			for fid := range int64(20) {
				var row table.Rows
				if found, err := r.Row(t.Context(), 0, fid, &row); err != nil || found != had[fid] {
					t.Errorf("on %d shards: row of %d: %t, want %t: %v", to, fid, found, had[fid], err)
				}
			}
			if n, err := r.NumShards(t.Context()); n != to || err != nil {
				t.Errorf("%d shards, %v; want %d", n, err, to)
			}
			if _, err := ps.NewConsumer("of another number", r, to+1, false).Next(t.Context(), 0); !errors.Is(err, ps.ErrRolledBack) {
				t.Errorf("changes for one that knows of %d shards: %v, want ErrRolledBack", to+1, err)
			}
			if n := len(r.Info().Addrs); n != to {
				t.Errorf("%d addresses, want %d", n, to)
			}
		}
	}
	// A stream that thinks of another number of shards is refused, whatever its generation.
	cc, err := wire.NewClient(c.addrs[1], wire.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cc.Close() }()
	_, err = wire.Dial(t.Context(), cc, wire.Hello{
		Job: c.id.Job, Plan: c.id.Plan, Source: c.id.Source, Model: c.id.Model, Layout: c.id.Layout, Shape: c.id.Shape, Shards: 2, Shard: 1, Generation: c.Info().Generation, Session: 7, Worker: "w",
	}, wire.ConnOptions{})
	if !errors.Is(err, ps.ErrMismatch) {
		t.Errorf("a stream of 2 shards to one of 3: %v, want ErrMismatch", err)
	}
	cl, _ := train(late, 1<<20)
	_ = cl.Close()
	got := digest()
	alone, err := coordinator.Open(t.Context(), coordinator.Options{Layout: l, NumShards: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = alone.Close(t.Context()) }()
	cl, err = alone.Client(t.Context(), "worker")
	if err != nil {
		t.Fatal(err)
	}
	w, err := pstest.NewWorker(t.Context(), j, cl)
	for more := true; more && err == nil; {
		more, err = w.Step(t.Context())
	}
	if err = errors.Join(err, cl.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if want, err := alone.Digest(t.Context()); err != nil || got != want {
		t.Errorf("digest %s, want %s of a cluster that always had 3 shards: %v", got, want, err)
	}
}

// onShard1 is a fid whose row lies on shard 1 of 2.
func onShard1() (fid int64) {
	for ps.ShardOf(ps.Bucket(fid), 2) != 1 {
		fid++
	}
	return fid
}

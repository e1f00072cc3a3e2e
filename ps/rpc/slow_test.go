package rpc_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/wire"
)

// frozenListener is that of a process that can be stopped as by SIGSTOP: connections stay, and nothing is read from them.
type frozenListener struct {
	net.Listener
	mu   sync.Mutex
	thaw chan struct{} // closed while it runs
}

func newFrozen(l net.Listener) *frozenListener {
	f := &frozenListener{Listener: l, thaw: make(chan struct{})}
	close(f.thaw)
	return f
}

func (l *frozenListener) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.thaw = make(chan struct{})
}

func (l *frozenListener) run() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.thaw)
}

func (l *frozenListener) wait() {
	l.mu.Lock()
	thaw := l.thaw
	l.mu.Unlock()
	<-thaw
}

func (l *frozenListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &frozenConn{c, l}, nil
}

type frozenConn struct {
	net.Conn
	l *frozenListener
}

// Read implements [net.Conn]: what has arrived while the process is stopped is seen when it runs again.
func (c *frozenConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.l.wait()
	return n, err
}

// onShard are fids of one shard of so many.
func onShard(shard, shards, n int) (fids []int64) {
	for fid := int64(1); len(fids) < n; fid++ {
		if ps.ShardOf(ps.Bucket(fid), shards) == shard {
			fids = append(fids, fid)
		}
	}
	return fids
}

// TestFrozenShard: while a shard hangs, what needs other shards alone is answered as fast as before: lookups of their rows, worker state,
// joining the workers and asking for work. What needs the shard waits, and is done once it runs again.
func TestFrozenShard(t *testing.T) {
	const shards, frozen = 3, 2
	l := pstest.SmallJob().Layout()
	var ice *frozenListener
	c, err := startAt(t.Context(), coordinator.Options{Layout: l, NumShards: shards, Dir: t.TempDir()}, func(shard int) (net.Listener, string, error) {
		ln, err := wire.Listen("127.0.0.1:0")
		if err != nil {
			return nil, "", err
		}
		addr := ln.Addr().String()
		if shard == frozen {
			ice = newFrozen(ln)
			ln = ice
		}
		return ln, addr, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	w := resumed(t, c)
	reader, err := c.Reader(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Push(t.Context(), pstest.RandomUpdate(l, "x", 0, 7)); err != nil {
		t.Fatal(err)
	}
	// What others than the frozen shard answer: the median and the longest of calls for a while.
	calls := func(name string) time.Duration {
		t.Helper()
		var took []time.Duration
		for begin := time.Now(); time.Since(begin) < 2500*time.Millisecond; {
			start := time.Now()
			for s := range shards {
				if s == frozen {
					continue
				}
				rows := &param.Rows{}
				for _, tbl := range l.Tables {
					fids := onShard(s, shards, 3)
					rows.Keys, rows.Values = append(rows.Keys, fids), append(rows.Values, make([]float32, len(fids)*tbl.Dim()))
				}
				if err := reader.Lookup(t.Context(), rows); err != nil {
					t.Fatalf("%s: lookup of shard %d: %v", name, s, err)
				}
			}
			if err := c.SetState(t.Context(), "k", []byte(name)); err != nil {
				t.Fatalf("%s: worker state: %v", name, err)
			}
			member, err := c.Join(t.Context(), ps.JoinOptions{Worker: name, Source: "s", Plan: "p", Splits: []string{"y"}})
			if err != nil {
				t.Fatalf("%s: joining: %v", name, err)
			}
			if _, err := c.Await(t.Context(), member, 0); err != nil {
				t.Fatalf("%s: work: %v", name, err)
			}
			if _, err := c.Leave(t.Context(), member); err != nil {
				t.Fatalf("%s: leaving: %v", name, err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("%s: %d rounds of calls, median %v, longest %v", name, len(took), took[len(took)/2], took[len(took)-1])
		return took[len(took)/2]
	}
	before := calls("before")
	ice.freeze()
	pushed := make(chan error, 1)
	go func() { pushed <- w.Push(t.Context(), pstest.RandomUpdate(l, "x", 7, 14)) }()
	during := calls("frozen")
	select {
	case err := <-pushed:
		t.Errorf("a push that the frozen shard has not staged has returned %v", err)
	default:
	}
	ice.run()
	if err := <-pushed; err != nil {
		t.Errorf("the push, once the shard runs again: %v", err)
	}
	// A tenth of a second is a hundred times what these calls take, and a tenth of the shortest timeout. The machine may have got busy meanwhile.
	if after := calls("after"); during > 10*max(before, after)+100*time.Millisecond {
		t.Errorf("calls to other shards take %v while one hangs, %v before and %v after", during, before, after)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	for _, cl := range []*ps.Client{w, reader} {
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	}
}

// meeting is of calls of which each waits for all others.
type meeting struct {
	missing atomic.Int32
	all     chan struct{}
}

func newMeeting(calls int32) *meeting {
	m := &meeting{all: make(chan struct{})}
	m.missing.Store(calls)
	return m
}

func (m *meeting) come() error {
	if m.missing.Add(-1) == 0 {
		close(m.all)
	}
	select {
	case <-m.all:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%d of the calls have not come", m.missing.Load())
	}
}

// metConn is answered when the other shards are asked too.
type metConn struct {
	ps.Conn
	lookups, stages *meeting
}

func (c metConn) Lookup(ctx context.Context, ctl []ps.Control, rows *param.Rows) (ps.Reply, error) {
	if err := c.lookups.come(); err != nil {
		return ps.Reply{}, err
	}
	return c.Conn.Lookup(ctx, ctl, rows)
}

func (c metConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	if err := c.stages.come(); err != nil {
		return ps.Reply{}, err
	}
	return c.Conn.Stage(ctx, ctl, epoch, u)
}

// TestShardsAreAskedAtOnce: a call of all shards takes as long as the slowest of them, not as long as all one after another: no shard's answer is waited for before another is asked.
func TestShardsAreAskedAtOnce(t *testing.T) {
	t.Parallel()
	const shards = 8
	l := pstest.SmallJob().Layout()
	lookups, stages := newMeeting(shards), newMeeting(shards)
	c, err := start(t.Context(), coordinator.Options{
		Layout: l, NumShards: shards, Dir: t.TempDir(), WrapConn: func(_ string, _ int, conn ps.Conn) ps.Conn { return metConn{conn, lookups, stages} },
	}, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(t.Context()) }()
	w := resumed(t, c)
	defer func() { _ = w.Close() }()
	rows := &param.Rows{}
	for _, tbl := range l.Tables {
		var fids []int64
		for s := range shards {
			fids = append(fids, onShard(s, shards, 2)...)
		}
		rows.Keys, rows.Values = append(rows.Keys, fids), append(rows.Values, make([]float32, len(fids)*tbl.Dim()))
	}
	if err := w.Lookup(t.Context(), rows); err != nil {
		t.Error(err)
	}
	if err := w.Push(t.Context(), pstest.RandomUpdate(l, "x", 0, 7)); err != nil {
		t.Error(err)
	}
	if lookups.missing.Load() != 0 || stages.missing.Load() != 0 {
		t.Errorf("%d lookups and %d updates are missing", lookups.missing.Load(), stages.missing.Load())
	}
}

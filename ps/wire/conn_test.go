package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/test/bufconn"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/wire"
)

// fakeConn answers with what control says, and keeps what it was asked.
type fakeConn struct {
	control func(ctx context.Context, ctl []ps.Control) (ps.Reply, error)

	mu     sync.Mutex
	seen   [][]ps.Control
	update *param.Update
	closed []bool
}

func (c *fakeConn) do(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	c.mu.Lock()
	c.seen = append(c.seen, slices.Clone(ctl))
	c.mu.Unlock()
	if c.control == nil {
		return ps.Reply{}, nil
	}
	return c.control(ctx, ctl)
}

func (c *fakeConn) calls() [][]ps.Control {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.seen)
}

// Lookup answers every key with itself.
func (c *fakeConn) Lookup(ctx context.Context, ctl []ps.Control, rows *param.Rows) (ps.Reply, error) {
	for t, keys := range rows.Keys {
		for i := range rows.Values[t] {
			rows.Values[t][i] = float32(keys[i*len(keys)/len(rows.Values[t])])
		}
	}
	return c.do(ctx, ctl)
}

func (c *fakeConn) Dense(ctx context.Context, ctl []ps.Control, have uint64, dst []float32) (uint64, ps.Reply, error) {
	reply, err := c.do(ctx, ctl)
	if have != 7 {
		for i := range dst {
			dst[i] = float32(i)
		}
	}
	return 7, reply, err
}

func (c *fakeConn) Stage(ctx context.Context, ctl []ps.Control, epoch uint64, u *param.Update) (ps.Reply, error) {
	v := *u
	v.Keys, v.Counts, v.Grads = cloneAll(u.Keys), cloneAll(u.Counts), cloneAll(u.Grads)
	v.Dense, v.Trace = slices.Clone(u.Dense), slices.Clone(u.Trace)
	c.update = &v
	reply, err := c.do(ctx, ctl)
	reply.Cut += epoch
	return reply, err
}

func cloneAll[T any](s [][]T) [][]T {
	out := [][]T{}
	for _, x := range s {
		out = append(out, slices.Clone(x))
	}
	return out
}

func (c *fakeConn) Control(ctx context.Context, ctl []ps.Control) (ps.Reply, error) {
	return c.do(ctx, ctl)
}

func (c *fakeConn) Acquire(_ context.Context, id ps.SplitID, epoch uint64) (ps.SplitState, ps.Reply, error) {
	if epoch < 5 {
		return ps.SplitState{}, ps.Reply{}, fmt.Errorf("shard 3: %w", &ps.EpochError{Split: id, Epoch: epoch, Current: 4})
	}
	st := ps.SplitState{Applied: ps.Progress{Position: -1}}
	for i := range int64(epoch) - 5 {
		st.Staged = append(st.Staged, ps.Progress{Position: position.Position(i), Rows: i, Batches: 1})
	}
	return st, ps.Reply{Cut: 9}, nil
}

func (c *fakeConn) Close(_ context.Context, clean bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = append(c.closed, clean)
	return nil
}

// newRemote serves one fake over a pipe in memory, so that it works with the clock of synctest.
func newRemote(t testing.TB, f *fakeConn, o remoteOptions) (*remote, *wire.Conn) {
	t.Helper()
	h := newHost()
	r := &remote{host: h, done: make(chan error, 1), opts: o.conn}
	var err error
	if r.srv, err = wire.NewServer(o.server); err != nil {
		t.Fatal(err)
	}
	wire.RegisterServer(r.srv, h, o.host)
	pipe := bufconn.Listen(1 << 20)
	go func() { r.done <- r.srv.Serve(pipe) }()
	o.client.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := pipe.DialContext(ctx)
		if err == nil && o.dialed != nil {
			c = o.dialed(c)
		}
		return c, err
	}
	if r.cc, err = wire.NewClient("localhost:1", o.client); err != nil {
		t.Fatal(err)
	}
	return r, r.wrap(t, "w", 3, f)
}

// TestCallsArriveAsTheyWereMade compares what the other side gets with what was sent.
func TestCallsArriveAsTheyWereMade(t *testing.T) {
	t.Parallel()
	f := &fakeConn{control: func(context.Context, []ps.Control) (ps.Reply, error) { return ps.Reply{Cut: 3}, nil }}
	r, c := newRemote(t, f, remoteOptions{})
	defer r.close(t)
	ctx := t.Context()
	ctl := []ps.Control{
		{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: "x"}, Epoch: 3, To: -5},
		{Kind: ps.Abort, Split: ps.SplitID{Split: "y"}, Epoch: 1 << 63},
		{Kind: ps.Marker, Cut: 8, State: map[string][]byte{"a": []byte("1"), "gone": nil, "empty": {}}},
	}
	for _, n := range []int{0, 1, 1000, 200_000} { // the last takes several messages
		u := &param.Update{
			Source: "s", Split: "x", From: 5, To: 1 << 40, NumRows: n, Time: -7, LR: 0.25,
			Keys: [][]int64{make([]int64, n), {}, {-1}}, Counts: [][]uint32{make([]uint32, n), {}, {1 << 31}},
			Grads: [][]float32{make([]float32, 3*n), {}, {1.5}}, Dense: make([]float32, n/2), Trace: make([]byte, n/3),
			Exchange: true, // what has arrived is nobody else's
		}
		for i := range n {
			u.Keys[0][i], u.Counts[0][i], u.Grads[0][3*i+1] = int64(i)*-7919, uint32(i), float32(i)
		}
		for i := range u.Trace {
			u.Trace[i] = byte(i)
		}
		reply, err := c.Stage(ctx, ctl, 1<<40, u)
		if err != nil || reply.Cut != 1<<40+3 {
			t.Fatalf("%d keys: reply %v, %v", n, reply, err)
		}
		if n <= 1000 { // go-cmp takes seconds for more
			if diff := cmp.Diff(u, f.update, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%d keys: update (-want +got):\n%.2000s", n, diff)
			}
		}
		if got := f.update; !slices.Equal(u.Keys[0], got.Keys[0]) || !slices.Equal(u.Counts[0], got.Counts[0]) ||
			!slices.Equal(u.Grads[0], got.Grads[0]) || !slices.Equal(u.Dense, got.Dense) || !slices.Equal(u.Trace, got.Trace) {
			t.Fatalf("%d keys: another update has arrived", n)
		}
		rows := &param.Rows{Keys: u.Keys, Values: [][]float32{make([]float32, 2*n), {}, {0}}}
		if reply, err := c.Lookup(ctx, nil, rows); err != nil || reply.Cut != 3 {
			t.Fatalf("lookup of %d keys: %v, %v", n, reply, err)
		}
		for i, v := range rows.Values[0] {
			if want := float32(u.Keys[0][i/2]); v != want {
				t.Fatalf("value %d of %d: %v, want %v", i, 2*n, v, want)
			}
		}
	}
	if diff := cmp.Diff(ctl, f.calls()[0]); diff != "" {
		t.Errorf("controls (-want +got):\n%s", diff)
	}
	dst := make([]float32, 100_000)
	if v, reply, err := c.Dense(ctx, ctl[:1], 0, dst); v != 7 || reply.Cut != 3 || err != nil || dst[99_999] != 99_999 {
		t.Errorf("dense: version %d, %v, %v, last %v", v, reply, err, dst[99_999])
	}
	clear(dst)
	if v, _, err := c.Dense(ctx, nil, 7, dst); v != 7 || err != nil || dst[5] != 0 {
		t.Errorf("unchanged dense: version %d, %v, value %v", v, err, dst[5])
	}
	st, reply, err := c.Acquire(ctx, ps.SplitID{Source: "s", Split: "x"}, 7)
	want := ps.SplitState{Applied: ps.Progress{Position: -1}, Staged: []ps.Progress{{Batches: 1}, {Position: 1, Rows: 1, Batches: 1}}}
	if diff := cmp.Diff(want, st); diff != "" || reply.Cut != 9 || err != nil {
		t.Errorf("acquire: %v, %v\n%s", reply, err, diff)
	}
	if err := errors.Join(c.Close(ctx, true), c.Close(ctx, false)); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]bool{true}, f.closed); diff != "" {
		t.Errorf("closed (-want +got):\n%s", diff)
	}
	if _, err := c.Control(ctx, nil); !errors.Is(err, ps.ErrClosed) {
		t.Errorf("call after Close: %v, want ErrClosed", err)
	}
}

// TestErrorsKeepTheirIdentity sends every sentinel there is.
func TestErrorsKeepTheirIdentity(t *testing.T) {
	t.Parallel()
	var next error
	f := &fakeConn{control: func(context.Context, []ps.Control) (ps.Reply, error) { return ps.Reply{}, next }}
	r, c := newRemote(t, f, remoteOptions{})
	defer r.close(t)
	sentinels := []error{
		ps.ErrFenced, ps.ErrGap, ps.ErrOverlap, ps.ErrTorn, ps.ErrLayout, ps.ErrBusy, ps.ErrClosed, ps.ErrNoDir, snapshot.ErrCorrupt,
		snapshot.ErrNoSpace, ps.ErrDisk, table.ErrFull, ps.ErrRolledBack, ps.ErrMismatch, ps.ErrDisturbed, context.Canceled, context.DeadlineExceeded,
	}
	for i, want := range append(sentinels, errors.New("of no kind")) {
		next = fmt.Errorf("shard 3: %q: %w", "x\xff", want)
		_, err := c.Control(t.Context(), nil)
		if text := strings.Replace(next.Error(), "shard 3: ", "shard 3 at localhost:1: ", 1); err == nil || err.Error() != text {
			t.Errorf("got %v, want %v", err, text)
		}
		for k, s := range sentinels {
			if errors.Is(err, s) != (k == i) {
				t.Errorf("%v: errors.Is(%v) is %v", err, s, k != i)
			}
		}
	}
	next = errors.Join(ps.ErrGap, ps.ErrTorn)
	if _, err := c.Control(t.Context(), nil); !errors.Is(err, ps.ErrGap) || !errors.Is(err, ps.ErrTorn) {
		t.Errorf("of two kinds: %v", err)
	}
	id := ps.SplitID{Source: "s", Split: "x"}
	_, _, err := c.Acquire(t.Context(), id, 2)
	var e *ps.EpochError
	if !errors.As(err, &e) || !errors.Is(err, ps.ErrFenced) {
		t.Fatalf("acquire: %v, want an EpochError", err)
	}
	if diff := cmp.Diff(&ps.EpochError{Split: id, Epoch: 2, Current: 4}, e); diff != "" || !strings.HasPrefix(err.Error(), "shard 3 at localhost:1: ps: s/x") {
		t.Errorf("%v\n%s", err, diff)
	}
	next = errors.New(strings.Repeat("long ", 10_000))
	if _, err := c.Control(t.Context(), nil); err == nil || len(err.Error()) != 16<<10+len("ps: shard 3 at localhost:1: ") {
		t.Errorf("a long text arrives with %d bytes", len(err.Error()))
	}
	if n := len(f.calls()); n != len(sentinels)+1+2 {
		t.Errorf("%d calls: some were made again", n)
	}
}

// TestRestartedShardGetsCommitsAgain changes the incarnation.
func TestRestartedShardGetsCommitsAgain(t *testing.T) {
	t.Parallel()
	f := &fakeConn{}
	var reconnects []error
	r, c := newRemote(t, f, remoteOptions{conn: wire.ConnOptions{
		MinBackoff: time.Millisecond, OnReconnect: func(_ int, cause error) { reconnects = append(reconnects, cause) },
	}})
	defer r.close(t)
	commit := func(split string, to int64) ps.Control {
		return ps.Control{Kind: ps.Commit, Split: ps.SplitID{Source: "s", Split: split}, Epoch: 1, To: to}
	}
	abort := ps.Control{Kind: ps.Abort, Split: ps.SplitID{Source: "s", Split: "a"}, Epoch: 1}
	call := func(ctl ...ps.Control) {
		t.Helper()
		if _, err := c.Control(t.Context(), ctl); err != nil {
			t.Fatal(err)
		}
	}
	call(commit("a", 1), commit("b", 7), abort)
	call(commit("a", 2))
	drop := func() { // the client gives its stream up
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.control = func(ctx context.Context, _ []ps.Control) (ps.Reply, error) {
			f.control = nil
			cancel()
			<-ctx.Done()
			return ps.Reply{}, context.Cause(ctx)
		}
		if _, err := c.Control(ctx, []ps.Control{commit("c", 1)}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	drop()
	n := len(f.calls())
	call(commit("a", 3))
	if got := f.calls()[n:]; len(got) != 1 {
		t.Errorf("same process: %v, want no commit again", got)
	}
	drop()
	r.host.incarnation.Store(2)
	n = len(f.calls())
	call(commit("b", 8))
	got := f.calls()[n:]
	if len(got) != 2 {
		t.Fatalf("other process: %v, want one call before", got)
	}
	slices.SortFunc(got[0], func(a, b ps.Control) int { return strings.Compare(a.Split.Split, b.Split.Split) })
	if diff := cmp.Diff([][]ps.Control{{commit("a", 3), commit("b", 7)}, {commit("b", 8)}}, got); diff != "" {
		t.Errorf("other process (-want +got):\n%s", diff)
	}
	if len(reconnects) != 2 {
		t.Errorf("%d reconnects were told, want 2", len(reconnects))
	}
}

// TestRefusedHello gives the host's error to the caller, once, and waits for a host that is not ready.
func TestRefusedHello(t *testing.T) {
	t.Parallel()
	f := &fakeConn{}
	r, c := newRemote(t, f, remoteOptions{conn: wire.ConnOptions{MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond}})
	defer r.close(t)
	var tries atomic.Int64
	r.host.open = func(h wire.Hello) error {
		tries.Add(1)
		return fmt.Errorf("generation %d is gone: %w", h.Generation, ps.ErrRolledBack)
	}
	_, err := wire.Dial(t.Context(), r.cc, wire.Hello{Generation: 6}, r.opts)
	if !errors.Is(err, ps.ErrRolledBack) || !strings.Contains(err.Error(), "generation 6") || tries.Load() != 1 {
		t.Errorf("Dial: %v after %d tries, want ErrRolledBack at once", err, tries.Load())
	}
	r.host.open = func(wire.Hello) error {
		if tries.Add(1) < 5 {
			return fmt.Errorf("shard 3: %w", ps.ErrNotReady)
		}
		return nil
	}
	d, err := wire.Dial(t.Context(), r.cc, wire.Hello{Session: r.host.add(&fakeConn{})}, r.opts)
	if err != nil || tries.Load() != 5 {
		t.Fatalf("Dial to a host that is being started: %v after %d tries", err, tries.Load())
	}
	if err := errors.Join(d.Close(t.Context(), true), c.Close(t.Context(), true)); err != nil {
		t.Error(err)
	}
}

// TestMessageLimits refuses before anything is sent, and the stream stays.
func TestMessageLimits(t *testing.T) {
	t.Parallel()
	keys := make([]int64, 10_000)
	rows := func(dim int) *param.Rows {
		return &param.Rows{Keys: [][]int64{keys}, Values: [][]float32{make([]float32, dim*len(keys))}}
	}
	for _, x := range []struct {
		name           string
		client, server int
		who            string
	}{{"client", 100_000, 0, "MaxMessage of the client"}, {"server", 0, 100_000, "MaxMessage of the server"}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			f := &fakeConn{}
			r, c := newRemote(t, f, remoteOptions{
				conn: wire.ConnOptions{MaxMessage: x.client, OnReconnect: func(_ int, cause error) { t.Errorf("stream broke: %v", cause) }},
				host: wire.HostOptions{MaxMessage: x.server},
			})
			defer r.close(t)
			for what, err := range map[string]error{
				"reply":   second(c.Lookup(t.Context(), nil, rows(3))),
				"request": second(c.Stage(t.Context(), nil, 1, &param.Update{Grads: [][]float32{make([]float32, 30_000)}})),
			} {
				if !errors.Is(err, wire.ErrTooLarge) {
					t.Errorf("%s: %v, want ErrTooLarge", what, err)
					continue
				}
				for _, want := range []string{what, x.who, "100000", "120"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("no %q in: %v", want, err)
					}
				}
			}
			if _, err := c.Lookup(t.Context(), nil, rows(2)); err != nil {
				t.Error(err)
			}
			if n := len(f.calls()); n != 1 {
				t.Errorf("%d calls arrived, want 1", n)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

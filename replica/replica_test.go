package replica_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/replica"
)

// shards are those of a cluster that may be another one, and of which some may not answer.
type shards struct {
	mu   sync.Mutex
	c    *coordinator.Cluster
	n    int
	down map[int]bool
	// streams are the registrations that brought everything.
	streams map[uint64]bool
}

// NumShards implements [replica.Source].
func (s *shards) NumShards(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.n, nil
}

// ChangesFor implements [ps.ChangesSource].
func (s *shards) ChangesFor(ctx context.Context, shard int, r ps.ChangesRequest) (*ps.Changes, error) {
	s.mu.Lock()
	c, down := s.c, s.down[shard]
	s.mu.Unlock()
	if c == nil || down {
		return nil, fmt.Errorf("shard %d is away: %w", shard, ps.ErrUnreachable)
	}
	a, err := c.ChangesFor(ctx, shard, r)
	if err == nil && a.All {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.streams[a.Stream] = true
	}
	return a, err
}

func (s *shards) registrations() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

func (s *shards) set(c *coordinator.Cluster, n int, down ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.c, s.n, s.down = c, n, map[int]bool{}
	for _, d := range down {
		s.down[d] = true
	}
}

// world is a job that is trained and followed.
type world struct {
	t      *testing.T
	job    pstest.Job
	o      coordinator.Options
	from   *shards
	c      *coordinator.Cluster
	client *ps.Client
	worker *pstest.Worker
	r      *replica.Replica
	stop   func()
}

func newWorld(t *testing.T, n int) *world {
	j := pstest.SmallJob()
	w := &world{
		t: t, job: j, from: &shards{streams: map[uint64]bool{}},
		o: coordinator.Options{Layout: j.Layout(), NumShards: n, Dir: t.TempDir(), ConsumerIdle: time.Minute},
	}
	w.open()
	w.follow()
	return w
}

// open opens the shards, which go back to the newest snapshot.
func (w *world) open() {
	w.t.Helper()
	c, err := coordinator.Open(w.t.Context(), w.o)
	if err != nil {
		w.t.Fatal(err)
	}
	w.c = c
	w.begin()
	w.from.set(c, w.o.NumShards)
}

// begin begins a worker.
func (w *world) begin() {
	w.t.Helper()
	var err error
	if w.client, err = w.c.Client(w.t.Context(), "worker"); err == nil {
		w.worker, err = pstest.NewWorker(w.t.Context(), w.job, w.client)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// follow begins a replica, whose process has died if there is one.
func (w *world) follow() {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	r := replica.New(replica.Options{Layout: w.job.Layout(), Name: "replica", Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil))})
	go func() { done <- r.Follow(ctx, w.from) }()
	w.r, w.stop = r, func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("following has ended: %v", err)
		}
		if err := r.Close(); err != nil {
			w.t.Error(err)
		}
	}
}

func (w *world) close() {
	w.stop()
	if err := errors.Join(w.client.Close(), w.c.Close(w.t.Context())); err != nil {
		w.t.Error(err)
	}
}

func (w *world) step() (more bool) {
	w.t.Helper()
	more, err := w.worker.Step(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return more
}

// snapshot takes one while there is no worker, who would have to pass its marker.
func (w *world) snapshot() {
	w.t.Helper()
	err := w.client.Close()
	if err == nil {
		_, err = w.c.Snapshot(w.t.Context(), ps.SnapshotOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.begin()
}

// read reads every row, also of ids that have none, and the dense tensors.
func read(t *testing.T, l *param.Layout, from interface {
	Lookup(ctx context.Context, rows *param.Rows) error
	Dense(ctx context.Context, have uint64, dst []float32) (uint64, error)
}, ids []int64,
) (out []uint32) {
	t.Helper()
	var rows param.Rows
	for _, spec := range l.Tables {
		rows.Keys, rows.Values = append(rows.Keys, ids), append(rows.Values, make([]float32, len(ids)*spec.Dim()))
	}
	dense := make([]float32, l.DenseLen())
	_, err := from.Dense(t.Context(), 0, dense)
	if err := errors.Join(from.Lookup(t.Context(), &rows), err); err != nil {
		t.Fatal(err)
	}
	for _, values := range append(rows.Values, dense) {
		for _, v := range values {
			out = append(out, math.Float32bits(v))
		}
	}
	return out
}

func (w *world) ids() (ids []int64) {
	for k := -3 * w.job.NumIDs; k < 3*w.job.NumIDs; k++ {
		ids = append(ids, k)
	}
	return ids
}

// replica reads what the replica has.
func (w *world) replica() []uint32 {
	w.t.Helper()
	x := w.r.Reader()
	x.Hold()
	defer x.Release()
	return read(w.t, w.job.Layout(), x, w.ids())
}

// compare waits until the replica has all that was pushed, and compares both.
func (w *world) compare(what string) {
	w.t.Helper()
	if err := w.client.Flush(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // the clock of the test stands still otherwise
	if err := w.r.Await(w.t.Context(), time.Now()); err != nil {
		w.t.Fatal(err)
	}
	if want, got := read(w.t, w.job.Layout(), w.client, w.ids()), w.replica(); !slices.Equal(want, got) {
		w.t.Fatalf("%s: what the replica has is not what the shards have", what)
	}
	progress, err := w.c.Progress(w.t.Context(), pstest.Source)
	if err != nil {
		w.t.Fatal(err)
	}
	for shard, of := range w.r.Status().Progress {
		for split, p := range progress {
			if is := of[ps.SplitID{Source: pstest.Source, Split: split}]; is != p {
				w.t.Fatalf("%s: the cut of shard %d is at %+v of split %s, the shard at %+v", what, shard, is, split, p)
			}
		}
	}
}

// TestReplicaEqualsShards compares a replica with the shards at random cuts, bit for bit, while shards, worker and replica die, shards go back to snapshots and
// become more or fewer.
func TestReplicaEqualsShards(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("shards=%d", n), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := rand.New(rand.NewPCG(uint64(n), 1))
				w := newWorld(t, n)
				defer w.close()
				for cut := range 50 {
					what := ""
					for range r.IntN(5) {
						if !w.step() {
							break
						}
						if r.IntN(2) == 0 {
							time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond)
						}
					}
					switch r.IntN(8) {
					case 0:
						what = ", the worker has died"
						if err := w.client.Close(); err != nil {
							t.Fatal(err)
						}
						w.begin()
					case 1:
						what = ", the replica has died"
						w.stop()
						w.follow()
					case 2:
						w.snapshot()
					case 3:
						what = ", the shards have died"
						w.from.set(nil, w.o.NumShards)
						if err := errors.Join(w.client.Close(), w.c.Close(t.Context())); err != nil {
							t.Fatal(err)
						}
						time.Sleep(time.Duration(1+r.IntN(3000)) * time.Millisecond)
						if n > 1 && r.IntN(2) == 0 {
							what = ", there are other shards"
							w.o.NumShards = 1 + r.IntN(5)
						}
						w.open()
					}
					w.compare(fmt.Sprintf("cut %d%s", cut, what))
				}
			})
		})
	}
}

// TestRollbackIsReadAtOnce: after the shards went back, nothing is read of the state that they have gone to until all of them have given it, and what was read before
// becomes older.
func TestRollbackIsReadAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		for range 10 {
			w.step()
		}
		w.snapshot()
		w.compare("at the snapshot")
		then := w.replica()
		for range 20 {
			w.step()
		}
		w.compare("later")
		later, asOf := w.replica(), w.r.AsOf()
		w.from.set(nil, 2)
		if err := errors.Join(w.client.Close(), w.c.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		w.open()
		w.from.set(w.c, 2, 1)
		time.Sleep(time.Minute)
		if !slices.Equal(w.replica(), later) {
			t.Error("something of the state before the last is read though one shard has not given its own")
		}
		if age := w.r.AsOf().Sub(asOf); age > time.Second {
			t.Errorf("what is read has become %v younger with a shard that is away", age)
		}
		w.from.set(w.c, 2)
		w.compare("after both have gone back")
		if !slices.Equal(w.replica(), then) {
			t.Error("the state is not that of the snapshot")
		}
	})
}

// TestAwayForLong: a replica that did not ask for longer than shards keep changes is given all rows again; one that was away for less is not.
func TestAwayForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		away := func(d time.Duration, want int) {
			t.Helper()
			w.from.set(w.c, 2, 0, 1)
			for range 5 {
				w.step()
			}
			time.Sleep(d)
			w.from.set(w.c, 2)
			w.compare(fmt.Sprintf("after %v", d))
			if n := w.from.registrations(); n != want {
				t.Errorf("after %v: it was given all rows %d times by 2 shards, want %d", d, n, want)
			}
		}
		w.compare("at first")
		away(50*time.Second, 2)
		away(62*time.Second, 4)
		away(10*time.Second, 4)
	})
}

// seen is a source that notes which rows each consumer was given last, by where they lie.
type seen struct {
	*shards
	mu    sync.Mutex
	given map[string]*int64
}

// ChangesFor implements [ps.ChangesSource].
func (s *seen) ChangesFor(ctx context.Context, shard int, r ps.ChangesRequest) (*ps.Changes, error) {
	a, err := s.shards.ChangesFor(ctx, shard, r)
	if err == nil && len(a.Rows.Keys) > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.given[r.Consumer] = &a.Rows.Keys[0]
	}
	return a, err
}

// TestReplicasKeepTime: replicas that began at different moments come to share cuts, because each counts from the cut that it was given.
func TestReplicasKeepTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		from := &seen{shards: w.from, given: map[string]*int64{}}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 3 {
			time.Sleep(70 * time.Millisecond)
			r := replica.New(replica.Options{Layout: w.job.Layout(), Name: fmt.Sprint(i)})
			wg.Go(func() {
				if err := r.Follow(ctx, from); !errors.Is(err, context.Canceled) {
					t.Errorf("following has ended: %v", err)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		for range 10 {
			w.step()
			time.Sleep(300 * time.Millisecond)
		}
		cancel()
		wg.Wait()
		if len(from.given) != 3 || from.given["0"] != from.given["1"] || from.given["0"] != from.given["2"] {
			t.Error("replicas were given a cut each")
		}
	})
}

// TestLeaves: a replica that ends is no consumer any more.
func TestLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		defer w.close()
		for range ps.MaxConsumers + 2 {
			w.compare("")
			w.stop()
			w.follow()
		}
		w.compare("")
	})
}

// TestNothingIsTorn reads while updates add one to all rows and to a dense weight: all that one Hold reads is equal, and never less than before.
func TestNothingIsTorn(t *testing.T) {
	t.Parallel()
	l := pstest.CountingLayout()
	l.Dense = []param.Tensor{{Name: "d", Shape: []int{1}, Optimizer: optim.SGD{LR: 1}}}
	c, err := coordinator.Open(t.Context(), coordinator.Options{Layout: l, NumShards: 1})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := c.Client(t.Context(), "worker")
	if err == nil {
		_, err = cl.Resume(t.Context(), "s", []string{"x"})
	}
	if err != nil {
		t.Fatal(err)
	}
	from := &shards{streams: map[uint64]bool{}}
	from.set(c, 1)
	r := replica.New(replica.Options{Layout: l, Name: "replica", Every: time.Microsecond})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Follow(ctx, from) }()
	ids := make([]int64, 10_000)
	for i := range ids {
		ids[i] = int64(i)
	}
	<-r.Filled()
	var readers sync.WaitGroup
	const last = 60
	for range 2 {
		readers.Go(func() {
			x := r.Reader()
			dense, values := []float32{0}, make([]float32, len(ids))
			version, before := uint64(0), float32(0)
			for before < last {
				x.Hold()
				err := x.Lookup(ctx, &param.Rows{Keys: [][]int64{ids}, Values: [][]float32{values}})
				if err == nil {
					version, err = x.Dense(ctx, version, dense)
				}
				x.Release()
				if err != nil {
					t.Error(err)
					return
				}
				for i, v := range values {
					if v != dense[0] || v < before {
						t.Errorf("row %d is %v beside a dense weight of %v, after %v", i, v, dense[0], before)
						return
					}
				}
				before = dense[0]
			}
		})
	}
	for n := range int64(last) {
		u := pstest.CountingUpdate("x", n, n+1, ids)
		u.Dense = []float32{-1}
		if err := cl.Push(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	readers.Wait()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := errors.Join(r.Close(), cl.Close(), c.Close(context.WithoutCancel(ctx))); err != nil {
		t.Error(err)
	}
}

// undecided are shards that say of each other's number that it is another.
type undecided struct{ asked int }

// NumShards implements [replica.Source].
func (u *undecided) NumShards(context.Context) (int, error) {
	u.asked++
	return 1, nil
}

// ChangesFor implements [ps.ChangesSource].
func (*undecided) ChangesFor(context.Context, int, ps.ChangesRequest) (*ps.Changes, error) {
	return nil, ps.OtherShards(1, 2)
}

// TestShardsThatAreNotYetAsMany: a replica that is told of another number of shards again and again asks with growing waits.
func TestShardsThatAreNotYetAsMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := replica.New(replica.Options{Layout: pstest.SmallJob().Layout(), Name: "r"})
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		u := &undecided{}
		if err := r.Follow(ctx, u); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("following ended with %v", err)
		}
		if u.asked < 30 || u.asked > 40 {
			t.Errorf("asked %d times in half a minute, want once a second after the first", u.asked)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

// restarting is a shard that is started again in the middle of a pass that brings all rows: it begins once more, as another stream, with other rows.
type restarting struct{ asked int }

// NumShards implements [replica.Source].
func (*restarting) NumShards(context.Context) (int, error) { return 1, nil }

// ChangesFor implements [ps.ChangesSource].
func (s *restarting) ChangesFor(ctx context.Context, _ int, r ps.ChangesRequest) (*ps.Changes, error) {
	rows := func(keys ...int64) (out table.Rows) {
		l := pstest.CountingLayout()
		for _, k := range keys {
			out.Keys, out.Times, out.Counts = append(out.Keys, k), append(out.Times, 1), append(out.Counts, 1)
			out.Weights = append(out.Weights, make([]float32, l.Tables[0].Dim())...)
			out.Weights[len(out.Weights)-1] = 7
		}
		return out
	}
	at := &ps.CutOfShard{Generation: 1, Dense: make([]float32, pstest.CountingLayout().DenseLen())}
	switch s.asked++; s.asked {
	case 1:
		return &ps.Changes{Stream: 1, Seq: 1, All: true, Rows: rows(1)}, nil
	case 2:
		return &ps.Changes{Stream: 2, Seq: 1, All: true, Whole: true, Rows: rows(2), At: at}, nil
	}
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestShardThatBeginsAgain: what came of a stream that broke off is not mixed with what the next one brings.
func TestShardThatBeginsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := pstest.CountingLayout()
		r := replica.New(replica.Options{Layout: l, Name: "r"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = r.Follow(ctx, &restarting{}) }()
		synctest.Wait()
		x := r.Reader()
		x.Hold()
		got := read(t, l, x, []int64{1, 2})
		x.Release()
		if dim := l.Tables[0].Dim(); got[dim-1] != 0 || got[2*dim-1] != math.Float32bits(7) {
			t.Errorf("rows 1 and 2 are %v, want nothing and 7", got)
		}
		cancel()
		<-done
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}

package pstest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
)

// Mirror is a consumer of changes that keeps all rows in maps.
type Mirror struct {
	// From is the cluster that is asked; it may be replaced by another one that has its state.
	From     ps.ChangesSource
	shards   int
	consumer *ps.Consumer
	of       []mirrored
}

// mirrored is what a mirror has of a shard.
type mirrored struct {
	tables []map[int64]*table.Rows
	stream uint64
	anew   []map[int64]bool // what the pass under way has brought, where it brings all
	// streams are those that brought all.
	streams map[uint64]bool
	removed int
}

// NewMirror makes an empty mirror of a cluster.
func NewMirror(from ps.ChangesSource, l *param.Layout, shards int) *Mirror {
	m := &Mirror{From: from, shards: shards, of: make([]mirrored, shards)}
	for i := range m.of {
		m.of[i].streams = map[uint64]bool{}
		for range l.Tables {
			m.of[i].tables = append(m.of[i].tables, map[int64]*table.Rows{})
		}
	}
	m.Restart()
	return m
}

// ChangesFor implements [ps.ChangesSource].
func (m *Mirror) ChangesFor(ctx context.Context, shard int, r ps.ChangesRequest) (*ps.Changes, error) {
	return m.From.ChangesFor(ctx, shard, r)
}

// Restart makes the consumer another one of the same name, as if its process had begun again; what it has of rows lasts.
func (m *Mirror) Restart() {
	m.consumer = ps.NewConsumer("mirror", m, m.shards, true)
	for i := range m.of {
		m.of[i].stream, m.of[i].anew = 0, nil
	}
}

// Next deals with the next answer of a shard.
func (m *Mirror) Next(ctx context.Context, shard int) (whole bool, err error) {
	c, err := m.consumer.Next(ctx, shard)
	if err != nil {
		return false, err
	}
	s := &m.of[shard]
	if c.All && (c.Stream != s.stream || s.anew == nil) {
		s.streams[c.Stream] = true
		s.anew = nil
		for range s.tables {
			s.anew = append(s.anew, map[int64]bool{})
		}
	}
	s.stream = c.Stream
	into := s.tables[c.Table]
	dim, stateDim := 0, 0
	if n := len(c.Rows.Keys); n > 0 {
		dim, stateDim = len(c.Rows.Weights)/n, len(c.Rows.State)/n
	}
	for i, k := range c.Rows.Keys {
		into[k] = &table.Rows{
			Keys: []int64{k}, Times: c.Rows.Times[i : i+1], Counts: c.Rows.Counts[i : i+1],
			Weights: c.Rows.Weights[i*dim:][:dim], State: c.Rows.State[i*stateDim:][:stateDim],
		}
		if c.All {
			s.anew[c.Table][k] = true
		}
	}
	for _, k := range c.Removed {
		delete(into, k)
		s.removed++
	}
	if c.Whole && c.All {
		for t, of := range s.tables {
			for k := range of {
				if !s.anew[t][k] {
					delete(of, k)
				}
			}
		}
		s.anew = nil
	}
	return c.Whole, nil
}

// CatchUp deals with all that has changed until now: a pass that was begun before is ended first.
func (m *Mirror) CatchUp(ctx context.Context) error {
	for shard := range m.of {
		for passes := 0; passes < 2; {
			whole, err := m.Next(ctx, shard)
			if err != nil {
				return err
			}
			if whole {
				passes++
			}
		}
	}
	return nil
}

// Told is how many registrations brought everything, and how many rows were told to be gone.
func (m *Mirror) Told() (anew, removed int) {
	for _, s := range m.of {
		anew, removed = anew+len(s.streams), removed+s.removed
	}
	return anew, removed
}

// Compare compares all rows with those of the cluster. Fids of every table are those below limit and their opposites. The mirror may have more where rows
// expire, which is told when their memory is freed.
func (m *Mirror) Compare(ctx context.Context, c interface {
	Entries(ctx context.Context, tbl int, fids []int64, dst *table.Rows) error
}, limit int64, expire bool,
) error {
	var fids []int64
	for k := -limit; k <= limit; k++ {
		fids = append(fids, k)
	}
	for t := range m.of[0].tables {
		var rows table.Rows
		if err := c.Entries(ctx, t, fids, &rows); err != nil {
			return err
		}
		n := 0
		for _, s := range m.of {
			n += len(s.tables[t])
		}
		if n < len(rows.Keys) || n > len(rows.Keys) && !expire {
			return fmt.Errorf("table %d: the mirror has %d rows, the shards %d", t, n, len(rows.Keys))
		}
		if n = len(rows.Keys); n == 0 {
			continue
		}
		dim, stateDim := len(rows.Weights)/n, len(rows.State)/n
		for i, k := range rows.Keys {
			want := &table.Rows{
				Keys: []int64{k}, Times: rows.Times[i : i+1], Counts: rows.Counts[i : i+1],
				Weights: rows.Weights[i*dim:][:dim], State: rows.State[i*stateDim:][:stateDim],
			}
			got := m.of[ps.ShardOf(ps.Bucket(k), m.shards)].tables[t][k]
			if got == nil || !sameRows(got, want) {
				return fmt.Errorf("table %d: the mirror has %+v, the shards %+v", t, got, want)
			}
		}
	}
	return nil
}

// losing is a source of changes some of whose answers are lost.
type losing struct {
	Cluster
	r *rand.Rand
}

var errLost = errors.New("the answer is lost")

// ChangesFor implements [ps.ChangesSource].
func (l losing) ChangesFor(ctx context.Context, shard int, r ps.ChangesRequest) (*ps.Changes, error) {
	c, err := l.Cluster.ChangesFor(ctx, shard, r)
	if err == nil && l.r.IntN(5) == 0 {
		return nil, errLost
	}
	return c, err
}

// follow trains a job beside a mirror whose answers are lost now and then, and which begins again now and then, and compares both.
func follow(t *testing.T, c Cluster, j Job, shards int, seed uint64) *Mirror {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 12))
	from := losing{c, r}
	cl := client(t, c, "worker")
	w, err := NewWorker(t.Context(), j, cl)
	if err != nil {
		t.Fatal(err)
	}
	m, expires := NewMirror(from, j.Layout(), shards), j.Retention.Expires()
	compare := func() error {
		return errors.Join(cl.Flush(t.Context()), retry(func() error { return m.CatchUp(t.Context()) }), m.Compare(t.Context(), c, j.NumIDs, expires))
	}
	for more := true; more; {
		for range r.IntN(4) {
			if _, err := m.Next(t.Context(), r.IntN(shards)); err != nil && !errors.Is(err, errLost) {
				t.Fatal(err)
			}
		}
		if r.IntN(20) == 0 {
			m.Restart()
		}
		if r.IntN(10) == 0 {
			if err := compare(); err != nil {
				t.Fatal(err)
			}
		}
		if more, err = w.Step(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(compare(), cl.Close()); err != nil {
		t.Fatal(err)
	}
	return m
}

// retry makes a call again while its answer is lost.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, errLost) {
			return err
		}
	}
}

// testChanges follows a job, and then a cluster that is made of a snapshot of it.
func (s suite) testChanges(t *testing.T, shards int) {
	t.Parallel()
	j, dir := SmallJob(), t.TempDir()
	o := coordinator.Options{Layout: j.Layout(), NumShards: shards, Dir: dir, Incremental: 2}
	c, err := s.open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	m := follow(t, c, j, shards, uint64(shards))
	if anew, _ := m.Told(); anew != shards {
		t.Errorf("%d registrations at %d shards: one for each is enough", anew, shards)
	}
	m.From = c
	take(t, c, ps.SnapshotOptions{})
	// What was changed behind the snapshot is gone with it, and so are registrations.
	cl := client(t, c, "editor")
	e, err := cl.Edit(t.Context(), "lost")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Apply(t.Context(), param.AssignAdd, 0, []int64{5, 1_000_003}, make([]float32, 8)), m.CatchUp(t.Context()), cl.Close(), c.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	again := s.must(t, o)
	m.From = again
	if err := errors.Join(m.CatchUp(t.Context()), m.Compare(t.Context(), again, j.NumIDs, false)); err != nil {
		t.Fatal(err)
	}
	if anew, _ := m.Told(); anew != 2*shards {
		t.Errorf("%d of %d shards that began again brought everything", anew-shards, shards)
	}
	// Names are bounded in length and number, and give way when their consumers leave.
	ask := func(name string) error {
		_, err := again.ChangesFor(t.Context(), 0, ps.ChangesRequest{Consumer: name})
		return err
	}
	for i := range ps.MaxConsumers - 1 {
		if err := ask(fmt.Sprint("another ", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one too many", "", string(make([]byte, ps.MaxConsumerName+1))} {
		if err := ask(name); !errors.Is(err, ps.ErrConsumers) {
			t.Errorf("consumer %q: %v, want ErrConsumers", name, err)
		}
	}
	if err := errors.Join(m.consumer.Leave(t.Context()), ask("one too many")); err != nil {
		t.Errorf("after one has left: %v", err)
	}
}

// testChangesRetained follows jobs whose rows come and go.
func (s suite) testChangesRetained(t *testing.T) {
	t.Parallel()
	for name, j := range retentionJobs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: 2})
			m := follow(t, c, j, 2, 3)
			if _, removed := m.Told(); removed == 0 && (j.Retention.Expires() || j.Retention.Full != param.FullRefuse && j.Retention.MaxBytes > 0) {
				t.Error("no row was told to be gone")
			}
		})
	}
}

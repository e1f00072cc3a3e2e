package local_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sources/memsource"
)

var visits = arrow.NewSchema([]arrow.Field{
	{Name: "user", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true},
	{Name: "name", Type: arrow.BinaryTypes.String},
	{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
}, nil)

// visit is a row: who, and which row it is.
type visit struct {
	user   int64 // 0: nobody
	name   string
	source string
	split  string
	at     int
}

// site makes the splits of a source.
func site(rng *rand.Rand, source string, splits, rows int) (map[string][]arrow.RecordBatch, []visit) {
	out := map[string][]arrow.RecordBatch{}
	var all []visit
	for s := range splits {
		split := fmt.Sprintf("s%d", s)
		for at := 0; at < rows; {
			b := array.NewRecordBuilder(memory.DefaultAllocator, visits)
			for range 1 + rng.IntN(20) {
				v := visit{user: rng.Int64N(40), source: source, split: split, at: at}
				v.name = fmt.Sprintf("%s/%s/%d", source, split, at)
				at++
				users := b.Field(0).(*array.ListBuilder)
				if v.user == 0 {
					users.AppendNull()
				} else {
					users.Append(true)
					users.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{v.user, rng.Int64()}, nil)
				}
				b.Field(1).(*array.StringBuilder).Append(v.name)
				b.Field(2).(*array.Int64Builder).Append(int64(1000 + at))
				b.Field(3).(*array.Int64Builder).Append(int64(at))
				all = append(all, v)
			}
			out[split] = append(out[split], b.NewRecordBatch())
			b.Release()
		}
	}
	return out, all
}

var errKilled = errors.New("killed")

// store keeps what a sink has stored across runs. A writer stores what it has taken now and then; what it has not is gone
// when the run is killed.
type store struct {
	mu     sync.Mutex
	rng    *rand.Rand
	killAt int // rows until the next kill
	at     map[pipeline.SplitID]pipeline.Progress
	rows   map[pipeline.SplitID][]string
	users  map[pipeline.SplitID][]int64
}

func newStore(seed uint64) *store {
	return &store{
		rng: rand.New(rand.NewPCG(seed, 1)), at: map[pipeline.SplitID]pipeline.Progress{},
		rows: map[pipeline.SplitID][]string{}, users: map[pipeline.SplitID][]int64{},
	}
}

func (s *store) String() string      { return "store" }
func (s *store) Fingerprint() string { return "store" }

func (s *store) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	return &storeWriter{s: s}, nil
}

type storeWriter struct {
	s       *store
	pending []*pipeline.Batch
}

func (w *storeWriter) Resume(_ context.Context, source string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	out := map[string]pipeline.Progress{}
	for _, sp := range splits {
		if p, ok := w.s.at[pipeline.SplitID{Source: source, Split: sp.Name}]; ok {
			out[sp.Name] = p
		}
	}
	return out, nil
}

func (w *storeWriter) Write(ctx context.Context, b *pipeline.Batch) error {
	w.s.mu.Lock()
	if w.s.killAt -= b.NumRows(); w.s.killAt < 0 && w.s.killAt > -1<<30 {
		w.s.killAt = -1 << 40
		w.s.mu.Unlock()
		b.Release()
		return errKilled
	}
	flush := w.s.rng.IntN(3) == 0
	w.s.mu.Unlock()
	w.pending = append(w.pending, b)
	if flush {
		return w.Flush(ctx)
	}
	return nil
}

func (w *storeWriter) Flush(context.Context) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, b := range w.pending {
		id := b.Origin().ID()
		p := w.s.at[id]
		p.Position, p.Rows, p.Batches = b.Origin().To, p.Rows+int64(b.NumRows()), p.Batches+1
		w.s.at[id] = p
		names, users := b.Column("name").(*array.String), b.Column("user").(*array.List)
		for i := range b.NumRows() {
			w.s.rows[id] = append(w.s.rows[id], names.Value(i))
			user := int64(0)
			if from, to := users.ValueOffsets(i); from < to {
				user = users.ListValues().(*array.Int64).Value(int(from))
			}
			w.s.users[id] = append(w.s.users[id], user)
		}
		b.Release()
	}
	w.pending = nil
	return nil
}

func (w *storeWriter) Close() error {
	for _, b := range w.pending {
		b.Release()
	}
	w.pending = nil
	return nil
}

// byUser is clicks and views, merged, shared between a store and a shuffle, and downstream of that another store.
//
//	clicks ─┬─ all ─> tee ─┬─> raw
//	views ──┘              └─> shuffle ═> users ─[q]─> grouped
func byUser(t *testing.T, clicks, views map[string][]arrow.RecordBatch, raw, grouped *store) *pipeline.Plan {
	t.Helper()
	g := pipeline.New("visits")
	read := func(name string, splits map[string][]arrow.RecordBatch) pipeline.Stream[*pipeline.Batch] {
		src, err := memsource.Batches(visits, splits, memsource.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return pipeline.Read(g, name, pipeline.Source[*pipeline.Batch](src))
	}
	all := pipeline.Merge(g, "all", read("clicks", clicks), read("views", views))
	both := pipeline.Tee(all, "both", 2)
	pipeline.Into(both[0], "raw", pipeline.Sink[*pipeline.Batch](raw))
	users := pipeline.Shuffle(both[1], "users", pipeline.ShuffleOptions{Key: "user", Partitions: 3})
	pipeline.Into(pipeline.Prefetch(users, "q", 2), "grouped", pipeline.Sink[*pipeline.Batch](grouped))
	p, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestShuffle kills runs of a graph with a merge, a tee, a shuffle and two sinks at random, until one ends. Each row is then
// once in both sinks, and downstream of the shuffle in the order of the reference, which sorts them all.
func TestShuffle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			clicks, all := site(rng, "clicks", 2, 150)
			views, more := site(rng, "views", 1, 200)
			all = append(all, more...)
			raw, grouped := newStore(seed), newStore(seed+100)
			kills := 0
			for run := 0; ; run++ {
				raw.killAt, grouped.killAt = 1<<40, 1<<40
				if run < 6 {
					raw.killAt, grouped.killAt = rng.IntN(2*len(all)), rng.IntN(2*len(all))
				}
				stats, err := local.Run(t.Context(), byUser(t, clicks, views, raw, grouped), pipeline.RunOptions{
					Workers: 1 + rng.IntN(3), Deterministic: rng.IntN(2) == 0, ShuffleMemory: 1 + rng.Int64N(10_000), ShuffleDir: t.TempDir(),
				})
				if err == nil {
					if len(stats) != 2 || run >= 6 && stats[1].Rows+stats[1].Resumed != int64(len(all)) {
						t.Errorf("%+v", stats)
					}
					break
				}
				if !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				kills++
			}
			var names []string
			for _, v := range all {
				names = append(names, v.name)
			}
			slices.Sort(names)
			for which, s := range map[string]*store{"raw": raw, "grouped": grouped} {
				var got []string
				for _, rows := range s.rows {
					got = append(got, rows...)
				}
				slices.Sort(got)
				if diff := gocmp.Diff(names, got); diff != "" {
					t.Errorf("%s after %d kills: %s", which, kills, diff)
				}
			}
			twin := slices.Clone(all)
			slices.SortFunc(twin, func(a, b visit) int {
				return cmp.Or(cmp.Compare(a.user, b.user), strings.Compare(a.source, b.source), strings.Compare(a.split, b.split), cmp.Compare(a.at, b.at))
			})
			seen := map[int64]string{}
			for id, users := range grouped.users {
				for _, u := range users {
					if at, ok := seen[u]; ok && at != id.Split {
						t.Errorf("user %d is in partitions %s and %s", u, at, id.Split)
					}
					seen[u] = id.Split
				}
				var want []string
				for _, v := range twin {
					if slices.Contains(users, v.user) {
						want = append(want, v.name)
					}
				}
				if diff := gocmp.Diff(want, grouped.rows[id]); diff != "" {
					t.Errorf("partition %s: %s", id.Split, diff)
				}
			}
		})
	}
}

// TestShuffleEndsEarly: when what is in front of a shuffle is drained, nothing downstream of it runs, because not all rows are there.
func TestShuffleEndsEarly(t *testing.T) {
	t.Parallel()
	clicks, _ := site(rand.New(rand.NewPCG(1, 1)), "clicks", 1, 50)
	drain := make(chan struct{})
	close(drain)
	raw, grouped := newStore(1), newStore(2)
	raw.killAt, grouped.killAt = 1<<40, 1<<40
	stats, err := local.Run(t.Context(), byUser(t, clicks, clicks, raw, grouped), pipeline.RunOptions{Drain: drain, ShuffleDir: t.TempDir()})
	if err != nil || !stats[0].Drained || !stats[1].Drained || len(grouped.rows) > 0 {
		t.Errorf("%+v, %v, %d partitions are stored", stats, err, len(grouped.rows))
	}
	if _, err := local.Run(t.Context(), byUser(t, clicks, clicks, raw, grouped), pipeline.RunOptions{Splits: []pipeline.Split{{Source: "clicks", Name: "s0"}}}); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("some splits alone: %v", err)
	}
}

package shuffle_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/runners/beam"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/gradsink"
	"github.com/monolith-go/monolith/sinks/parquetsink"
	"github.com/monolith-go/monolith/sources/memsource"
	"github.com/monolith-go/monolith/transforms/batch"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// shops are the shops of the running tests; the configuration of a recipe is the name of one.
var shops sync.Map

func TestMain(m *testing.M) {
	beam.Register("shop", func(_ context.Context, config []byte) (*beam.Built, error) {
		s, ok := shops.Load(string(config))
		if !ok {
			return nil, fmt.Errorf("no shop %q", config)
		}
		plan, err := s.(*shop).plan()
		return &beam.Built{Plan: plan, Env: s.(*shop).env}, err
	})
	beam.Init()
	// Beam leaves an empty file in the temporary directory for each run.
	dir, err := os.MkdirTemp("", "beam")
	if err == nil {
		err = os.Setenv("TMPDIR", dir)
	}
	if err != nil {
		panic(err)
	}
	m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
}

var visitSchema = arrow.NewSchema([]arrow.Field{
	{Name: "user", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: "item", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: "age", Type: arrow.PrimitiveTypes.Float32},
	{Name: "name", Type: arrow.BinaryTypes.String},
	{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
}, nil)

// visits are the rows of two sources: their names, and how often each id is in them.
type visits struct {
	sources map[string]map[string][]arrow.RecordBatch
	names   []string
	ids     map[int64]uint64
}

func makeVisits(rows map[string]int) *visits {
	rng := rand.New(rand.NewPCG(3, 3))
	v := &visits{sources: map[string]map[string][]arrow.RecordBatch{}, ids: map[int64]uint64{}}
	for _, split := range slices.Sorted(maps.Keys(rows)) {
		source, name, _ := strings.Cut(split, "/")
		if v.sources[source] == nil {
			v.sources[source] = map[string][]arrow.RecordBatch{}
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, visitSchema)
		ids := func(col int, ids ...int64) {
			list := b.Field(col).(*array.ListBuilder)
			list.Append(true)
			list.ValueBuilder().(*array.Int64Builder).AppendValues(ids, nil)
			for _, id := range ids {
				v.ids[id]++
			}
		}
		for at := range rows[split] {
			user := rng.Int64N(30)
			item := 1000 + rng.Int64N(50)
			ids(0, user)
			ids(1, item, 2000+item%7)
			b.Field(2).(*array.Float32Builder).Append(rng.Float32())
			row := fmt.Sprintf("%s/%d", split, at)
			v.names = append(v.names, row)
			b.Field(3).(*array.StringBuilder).Append(row)
			b.Field(4).(*array.Float32Builder).Append(float32((user + item) % 2))
			b.Field(5).(*array.Int64Builder).Append(int64(at + 1))
		}
		v.sources[source][name] = append(v.sources[source][name], b.NewRecordBatch())
		b.Release()
	}
	return v
}

// shop trains on visits, user by user, and writes them down:
//
//	clicks ─┬─ all ─┬─> raw                                                       files
//	views ──┘       └─> shuffle ═> users ─> third ─> batch ─╫─┬─> step ─> push    parameters
//	                                          │               └─> rows            files
//	                                          └────────────────> sample           files
//
// The stage third keeps a count as state, and has a side output.
type shop struct {
	visits        *visits
	dir           string
	model         model.Model
	cluster       *coordinator.Cluster
	deterministic bool
	states        stateStore

	killAt atomic.Int64 // events until the run is killed; below 0: never
	kill   context.CancelCauseFunc
}

type sessionKey struct{}

var errKilled = errors.New("killed")

func newShop(t *testing.T, v *visits, deterministic bool) *shop {
	t.Helper()
	m, err := zoo.New(zoo.Config{
		Name: "deepfm", Seed: 5, Dim: 4, Hidden: []int{8},
		Features: []zoo.Feature{{Name: "user"}, {Name: "item"}, {Name: "age", Kind: model.Dense, Dim: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{visits: v, dir: t.TempDir(), model: m, deterministic: deterministic}
	s.states.states = map[string]map[pipeline.SplitID]pipeline.State{}
	s.killAt.Store(-1)
	s.open(t)
	t.Cleanup(func() { s.close(t) })
	shops.Store(t.Name(), s)
	t.Cleanup(func() { shops.Delete(t.Name()) })
	return s
}

// open starts the shards, from their newest snapshot.
func (s *shop) open(t *testing.T) {
	t.Helper()
	c, err := coordinator.Open(t.Context(), coordinator.Options{
		Layout: s.model.Layout(), NumShards: 2, Dir: filepath.Join(s.dir, "snapshots"), Every: 10 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.cluster = c
}

func (s *shop) close(t *testing.T) {
	t.Helper()
	if err := s.cluster.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Error(err)
	}
}

func (s *shop) session(ctx context.Context, env *pipeline.Env) (*ps.Client, error) {
	return pipeline.Resource(ctx, env, sessionKey{}, func(ctx context.Context) (*ps.Client, error) {
		return s.cluster.Client(ctx, fmt.Sprintf("worker-%d", env.Worker))
	})
}

func (s *shop) env(worker int) *pipeline.Env {
	return &pipeline.Env{Worker: worker, State: &s.states, Hooks: pipeline.NewHooks(s)}
}

// StageDone kills the run when its time has come.
func (s *shop) StageDone(string, int, time.Duration) {
	if s.killAt.Load() >= 0 && s.killAt.Add(-1) == 0 {
		s.kill(errKilled)
	}
}

func (s *shop) folder(name string) string { return filepath.Join(s.dir, name) }

func (s *shop) files(name string) (pipeline.Sink[*pipeline.Batch], error) {
	return parquetsink.New(parquetsink.Options{Options: filesink.Options{Dir: s.folder(name), RowsPerFile: map[string]int64{"raw": 90, "rows": 50, "sample": 9}[name]}})
}

func (s *shop) plan() (*pipeline.Plan, error) {
	g := pipeline.New("shop")
	var in []pipeline.Stream[*pipeline.Batch]
	for _, name := range slices.Sorted(maps.Keys(s.visits.sources)) {
		src, err := memsource.Batches(visitSchema, s.visits.sources[name], memsource.Options{MaxRows: 13})
		if err != nil {
			return nil, err
		}
		in = append(in, pipeline.Read(g, name, pipeline.Source[*pipeline.Batch](src)))
	}
	var files [3]pipeline.Sink[*pipeline.Batch]
	for i, name := range []string{"raw", "rows", "sample"} {
		var err error
		if files[i], err = s.files(name); err != nil {
			return nil, err
		}
	}
	both := pipeline.Tee(pipeline.Merge(g, "all", in...), "both", 2)
	pipeline.Into(both[0], "raw", files[0])
	users := pipeline.Shuffle(both[1], "users", pipeline.ShuffleOptions{Key: "user", Partitions: 3})
	small := pipeline.Via(users, "small", pipeline.Stage[*pipeline.Batch, *pipeline.Batch](batch.New(batch.Options{Rows: 5}))) // so that there are many states
	counted := pipeline.Via(small, "third", pipeline.Stage[*pipeline.Batch, *pipeline.Batch](third{}))
	batches := pipeline.Via(counted, "batch", pipeline.Stage[*pipeline.Batch, *pipeline.Batch](batch.New(batch.Options{Rows: 16})))
	shared := pipeline.Tee(pipeline.Prefetch(batches, "prefetch", 2), "shared", 2)
	store := func(ctx context.Context, env *pipeline.Env) (trainstep.Store, error) { return s.session(ctx, env) }
	pusher := func(ctx context.Context, env *pipeline.Env) (gradsink.Store, error) { return s.session(ctx, env) }
	looked := pipeline.Via(shared[0], "lookup", trainstep.NewLookup(s.model, store))
	pipeline.Into(pipeline.Via(looked, "step", trainstep.NewStep(s.model, store, trainstep.StepOptions{Seed: 5})), "push", gradsink.New[*trainstep.Gradients](pusher))
	pipeline.Into(pipeline.Prefetch(shared[1], "rows queue", 3), "rows", files[1])
	pipeline.Into(pipeline.Side[*pipeline.Batch](counted, "third"), "sample", files[2])
	return g.Plan()
}

// third hands rows on, and every third of a split to a side output; how many there were is state.
type third struct{}

func (third) String() string                                 { return "third" }
func (third) Fingerprint() string                            { return "third" }
func (third) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (third) Sides(in *arrow.Schema) (map[string]*arrow.Schema, error) {
	return map[string]*arrow.Schema{"third": in}, nil
}

func (third) Open(_ context.Context, env *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	out, err := pipeline.OpenSide[*pipeline.Batch](env, "third")
	return &counter{out: out, counts: map[pipeline.SplitID]int{}}, err
}

type counter struct {
	out    *pipeline.SideOutput[*pipeline.Batch]
	counts map[pipeline.SplitID]int
}

func (c *counter) Process(_ context.Context, b *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	id := b.Origin().ID()
	var chosen []int
	for i := range b.NumRows() {
		if c.counts[id]++; c.counts[id]%3 == 0 {
			chosen = append(chosen, i)
		}
	}
	rec, err := arrowx.Take(memory.DefaultAllocator, b.Record(), chosen)
	if err != nil {
		return err
	}
	side, err := pipeline.NewBatch(rec, b.Origin())
	if err != nil {
		return err
	}
	if err := c.out.Emit(side); err != nil {
		b.Release()
		return err
	}
	return emit(b)
}
func (c *counter) Flush(context.Context, func(*pipeline.Batch) error) error { return nil }
func (c *counter) Close() error                                             { return nil }
func (c *counter) Save(id pipeline.SplitID) ([]byte, error) {
	return strconv.AppendInt(nil, int64(c.counts[id]), 10), nil
}

func (c *counter) Restore(id pipeline.SplitID, state []byte) (err error) {
	c.counts[id], err = strconv.Atoi(string(state))
	return err
}

// stateStore keeps state from run to run.
type stateStore struct {
	mu     sync.Mutex
	states map[string]map[pipeline.SplitID]pipeline.State
	used   int // times that a stage began with some
}

func (s *stateStore) Load(_ context.Context, stage string, id pipeline.SplitID) (pipeline.State, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.states[stage][id]
	if ok && st.Position > 0 {
		s.used++
	}
	return st, ok, nil
}

func (s *stateStore) Put(stage string, states map[pipeline.SplitID]pipeline.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states[stage] == nil {
		s.states[stage] = map[pipeline.SplitID]pipeline.State{}
	}
	maps.Copy(s.states[stage], states)
}

// runner runs a shop.
type runner func(ctx context.Context, t *testing.T, s *shop) ([]pipeline.RunStats, error)

func runLocally(ctx context.Context, t *testing.T, s *shop) ([]pipeline.RunStats, error) {
	t.Helper()
	plan, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	workers := 1
	if !s.deterministic {
		workers = 3
	}
	return local.Run(ctx, plan, pipeline.RunOptions{
		Deterministic: s.deterministic, Workers: workers, Env: s.env, ShuffleMemory: 20_000, ShuffleDir: t.TempDir(), StateEvery: time.Nanosecond,
	})
}

func runOnPrism(ctx context.Context, t *testing.T, s *shop) ([]pipeline.RunStats, error) {
	t.Helper()
	plan, err := s.plan()
	if err != nil {
		t.Fatal(err)
	}
	workers := 1
	if !s.deterministic {
		workers = 3
	}
	return beam.Run(ctx, beam.Recipe{Name: "shop", Config: []byte(t.Name())}, plan, beam.Options{
		Deterministic: s.deterministic, Workers: workers, Logger: slog.New(slog.DiscardHandler),
	})
}

// written is what a shop has in the end.
type written struct {
	Raw          map[string]bool             // names of rows
	Rows, Sample map[string]map[int64]string // by partition and position
	Pushed       map[string]int64            // rows, by partition
	Digest       string                      // where there is only one
}

// read reads a folder of files; each place may be there once.
func read(t *testing.T, dir string) map[string]map[int64]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[int64]string{}
	for _, file := range files {
		source, _, _ := strings.Cut(filepath.Base(file), "~")
		rows, err := parquet.ReadFile[struct {
			Name     string `parquet:"name"`
			Split    string `parquet:"split"`
			Position int64  `parquet:"position"`
		}](file)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, r := range rows {
			split := source + "/" + r.Split
			if out[split] == nil {
				out[split] = map[int64]string{}
			}
			if there, ok := out[split][r.Position]; ok {
				t.Errorf("%s: position %d of %s is there twice: %s and %s", dir, r.Position, split, there, r.Name)
			}
			out[split][r.Position] = r.Name
		}
	}
	return out
}

// written looks at all sinks, and checks what does not depend on an order.
func (s *shop) written(t *testing.T) written {
	t.Helper()
	w := written{Raw: map[string]bool{}, Pushed: map[string]int64{}}
	for _, rows := range read(t, s.folder("raw")) {
		for _, name := range rows {
			if w.Raw[name] {
				t.Errorf("row %s is there twice", name)
			}
			w.Raw[name] = true
		}
	}
	w.Rows, w.Sample = read(t, s.folder("rows")), read(t, s.folder("sample"))
	progress, err := s.cluster.Progress(t.Context(), "users")
	if err != nil {
		t.Fatal(err)
	}
	for split, p := range progress {
		w.Pushed["users/"+split] = p.Rows
		if n := len(w.Rows["users/"+split]); int64(n) != p.Rows {
			t.Errorf("partition %s: %d rows are written, %d pushed", split, n, p.Rows)
		}
	}
	for id, want := range s.visits.ids {
		var rows table.Rows
		for i := range s.model.Layout().Tables {
			if _, err := s.cluster.Row(t.Context(), i, id, &rows); err != nil {
				t.Fatal(err)
			}
		}
		if len(rows.Counts) != 1 || rows.Counts[0] != want {
			t.Errorf("id %d has counts %d, want %d", id, rows.Counts, want)
		}
	}
	if s.deterministic {
		if w.Digest, err = s.cluster.Digest(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// TestExactOnRunners runs a graph with a merge, tees, a shuffle, a side output, state and four sinks, one of them the parameters of a
// model, on the local runner and on Beam, and kills it at random: at any event, and sometimes the shards with it, which then go back to
// their last snapshot while the files stay. In the end each row is in each sink once, in the order of a run that nobody touched, and
// each id was counted as often as it occurs; where the order of training is fixed the parameters have the same bits.
func TestExactOnRunners(t *testing.T) {
	v := makeVisits(map[string]int{"clicks/s0": 230, "clicks/s1": 170, "views/s0": 300})
	untouched := newShop(t, v, true)
	stats, err := runLocally(t.Context(), t, untouched)
	if err != nil || len(stats) != 2 || stats[1].Rows != 700 {
		t.Fatalf("%+v, %v", stats, err)
	}
	want := untouched.written(t)
	if len(want.Raw) != 700 || len(want.Rows) != 3 || len(want.Sample) != 3 || len(v.names) != 700 {
		t.Fatalf("%d raw rows, %d and %d partitions", len(want.Raw), len(want.Rows), len(want.Sample))
	}
	lives := 12
	if testing.Short() {
		lives = 6
	}
	for _, c := range []struct {
		name          string
		run           runner
		deterministic bool
	}{
		{"local", runLocally, true},
		{"local in any order", runLocally, false},
		{"prism", runOnPrism, true},
		{"prism in any order", runOnPrism, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := want
			if !c.deterministic {
				want.Digest = ""
			}
			t.Run("untouched", func(t *testing.T) {
				s := newShop(t, v, c.deterministic)
				if _, err := c.run(t.Context(), t, s); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, s.written(t)); diff != "" {
					t.Errorf("(-local +here):\n%.2000s", diff)
				}
			})
			t.Run("killed", func(t *testing.T) {
				if strings.HasPrefix(c.name, "prism") {
					testbed.NoBeamRace(t)
				}
				seed := uint64(time.Now().UnixNano())
				t.Logf("seed: %d", seed)
				rng := rand.New(rand.NewPCG(seed, 1))
				s := newShop(t, v, c.deterministic)
				kills := 0
				for life := 0; ; life++ {
					more := life < lives || s.states.used == 0 && life < 50
					ctx, cancel := context.WithCancelCause(t.Context())
					s.kill = cancel
					s.killAt.Store(-1)
					if more {
						s.killAt.Store(20 + rng.Int64N(190)) // the first segment alone takes 54
					}
					_, err := c.run(ctx, t, s)
					cancel(nil)
					if err == nil {
						if !more {
							break
						}
						continue
					}
					if !errors.Is(err, errKilled) {
						t.Fatal(err)
					}
					kills++
					if rng.IntN(3) == 0 {
						s.close(t)
						s.open(t)
					}
				}
				if kills < lives/2 || s.states.used == 0 {
					t.Errorf("%d kills, %d times with state", kills, s.states.used)
				}
				if diff := cmp.Diff(want, s.written(t)); diff != "" {
					t.Errorf("after %d kills (-untouched +killed):\n%.2000s", kills, diff)
				}
			})
		})
	}
}

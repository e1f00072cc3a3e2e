package trainstep_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// crowded makes a batch of n rows that begins at a position, with few ids, so that batches have many of them in common.
func crowded(t testing.TB, mem memory.Allocator, rng *rand.Rand, split string, from, n int) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, testSchema)
	defer b.Release()
	items, users := b.Field(0).(*array.ListBuilder), b.Field(1).(*array.ListBuilder)
	for i := range n {
		items.Append(true)
		for range 1 + rng.IntN(2) {
			items.ValueBuilder().(*array.Int64Builder).Append(rng.Int64N(1 + rng.Int64N(60)))
		}
		users.Append(true)
		if rng.IntN(4) > 0 {
			users.ValueBuilder().(*array.Int64Builder).Append(1<<48 + rng.Int64N(40))
		}
		b.Field(2).(*array.Float32Builder).Append(rng.Float32())
		geo := b.Field(3).(*array.FixedSizeListBuilder)
		geo.Append(true)
		geo.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{rng.Float32(), -1}, nil)
		b.Field(4).(*array.Float32Builder).Append(float32(rng.IntN(2)))
		b.Field(5).(*array.Int64Builder).Append(int64(from + i + 1))
		b.Field(6).(*array.Int64Builder).Append(int64(70 + i))
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "test", Split: split, From: pipeline.Position(from), To: pipeline.Position(from + max(n, 1))})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// bench is a worker whose stages are called by hand: what has been looked up and what has been stepped waits in lists.
type bench struct {
	t       testing.TB
	mem     memory.Allocator
	client  *ps.Client
	rng     *rand.Rand // of the data
	split   string
	at      int
	look    pipeline.Processor[*pipeline.Batch, *trainstep.Prepared]
	step    pipeline.Processor[*trainstep.Prepared, *trainstep.Gradients]
	looked  []*trainstep.Prepared
	stepped []*trainstep.Gradients
}

// pumped is a client that is waited for by pushing what waits.
type pumped struct {
	*ps.Client
	b *bench
}

func (p pumped) AwaitPushed(context.Context, uint64) error {
	for len(p.b.stepped) > 0 {
		p.b.push()
	}
	return nil
}

func newBench(t testing.TB, mem memory.Allocator, c *coordinator.Cluster, m model.Model, split string, seed uint64, ahead bool, o trainstep.StepOptions) *bench {
	t.Helper()
	b := &bench{t: t, mem: mem, rng: rand.New(rand.NewPCG(seed, 1)), split: split}
	o.Seed, o.Progressive = 3, true
	var err error
	if b.client, err = c.Client(t.Context(), split); err != nil {
		t.Fatal(err)
	}
	progress, err := b.client.Resume(t.Context(), "test", []string{split})
	if err != nil {
		t.Fatal(err)
	}
	b.at = int(max(progress[split].Position, 0))
	open := func(context.Context, *pipeline.Env) (trainstep.Store, error) { return pumped{b.client, b}, nil }
	look := trainstep.NewLookup(m, open)
	if ahead {
		look = look.Ahead()
	}
	if b.look, err = look.Open(t.Context(), &pipeline.Env{}); err != nil {
		t.Fatal(err)
	}
	if b.step, err = trainstep.NewStep(m, open, o).Open(t.Context(), &pipeline.Env{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) lookUp() {
	n := b.rng.IntN(12) // sometimes no row
	batch := crowded(b.t, b.mem, b.rng, b.split, b.at, n)
	b.at += max(n, 1)
	b.must(b.look.Process(b.t.Context(), batch, func(p *trainstep.Prepared) error {
		b.looked = append(b.looked, p)
		return nil
	}))
}

func (b *bench) train() {
	p := b.looked[0]
	b.looked = b.looked[1:]
	b.must(b.step.Process(b.t.Context(), p, func(g *trainstep.Gradients) error {
		b.stepped = append(b.stepped, g)
		return nil
	}))
}

func (b *bench) push() {
	g := b.stepped[0]
	b.stepped = b.stepped[1:]
	b.must(b.client.Push(b.t.Context(), g.Update()))
	g.Release()
}

// close ends the worker; what has not been pushed is lost, as when it is killed.
func (b *bench) close() {
	for _, p := range b.looked {
		p.Release()
	}
	for _, g := range b.stepped {
		g.Release()
	}
	b.must(b.look.Close())
	b.must(b.step.Close())
	b.must(b.client.Close())
}

func aheadCluster(t testing.TB, m model.Model, shards int, p param.Precision) *coordinator.Cluster {
	t.Helper()
	c, err := coordinator.Open(t.Context(), coordinator.Options{NumShards: shards, Layout: m.Layout(), MaxStaged: 16, Precision: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return c
}

// aheadModels have every rule on rows and on tensors, batch normalisation (whose statistics are dense parameters), moments, L2, and
// several tables.
func aheadModels(t testing.TB) map[string]model.Model {
	models := map[string]model.Model{}
	for name, cfg := range map[string]zoo.Config{
		"lr":     {Name: zoo.LR},
		"fm":     {Name: zoo.FM, Dim: 4, EmbeddingL2: .01, VecOptimizer: optim.Adam{}, BiasOptimizer: optim.SGD{LR: .1}},
		"deepfm": {Name: zoo.DeepFM, Dim: 3, Hidden: []int{6, 4}, BatchNorm: true, Dropout: .2, DenseL2: .01, DenseOptimizer: optim.Adam{}, VecOptimizer: optim.FTRL{LR: .1}, ClipNorm: 1},
		"dcnv2":  {Name: zoo.DCNv2, Dim: 3, Hidden: []int{5}, DenseOptimizer: optim.Adagrad{LR: .05}, VecOptimizer: optim.Adagrad{LR: .1}},
	} {
		models[name] = newModel(t, cfg)
	}
	models["late"] = newModel(t, zoo.Config{Name: zoo.FM, Dim: 4})
	for i := range models["late"].Layout().Tables[0].Segments {
		models["late"].Layout().Tables[0].Segments[i].Delay = 1000
	}
	for i := range models["late"].Layout().Dense {
		models["late"].Layout().Dense[i].Delay = 1000
	}
	return models
}

// TestAheadHasTheBitsOfInStep calls the stages of one worker in random order, as queues of any depths allow, on one and three
// shards, and compares the digest with that of a worker in step. The control reads ahead and makes nothing of it, as it was
// before: its digest is another.
func TestAheadHasTheBitsOfInStep(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	const batches = 60
	models := aheadModels(t)
	for _, name := range append(slices.Collect(maps.Keys(models)), "deepfm/bf16", "deepfm/fp16") {
		t.Run(name, func(t *testing.T) {
			name, format, _ := strings.Cut(name, "/")
			p, _ := param.ParsePrecision(cmp.Or(format, "float32"))
			m, o := models[name], trainstep.StepOptions{Precision: p, ReferenceBatch: 100}
			run := func(ahead bool, looks, pushes, shards int, order *rand.Rand, kills bool) string {
				c := aheadCluster(t, m, shards, p)
				b := newBench(t, mem, c, m, "s", 7, ahead, o)
				for n := 0; n < batches || len(b.looked)+len(b.stepped) > 0; {
					switch k := order.IntN(3); {
					case k == 0 && n < batches && len(b.looked) <= looks && (looks > 0 || len(b.looked) == 0):
						b.lookUp()
						n++
					case k == 1 && len(b.looked) > 0 && len(b.stepped) <= pushes && (looks > 0 || pushes > 0 || len(b.stepped) == 0):
						b.train()
						if pushes == 0 {
							b.push()
						}
					case k == 2 && len(b.stepped) > 0:
						b.push()
					}
					if kills && order.IntN(20) == 0 {
						// Another worker continues where the shards are, with the data from there on.
						b.close()
						before := b
						b = newBench(t, mem, c, m, "s", 7, ahead, o)
						n = rewind(t, mem, b, before.at)
					}
				}
				b.close()
				d, err := c.Digest(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return d
			}
			want := run(false, 0, 0, 1, rand.New(rand.NewPCG(0, 0)), false)
			differs := false
			for seed := range uint64(12) {
				order := rand.New(rand.NewPCG(seed, 5))
				looks, pushes, shards := order.IntN(9), order.IntN(9), 1+2*order.IntN(2)
				if got := run(true, looks, pushes, shards, order, seed%2 == 1); got != want {
					t.Errorf("queues of %d and %d, %d shards, seed %d: digest %s, in step %s", looks, pushes, shards, seed, got, want)
				}
				differs = differs || run(false, 4, 4, 1, order, false) != want
			}
			if !differs {
				t.Error("reading ahead without more gives the same digest: nothing is tested here")
			}
		})
	}
}

// rewind draws the data again up to where b begins, and returns the number of batches.
func rewind(t testing.TB, mem memory.Allocator, b *bench, end int) (n int) {
	t.Helper()
	for at := 0; at < b.at; n++ {
		k := b.rng.IntN(12)
		crowded(t, mem, b.rng, b.split, at, k).Release()
		at += max(k, 1)
		if at > end {
			t.Fatalf("no batch ends at %d", b.at)
		}
	}
	return n
}

// TestMaxStaleness has two workers take turns in random order, each with lookups ahead. With max_staleness 0, and answers of the
// shards just before each step, every step has the bits of one that reads just then; what is less strict has not, and is measured.
func TestMaxStaleness(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := aheadModels(t)["deepfm"]
	run := func(ahead bool, limit int64, seed uint64) (string, int64) {
		c := aheadCluster(t, m, 3, param.Float32)
		order := rand.New(rand.NewPCG(seed, 5))
		o := trainstep.StepOptions{MaxStaleness: limit}
		workers := []*bench{newBench(t, mem, c, m, "a", 7, ahead, o), newBench(t, mem, c, m, "b", 8, ahead, o)}
		worst := int64(0)
		for range 60 {
			b := workers[order.IntN(2)]
			depth := order.IntN(5)
			if !ahead {
				depth = 0
			}
			for len(b.looked) <= depth {
				b.lookUp()
			}
			b.must(b.client.Idle(t.Context()))
			b.train()
			if u := b.stepped[0].Update(); u.NumRows > 0 {
				worst = max(worst, b.client.Behind(u.Seen))
			}
			b.push()
			b.must(b.client.Flush(t.Context()))
		}
		for _, b := range workers {
			b.close()
		}
		d, err := c.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d, worst
	}
	for seed := range uint64(5) {
		want, _ := run(false, 0, seed)
		digests := []string{want}
		for _, limit := range []int64{0, 2, 1 << 40} {
			got, worst := run(true, limit, seed)
			if limit == 0 && got != want {
				t.Errorf("seed %d: digest %s with max_staleness 0, %s in step", seed, got, want)
			}
			if worst > limit || limit == 2 && worst == 0 || limit > 2 && worst <= 2 {
				t.Errorf("seed %d: a step lacked %d updates of the other with max_staleness %d", seed, worst, limit)
			}
			digests = append(digests, got)
		}
		if slices.Sort(digests); len(slices.Compact(digests)) != 3 {
			t.Errorf("seed %d: max_staleness makes no difference: %v", seed, fmt.Sprint(digests))
		}
	}
}

package trainstep_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// mapStore is a store over a Go map, with one SGD step a push.
type mapStore struct {
	layout *param.Layout
	rows   map[int64][]float32
	dense  []float32
	fail   error
}

func newMapStore(l *param.Layout) *mapStore {
	s := &mapStore{layout: l, rows: map[int64][]float32{}}
	for _, t := range l.Dense {
		w := make([]float32, t.Len())
		t.Init.Fill(w, l.Seed, param.HashName(t.Name), 0)
		s.dense = append(s.dense, w...)
	}
	return s
}

func (s *mapStore) Lookup(_ context.Context, r *param.Rows) error {
	if s.fail != nil {
		return s.fail
	}
	for t, keys := range r.Keys {
		dim := s.layout.Tables[t].Dim()
		for i, k := range keys {
			dst := r.Values[t][i*dim : (i+1)*dim]
			clear(dst)
			copy(dst, s.rows[k])
		}
	}
	return nil
}

func (s *mapStore) Dense(_ context.Context, have uint64, dst []float32) (uint64, error) {
	if have != 1 {
		copy(dst, s.dense)
	}
	return 1, nil
}

var testSchema = arrow.NewSchema([]arrow.Field{
	{Name: "item", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: "user", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: "age", Type: arrow.PrimitiveTypes.Float32},
	{Name: "geo", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Float32)},
	{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
	{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
}, nil)

var testFeatures = []zoo.Feature{
	{Name: "item"},
	{Name: "user", Combiner: graph.Mean},
	{Name: "age", Kind: model.Dense, Dim: 1},
	{Name: "geo", Kind: model.Dense, Dim: 2},
}

// newBatch makes rows [from, from+n) of an endless table in which row i has items i and i%3, user i%2 (odd rows none).
func newBatch(t testing.TB, mem memory.Allocator, from, n int) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, testSchema)
	defer b.Release()
	items, users := b.Field(0).(*array.ListBuilder), b.Field(1).(*array.ListBuilder)
	for i := from; i < from+n; i++ {
		items.Append(true)
		items.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{int64(i), int64(i % 3)}, nil)
		users.Append(true)
		if i%2 == 0 {
			users.ValueBuilder().(*array.Int64Builder).Append(1<<48 + int64(i))
		}
		b.Field(2).(*array.Float32Builder).Append(float32(i))
		geo := b.Field(3).(*array.FixedSizeListBuilder)
		geo.Append(true)
		geo.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{float32(i) / 2, -1}, nil)
		b.Field(4).(*array.Float32Builder).Append(float32(i % 2))
		b.Field(5).(*array.Int64Builder).Append(int64(i + 1))
		b.Field(6).(*array.Int64Builder).Append(int64(70 + i))
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{
		Source: "test", Split: "s", From: pipeline.Position(from), To: pipeline.Position(from + n), MaxTime: 1000, // of a block that was larger
	})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func newModel(t testing.TB, cfg zoo.Config) model.Model {
	t.Helper()
	cfg.Features, cfg.Seed = testFeatures, 1
	m, err := zoo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (s *mapStore) open(context.Context, *pipeline.Env) (trainstep.Store, error) { return s, nil }

// TestLookupReadsColumns compares the inputs with the table's definition, for whole batches and for a slice of one.
func TestLookupReadsColumns(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := newModel(t, zoo.Config{Name: "lr"})
	store := newMapStore(m.Layout())
	store.rows[4] = []float32{40}
	p, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	whole := newBatch(t, mem, 0, 8)
	part, err := whole.Slice(3, 6) // rows 3, 4, 5
	if err != nil {
		t.Fatal(err)
	}
	whole.Release()
	for range 2 { // the second time with the buffers of the first
		part.Record().Retain()
		again, err := pipeline.NewBatch(part.Record(), part.Origin())
		if err != nil {
			t.Fatal(err)
		}
		err = p.Process(t.Context(), again, func(got *trainstep.Prepared) error {
			defer got.Release()
			in := got.Inputs()
			want := model.Inputs{
				NumRows: 3,
				Sparse: []model.Ragged{
					{Offsets: []int32{0, 2, 4, 6}, Index: []int32{0, 1, 2, 3, 4, 5}, Own: true}, // 3 0, 4 1, 5 2
					{Offsets: []int32{0, 0, 1, 1}, Index: []int32{6}, Own: true},
				},
				Dense:  [][]float32{{3, 4, 5}, {1.5, -1, 2, -1, 2.5, -1}},
				Values: [][]float32{{0, 0, 40, 0, 0, 0, 0}},
				Labels: [][]float32{{1, 0, 1}},
			}
			if diff := cmp.Diff(want, *in); diff != "" {
				t.Errorf("inputs (-want +got):\n%s", diff)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	part.Release()
}

func TestSchemaFaultsAreListed(t *testing.T) {
	m := newModel(t, zoo.Config{Name: "lr"})
	_, err := trainstep.NewLookup(m, nil).Schema(arrow.NewSchema([]arrow.Field{{Name: "item", Type: arrow.BinaryTypes.String}}, nil))
	if !errors.Is(err, pipeline.ErrSchema) {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{`column "item" is utf8`, `no column "user"`, `no column "age"`, `no column "geo"`, `no column "__label__"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %s in: %v", want, err)
		}
	}
}

// TestPushHasTheWeightsOfItsGradients: in tables with delays a push has, behind each row's gradient, what the step had of the row, and behind the gradient of a tensor with a delay the tensor.
func TestPushHasTheWeightsOfItsGradients(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	push := func(delay float32) (grads, values []float32, width int, dense, tensors []float32) {
		m := newModel(t, zoo.Config{Name: zoo.DeepFM, Dim: 4, Hidden: []int{3}})
		for i := range m.Layout().Dense[1:] { // the first has none
			m.Layout().Dense[i+1].Delay = delay
		}
		spec := &m.Layout().Tables[0]
		for i := range spec.Segments {
			if spec.Segments[i].Dim > 1 {
				spec.Segments[i].Delay = delay
			}
		}
		store := newMapStore(m.Layout())
		store.rows[1] = []float32{0.5, 1, -1, 0.25, 2}
		look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		step, err := trainstep.NewStep(m, store.open, trainstep.StepOptions{}).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // buffers are used again
			if err := look.Process(t.Context(), newBatch(t, mem, 0, 8), func(p *trainstep.Prepared) error {
				values = slices.Clone(p.Inputs().Values[0])
				return step.Process(t.Context(), p, func(g *trainstep.Gradients) error {
					defer g.Release()
					grads, dense = slices.Clone(g.Update().Grads[0]), slices.Clone(g.Update().Dense)
					return nil
				})
			}); err != nil {
				t.Fatal(err)
			}
		}
		tensors = nil
		for i, at := 0, 0; i < len(m.Layout().Dense); i++ {
			n := m.Layout().Dense[i].Len()
			if tensors = append(tensors, dense[at:][:n]...); i > 0 && delay > 0 {
				at += n
				if want := store.dense[len(tensors)-n:][:n]; !slices.Equal(dense[at:][:n], want) {
					t.Errorf("tensor %d is pushed with %v, want %v", i, dense[at:][:n], want)
				}
			}
			at += n
		}
		return grads, values, spec.Width(param.Train), dense, tensors
	}
	plain, _, dim, denseGrads, _ := push(0)
	got, values, width, dense, tensors := push(1)
	if !slices.Equal(tensors, denseGrads) || len(dense) <= len(tensors) {
		t.Errorf("%d numbers are pushed of tensors, with the gradients %v, want %v", len(dense), tensors, denseGrads)
	}
	if dim != 5 || width != 9 || len(plain)/dim != len(got)/width || !slices.Contains(values, 0.25) {
		t.Fatalf("%d numbers in rows of %d, %d in rows of %d, made of %v", len(plain), dim, len(got), width, values)
	}
	for i := range len(plain) / dim {
		if want := slices.Concat(plain[i*dim:][:dim], values[i*dim+1:][:dim-1]); !slices.Equal(got[i*width:][:width], want) {
			t.Errorf("row %d is pushed as %v, want %v", i, got[i*width:][:width], want)
		}
	}
}

// kept is the memory of an update that a shard keeps, and what was in it.
type kept struct {
	keys          []int64
	counts        []uint32
	grads, dense  []float32
	wasKeys       []int64
	wasCounts     []uint32
	wasGrads, was []float32
}

// TestExchangedMemoryIsTakenBack: a step goes by the memory that a shard leaves in place of what it keeps, and what a shard keeps is written by nobody else.
func TestExchangedMemoryIsTakenBack(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	for _, delay := range []float32{0, 1} {
		m := newModel(t, zoo.Config{Name: zoo.DeepFM, Dim: 4, Hidden: []int{3}})
		m.Layout().Dense[1].Delay, m.Layout().Tables[0].Segments[1].Delay = delay, delay
		run := func(exchange bool) (pushed []kept) {
			store := newMapStore(m.Layout())
			look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
			if err != nil {
				t.Fatal(err)
			}
			step, err := trainstep.NewStep(m, store.open, trainstep.StepOptions{}).Open(t.Context(), &pipeline.Env{})
			if err != nil {
				t.Fatal(err)
			}
			var staged []*kept
			from := 0
			for i := range 40 {
				n := 1 + i*7%13
				if err := look.Process(t.Context(), newBatch(t, mem, from, n), func(p *trainstep.Prepared) error {
					return step.Process(t.Context(), p, func(g *trainstep.Gradients) error {
						defer g.Release()
						u := g.Update()
						if !u.Exchange {
							t.Fatal("the step lets nothing be exchanged")
						}
						pushed = append(pushed, kept{wasKeys: slices.Clone(u.Keys[0]), wasCounts: slices.Clone(u.Counts[0]), wasGrads: slices.Clone(u.Grads[0]), was: slices.Clone(u.Dense)})
						if !exchange {
							return nil
						}
						k := &kept{}
						if len(staged) == 3 { // the batch before last is applied
							k, staged = staged[0], staged[1:]
							if !slices.Equal(k.keys, k.wasKeys) || !slices.Equal(k.counts, k.wasCounts) || !slices.Equal(k.grads, k.wasGrads) || !slices.Equal(k.dense, k.was) {
								t.Fatalf("delay %v, batch %d: somebody has written to what a shard keeps", delay, i)
							}
						}
						*k = kept{k.keys, k.counts, k.grads, k.dense, pushed[i].wasKeys, pushed[i].wasCounts, pushed[i].wasGrads, pushed[i].was}
						k.keys, u.Keys[0] = u.Keys[0], k.keys
						k.counts, u.Counts[0] = u.Counts[0], k.counts
						k.grads, u.Grads[0] = u.Grads[0], k.grads
						k.dense, u.Dense = u.Dense, k.dense
						staged = append(staged, k)
						return nil
					})
				}); err != nil {
					t.Fatal(err)
				}
				from += n
			}
			return pushed
		}
		got, want := run(true), run(false)
		for i := range want {
			if !slices.Equal(got[i].wasKeys, want[i].wasKeys) || !slices.Equal(got[i].wasCounts, want[i].wasCounts) || !slices.Equal(got[i].wasGrads, want[i].wasGrads) || !slices.Equal(got[i].was, want[i].was) {
				t.Fatalf("delay %v: batch %d is pushed otherwise where memory is exchanged", delay, i)
			}
		}
	}
}

// TestStepPredictsBeforeItTrains runs both stages with dropout and batch norm, where predicting and training differ.
func TestStepPredictsBeforeItTrains(t *testing.T) {
	for _, cfg := range []zoo.Config{{Name: "lr"}, {Name: "deepfm", Dim: 4, Hidden: []int{8}, BatchNorm: true, Dropout: 0.5}} {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		m := newModel(t, cfg)
		store := newMapStore(m.Layout())
		store.rows[1] = []float32{0.5, 1, -1, 0.25, 2}[:m.Layout().Tables[0].Dim()]
		var seen []trainstep.Observation
		stage := trainstep.NewStep(m, store.open, trainstep.StepOptions{Seed: 3, LR: 0.5, Progressive: true, Observe: func(o trainstep.Observation) {
			o.Scores = &score.Batch{Rows: o.Scores.Rows, Heads: []score.Head{{Predictions: slices.Clone(o.Scores.Heads[0].Predictions), Labels: slices.Clone(o.Scores.Heads[0].Labels)}}}
			o.Losses = slices.Clone(o.Losses)
			seen = append(seen, o)
		}})
		look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		step, err := stage.Open(t.Context(), &pipeline.Env{Worker: 2})
		if err != nil {
			t.Fatal(err)
		}
		var want []float32
		err = look.Process(t.Context(), newBatch(t, mem, 0, 8), func(p *trainstep.Prepared) error {
			ref := m.NewSession(1)
			ref.SetDense(store.dense)
			want = append(want, ref.Predict(p.Inputs())[0]...)
			return step.Process(t.Context(), p, func(g *trainstep.Gradients) error {
				defer g.Release()
				u := g.Update()
				if u.Split != "s" || u.From != 0 || u.To != 8 || u.NumRows != 8 || u.Time != 77 || u.LR != 0.5 {
					t.Errorf("%s: update %+v", cfg.Name, u)
				}
				if len(u.Keys[0]) != 12 || len(u.Counts[0]) != 12 || len(u.Grads[0]) != 12*m.Layout().Tables[0].Dim() || len(u.Dense) != m.Layout().DenseLen() {
					t.Errorf("%s: %d keys, %d counts, %d gradients, %d dense", cfg.Name, len(u.Keys[0]), len(u.Counts[0]), len(u.Grads[0]), len(u.Dense))
				}
				if u.Counts[0][0] != 4 { // fid 0: row 0 twice, rows 3 and 6
					t.Errorf("%s: fid %d counted %d times, want 4", cfg.Name, u.Keys[0][0], u.Counts[0][0])
				}
				return nil
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(seen) != 1 || seen[0].Worker != 2 || len(seen[0].Losses) != 1 || math.IsNaN(seen[0].Losses[0]) {
			t.Fatalf("%s: observations %+v", cfg.Name, seen)
		}
		if diff := cmp.Diff(want, seen[0].Scores.Heads[0].Predictions); diff != "" {
			t.Errorf("%s: predictions (-want +got):\n%s", cfg.Name, diff)
		}
		mem.AssertSize(t, 0)
	}
}

func TestStepRefusesDivergence(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := newModel(t, zoo.Config{Name: "lr"})
	store := newMapStore(m.Layout())
	store.rows[1] = []float32{float32(math.NaN())}
	_, err := runSteps(t, mem, m, store, []int{8}, trainstep.StepOptions{})
	if err == nil || !strings.Contains(err.Error(), "test/s[0,8)") || !strings.Contains(err.Error(), "learning rate") {
		t.Errorf("got %v, want an error that names the batch and says what to do", err)
	}
	store.fail = errors.New("shard gone")
	if _, err := runSteps(t, mem, m, store, []int{8}, trainstep.StepOptions{}); !errors.Is(err, store.fail) {
		t.Errorf("got %v, want the store's error", err)
	}
}

func TestEmptyBatchMovesThePosition(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := newModel(t, zoo.Config{Name: "lr"})
	got, err := runSteps(t, mem, m, newMapStore(m.Layout()), []int{0, 4}, trainstep.StepOptions{})
	if err != nil || len(got) != 2 || got[0].NumRows != 0 || len(got[0].Dense) != 0 || got[1].NumRows != 4 {
		t.Errorf("updates %+v, %v", got, err)
	}
}

// TestRowsGoByTheReference: a reference batch size multiplies gradients of rows by the examples of the batch over it, and leaves those of dense tensors
// alone. The clip of all gradients' norm comes before.
func TestRowsGoByTheReference(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := newModel(t, zoo.Config{Name: "deepfm", Dim: 4, Hidden: []int{4}, ClipNorm: 1e-3})
	run := func(reference, n int) param.Update {
		updates, err := runSteps(t, mem, m, newMapStore(m.Layout()), []int{n}, trainstep.StepOptions{ReferenceBatch: reference})
		if err != nil {
			t.Fatal(err)
		}
		return updates[0]
	}
	for _, n := range []int{1, 3, 8} {
		means := run(0, n)
		for _, reference := range []int{1, 3, 8, 512} {
			got := run(reference, n)
			want := make([][]float32, len(means.Grads))
			for i, of := range means.Grads {
				for _, g := range of {
					want[i] = append(want[i], g*(float32(n)/float32(reference)))
				}
			}
			if diff := cmp.Diff(want, got.Grads); diff != "" {
				t.Errorf("%d examples, reference %d: rows (-want +got)\n%s", n, reference, diff)
			}
			if diff := cmp.Diff(means.Dense, got.Dense); diff != "" {
				t.Errorf("%d examples, reference %d: dense (-want +got)\n%s", n, reference, diff)
			}
		}
	}
}

func runSteps(t testing.TB, mem memory.Allocator, m model.Model, store *mapStore, sizes []int, o trainstep.StepOptions) (out []param.Update, err error) {
	t.Helper()
	look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	step, err := trainstep.NewStep(m, store.open, o).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	from := 0
	for _, n := range sizes {
		err := look.Process(t.Context(), newBatch(t, mem, from, n), func(p *trainstep.Prepared) error {
			return step.Process(t.Context(), p, func(g *trainstep.Gradients) error {
				out = append(out, *g.Update())
				g.Release()
				return nil
			})
		})
		if err != nil {
			return out, err
		}
		from += n
	}
	return out, nil
}

func TestScore(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m := newModel(t, zoo.Config{Name: "fm", Dim: 2})
	store := newMapStore(m.Layout())
	look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	score, err := trainstep.NewScore(m, store.open, 1).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	err = look.Process(t.Context(), newBatch(t, mem, 0, 5), func(p *trainstep.Prepared) error {
		return score.Process(t.Context(), p, func(s *trainstep.Scored) error {
			got := s.Scores()
			if len(got.Heads) != 1 || len(got.Heads[0].Predictions) != 5 || cmp.Diff([]float32{0, 1, 0, 1, 0}, got.Heads[0].Labels) != "" || got.Weights != nil || s.NumRows() != 5 {
				t.Errorf("got %+v", got)
			}
			s.Release()
			return nil
		})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	m := newModel(t, zoo.Config{Name: "fm", Dim: 2})
	store := newMapStore(m.Layout())
	pipelinetest.TestStage(t, pipelinetest.StageHarness[*pipeline.Batch, *trainstep.Prepared]{
		New: func(*testing.T) pipeline.Stage[*pipeline.Batch, *trainstep.Prepared] {
			return trainstep.NewLookup(m, store.open)
		},
		Schema: testSchema,
		Inputs: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
			return []*pipeline.Batch{newBatch(t, mem, 0, 3), newBatch(t, mem, 3, 0), newBatch(t, mem, 3, 5)}
		},
	})
}

// TestStepsAllocateNothing warms the buffers up and counts allocations of a whole lookup and step. The record batch
// itself is made once: making it is the parser's cost.
func TestStepsAllocateNothing(t *testing.T) {
	m := newModel(t, zoo.Config{Name: "deepfm", Dim: 4, Hidden: []int{8}, DenseOptimizer: optim.SGD{LR: 0.1}})
	store := newMapStore(m.Layout())
	look, err := trainstep.NewLookup(m, store.open).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	step, err := trainstep.NewStep(m, store.open, trainstep.StepOptions{Progressive: true, Observe: func(trainstep.Observation) {}}).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	batch := newBatch(t, memory.DefaultAllocator, 0, 64)
	ctx := t.Context()
	push := func(g *trainstep.Gradients) error { g.Release(); return nil }
	train := func(p *trainstep.Prepared) error { return step.Process(ctx, p, push) }
	one := func() {
		batch.Record().Retain() // Release gives back what this took
		if err := look.Process(ctx, batch, train); err != nil {
			t.Fatal(err)
		}
	}
	one()
	if n := testing.AllocsPerRun(50, one); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// TestLookupReadsValues gives entries values in a column of their own: a slice of it follows the slice of the fids, values
// that are all 1 are left out, and so is a column that is not there.
func TestLookupReadsValues(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	m, err := zoo.New(zoo.Config{Name: zoo.LR, Features: []zoo.Feature{{Name: "item", Values: "item.values"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		values     [][]float32 // of rows 0 to 3, whose rows 1 to 3 are looked up
		want       []float32
		wantOffset []int32
	}{
		{"weighed", [][]float32{{1, 2}, {3}, {}, {-1, .5}}, []float32{3, -1, .5}, []int32{0, 1, 1, 3}},
		{"ones where it counts", [][]float32{{7}, {1}, {1, 1}, {}}, nil, []int32{0, 1, 3, 3}},
		{"no column", nil, nil, []int32{0, 2, 4, 6}},
	} {
		t.Run(c.name, func(t *testing.T) {
			fields := []arrow.Field{
				{Name: "item", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
				{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
				{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
			}
			if c.values != nil {
				fields = append(fields, arrow.Field{Name: "item.values", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Float32)})
			}
			b := array.NewRecordBuilder(mem, arrow.NewSchema(fields, nil))
			defer b.Release()
			for i := range 4 {
				n := 2
				if c.values != nil {
					n = len(c.values[i])
					list := b.Field(3).(*array.ListBuilder)
					list.Append(true)
					list.ValueBuilder().(*array.Float32Builder).AppendValues(c.values[i], nil)
				}
				list := b.Field(0).(*array.ListBuilder)
				list.Append(true)
				for k := range n {
					list.ValueBuilder().(*array.Int64Builder).Append(int64(10*i + k))
				}
				b.Field(1).(*array.Float32Builder).Append(0)
				b.Field(2).(*array.Int64Builder).Append(int64(i + 1))
			}
			whole, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "test", Split: "s", To: 4})
			if err != nil {
				t.Fatal(err)
			}
			part, err := whole.Slice(1, 4)
			if err != nil {
				t.Fatal(err)
			}
			whole.Release()
			stage := trainstep.NewLookup(m, newMapStore(m.Layout()).open)
			if _, err := stage.Schema(part.Record().Schema()); err != nil {
				t.Fatal(err)
			}
			p, err := stage.Open(t.Context(), &pipeline.Env{})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Process(t.Context(), part, func(got *trainstep.Prepared) error {
				defer got.Release()
				r := got.Inputs().Sparse[0]
				if diff := cmp.Diff(c.want, r.Values); diff != "" {
					t.Errorf("values (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(c.wantOffset, r.Offsets); diff != "" {
					t.Errorf("offsets (-want +got):\n%s", diff)
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

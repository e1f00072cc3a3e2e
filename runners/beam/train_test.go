package beam_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/runners/beam"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sinks/gradsink"
	"github.com/monolith-go/monolith/sources/memsource"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// trainSchema is a table of one sparse and one dense feature.
var trainSchema = arrow.NewSchema([]arrow.Field{
	{Name: "item", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: "age", Type: arrow.PrimitiveTypes.Float32},
	{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
}, nil)

// table has n rows in which row i has items i%7 and i%11.
func table(n, seed int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, trainSchema)
	defer b.Release()
	items := b.Field(0).(*array.ListBuilder)
	for i := seed; i < seed+n; i++ {
		items.Append(true)
		items.ValueBuilder().(*array.Int64Builder).AppendValues([]int64{int64(i % 7), 100 + int64(i%11)}, nil)
		b.Field(1).(*array.Float32Builder).Append(float32(i%5) / 5)
		b.Field(2).(*array.Float32Builder).Append(float32(i % 2))
	}
	return b.NewRecordBatch()
}

// trainer is a training graph over a parameter server in this process.
type trainer struct {
	cluster *coordinator.Cluster
	model   model.Model
	source  *memsource.Source[*pipeline.Batch]
}

type sessionKey struct{}

func newTrainer(t *testing.T) *trainer {
	t.Helper()
	m, err := zoo.New(zoo.Config{
		Name: "deepfm", Seed: 5, Features: []zoo.Feature{{Name: "item"}, {Name: "age", Kind: model.Dense, Dim: 1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := coordinator.Open(t.Context(), coordinator.Options{Layout: m.Layout(), NumShards: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	source, err := memsource.Batches(trainSchema, map[string][]arrow.RecordBatch{
		"a": {table(200, 0)}, "b": {table(64, 3)}, "c": {table(130, 9)},
	}, memsource.Options{MaxRows: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(source.Release)
	return &trainer{cluster, m, source}
}

func (r *trainer) session(ctx context.Context, env *pipeline.Env) (*ps.Client, error) {
	return pipeline.Resource(ctx, env, sessionKey{}, func(ctx context.Context) (*ps.Client, error) {
		return r.cluster.Client(ctx, fmt.Sprintf("worker-%d", env.Worker))
	})
}

func (r *trainer) plan() (*pipeline.Plan, error) {
	store := func(ctx context.Context, env *pipeline.Env) (trainstep.Store, error) { return r.session(ctx, env) }
	pusher := func(ctx context.Context, env *pipeline.Env) (gradsink.Store, error) { return r.session(ctx, env) }
	g := pipeline.New("train")
	in := pipeline.Prefetch(pipeline.Read(g, "table", pipeline.Source[*pipeline.Batch](r.source)), "prefetch", 2)
	looked := pipeline.Prefetch(pipeline.Via(in, "lookup", trainstep.NewLookup(r.model, store)), "lookahead", 0)
	grads := pipeline.Prefetch(pipeline.Via(looked, "step", trainstep.NewStep(r.model, store, trainstep.StepOptions{Seed: 5})), "postpush", 0)
	pipeline.Into(grads, "push", gradsink.New[*trainstep.Gradients](pusher))
	return g.Plan()
}

// TestSameBitsAsLocal trains a model on both runners in deterministic mode: every parameter has the same bits (invariants
// 6 and 7).
func TestSameBitsAsLocal(t *testing.T) {
	digest := func(run func(*trainer, *pipeline.Plan) ([]pipeline.RunStats, error)) string {
		t.Helper()
		r := newTrainer(t)
		plan, err := r.plan()
		if err != nil {
			t.Fatal(err)
		}
		stats, err := run(r, plan)
		if err != nil {
			t.Fatal(err)
		}
		if stats[0].Rows != 200+64+130 {
			t.Errorf("stats %+v", stats)
		}
		d, err := r.cluster.Digest(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	want := digest(func(_ *trainer, p *pipeline.Plan) ([]pipeline.RunStats, error) {
		return local.Run(t.Context(), p, pipeline.RunOptions{Deterministic: true})
	})
	got := digest(func(r *trainer, p *pipeline.Plan) ([]pipeline.RunStats, error) {
		trainers.Store(t.Name(), r)
		return beam.Run(t.Context(), beam.Recipe{Name: "train", Config: []byte(t.Name())}, p, beam.Options{Deterministic: true})
	})
	if got != want {
		t.Errorf("digest %s on beam, %s locally", got, want)
	}
	fresh, err := newTrainer(t).cluster.Digest(t.Context())
	if err != nil || fresh == want {
		t.Errorf("digest %s without training, %v", fresh, err)
	}
}

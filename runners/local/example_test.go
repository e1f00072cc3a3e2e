package local_test

import (
	"context"
	"fmt"

	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sinks/gradsink"
	"github.com/monolith-go/monolith/sources/memsource"
	"github.com/monolith-go/monolith/transforms/batch"
	"github.com/monolith-go/monolith/transforms/parse"
	"github.com/monolith-go/monolith/transforms/trainstep"
)

// The graph of training, put together by hand: rows in memory, parsed as csv, train a factorization machine whose parameters two shards of this
// process have. tfrecordsource.New in place of memsource.Records, and parse.TFExample without Columns, read files. Package job makes the same graph of a
// job, with evaluation, snapshots in time and all that a job file says.
func Example_train() {
	ctx := context.Background()
	var rows [][]byte
	for i := range 6000 {
		user, item := i*7%50, i*11%30
		rows = append(rows, fmt.Appendf(nil, "%d,%d,%d", user, item, (user/25+item/15)%2))
	}
	m, err := zoo.New(zoo.Config{Name: zoo.FM, Features: []zoo.Feature{{Name: "user"}, {Name: "item"}}, Dim: 4, Seed: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	shards, err := coordinator.Open(ctx, coordinator.Options{Layout: m.Layout(), NumShards: 2}) // Dir would keep snapshots
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() {
		if err := shards.Close(ctx); err != nil {
			fmt.Println(err)
		}
	}()
	// One client for each worker, which its stages and its sink share; the runner closes it.
	client := func(ctx context.Context, env *pipeline.Env) (*ps.Client, error) {
		return pipeline.Resource(ctx, env, "parameter server", func(ctx context.Context) (*ps.Client, error) {
			return shards.Client(ctx, fmt.Sprint("worker-", env.Worker))
		})
	}
	store := func(ctx context.Context, env *pipeline.Env) (trainstep.Store, error) { return client(ctx, env) }

	var losses []float64
	g := pipeline.New("train")
	blocks := pipeline.Read(g, "rows", pipeline.Source[*pipeline.Block](memsource.Records(map[string][][]byte{"memory": rows}, memsource.Options{})))
	parsed := pipeline.Via(blocks, "parse", pipeline.Stage[*pipeline.Block, *pipeline.Batch](parse.New(parse.Options{
		Format: parse.CSV, Columns: []string{"user", "item", "click"},
		Features: []parse.Feature{{Name: "user", Slot: 1}, {Name: "item", Slot: 2}},
		Labels:   []parse.Label{{Column: "click"}},
	})))
	batches := pipeline.Via(parsed, "batch", pipeline.Stage[*pipeline.Batch, *pipeline.Batch](batch.New(batch.Options{Rows: 60})))
	ahead := pipeline.Prefetch(batches, "prefetch", 4)
	found := pipeline.Via(ahead, "lookup", pipeline.Stage[*pipeline.Batch, *trainstep.Prepared](trainstep.NewLookup(m, store)))
	gradients := pipeline.Via(found, "step", pipeline.Stage[*trainstep.Prepared, *trainstep.Gradients](trainstep.NewStep(m, store, trainstep.StepOptions{
		Observe: func(o trainstep.Observation) { losses = append(losses, o.Losses[0]) }, // one worker: calls do not overlap
	})))
	pipeline.Into(gradients, "push", pipeline.Sink[*trainstep.Gradients](gradsink.New[*trainstep.Gradients](func(ctx context.Context, env *pipeline.Env) (gradsink.Store, error) {
		return client(ctx, env)
	})))
	plan, err := g.Plan()
	if err != nil {
		fmt.Println(err)
		return
	}
	stats, err := local.Run(ctx, plan, pipeline.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	has, err := shards.Stats(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(stats[0].Rows, "examples in", stats[0].Batches, "batches,", has.Rows(), "rows")
	fmt.Println("it has learnt:", losses[len(losses)-1] < losses[0]/2)
	// Output:
	// 6000 examples in 100 batches, 80 rows
	// it has learnt: true
}

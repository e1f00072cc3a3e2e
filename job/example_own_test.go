package job_test

import (
	"context"
	"fmt"
	"os"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/memsource"
)

// ownJob names what the program brings along; everything else is as in any job.
const ownJob = `
version: 1
name: own
source: {clicks: {examples: 1000}}
parse:
  format: jsonl
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: history, slot: 2}]
heads:
  - {name: click}
  - {name: seconds, loss: huber}
stages: [count]
model: {attention: {hidden: 16}}
train: {batch: 50}
snapshot: {every: 0s}
`

// A program trains a model of its own, on a source of its own, through a stage of its own. Its lists of what a job may name are
// monolith's and its own, and all that a job can do is done with them too: checks, snapshots, evaluation, shards in other
// processes.
func Example_own() {
	dir, err := os.MkdirTemp("", "own")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	rows := &counter{}
	parts := components.All()
	parts.Sources = append(parts.Sources, component.Source{
		Name: "clicks", Doc: "makes clicks in memory.", New: func() component.SourceConfig { return &ownClicks{} },
	})
	parts.Stages = append(parts.Stages, component.Stage{
		Name: "count", Doc: "counts rows.", New: func() component.StageConfig { return &counting{rows} },
	})
	parts.Models = append(parts.Models, component.Model{
		Name: "attention", Doc: "a model of the program's own.", New: func() component.ModelConfig { return &attention{} },
	})
	cfg, err := job.Decode([]byte(ownJob), "own.yaml", job.LoadOptions{Components: parts, Set: []string{"dir=" + dir}})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := job.Run(context.Background(), cfg, job.RunOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("trained on", result.Examples, "examples; the stage has counted", rows.n)
	// Output: trained on 1000 examples; the stage has counted 1000
}

// attention is the program's model: what a user clicked before is weighed by the candidate item. Users have a table of their
// own. Its fields are the keys of its section.
type attention struct {
	// Hidden is the width of the layer before the output.
	Hidden int `yaml:"hidden" default:"32" min:"1"`
}

// Build makes the model. Its features are columns that parse makes, its heads are those of the job.
func (a *attention) Build(in component.ModelInputs) (model.Model, error) {
	b := graph.NewBuilder()
	rule := layer.Rule{Optimizer: optim.Adam{LR: 0.01}}
	table := func(name string, dim int) graph.Table {
		return b.Table(param.Table{Name: name, Segments: []param.Segment{
			{Name: "vec", Dim: dim, Init: param.Uniform(-0.1, 0.1), Optimizer: optim.Adagrad{LR: 0.1}},
		}})
	}
	users, items := table("users", 4), table("items", 8)
	user := b.SparseFeature(model.Feature{Name: "user"}, users)
	item := b.SparseFeature(model.Feature{Name: "item"}, items)
	history := b.SparseFeature(model.Feature{Name: "history"}, items)
	pooled := func(f graph.Sparse) graph.Node { return b.Pool(graph.Pooled{X: b.Lookup(f, "vec"), By: graph.Sum}) }
	now := pooled(item)
	before := layer.Attention(b, "attention", now, b.Lookup(history, "vec"), history, 8, rule)
	x := layer.MLP(b, "deep", b.Concat(pooled(user), now, before), layer.MLPConfig{Hidden: []int{a.Hidden}, Rule: rule})
	var heads []graph.Output
	for _, h := range in.Heads {
		heads = append(heads, graph.Output{Head: h, Node: layer.Dense(b, "head."+h.Name, x, 1, rule)})
	}
	return b.Build(in.Seed, heads...)
}

// ownClicks is the program's source; another would read its own storage.
type ownClicks struct {
	// Examples is how many there are.
	Examples int `yaml:"examples" required:"true" min:"1"`
}

func (*ownClicks) Formats() []string   { return []string{"jsonl"} }
func (*ownClicks) UsualFormat() string { return "jsonl" }
func (*ownClicks) Bounded() bool       { return true }

// OpenBlocks makes a source of undecoded records, which parse.format says how to read.
func (c *ownClicks) OpenBlocks(component.Opening) (pipeline.Source[*pipeline.Block], error) {
	var lines [][]byte
	for i := range c.Examples {
		lines = append(lines, fmt.Appendf(nil, `{"user":%d,"item":%d,"history":[%d,%d],"click":%d,"seconds":%d}`, i%50, i%20, i%7, i%11, i%2, i%20))
	}
	return memsource.Records(map[string][][]byte{"memory": lines}, memsource.Options{}), nil
}

// counting is the section of the program's stage, which has no keys.
type counting struct{ stage *counter }

func (c *counting) Stage() (pipeline.Stage[*pipeline.Batch, *pipeline.Batch], error) {
	return c.stage, nil
}

// counter is a stage that counts rows and hands them on.
type counter struct{ n int }

func (*counter) String() string                                 { return "count" }
func (*counter) Fingerprint() string                            { return "count" }
func (*counter) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }

func (c *counter) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return c, nil // the job has one worker and the source one split, so nothing overlaps
}

func (c *counter) Process(_ context.Context, in *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	c.n += in.NumRows()
	return emit(in)
}

func (*counter) Flush(context.Context, func(*pipeline.Batch) error) error { return nil }
func (*counter) Close() error                                             { return nil }

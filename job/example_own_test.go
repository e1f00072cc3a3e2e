package job_test

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/metric"
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
  - {name: seconds, loss: upper, metrics: [covered, mae]}
stages: [{count: {}, phases: [train]}]
model: {attention: {hidden: 16}}
train: {batch: 10}
snapshot: {every: 0s}
outputs: [{name: seen, of: predictions, to: memory}]
`

// A program trains a model of its own, with an operator of its own, by a loss of its own, on a source of its own, through a stage of its own, measured by a
// metric of its own, and writes the predictions to a sink of its own. All are known by name: the lists of what a job may name are
// monolith's and the program's. All that a job can do is done with them too: checks, snapshots, evaluation, shards in other
// processes. Optimizers and places for bad rows come in the same way.
func Example_own() {
	dir, err := os.MkdirTemp("", "own")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	rows, seen := &counter{}, &memory{}
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
	parts.Losses = append(parts.Losses, upper())
	parts.Metrics = append(parts.Metrics, covered())
	parts.Sinks = append(parts.Sinks, component.Sink{
		Name: "memory", Doc: "keeps rows in memory.", New: func() component.SinkConfig { return &remembering{seen} },
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
	fmt.Println("predictions kept:", seen.rows)
	share := result.Metrics["seconds.progressive_covered"]
	fmt.Println("most labels are below their predictions:", share > 0.5 && share < 1)
	// Output:
	// trained on 1000 examples; the stage has counted 1000
	// predictions kept: 1000
	// most labels are below their predictions: true
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
	before := layer.Attention(b, "attention", now, b.Lookup(history, "vec"), history, layer.AttentionConfig{Hidden: []int{8}, Rule: rule})
	x := b.Own(capped(6), nil, layer.MLP(b, "deep", b.Concat(pooled(user), now, before), layer.MLPConfig{Hidden: []int{a.Hidden}, Rule: rule}))
	var heads []graph.Output
	for _, h := range in.Heads {
		heads = append(heads, graph.Output{Head: h, Node: layer.Dense(b, "head."+h.Name, x, 1, rule)})
	}
	return b.Build(in.Seed, heads...)
}

// capped is an operator of the program's own, min(x, most).
func capped(most float32) graph.Own {
	return graph.Own{
		Name: "capped", Shape: func(in []graph.Shape) (graph.Shape, error) { return in[0], nil },
		Forward: func(b *graph.OwnBatch) {
			for i, v := range b.In[0] {
				b.Out[i] = min(v, most)
			}
		},
		Backward: func(b *graph.OwnBatch) {
			if b.Grads[0] == nil { // of a dense feature, which is not trained
				return
			}
			for i, v := range b.In[0] {
				if v < most {
					b.Grads[0][i] += b.OutGrad[i]
				}
			}
		},
		Reference: func(b *graph.OwnReference) []float64 {
			out := slices.Clone(b.In[0])
			for i, v := range out {
				out[i] = min(v, float64(most))
			}
			return out
		},
	}
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

// upper is the program's loss: what it learns is above nine labels in ten (the quantile loss of Koenker and Bassett, 1978).
func upper() loss.Loss {
	like := loss.Loss{
		Name: "upper", Formula: "max(0.9·(y-z), 0.1·(z-y))", Labels: loss.AnyNumber(), Link: loss.Identity, Metrics: []string{"mae"},
	}
	return *loss.Own(like, func(z, y float64) (value, slope float64) {
		if z < y {
			return 0.9 * (y - z), -0.9
		}
		return 0.1 * (z - y), 0.1
	})
}

// covered is the program's metric: the share of labels that are not above their predictions.
func covered() metric.Metric {
	return metric.Metric{
		Name: "covered", Doc: "share of labels that are not above their predictions.", Direction: metric.Higher,
		Compute: func(_ *metric.Workspace, s *metric.Set) float64 {
			n := 0.0
			for i, y := range s.Labels {
				if y <= s.Predictions[i] {
					n++
				}
			}
			return n / float64(s.Len()) // NaN of nothing
		},
	}
}

// remembering is the section of the program's sink, which has no keys.
type remembering struct{ sink *memory }

func (r *remembering) Sink(component.Writing) (component.OutputSink, error) {
	return r.sink, nil
}
func (*remembering) CanOpen() (string, error)   { return "", nil }
func (*remembering) Place() (key, place string) { return "", "" }

// memory is a sink that keeps how many rows it was given, with their positions: another would store both together, and answer
// from there.
type memory struct {
	rows int
	at   map[pipeline.SplitID]pipeline.Progress
}

func (*memory) String() string      { return "memory" }
func (*memory) Fingerprint() string { return "memory" }

func (m *memory) Open(context.Context, *pipeline.Env) (component.OutputWriter, error) {
	return m, nil // the job has one worker
}

func (m *memory) Write(_ context.Context, b *pipeline.Batch) error {
	defer b.Release()
	o := b.Origin()
	m.rows += b.NumRows()
	m.at[o.ID()] = pipeline.Progress{Position: o.To, Rows: int64(m.rows)}
	return nil
}

func (m *memory) Resume(_ context.Context, source string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	if m.at == nil {
		m.at = map[pipeline.SplitID]pipeline.Progress{}
	}
	out := map[string]pipeline.Progress{}
	for _, s := range splits {
		if at, ok := m.at[pipeline.SplitID{Source: source, Split: s.Name}]; ok {
			out[s.Name] = at
		}
	}
	return out, nil
}

func (m *memory) Stored(split pipeline.SplitID) pipeline.Position {
	if at, ok := m.at[split]; ok {
		return at.Position
	}
	return pipeline.NoPosition
}

// Totals says what is stored, for metrics: here each row by itself, of no size.
func (m *memory) Totals() (stores, rows, bytes int64) { return int64(m.rows), int64(m.rows), 0 }

func (*memory) Idle(context.Context) error  { return nil }
func (*memory) Flush(context.Context) error { return nil }
func (*memory) Close() error                { return nil }

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

// Command watch-time trains the model of this folder's job file from Go code: source, parsing, heads and training are those
// of the file, the model is the program's own. With the same seed both end with the same bits; the README says what each
// part is.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

func main() {
	file := flag.String("job", "examples/watch-time/job.yaml", "the job `file`")
	dir := flag.String("dir", "runs/watch-time-go", "where snapshots go")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *file, *dir); err != nil {
		fmt.Fprintln(os.Stderr, "watch-time:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, file, dir string) error {
	cfg, err := load(file, "dir="+dir)
	if err != nil {
		return err
	}
	result, err := job.Run(ctx, cfg, job.RunOptions{Notice: func(line string) { fmt.Fprintln(os.Stderr, line) }})
	if err != nil {
		return err
	}
	for _, name := range result.Metrics.Names() {
		fmt.Printf("%-32s %.4f\n", name, result.Metrics[name])
	}
	fmt.Println("snapshot", result.Snapshot)
	return nil
}

// load reads the job and gives it the program's model. set are further settings, as of --set.
func load(file string, set ...string) (*job.Config, error) {
	parts := components.All()
	parts.Models = append(parts.Models, component.Model{
		Name: "watch", Doc: "the program's own.", New: func() component.ModelConfig { return &watch{} },
	})
	cfg, err := job.Load(file, job.LoadOptions{Components: parts, Set: set})
	if err != nil {
		return nil, err
	}
	cfg.Model = job.ModelOf("watch", &watch{Hidden: []int{64, 32}, Attention: 36})
	return cfg, nil
}

// watch is a perceptron that any number of heads share. Its fields are the keys of its section, if a job file names it.
type watch struct {
	// Hidden are the widths of the layers.
	Hidden []int `yaml:"hidden" default:"64,32" min:"1"`
	// Attention is the width of the layer that weighs the history.
	Attention int `yaml:"attention" default:"36" min:"1"`
}

// Build makes the model. Features are columns that the job's parse section makes; heads and seed are the job's.
func (w *watch) Build(in component.ModelInputs) (model.Model, error) {
	b := graph.NewBuilder()
	adam := optim.Adam{LR: 0.005, Beta1: 0.9, Beta2: 0.999, Epsilon: 1e-8}
	rule := layer.Rule{Optimizer: adam}
	table := func(name string, dim int, o optim.Optimizer) graph.Table {
		return b.Table(param.Table{Name: name, Segments: []param.Segment{
			{Name: "vec", Dim: dim, Init: param.Uniform(-0.05, 0.05), Optimizer: o},
		}})
	}
	users := table("users", 4, adam)
	others := table("embedding", 8, optim.Adagrad{LR: 0.1, InitialAccumulator: 1e-4})

	var parts []graph.Node
	one := func(feature string, t graph.Table) graph.Node { // the vector of a feature with one value a row
		f := b.SparseFeature(model.Feature{Name: feature}, t)
		parts = append(parts, b.Pool(graph.Pooled{X: b.Lookup(f, "vec"), By: graph.Sum}))
		return parts[len(parts)-1]
	}
	one("user", users)
	one("item", others)
	category := one("category", others)
	history := b.SparseFeature(model.Feature{Name: "history"}, others) // a sequence: a vector for each of its values
	for _, feature := range []string{"audience", "hour", "device", "country"} {
		one(feature, others)
	}
	price := b.DenseFeature(model.Feature{Name: "price", Kind: model.Dense, Dim: 1})
	seen := layer.Attention(b, "attention.history", category, b.Lookup(history, "vec"), history, layer.AttentionConfig{Hidden: []int{w.Attention}, Rule: rule})
	bottom := layer.MLP(b, "deep", b.Concat(append(parts, seen, price)...), layer.MLPConfig{Hidden: w.Hidden, Rule: rule})

	var heads []graph.Output
	for _, h := range in.Heads {
		heads = append(heads, graph.Output{Head: h, Node: layer.Dense(b, "head."+h.Name, bottom, 1, rule)})
	}
	return b.Build(in.Seed, heads...)
}

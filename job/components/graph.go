package components

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/blocks"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
)

// Graph is a model of named blocks, or one that was written down: by `monolith plan --format model`, or by a program ([model.Model].Marshal).
type Graph struct {
	// File holds a written graph, as JSON: operators, tables, initial values and update rules, so that `tables` and `optimizer` are not
	// for this model, nor any other key here, nor what features say of combiner and attends. The job's are the seed, train.precision, the features, and of the heads labels, masks,
	// weights, sample rates and metrics; names, losses and kinds must be those of the graph. Every process of the job reads the file, and refuses to
	// join others that have read another one.
	File string `yaml:"file" short:"true"`
	// Blocks compose the model, in place of a file: each is of a kind and takes the values of others, some read features, and heads take what comes out. The order is free;
	// docs/blocks.md.
	Blocks []Block `yaml:"blocks"`
	// Heads say which block's value each head of the job learns through: [rows, 1], a logit for cross_entropy. Every block must lead to one.
	Heads          []HeadInput `yaml:"heads"`
	Embedding      `yaml:",inline"`
	Regularisation `yaml:",inline"`
}

// Block is a part of a model.
type Block struct {
	// Name distinguishes the block: letters, digits and underscores, dots and dashes between them. The names of its tensors begin with it.
	Name string `yaml:"name" required:"true"`
	// Kind is what the block does, with its settings.
	Kind component.BlockKind `yaml:"kind" required:"true"`
	// Inputs are the blocks whose values it takes, in the order that the kind wants; most kinds take any number, side by side. A block with a value for each task has
	// NAME.TASK. Kinds that read features take none.
	Inputs []string `yaml:"inputs"`
	// Optimizer is the rule of the block's tensors. Default: optimizer.dense.
	Optimizer *component.BlockOptimizer `yaml:"optimizer"`
	// L2 adds L2·w to the gradient of each of the block's weights, biases left out. Default: dense_l2.
	L2 *float64 `yaml:"l2" min:"0"`
	// Init is how the block's weights begin. Default: {glorot_uniform: 1}.
	Init *component.WeightInit `yaml:"init"`
}

// rule is what the block says of its tensors.
func (b *Block) rule() (r blocks.Rule) {
	if b.Optimizer != nil && b.Optimizer.Value() != nil {
		r.Optimizer = b.Optimizer.Value().Rule()
	}
	if b.L2 != nil {
		l2 := float32(*b.L2)
		r.L2 = &l2
	}
	if b.Init != nil {
		r.Init = b.Init.Init
	}
	return r
}

// HeadInput is what a head learns through. Short form: the block alone, where there is one head.
type HeadInput struct {
	// Name is that of a head of the job. Default: the only one.
	Name string `yaml:"name"`
	// Input is the block, or NAME.TASK.
	Input string `yaml:"input" short:"true" required:"true"`
}

// LocalPaths implements [component.Local].
func (m *Graph) LocalPaths() []component.LocalPath {
	if m.File == "" {
		return nil
	}
	return []component.LocalPath{{Key: "file", Path: m.File}}
}

// OwnRules implements [component.OwnRules]: a file brings them.
func (m *Graph) OwnRules() bool { return m.File != "" }

// CheckInputs implements [component.InputChecker]: it composes the model of what is known before data is read.
func (m *Graph) CheckInputs(in []component.Input, heads []component.Head, report component.Report) {
	switch {
	case m.File == "" && len(m.Blocks) == 0:
		report("", "has neither blocks, of which a model is composed, nor the file of one that was written down")
		return
	case m.File != "":
		for _, key := range conf.NotDefault(*m) {
			own := key.Key == "file" || key.Key == "embedding_init" && m.EmbeddingInit.Init() == param.Uniform(-zoo.DefaultSpread, zoo.DefaultSpread)
			if !own {
				report(key.Key, "is for a model of blocks, and this one is from a file, which says all; leave out one of them")
			}
		}
		return
	}
	known := component.ModelInputs{}
	for _, f := range in {
		g := zoo.Feature{Name: f.Name, Attends: f.Attends, Table: f.Table}
		if f.First > 0 {
			g.Combiner, g.First = zoo.First, f.First
		}
		if f.Dense {
			g = zoo.Feature{Name: f.Name, Kind: model.Dense, Dim: f.Width}
		}
		known.Features = append(known.Features, g)
		if f.Dim > 0 {
			known.Tables = append(known.Tables, zoo.Table{Name: f.Table, Dim: f.Dim})
		}
	}
	for _, h := range heads {
		of := loss.CrossEntropy // which takes any output but that of one operator
		if h.Loss == loss.BatchSoftmax {
			of = loss.BatchSoftmax
		}
		known.Heads = append(known.Heads, model.Head{Name: h.Name, Loss: of, Width: h.Width})
	}
	_, err := m.compose(known)
	if err == nil {
		return
	}
	for _, err := range failure.Flatten(err) {
		if f, ok := errors.AsType[*blocks.Fault](err); ok {
			report(f.Path, "%s", f.Message)
		} else {
			report("", "%v", err)
		}
	}
}

// compose makes the model of blocks.
func (m *Graph) compose(in component.ModelInputs) (*graph.Graph, error) {
	c := blocks.Config{Config: config(in, &m.Embedding, &m.Regularisation)}
	for _, b := range m.Blocks {
		c.Blocks = append(c.Blocks, blocks.Block{Name: b.Name, Kind: b.Kind.Value(), KindName: b.Kind.Name(), Inputs: b.Inputs, Rule: b.rule()})
	}
	for _, h := range m.Heads {
		c.Outputs = append(c.Outputs, blocks.Output{Head: h.Name, Input: h.Input})
	}
	return blocks.New(c)
}

// Build implements [component.ModelConfig].
func (m *Graph) Build(in component.ModelInputs) (model.Model, error) {
	if m.File == "" {
		g, err := m.compose(in)
		if err != nil {
			return nil, err
		}
		return g, nil
	}
	written, err := fsx.ReadFile(context.Background(), fsx.Local{}, m.File, graph.MaxWritten)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no file %q; `monolith plan JOB.yaml --format model` writes the graph of a job's model", m.File)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, pipeline.ErrUnavailable)
	}
	g, err := graph.Unmarshal(written)
	if err != nil {
		return nil, fmt.Errorf("%q: %w; `monolith plan JOB.yaml --format model` writes the graph of a job's model", m.File, err)
	}
	if err := trainable(g); err != nil {
		return nil, fmt.Errorf("%q: %w", m.File, err)
	}
	asked := in.Heads
	if in.Unnamed {
		asked = nil
	}
	heads, err := headsOf(g, asked)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", m.File, err)
	}
	faults := featureFaults(g, in.Features)
	g, err = g.With(in.Seed, heads)
	if faults = append(faults, err); errors.Join(faults...) != nil {
		for i, err := range faults {
			if err != nil {
				faults[i] = fmt.Errorf("%q: %w", m.File, err)
			}
		}
		return nil, errors.Join(faults...)
	}
	return g, nil
}

// trainable refuses a graph with update rules of which the file has the name alone.
func trainable(g *graph.Graph) error {
	refused := func(what string, o optim.Optimizer) error {
		return fmt.Errorf("%s was trained by the rule %s, which this program does not have: train with the program that has it, or write the graph with another rule", what, o)
	}
	for _, t := range g.Layout().Tables {
		for _, s := range t.Segments {
			if optim.IsNamed(s.Optimizer) {
				return refused(fmt.Sprintf("segment %q of table %q", s.Name, t.Name), s.Optimizer)
			}
		}
	}
	for _, t := range g.Layout().Dense {
		if optim.IsNamed(t.Optimizer) {
			return refused(fmt.Sprintf("tensor %q", t.Name), t.Optimizer)
		}
	}
	return nil
}

// headsOf are the heads as the job wants them. A job without heads has one, the probability of the label, whatever its name is.
func headsOf(g *graph.Graph, want []model.Head) ([]model.Head, error) {
	if len(want) > 0 {
		want = slices.Clone(want)
		for i, h := range want { // a job does not say how wide a head is, but for one of classes
			if h.Width > 0 {
				continue
			}
			if j := slices.IndexFunc(g.Heads(), func(own model.Head) bool { return own.Name == h.Name }); j >= 0 {
				want[i].Width = g.Heads()[j].Width
			}
		}
		return want, nil
	}
	own := g.Heads()
	if h := own[0]; len(own) > 1 || h.Loss != loss.CrossEntropy || h.Width != 1 || h.Mask != "" || h.SampleRate != 1 || h.LogitClip != 0 {
		var names []string
		for _, h := range own {
			names = append(names, fmt.Sprintf("%s (%s)", h.Name, h.Loss))
		}
		return nil, fmt.Errorf("the graph does more than predict the probability of one label; give the job heads: %s", names)
	}
	return []model.Head{{Name: own[0].Name, Loss: own[0].Loss}}, nil
}

// featureFaults compares the inputs of a graph with the features of a job.
func featureFaults(g *graph.Graph, have []zoo.Feature) (faults []error) {
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	kinds := map[model.Kind]string{model.Sparse: "sparse", model.Dense: "dense"}
	var names []string
	for _, f := range have {
		names = append(names, f.Name)
	}
	own := g.Features()
	for _, f := range own {
		i := slices.Index(names, f.Name)
		if i < 0 {
			bad("its feature %q is none of the job's%s", f.Name, nearest.Suggest(f.Name, names))
			continue
		}
		h := have[i]
		switch table := g.Layout().Tables; {
		case f.Kind != h.Kind:
			bad("feature %q is %s in the graph, %s in the job", f.Name, kinds[f.Kind], kinds[h.Kind])
		case f.Kind == model.Dense && f.Dim != h.Dim:
			bad("feature %q has %d numbers in the graph, %d in the job", f.Name, f.Dim, h.Dim)
		case f.Decay != h.Decay:
			bad("feature %q is standardised with decay %v in the graph, %v in the job (0: not at all)", f.Name, f.Decay, h.Decay)
		case f.Kind == model.Sparse && h.Table != "" && h.Table != table[f.Table].Name:
			bad("feature %q is bound to table %q in the graph, to %q in the job", f.Name, table[f.Table].Name, h.Table)
		case h.Values != "" && f.Values != h.Values:
			bad("the entries of feature %q have values in the job that the graph does not read", f.Name)
		}
	}
	for _, name := range names {
		if !slices.ContainsFunc(own, func(f model.Feature) bool { return f.Name == name }) {
			bad("feature %q is no input of the graph; leave it out of parse.features", name)
		}
	}
	return faults
}

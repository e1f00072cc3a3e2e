package blocks_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/internal/failure"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/blocks"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// block is a block whose kind is named as the list names it.
func block(name string, kind blocks.Kind, inputs ...string) blocks.Block {
	b := blocks.Block{Name: name, Kind: kind, Inputs: inputs}
	for _, k := range blocks.Kinds() {
		if reflect.TypeOf(k.New()) == reflect.TypeOf(kind) {
			b.KindName = k.Name
		}
	}
	return b
}

// config has a feature of each sort; vectors of user, item and history have 4 numbers, those of tags 3.
func config(bs ...blocks.Block) blocks.Config {
	return blocks.Config{
		Config: zoo.Config{
			Dim: 4, DenseL2: 0.1, EmbeddingL2: 0.1, Seed: 1,
			Features: []zoo.Feature{
				{Name: "user"},
				{Name: "item"},
				{Name: "history"},
				{Name: "tags", Table: "tags", Combiner: graph.Mean},
				{Name: "age", Kind: model.Dense, Dim: 2, Decay: 0.9},
				{Name: "price", Kind: model.Dense, Dim: 1},
			},
			Tables: []zoo.Table{{Name: "tags", Dim: 3}},
		},
		Blocks: bs,
	}
}

// inputs are blocks that read each feature, with values named by them; x is all that are rows, v are four vectors of 4.
func inputs() []blocks.Block {
	return []blocks.Block{
		block("first", &blocks.Linear{Features: []string{"user", "age"}}),
		block("pair", &blocks.Embedding{Features: []string{"user", "item"}}),
		block("seen", &blocks.Sequence{Feature: "history"}),
		block("tags", &blocks.Embedding{Features: []string{"tags"}}),
		block("age", &blocks.Numbers{Features: []string{"age"}}),
		block("price", &blocks.NumberVectors{Features: []string{"price"}}),
		block("recent", &blocks.Pool{By: "max"}, "seen"),
		block("x", &blocks.Concat{}, "pair", "recent", "price", "tags", "age"),
		block("v", &blocks.Concat{}, "pair", "recent", "price"),
	}
}

// needed leaves of a model what one value needs, which becomes its head's.
func needed(cfg blocks.Config, value string) blocks.Config {
	cfg.Outputs = []blocks.Output{{Input: value}}
	var keep []blocks.Block
	var read []string
	for names := []string{value}; len(names) > 0; names = names[1:] {
		for _, b := range cfg.Blocks {
			if name, _, _ := strings.Cut(names[0], "."); name != b.Name || slices.ContainsFunc(keep, func(o blocks.Block) bool { return o.Name == name }) {
				continue
			}
			keep, names = append(keep, b), append(names, b.Inputs...)
			if r, ok := b.Kind.(blocks.Reader); ok {
				features, _ := r.Reads(cfg.Features)
				read = append(read, features...)
			}
		}
	}
	cfg.Blocks = keep
	cfg.Features = slices.DeleteFunc(cfg.Features, func(f zoo.Feature) bool { return !slices.Contains(read, f.Name) })
	return cfg
}

// TestKindsFollowReference puts each kind between the inputs and a head: values and gradients are those of the slow reference, and the model can be exported.
func TestKindsFollowReference(t *testing.T) {
	t.Parallel()
	layers := blocks.Layers{Hidden: []int{4, 3}, Activation: "sigmoid"}
	tasks := blocks.Tasks{Tasks: []string{"a", "b"}}
	tests := map[string][]blocks.Block{
		"embedding":      {block("k", &blocks.Concat{}, "pair", "tags")},
		"sequence":       {block("k", &blocks.Pool{By: "last"}, "seen")},
		"numbers":        {block("k", &blocks.Concat{}, "age")},
		"number_vectors": {block("k", &blocks.Fold{}, "price")},
		"linear":         {block("k", &blocks.Concat{}, "first")},
		"dense":          {block("d", &blocks.Dense{Units: 3, Activation: "gelu"}, "x", "first"), block("e", &blocks.Dense{Units: 3, KernelNorm: true, Activation: "tanh"}, "x"), block("f", &blocks.Dense{Units: 3, NoBias: true, KernelNorm: true, KernelNormFixed: true}, "x"), block("g", &blocks.Dense{Units: 3, NoBias: true}, "x"), block("k", &blocks.Concat{}, "d", "e", "f", "g")},
		"bias":           {block("b", &blocks.Bias{Value: 0.5}, "seen"), block("p", &blocks.Pool{}, "b"), block("c", &blocks.Concat{}, "p", "v"), block("d", &blocks.Bias{}, "c"), block("k", &blocks.Dots{}, "d")},
		"mlp":            {block("k", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{4, 3}, BatchNorm: true, NormDecay: 0.99, NormMaxScale: 1.001, NormMaxShift: 0.001, Dropout: 0.2}, Out: 2}, "x", "n"), block("n", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{3}, KernelNorm: true, KernelNormFixed: true, NoBias: true}}, "o"), block("o", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{3, 3}, Activations: []string{"tanh", "prelu"}, NoBias: true}}, "x")},
		"first":          {block("f", &blocks.First{Count: 2}, "seen"), block("k", &blocks.Fold{}, "f")},
		"residual":       {block("k", &blocks.Residual{Units: 2, Layers: blocks.Layers{Hidden: []int{4, 3}, Activation: "prelu"}}, "x", "first")},
		"columns":        {block("c", &blocks.Columns{From: 1, To: 3}, "x"), block("e", &blocks.Columns{From: 1, To: 3}, "seen"), block("p", &blocks.Pool{}, "e"), block("k", &blocks.Sum{}, "c", "p")},
		"activation":     {block("d", &blocks.Dense{Units: 3}, "seen"), block("s", &blocks.Activation{Function: "prelu"}, "d"), block("p", &blocks.Pool{By: "mean"}, "s"), block("k", &blocks.Activation{Function: "softmax"}, "p")},
		"layer_norm":     {block("n", &blocks.LayerNorm{Each: "vector"}, "v"), block("k", &blocks.LayerNorm{}, "n")},
		"batch_norm":     {block("n", &blocks.BatchNorm{Decay: 0.9, Epsilon: 1e-5, Scale: true, Center: true, Moving: 0.5}, "x"), block("k", &blocks.BatchNorm{Decay: 0.99, Epsilon: 1e-3, MaxScale: 1.001, MaxShift: 0.001}, "n")},
		"dropout":        {block("k", &blocks.Dropout{Rate: 0.3}, "x")},
		"concat":         {block("k", &blocks.Concat{}, "v", "first")},
		"sum":            {block("d", &blocks.Dense{Units: 4}, "x"), block("k", &blocks.Sum{}, "recent", "price", "d")},
		"mean":           {block("d", &blocks.Dense{Units: 4}, "x"), block("e", &blocks.Dense{Units: 4}, "seen"), block("m", &blocks.Mean{}, "e", "seen"), block("p", &blocks.Pool{}, "m"), block("k", &blocks.Mean{}, "p", "price", "d")},
		"max":            {block("d", &blocks.Dense{Units: 4}, "x"), block("e", &blocks.Dense{Units: 4}, "seen"), block("m", &blocks.Max{}, "e", "seen"), block("p", &blocks.Pool{}, "m"), block("k", &blocks.Max{}, "p", "price", "d")},
		"product":        {block("d", &blocks.Dense{Units: 4}, "x"), block("k", &blocks.Product{}, "recent", "price", "d")},
		"scale":          {block("k", &blocks.Scale{Factor: 2}, "first")},
		"stop_gradient":  {block("s", &blocks.StopGradient{}, "recent"), block("k", &blocks.Product{}, "s", "price")},

		"fm":             {block("e", &blocks.FM{}, "pair", "price"), block("f", &blocks.FM{Interactions: "fields"}, "v"), block("k", &blocks.Concat{}, "e", "f")},
		"bi_interaction": {block("k", &blocks.BiInteraction{}, "v")},
		"dots":           {block("k", &blocks.Dots{}, "pair", "recent")},
		"pair_attention": {block("k", &blocks.PairAttention{Hidden: 3}, "v")},
		"cross":          {block("s", &blocks.Activation{Function: "sigmoid"}, "recent"), block("c", &blocks.Cross{Layers: 2}, "s"), block("m", &blocks.Cross{Layers: 2, Rank: 2, Experts: 2}, "c"), block("n", &blocks.Cross{Layers: 1, Weights: "vector", Dropout: 0.3}, "m"), block("o", &blocks.Cross{Layers: 1, Dropout: 0.2}, "n"), block("p", &blocks.Cross{Layers: 1, Rank: 1, Experts: 1, Dropout: 0.2}, "o"), block("q", &blocks.Cross{Layers: 1, Rank: 2, Experts: 2, KernelNorm: true}, "s"), block("r", &blocks.Cross{Layers: 1, KernelNorm: true, KernelNormFixed: true}, "s"), block("t", &blocks.Cross{Layers: 1, Weights: "vector", KernelNorm: true}, "s"), block("k", &blocks.Concat{}, "p", "q", "r", "t")},
		"cin":            {block("c", &blocks.CIN{Maps: []int{3, 2}}, "v"), block("d", &blocks.CIN{Maps: []int{2, 2}, Activation: "tanh"}, "v"), block("k", &blocks.Concat{}, "c", "d")},
		"senet":          {block("s", &blocks.SENet{Reduction: 2}, "v"), block("t", &blocks.SENet{Reduction: 2, Activation: "sigmoid"}, "s"), block("k", &blocks.Dots{}, "t")},
		"razor":          {block("r", &blocks.Razor{Space: []int{0, 1, 4}, Temperature: 0.5}, "v"), block("k", &blocks.Razor{Temperature: 1}, "r")},
		"feature_gates":  {block("g", &blocks.FeatureGates{GateHigh: 1.5, GateLow: -0.25, GateTemperature: 0.75}, "pair", "tags8"), block("h", &blocks.FeatureGates{}, "g"), block("tags8", &blocks.Dense{Units: 4}, "tags"), block("k", &blocks.Dots{}, "h")},
		"bilinear":       {block("k", &blocks.Bilinear{}, "pair", "recent")},
		"self_attention": {block("p", &blocks.SelfAttention{Layers: 2, Plain: true}, "v"), block("k", &blocks.SelfAttention{Layers: 2, Heads: 2, Width: 4}, "p")},
		"fold":           {block("m", &blocks.Fold{By: "mean"}, "v"), block("l", &blocks.Fold{By: "max"}, "v"), block("o", &blocks.Fold{By: "max"}, "recent"), block("s", &blocks.Fold{}, "v"), block("k", &blocks.Concat{}, "m", "l", "o", "s")},
		"ffm":            {block("a", &blocks.FFM{}, "pair", "recent"), block("b", &blocks.FFM{}, "price", "recent"), block("k", &blocks.Concat{}, "a", "b")},
		"mask":           {block("k", &blocks.Mask{Units: 3}, "v", "age")},
		"fusion":         {block("k", &blocks.Fusion{Heads: 2}, "pair", "recent")},
		"group_int":      {block("g", &blocks.GroupInt{}, "pair", "price"), block("d", &blocks.GroupInt{Dot: true}, "pair", "v"), block("a", &blocks.GroupInt{Attention: true, Hidden: []int{3, 2}, Activation: "sigmoid"}, "pair", "v"), block("b", &blocks.GroupInt{Dot: true, Attention: true}, "pair", "price"), block("k", &blocks.Concat{}, "g", "d", "a", "b")},
		"all_int":        {block("a", &blocks.AllInt{Sums: 2}, "v"), block("b", &blocks.AllInt{Sums: 1, NoBias: true}, "v"), block("k", &blocks.Concat{}, "a", "b")},
		"cdot":           {block("k", &blocks.CDot{Sums: 2, Layers: layers}, "v")},
		"can":            {block("d", &blocks.Dense{Units: 2}, "x"), block("w", &blocks.Dense{Units: 12}, "x"), block("c", &blocks.CAN{Layers: 2}, "d", "w"), block("e", &blocks.Dense{Units: 2}, "seen"), block("s", &blocks.CAN{Layers: 2, Activation: "prelu"}, "e", "w"), block("p", &blocks.Pool{}, "s"), block("k", &blocks.Concat{}, "c", "p")},
		"wukong":         {block("k", &blocks.Wukong{Products: 2, Sums: 1, Rank: 2, Hidden: []int{3}}, "v")},
		"tokens":         {block("k", &blocks.Tokens{Tokens: 2, Width: 4}, "x")},
		"rankmixer":      {block("t", &blocks.Tokens{Tokens: 2, Width: 4}, "x"), block("k", &blocks.RankMixer{Expansion: 2}, "t")},
		"gate":           {block("k", &blocks.Gate{Hidden: []int{3}}, "v", "age", "tags")},
		"lhuc":           {block("k", &blocks.LHUC{Layers: layers, Gate: []int{2, 3}}, "v", "age")},
		"batch_softmax":  {block("t", &blocks.Dense{Units: 3}, "tags"), block("a", &blocks.Dense{Units: 3}, "age"), block("k", &blocks.BatchSoftmax{Item: "tags", Temperature: 0.5}, "t", "a")},
		"cosine":         {block("k", &blocks.Cosine{Factor: 2}, "recent", "price")},

		"pool":             {block("a", &blocks.Pool{}, "seen"), block("b", &blocks.Pool{By: "mean"}, "seen"), block("c", &blocks.Pool{By: "sqrtn"}, "seen"), block("k", &blocks.Sum{}, "a", "b", "c")},
		"attention":        {block("q", &blocks.Dense{Units: 4}, "x"), block("a", &blocks.Attention{Hidden: []int{3}}, "q", "seen"), block("e", &blocks.Attention{Hidden: []int{3, 2}, Activation: "prelu", Scaled: true, Each: true}, "price", "seen"), block("b", &blocks.Pool{By: "max"}, "e"), block("l", &blocks.Attention{}, "q", "seen"), block("k", &blocks.Concat{}, "a", "b", "l")},
		"target_attention": {block("k", &blocks.TargetAttention{Heads: 2, Width: 3}, "tags", "seen")},
		"hstu":             {block("a", &blocks.HSTU{Layers: 2, Heads: 2, Width: 6, Positions: 2}, "price", "seen"), block("b", &blocks.HSTU{Layers: 1, Heads: 1, Width: 2, Positions: 9}, "a", "seen"), block("k", &blocks.Concat{}, "a", "b")},
		"dmr":              {block("a", &blocks.DMR{Width: 2, Places: 2, Tanh: true, Activation: "sigmoid"}, "tags", "seen"), block("b", &blocks.DMR{Width: 3, Places: 3, Back: true}, "price", "seen"), block("k", &blocks.Concat{}, "a", "b")},
		"dien":             {block("a", &blocks.DIEN{Width: 2}, "price", "seen"), block("b", &blocks.DIEN{Width: 3, AGRU: true, CellActivation: "relu"}, "price", "seen"), block("k", &blocks.Concat{}, "a", "b")},

		"mmoe": {
			block("m", &blocks.MMoE{Tasks: tasks, Experts: 2, Layers: layers}, "x"), block("t", &blocks.MMoE{Tasks: tasks, Experts: 3, TopExperts: 2, GateNoise: true, Layers: layers}, "v"),
			block("k", &blocks.Concat{}, "m.a", "m.b", "t.a", "t.b"),
		},
		"ple":       {block("m", &blocks.PLE{Tasks: tasks, Experts: 1, OwnExperts: 1, Levels: 2, Layers: layers}, "x"), block("k", &blocks.Concat{}, "m.a", "m.b")},
		"snr":       {block("m", &blocks.SNR{Tasks: tasks, Experts: 2, Levels: 2, Layers: layers}, "x"), block("n", &blocks.SNR{Tasks: tasks, Experts: 2, Levels: 2, Average: true, Layers: layers}, "x"), block("k", &blocks.Concat{}, "m.a", "m.b", "n.a", "n.b")},
		"grad_norm": {block("m", &blocks.GradNorm{Heads: []string{"label", "more"}, Scale: 1e-9, Alpha: 1}, "x"), block("k", &blocks.Activation{Function: "sigmoid"}, "m.label")},
		"mixture":   {block("k", &blocks.Mixture{}, "x", "recent", "price")},
		"relations": {block("m", &blocks.Relations{Tasks: tasks, Layers: layers}, "v", "x"), block("k", &blocks.Concat{}, "m.a", "m.b")},
		"both":      {block("d", &blocks.Dense{Units: 1}, "x"), block("k", &blocks.Both{}, "first", "d")},
	}
	for _, k := range blocks.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			bs, ok := tests[k.Name]
			if !ok {
				t.Fatal("the kind has no test")
			}
			bs = append(inputs(), bs...)
			if !slices.ContainsFunc(bs, func(b blocks.Block) bool { return b.KindName == k.Name }) {
				t.Fatal("no block is of the kind")
			}
			cfg := needed(config(append(bs, block("out", &blocks.Dense{Units: 1}, "k"))...), "out")
			if k.Name == "grad_norm" { // it has something to do for two heads
				cfg.Heads = []model.Head{{Name: "label", Loss: loss.CrossEntropy}, {Name: "more", Loss: loss.Squared, Width: 21}}
				cfg.Outputs = []blocks.Output{{Head: "label", Input: "out"}, {Head: "more", Input: "m.more"}}
			}
			g, err := blocks.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			graphtest.Check(t, g)
			if err := forward.Check(g); err != nil {
				t.Errorf("a model with the block has no form for TensorFlow and ONNX: %v", err)
			}
		})
	}
}

// TestOrderIsFree: blocks that are listed backwards make the same parameters, and the same predictions.
func TestOrderIsFree(t *testing.T) {
	t.Parallel()
	bs := append(inputs(), block("deep", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{5}}, Out: 1}, "x", "v"), block("sum", &blocks.Sum{}, "deep", "first"))
	var tensors []map[string]string
	var predictions [][]float32
	for range 2 {
		cfg := config(bs...)
		cfg.Outputs = []blocks.Output{{Input: "sum"}}
		g, err := blocks.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]string{}
		for _, p := range g.Layout().Dense {
			named[p.Name] = fmt.Sprint(p.Shape, p.Init, p.L2)
		}
		tensors = append(tensors, named)
		s := g.NewSession(1)
		defer s.Close()
		dense := make([]float32, g.Layout().DenseLen())
		for i := range dense {
			dense[i] = 0.1
		}
		s.SetDense(dense)
		predictions = append(predictions, slices.Clone(s.Predict(graphtest.Inputs(g, graphtest.Shape{Rows: 9, MaxList: 3}, 1))[0]))
		slices.Reverse(bs)
	}
	if diff := cmp.Diff(tensors[0], tensors[1]); diff != "" || len(tensors[0]) == 0 {
		t.Errorf("tensors %v, backwards (-forwards +backwards): %s", tensors[0], diff)
	}
	if diff := cmp.Diff(predictions[0], predictions[1]); diff != "" {
		t.Error(diff)
	}
}

// TestRulesOfBlocks: the tensors of a block are updated and begin as it says, all others as the model says.
func TestRulesOfBlocks(t *testing.T) {
	t.Parallel()
	l2 := float32(0.5)
	own := func(b blocks.Block, r blocks.Rule) blocks.Block { b.Rule = r; return b }
	he := func(in, _ int) param.Init { return param.HeNormal(in, 0) }
	cfg := config(
		block("pair", &blocks.Embedding{}), block("age", &blocks.Numbers{Features: []string{"age"}}),
		own(block("price", &blocks.NumberVectors{Features: []string{"price"}}), blocks.Rule{Init: he}),
		own(block("deep", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{3}}}, "pair", "age", "price"), blocks.Rule{Optimizer: optim.SGD{LR: 0.25}, L2: &l2, Init: he}),
		own(block("out", &blocks.Dense{Units: 1}, "deep"), blocks.Rule{L2: new(float32)}),
	)
	cfg.DenseOptimizer, cfg.Outputs = optim.Adam{LR: 0.125}, []blocks.Output{{Input: "out"}}
	g, err := blocks.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, d := range g.Layout().Dense {
		got[d.Name] = fmt.Sprintf("%T %v %v", d.Optimizer, d.L2, d.Init)
	}
	in := 3*4 + 3 + 2 + 4
	want := map[string]string{
		"moments.age":   "optim.EMA 0 zeros",
		"price.vectors": fmt.Sprint("optim.Adam 0.1 ", he(1, 4)),
		"deep.0.weight": fmt.Sprint("optim.SGD 0.5 ", he(in, 3)), "deep.0.bias": "optim.SGD 0 zeros",
		"out.weight": fmt.Sprint("optim.Adam 0 ", param.GlorotUniform(3, 1)), "out.bias": "optim.Adam 0 zeros",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got) %s", diff)
	}
}

// TestFaults: what is wrong is said with its place and the names of the blocks, all of it at once.
// TestCellActivation: the setting reaches both units of a block.
func TestCellActivation(t *testing.T) {
	t.Parallel()
	texts := map[string]bool{}
	for _, f := range []string{"", "tanh", "relu"} {
		m, err := blocks.New(needed(config(append(inputs(), block("k", &blocks.DIEN{CellActivation: f}, "price", "seen"), block("out", &blocks.Dense{Units: 1}, "k"))...), "out"))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := strings.Count(m.Text(), "candidate "+f+"]"), map[string]int{"relu": 2}[f]; got != want {
			t.Errorf("%q: %d units have it, want %d:\n%s", f, got, want, m.Text())
		}
		texts[m.Text()] = true
	}
	if len(texts) != 2 {
		t.Errorf("%d models, want 2: tanh is what there is without a function", len(texts))
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	all := func(bs ...blocks.Block) []blocks.Block { return append(inputs(), bs...) }
	out := func(inputs ...string) blocks.Block {
		return block("out", &blocks.Dense{Units: 1}, append(inputs, "x", "v", "first")...)
	}
	head := []blocks.Output{{Input: "out"}}
	tests := map[string]struct {
		blocks  []blocks.Block
		outputs []blocks.Output
		change  func(c *blocks.Config)
		want    []string
	}{
		"nothing": {nil, nil, nil, []string{"blocks: is empty; a model has at least one block", `heads: have nothing for head "label"`}},
		"names": {
			all(block("a b", &blocks.Concat{}, "x"), block("first", &blocks.Concat{}, "x"), block("v.w", &blocks.Concat{}, "x"), out()), head, nil,
			[]string{`blocks[9].name: is "a b"; names are words`, `blocks[10].name: is "first", which is already the name of blocks[0]`, `blocks[11].name: is "v.w", and there is a block "v"`},
		},
		"unknown inputs": {
			all(block("k", &blocks.Sum{}, "frist"), block("l", &blocks.Sum{}, "user"), out("k", "l")),
			[]blocks.Output{{Input: "oat"}},
			nil,
			[]string{
				`blocks[9].inputs[0]: is "frist", which is no block, did you mean "first"?`, `blocks[10].inputs[0]: is "user", which is a feature and no block; a block of kind embedding`,
				`heads[0].input: is "oat", which is no block, did you mean "out"?`,
			},
		},
		"rules of nothing": {
			[]blocks.Block{{Name: "all", Kind: &blocks.Embedding{}, KindName: "embedding", Rule: blocks.Rule{Optimizer: optim.SGD{}}}, block("age", &blocks.Numbers{}), block("out", &blocks.Dense{Units: 1}, "all", "age")},
			head, nil,
			[]string{`blocks[0].name: is "all", a block of kind embedding without tensors of its own, which optimizer, l2 and init would be of`},
		},
		"settings of nothing": {
			all(block("g", &blocks.GroupInt{Hidden: []int{2}}, "pair", "price"), block("d", &blocks.Dense{Units: 1, KernelNormFixed: true}, "x"), block("h", &blocks.FeatureGates{GateLow: 1}, "v"), block("f", &blocks.FFM{}, "v"), block("l", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{2, 2}, Activations: []string{"relu"}}}, "x"), block("c", &blocks.CAN{Layers: 1}, "seen", "age"), block("p", &blocks.Pool{}, "c"), out("g", "d", "h", "p", "f", "l")), head, nil,
			[]string{`of block "l": activations are 1, and hidden has 2 layers`, `of block "g": hidden is a setting of attention, which is false`, `of block "d": kernel_norm_fixed is a setting of kernel_norm`, `of block "f": each of the 4 vectors has 4 numbers, which are no vectors for each of the others`, `of block "h": the lower end of gates, 1, is not a number below 0`, `of block "c": the weights have 2 numbers, and 1 layers over 4 numbers have 20`},
		},
		"a cycle": {
			all(block("a", &blocks.Sum{}, "first", "c"), block("b", &blocks.Sum{}, "a"), block("c", &blocks.Sum{}, "b"), out("c")), head, nil,
			[]string{`blocks[10].inputs[0]: is "a", which takes the value of "b" itself: a <- c <- b <- a`},
		},
		"columns that are not there": {
			all(block("c", &blocks.Columns{From: 20, To: 22}, "x"), block("d", &blocks.Columns{From: 3, To: 3}, "x"), out("c", "d")), head, nil,
			[]string{`columns 20 to 22 are none of the 21 numbers of its input`, `columns 3 to 3 are none of the 21 numbers`},
		},
		"itself": {all(block("a", &blocks.Sum{}, "first", "a"), out("a")), head, nil, []string{`blocks[9].inputs[1]: is "a", which takes the value of "a" itself: a <- a`}},
		"unused": {
			all(block("a", &blocks.Sum{}, "first"), block("b", &blocks.Sum{}, "a"), block("m", &blocks.MMoE{Tasks: blocks.Tasks{Tasks: []string{"p", "q"}}, Experts: 1, Layers: blocks.Layers{Hidden: []int{1}}}, "x"), out("m.p")), head, nil,
			[]string{`blocks[9].name: is "a", a block that no head depends on`, `blocks[10].name: is "b", a block that no head`, `blocks[11].kind: of block "m" gives a value "q" that nothing takes; name m.q`},
		},
		"several values": {
			all(block("m", &blocks.MMoE{Tasks: blocks.Tasks{Tasks: []string{"p", "q"}}, Experts: 1, Layers: blocks.Layers{Hidden: []int{1}}}, "x"), out("m", "m.r")), head, nil,
			[]string{`blocks[10].inputs[0]: is "m", a block with several values; name one of them: m.p, m.q`, `blocks[10].inputs[1]: is "m.r", which is no block, did you mean "m.p"?`},
		},
		"how many": {
			all(block("g", &blocks.Gate{Hidden: []int{1}}, "x"), block("c", &blocks.Cosine{}, "x", "x", "x"), block("e", &blocks.Embedding{}, "x"), block("s", &blocks.Sum{}), out("g", "c", "e", "s")), head, nil,
			[]string{
				`blocks[9].inputs: of block "g" are 1, and gate takes 2 or more: value, by...`, `blocks[10].inputs: of block "c" are 3, and cosine takes 2: x, y`,
				`blocks[11].inputs: of block "e" are 1, and embedding takes none: it reads features`, `blocks[12].inputs: of block "s" are 0, and sum takes 1 or more: value...`,
			},
		},
		"shapes": {
			all(block("s", &blocks.Sum{}, "pair", "recent"), block("f", &blocks.FM{}, "pair", "tags"), block("d", &blocks.Dots{}, "x"), block("p", &blocks.Pool{}, "pair"), block("c", &blocks.Cross{Layers: 1}, "seen"),
				block("a", &blocks.Attention{Hidden: []int{1}}, "tags", "seen"), block("m", &blocks.FM{}, "recent"), block("w", &blocks.CAN{Layers: 1}, "age", "age"), out("s", "f", "d", "p", "c", "a", "m", "w")), head, nil,
			[]string{
				`blocks[9].inputs: do not fit block "s" of kind sum: add: values of 8 and 4 columns ("pair" has 2 vectors of 4 numbers of each row, "recent" has 4 numbers of each row)`,
				`blocks[10].inputs[1]: is "tags", which has 3 numbers of each row; f of kind fm takes vectors of one width, and those of "pair" have 4`,
				`blocks[11].inputs[0]: is "x", which has 21 numbers of each row, vectors of several widths; d of kind dots takes vectors of one width (vectors): give the tables`,
				`blocks[12].inputs[0]: is "pair", which has 2 vectors of 4 numbers of each row; p of kind pool takes the entries of a sequence there (entries): a block of kind sequence`,
				`blocks[13].inputs[0]: is "seen", which has 4 numbers of each entry of "history"; c of kind cross takes a value of each row there (value): put a block of kind pool`,
				`blocks[14].kind: of block "a": the query has 3 numbers of each row and the entries have 4 numbers of each entry of "history"`,
				`blocks[16].kind: of block "w": the weights have 2 numbers, and 1 layers over 2 numbers have 6`,
			},
		},
		"heads": {
			all(out()),
			[]blocks.Output{{Input: "out"}, {Head: "clik", Input: "out"}, {Head: "buy", Input: "v"}, {Head: "buy", Input: "seen"}},
			func(c *blocks.Config) {
				c.Heads = []model.Head{{Name: "click", Loss: "cross_entropy"}, {Name: "buy", Loss: "cross_entropy"}}
			},
			[]string{
				`heads[0].name: is missing; the model has several heads: click, buy`, `heads[1].name: is "clik", which is no head of the job, did you mean "click"?`,
				`heads[3]: is for head "buy", which has a value already`, `heads: have nothing for head "click"; say which block it learns through: {name: click, input: BLOCK}`,
			},
		},
		"a wide head": {all(out()), []blocks.Output{{Input: "v"}}, func(c *blocks.Config) { c.Blocks = c.Blocks[:len(c.Blocks)-1] }, []string{`blocks[0].name: is "first", a block that no head depends on`, `blocks[7].name: is "x"`}},
		"width": {
			all(block("all", &blocks.Concat{}, "x", "v", "first")),
			[]blocks.Output{{Input: "all"}},
			nil,
			[]string{`heads[0].input: is "all", which has 38 numbers of each row, vectors of several widths, and head "label" wants 1 number of each row; put a block {kind: {dense: {units: 1}}} between`},
		},
		"features": {
			all(block("e", &blocks.Embedding{Features: []string{"usr", "age", "user", "user"}}), block("n", &blocks.Numbers{Features: []string{"item"}}), out("e", "n")), head,
			func(c *blocks.Config) {
				c.Features = append(c.Features, zoo.Feature{Name: "spare", Attends: "user"})
				c.Blocks[0].Kind = &blocks.Linear{Features: []string{"user"}}
			},
			[]string{
				`blocks[9].kind: of block "e": there is no feature "usr", did you mean "user"?`, `blocks[9].kind: of block "e": feature "age" is not sparse, and embedding reads sparse features`,
				`blocks[9].kind: of block "e": feature "user" is named twice`, `blocks[10].kind: of block "n": feature "item" is not dense`,
				`blocks: are told by their inputs what attends to what; leave attends: user of feature "spare" out`, `blocks: do not read feature "spare"; name it in one of them, or leave it out of parse.features`,
			},
		},
		"tasks": {
			all(block("m", &blocks.MMoE{Tasks: blocks.Tasks{Tasks: []string{"p", "p", "q r"}}, Experts: 1}, "x"), out("m.p")), head, nil,
			[]string{`blocks[9].kind: of block "m" names a value "p", which is there already`, `blocks[9].kind: of block "m" names a value "q r"`},
		},
		"settings": {
			all(block("a", &blocks.Activation{Function: "leaky_rely"}, "x"), block("s", &blocks.SelfAttention{Layers: 1, Heads: 3, Width: 4}, "v"), block("f", &blocks.Fusion{Heads: 3}, "pair", "recent"), block("t", &blocks.Tokens{Tokens: 99, Width: 1}, "x"),
				block("r", &blocks.RankMixer{Expansion: 1}, "pair", "recent"), block("z", &blocks.PLE{Tasks: blocks.Tasks{Tasks: []string{"p"}}}, "x"),
				block("c", &blocks.Cross{Layers: 1, Weights: "vector", Rank: 1}, "x"), block("o", &blocks.MMoE{Tasks: blocks.Tasks{Tasks: []string{"p"}}, Experts: 1, TopExperts: 2}, "x"),
				block("b", &blocks.MMoE{Tasks: blocks.Tasks{Tasks: []string{"p"}}, Experts: 1, Balance: 1}, "x"), block("i", &blocks.BatchSoftmax{Item: "item", Temperature: 1}, "recent", "price"),
				block("h", &blocks.HSTU{Layers: 1, Heads: 1, Width: 1, Positions: 1}, "tags", "seen"), out("a", "s", "f", "t", "r", "z.p", "c", "o.p", "b.p", "i", "h")), head,
			nil,
			[]string{
				`of block "c": rank is of matrices`, `of block "o": top_experts 2 is not between 1 and experts, 1`, `of block "b": gate_noise and balance are of gates`, `of block "i": features "item" and "user" share a table`,
				`of block "h": the query has 3 numbers`, `activation "leaky_rely" is unknown, did you mean "leaky_relu"?`, `width 4 does not divide among heads 3`, `inputs of 8 and 4 numbers do not divide among heads 3`, `its inputs have 21 numbers, which make no 99 tokens`, `vectors of 4 numbers do not divide among the 3 of them`, `experts and levels are at least one each`,
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(test.blocks...)
			cfg.Outputs = test.outputs
			if test.change != nil {
				test.change(&cfg)
			}
			_, err := blocks.New(cfg)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not contain %q:\n%v", want, err)
				}
			}
			for _, err := range failure.Flatten(err) {
				if f := (*blocks.Fault)(nil); !errors.As(err, &f) || f.Path == "" {
					t.Errorf("%v has no place", err)
				}
			}
		})
	}
}

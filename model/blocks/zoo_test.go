package blocks_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/blocks"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/zoo"
)

// TestBlocksMakeTheZoo composes models of the zoo with settings of their own: they are written as the same bytes. examples/blocks has all of them in job files.
func TestBlocksMakeTheZoo(t *testing.T) {
	t.Parallel()
	layers := blocks.Layers{Hidden: []int{8, 4}}
	linear, vectors := block("linear", &blocks.Linear{}), block("vectors", &blocks.Embedding{})
	deep := func(inputs ...string) blocks.Block {
		return block("deep", &blocks.MLP{Layers: layers, Out: 1}, inputs...)
	}
	hidden := func(inputs ...string) blocks.Block {
		return block("deep", &blocks.MLP{Layers: layers}, inputs...)
	}
	sum := func(inputs ...string) blocks.Block { return block("logit", &blocks.Sum{}, inputs...) }
	one := func(name string, inputs ...string) blocks.Block {
		return block(name, &blocks.Dense{Units: 1}, inputs...)
	}
	each := []blocks.Block{
		block("user", &blocks.Embedding{Features: []string{"user"}}), block("item", &blocks.Embedding{Features: []string{"item"}}), block("tags", &blocks.Embedding{Features: []string{"tags"}}),
	}
	names := []string{"user", "item", "tags"}
	tasks := blocks.Tasks{Tasks: []string{"click", "buy"}}
	// towers are a perceptron of each task behind some values, with a head.
	towers := func(click, buy string) []blocks.Block {
		tower := &blocks.MLP{Layers: blocks.Layers{Hidden: []int{3}}}
		return []blocks.Block{block("tower.click", tower, click), one("head.click", "tower.click"), block("tower.buy", tower, buy), one("head.buy", "tower.buy")}
	}
	heads := []blocks.Output{{Head: "click", Input: "head.click"}, {Head: "buy", Input: "head.buy"}}
	tests := map[string]struct {
		cfg     zoo.Config
		blocks  []blocks.Block
		outputs []blocks.Output
	}{
		zoo.NFM: {zoo.Config{}, []blocks.Block{linear, vectors, block("pairs", &blocks.BiInteraction{}, "vectors"), deep("pairs"), sum("linear", "deep")}, nil},
		zoo.AFM: {
			zoo.Config{Attention: 5},
			[]blocks.Block{vectors, block("attention", &blocks.PairAttention{Hidden: 5}, "vectors"), linear, one("out", "attention"), sum("linear", "out")},
			nil,
		},
		zoo.DCN: {zoo.Config{CrossLayers: 2}, []blocks.Block{vectors, block("cross", &blocks.Cross{Layers: 2, Weights: "vector"}, "vectors"), hidden("vectors"), one("out", "cross", "deep")}, nil},
		zoo.AutoInt: {
			zoo.Config{AttentionLayers: 2, AttentionHeads: 2, AttentionWidth: 4},
			[]blocks.Block{vectors, block("attention", &blocks.SelfAttention{Layers: 2, Heads: 2, Width: 4}, "vectors"), hidden("vectors"), one("out", "attention", "deep")},
			nil,
		},
		zoo.FiBiNET: {
			zoo.Config{},
			[]blocks.Block{
				vectors, block("senet", &blocks.SENet{Reduction: 3}, "vectors"), block("bilinear.plain", &blocks.Bilinear{}, "vectors"), block("bilinear.weighed", &blocks.Bilinear{}, "senet"),
				block("pairs", &blocks.Concat{}, "bilinear.plain", "bilinear.weighed"), linear, deep("pairs"), sum("linear", "deep"),
			},
			nil,
		},
		zoo.MaskNet: {
			zoo.Config{Blocks: 2, BlockWidth: 5},
			[]blocks.Block{
				vectors, block("norm", &blocks.LayerNorm{Each: "vector"}, "vectors"), block("block.0", &blocks.Mask{Units: 5}, "norm", "vectors"), block("block.1", &blocks.Mask{Units: 5}, "norm", "vectors"),
				hidden("block.0", "block.1"), one("out", "deep"),
			},
			nil,
		},
		zoo.FinalMLP: {
			zoo.Config{Second: []int{6}, FusionHeads: 2},
			[]blocks.Block{vectors, hidden("vectors"), block("second", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{6}}}, "vectors"), block("fusion", &blocks.Fusion{Heads: 2}, "deep", "second")},
			nil,
		},
		zoo.DCNv2: {
			zoo.Config{CrossLayers: 2, CrossRank: 3, CrossExperts: 2, CrossDropout: 0.25, KernelNorm: true, KernelNormFixed: true, NoBias: true, BatchNorm: true, Norm: zoo.Norm{Decay: 0.75, MaxScale: 2, MaxShift: 0.5}},
			[]blocks.Block{
				vectors, block("cross", &blocks.Cross{Layers: 2, Rank: 3, Experts: 2, Dropout: 0.25}, "vectors"), block("deep", &blocks.MLP{Layers: blocks.Layers{Hidden: []int{8, 4}, KernelNorm: true, KernelNormFixed: true, NoBias: true, BatchNorm: true, NormDecay: 0.75, NormMaxScale: 2, NormMaxShift: 0.5}}, "vectors"), one("out", "cross", "deep"),
			},
			nil,
		},
		zoo.MMoE: {
			zoo.Config{Experts: 3, TopExperts: 2, GateNoise: true, Balance: 0.5, Tower: []int{3}},
			append(append(each[:3:3], block("experts", &blocks.MMoE{Tasks: tasks, Experts: 3, TopExperts: 2, GateNoise: true, Balance: 0.5, Layers: layers}, names...)), towers("experts.click", "experts.buy")...), heads,
		},
		zoo.Wukong: {
			zoo.Config{Blocks: 2, BlockWidth: 5, Products: 2, Sums: 2, Rank: 3},
			[]blocks.Block{
				vectors, block("layer.0", &blocks.Wukong{Products: 2, Sums: 2, Rank: 3, Hidden: []int{5}}, "vectors"), block("layer.1", &blocks.Wukong{Products: 2, Sums: 2, Rank: 3, Hidden: []int{5}}, "layer.0"),
				block("deep", &blocks.MLP{Layers: layers, Out: 1}, "layer.1"),
			},
			nil,
		},
		zoo.PLE: {
			zoo.Config{Experts: 2, OwnExperts: 1, Levels: 2, Tower: []int{3}},
			append(append(each[:3:3], block("experts", &blocks.PLE{Tasks: tasks, Experts: 2, OwnExperts: 1, Levels: 2, Layers: layers}, names...)), towers("experts.click", "experts.buy")...), heads,
		},
		zoo.SNR: {
			zoo.Config{Experts: 2, Levels: 2, Tower: []int{3}, Average: true, Routes: graph.HardConcrete{L0: 0.25, High: 1.25, Low: -0.5, Temperature: 0.75, StraightThrough: true}},
			append(append(each[:3:3], block("experts", &blocks.SNR{Tasks: tasks, Experts: 2, Levels: 2, L0: 0.25, GateHigh: 1.25, GateLow: -0.5, GateTemperature: 0.75, StraightThrough: true, Average: true, Layers: layers}, names...)), towers("experts.click", "experts.buy")...), heads,
		},
		zoo.SharedBottom: {zoo.Config{}, append(each[:3:3], hidden(names...), one("head.click", "deep"), one("head.buy", "deep")), heads},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := test.cfg
			cfg.Name, cfg.Dim, cfg.Hidden, cfg.Seed, cfg.DenseL2, cfg.BiasL2 = name, 4, []int{8, 4}, 7, 0.1, 0.2
			cfg.Features = []zoo.Feature{{Name: "user"}, {Name: "item"}, {Name: "tags", Combiner: graph.Mean, Table: "tags"}}
			if test.outputs != nil {
				cfg.Heads = []model.Head{{Name: "click", Loss: "cross_entropy"}, {Name: "buy", Loss: "cross_entropy", Weight: 0.5}}
			} else {
				test.outputs = []blocks.Output{{Input: test.blocks[len(test.blocks)-1].Name}}
			}
			named, err := zoo.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			if name == zoo.NFM {
				cfg.EmbeddingInit = cfg.WithDefaults().EmbeddingInit
			}
			// The usual rules go by the model's name.
			rules := cfg.RowRules()
			cfg.Name, cfg.BiasOptimizer, cfg.VecOptimizer = "", rules.Bias, rules.Vec
			composed, err := blocks.New(blocks.Config{Config: cfg, Blocks: test.blocks, Outputs: test.outputs})
			if err != nil {
				t.Fatal(err)
			}
			text := func(m model.Model) string {
				b, err := m.Marshal()
				if err != nil {
					t.Fatal(err)
				}
				return string(b)
			}
			if diff := cmp.Diff(text(named), text(composed)); diff != "" {
				t.Errorf("(-named +composed) %s", diff)
			}
		})
	}
}

// TestBatchSoftmaxIsDSSM composes two towers that learn from the batch: losses, gradients and rules of rows are those of the model of that name.
func TestBatchSoftmaxIsDSSM(t *testing.T) {
	t.Parallel()
	cfg := zoo.Config{
		Name: zoo.DSSM, Dim: 4, Hidden: []int{6}, Vector: 3, Temperature: 0.2, Seed: 7, Item: []string{"movie", "genres"},
		Features: []zoo.Feature{{Name: "user"}, {Name: "movie", Table: "movies"}, {Name: "genres", Combiner: graph.Mean}},
		Heads:    []model.Head{{Name: "click", Loss: loss.BatchSoftmax}},
	}
	named, err := zoo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Name = ""
	tower := func(name string, features ...string) []blocks.Block {
		return []blocks.Block{block(name+"s", &blocks.Embedding{Features: features}), block(name, &blocks.MLP{Layers: blocks.Layers{Hidden: []int{6}}, Out: 3}, name+"s")}
	}
	composed, err := blocks.New(blocks.Config{
		Config:  cfg,
		Blocks:  append(append(tower("user", "user"), tower("item", "movie", "genres")...), block("score", &blocks.BatchSoftmax{Item: "movie", Temperature: 0.2}, "user", "item")),
		Outputs: []blocks.Output{{Input: "score"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(named.Layout(), composed.Layout()); diff != "" {
		t.Fatalf("parameters (-named +composed) %s", diff)
	}
	var results [2][][]float32
	for i, m := range []model.Model{named, composed} {
		in := graphtest.Inputs(m, graphtest.Shape{Rows: 12}, 1)
		s := m.NewSession(1)
		defer s.Close()
		s.SetDense(graphtest.Dense(composed, 2))
		predictions, losses := s.Step(in, 3)
		results[i] = append(append([][]float32{slices.Clone(predictions[0]), {float32(losses[0])}, s.DenseGrad()}, s.Grads()...), slices.Clone(s.Predict(in)[0]))
	}
	if diff := cmp.Diff(results[0], results[1]); diff != "" {
		t.Errorf("(-named +composed) %s", diff)
	}
}

package layer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

var rule = layer.Rule{Optimizer: optim.Adam{}, L2: 0.5}

// build makes a graph whose hidden layers are those of f over pooled and dense inputs.
func build(t *testing.T, f func(b *graph.Builder, x graph.Node) graph.Node) *graph.Graph {
	t.Helper()
	b := graph.NewBuilder()
	table := b.Table(param.Table{Name: "embedding", Segments: []param.Segment{{Name: "vec", Dim: 3, Optimizer: optim.SGD{}}}})
	x := b.Pool(graph.Pooled{X: b.Lookup(b.SparseFeature(model.Feature{Name: "s"}, table), "vec"), By: graph.Sum})
	x = b.Concat(x, b.DenseFeature(model.Feature{Name: "d", Kind: model.Dense, Dim: 2}))
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: "cross_entropy"}, Node: layer.Dense(b, "out", f(b, x), 1, rule)})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestLayersFollowReference(t *testing.T) {
	t.Parallel()
	tests := map[string]func(b *graph.Builder, x graph.Node) graph.Node{
		"dense": func(b *graph.Builder, x graph.Node) graph.Node { return layer.Dense(b, "d", x, 4, rule) },
		"mlp": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.MLP(b, "m", x, layer.MLPConfig{Hidden: []int{6, 4}, Rule: rule})
		},
		"mlp with everything": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.MLP(b, "m", x, layer.MLPConfig{Hidden: []int{6}, BatchNorm: true, Dropout: 0.3, Rule: rule})
		},
		"mlp with kernel norm": func(b *graph.Builder, x graph.Node) graph.Node {
			x = layer.MLP(b, "m", x, layer.MLPConfig{Hidden: []int{6, 4}, KernelNorm: true, Rule: rule})
			x = layer.MLP(b, "f", x, layer.MLPConfig{Hidden: []int{5}, KernelNorm: true, FixedLengths: true, Rule: rule})
			return layer.MLP(b, "n", x, layer.MLPConfig{Hidden: []int{5}, KernelNorm: true, BatchNorm: true, Rule: rule})
		},
		"mlp with prelu": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.MLP(b, "m", x, layer.MLPConfig{Hidden: []int{6, 4}, Activation: layer.PReLU, Rule: rule})
		},
		"mlp with swish": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.MLP(b, "m", x, layer.MLPConfig{Hidden: []int{6, 4}, Activation: layer.ActivationNamed("swish"), Rule: rule})
		},
		"gate": func(b *graph.Builder, x graph.Node) graph.Node { return layer.Gate(b, "g", x, x, []int{3}, rule) },
		"lhuc": func(b *graph.Builder, x graph.Node) graph.Node {
			by := b.StopGradient(layer.Dense(b, "by", x, 2, rule))
			return layer.LHUC(b, "l", x, by, []int{3}, layer.MLPConfig{Hidden: []int{4, 3}, Rule: rule})
		},
		"gelu":   func(b *graph.Builder, x graph.Node) graph.Node { return layer.GELU(b, "", x, rule) },
		"tokens": func(b *graph.Builder, x graph.Node) graph.Node { return layer.Tokens(b, "t", x, 3, 2, rule) },
		"rank mixer": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.RankMixer(b, "r", layer.Dense(b, "d", x, 8, rule), 4, 2, rule)
		},
		"wukong": func(b *graph.Builder, x graph.Node) graph.Node {
			cfg := layer.WukongConfig{Products: 2, Linear: 1, Rank: 2, Hidden: []int{3}, Rule: rule}
			x = layer.Wukong(b, "first", layer.Dense(b, "d", x, 8, rule), 4, cfg)
			return layer.Wukong(b, "second", x, 4, cfg)
		},
		"groups": func(b *graph.Builder, x graph.Node) graph.Node {
			left, right := layer.Dense(b, "d", x, 4, rule), layer.Dense(b, "e", x, 6, rule)
			return b.Concat(layer.GroupInt(b, "", left, right, 2, layer.GroupIntConfig{Dot: true}), layer.GroupInt(b, "", left, right, 2, layer.GroupIntConfig{}), layer.GroupInt(b, "", left, right, 1, layer.GroupIntConfig{}))
		},
		"all interactions": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.AllInt(b, "a", layer.Dense(b, "d", x, 6, rule), 2, layer.AllIntConfig{Sums: 4, Rule: rule})
		},
		"compressed dots": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.CDot(b, "c", layer.Dense(b, "d", x, 6, rule), 2, 2, layer.MLPConfig{Hidden: []int{3}, Rule: rule})
		},
		"co-action": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.CAN(b, "a", layer.Dense(b, "d", x, 2, rule), layer.Dense(b, "e", x, 12, rule), layer.CANConfig{Layers: 2})
		},
		"routing": func(b *graph.Builder, x graph.Node) graph.Node {
			cfg := layer.ExpertsConfig{Experts: 2, Levels: 2, Expert: layer.MLPConfig{Hidden: []int{3}, Rule: rule}}
			return b.Concat(layer.SNR(b, "s", x, []string{"a", "b"}, cfg)...)
		},
		"relation": func(b *graph.Builder, x graph.Node) graph.Node {
			values := []graph.Node{layer.Dense(b, "d", x, 3, rule), layer.Dense(b, "e", x, 2, rule), x}
			return b.Concat(layer.Relations(b, "r", values, []string{"a", "b", "c"}, layer.MLPConfig{Hidden: []int{4, 2}, Rule: rule})...)
		},
		"residual": func(b *graph.Builder, x graph.Node) graph.Node {
			x = layer.Residual(b, "r", x, 2, layer.MLPConfig{Hidden: []int{5, 3}, Rule: rule})
			return layer.Residual(b, "s", x, 1, layer.MLPConfig{Hidden: []int{4}, Activation: layer.PReLU, Rule: rule})
		},
		"cross": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.Cross(b, "c", x, layer.CrossConfig{Layers: 3, Rule: rule})
		},
		"cross vector": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.CrossVector(b, "c", x, layer.CrossConfig{Layers: 3, Rule: rule})
		},
		"mixed cross": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.CrossMixed(b, "c", x, layer.CrossMixedConfig{CrossConfig: layer.CrossConfig{Layers: 2, Rule: rule}, Experts: 3, Rank: 2})
		},
		"cross of low rank": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.CrossMixed(b, "c", x, layer.CrossMixedConfig{CrossConfig: layer.CrossConfig{Layers: 2, Rule: rule}, Experts: 1, Rank: 3})
		},
		"pair attention": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.PairAttention(b, "a", layer.Dense(b, "d", x, 8, rule), 2, 3, rule)
		},
		"self-attention": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.SelfAttention(b, "a", layer.Dense(b, "d", x, 6, rule), 2, layer.SelfAttentionConfig{Layers: 2, Heads: 2, Width: 4, Rule: rule})
		},
		"cin": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.CIN(b, "c", layer.Dense(b, "d", x, 6, rule), 2, layer.CINConfig{Maps: []int{3, 2}, Rule: rule})
		},
		"senet and bilinear": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.Bilinear(b, "b", layer.SENet(b, "s", layer.Dense(b, "d", x, 6, rule), 2, layer.SENetConfig{Hidden: 4, Rule: rule}), 2, rule)
		},
		"fusion": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.Fusion(b, "f", layer.Dense(b, "d", x, 6, rule), layer.Dense(b, "e", x, 4, rule), 2, rule)
		},
		"mask": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.Mask(b, "m", layer.Dense(b, "d", x, 6, rule), x, 3, 4, rule)
		},
		"mmoe": func(b *graph.Builder, x graph.Node) graph.Node {
			cfg := layer.ExpertsConfig{Experts: 3, Expert: layer.MLPConfig{Hidden: []int{4, 2}, Rule: rule}}
			return b.Concat(layer.MMoE(b, "e", x, []string{"a", "b"}, cfg)...)
		},
		"mmoe of few": func(b *graph.Builder, x graph.Node) graph.Node {
			cfg := layer.ExpertsConfig{Experts: 3, Expert: layer.MLPConfig{Hidden: []int{4, 2}, Rule: rule}, Gate: layer.GateConfig{Top: 2, Noise: true}}
			return b.Concat(layer.MMoE(b, "e", x, []string{"a", "b"}, cfg)...)
		},
		"one expert": func(b *graph.Builder, x graph.Node) graph.Node {
			return b.Add(layer.MMoE(b, "e", x, []string{"a", "b"}, layer.ExpertsConfig{Experts: 1, Expert: layer.MLPConfig{Hidden: []int{3}, Rule: rule}})...)
		},
		"ple": func(b *graph.Builder, x graph.Node) graph.Node {
			cfg := layer.ExpertsConfig{Experts: 2, Own: 1, Levels: 2, Expert: layer.MLPConfig{Hidden: []int{3}, Rule: rule}}
			return b.Concat(layer.PLE(b, "e", x, []string{"a", "b"}, cfg)...)
		},
		"no layers": func(b *graph.Builder, x graph.Node) graph.Node {
			return layer.Cross(b, "c", layer.MLP(b, "m", x, layer.MLPConfig{Rule: rule}), layer.CrossConfig{Rule: rule})
		},
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			graphtest.Check(t, build(t, f))
		})
	}
}

func TestTensors(t *testing.T) {
	t.Parallel()
	g := build(t, func(b *graph.Builder, x graph.Node) graph.Node {
		x = layer.MLP(b, "mlp", x, layer.MLPConfig{Hidden: []int{3}, Rule: rule})
		return layer.MLP(b, "norm", x, layer.MLPConfig{Hidden: []int{2}, BatchNorm: true, Rule: rule})
	})
	got := map[string]float32{}
	for _, p := range g.Layout().Dense {
		got[p.Name] = p.L2
	}
	want := map[string]float32{
		"mlp.0.weight": 0.5, "mlp.0.bias": 0,
		"norm.0.weight": 0.5, "norm.0.norm.gamma": 0, "norm.0.norm.beta": 0, "norm.0.norm.moving_mean": 0, "norm.0.norm.moving_variance": 0,
		"out.weight": 0.5, "out.bias": 0,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tensors and their L2: %s", diff)
	}
}

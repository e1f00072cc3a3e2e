package zoo_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// mixed are features of all kinds.
func mixed() []zoo.Feature {
	return []zoo.Feature{
		{Name: "user"},
		{Name: "age", Kind: model.Dense, Dim: 2},
		{Name: "genres", Combiner: graph.Mean},
		{Name: "price", Kind: model.Dense, Dim: 1},
		{Name: "tags"},
	}
}

func mustNew(t testing.TB, cfg zoo.Config) *zoo.Model {
	t.Helper()
	m, err := zoo.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*zoo.Model)
}

func TestModelsFollowReference(t *testing.T) {
	t.Parallel()
	inputs := map[string][]zoo.Feature{
		"mixed": mixed(), "sparse only": {{Name: "user"}, {Name: "item", Combiner: graph.Mean}}, "dense only": {{Name: "x", Kind: model.Dense, Dim: 3}},
	}
	for _, name := range zoo.Names() {
		for kind, features := range inputs {
			for _, full := range []bool{false, true} {
				cfg := zoo.Config{Name: name, Features: features, Dim: 4, Hidden: []int{9, 5}, CrossLayers: 2}
				sub := name + "/" + kind
				if full {
					cfg.BatchNorm, cfg.Dropout = true, 0.2
					sub += "/batch norm and dropout"
				}
				t.Run(sub, func(t *testing.T) {
					t.Parallel()
					graphtest.Check(t, mustNew(t, cfg).Graph)
				})
			}
		}
	}
}

// describe lists the segments and tensors of a layout.
func describe(l *param.Layout) []string {
	var parts []string
	for _, table := range l.Tables {
		for _, s := range table.Segments {
			parts = append(parts, fmt.Sprintf("%s.%s %d", table.Name, s.Name, s.Dim))
		}
	}
	for _, p := range l.Dense {
		parts = append(parts, fmt.Sprintf("%s %v", p.Name, p.Shape))
	}
	return parts
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		zoo.LR: {"embedding.bias 1", "linear.weight [3 1]", "linear.bias [1]"},
		zoo.FM: {"embedding.bias 1", "embedding.vec 4", "linear.weight [3 1]", "linear.bias [1]", "dense.vectors [3 4]"},
		zoo.DeepFM: {
			"embedding.bias 1", "embedding.vec 4", "dense.vectors [3 4]", "linear.weight [3 1]", "linear.bias [1]",
			"deep.0.bias [8]", "deep.0.weight [24 8]", "deep.out.bias [1]", "deep.out.weight [8 1]",
		},
		zoo.DCNv2: {
			"embedding.vec 4", "dense.vectors [3 4]", "cross.0.bias [24]", "cross.0.weight [24 24]",
			"deep.0.bias [8]", "deep.0.weight [24 8]", "out.bias [1]", "out.weight [32 1]",
		},
	}
	for name, want := range tests {
		// Three pooled features and three numbers make six fields.
		l := mustNew(t, zoo.Config{Name: name, Features: mixed(), Dim: 4, Hidden: []int{8}, CrossLayers: 1}).Layout()
		if diff := cmp.Diff(want, describe(l)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	m := mustNew(t, zoo.Config{Name: zoo.DCNv2, Features: mixed()[:2]})
	want := `dcnv2(seed=0,dim=16,init=uniform(-0.05,0.05),embedding_l2=0,vec=` + zoo.DefaultVecOptimizer().String() +
		`,hidden=[128 64],batch_norm=false,dropout=0,cross_layers=3,dense_l2=0,dense=` + zoo.DefaultDenseOptimizer().String() +
		`,clip_norm=0,features="user":sum "age":dense[2])`
	if diff := cmp.Diff(want, m.String()); diff != "" {
		t.Error(diff)
	}
	if err := m.Layout().Validate(); err != nil {
		t.Error(err)
	}
	inputs := []model.Feature{{Name: "user"}, {Name: "age", Kind: model.Dense, Dim: 2}}
	if diff := cmp.Diff(inputs, m.Features()); diff != "" {
		t.Error(diff)
	}
}

// TestSettingsReachTheLayout checks that each setting changes the layout or the canonical name, and only where used.
func TestSettingsReachTheLayout(t *testing.T) {
	t.Parallel()
	base := zoo.Config{Name: zoo.DeepFM, Features: mixed()}
	settings := map[string]func(c *zoo.Config){
		"seed":            func(c *zoo.Config) { c.Seed = 5 },
		"dim":             func(c *zoo.Config) { c.Dim = 5 },
		"hidden":          func(c *zoo.Config) { c.Hidden = []int{3} },
		"batch norm":      func(c *zoo.Config) { c.BatchNorm = true },
		"embedding init":  func(c *zoo.Config) { c.EmbeddingInit = param.Normal(0, 1) },
		"embedding l2":    func(c *zoo.Config) { c.EmbeddingL2 = 0.1 },
		"bias l2":         func(c *zoo.Config) { c.BiasL2 = 0.1 },
		"dense l2":        func(c *zoo.Config) { c.DenseL2 = 0.1 },
		"bias optimizer":  func(c *zoo.Config) { c.BiasOptimizer = optim.SGD{} },
		"vec optimizer":   func(c *zoo.Config) { c.VecOptimizer = optim.SGD{} },
		"dense optimizer": func(c *zoo.Config) { c.DenseOptimizer = optim.SGD{} },
	}
	want := mustNew(t, base).Layout().Hash()
	for name, set := range settings {
		cfg := base
		set(&cfg)
		m := mustNew(t, cfg)
		if m.Layout().Hash() == want {
			t.Errorf("%s does not reach the layout", name)
		}
		if m.String() == base.String() {
			t.Errorf("%s does not reach the name", name)
		}
	}
	for name, set := range map[string]func(c *zoo.Config){
		"dropout":   func(c *zoo.Config) { c.Dropout = 0.1 },
		"clip norm": func(c *zoo.Config) { c.ClipNorm = 3 },
	} {
		cfg := base
		set(&cfg)
		if m := mustNew(t, cfg); m.String() == base.String() || m.Layout().Hash() != want {
			t.Errorf("%s must reach the name and not the layout", name)
		}
	}
	lr := zoo.Config{Name: zoo.LR, Features: mixed()}
	other := lr
	other.Dim, other.Hidden, other.Dropout, other.CrossLayers, other.VecOptimizer = 3, []int{4}, 0.5, 9, optim.SGD{}
	if lr.String() != other.String() || mustNew(t, lr).Layout().Hash() != mustNew(t, other).Layout().Hash() {
		t.Error("settings that lr has no use for change it")
	}
}

func TestValidateReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := zoo.New(zoo.Config{
		Name: "deepfn",
		Features: []zoo.Feature{
			{Name: "a"}, {Name: "a"}, {}, {Name: "x", Kind: model.Dense}, {Name: "c", Combiner: "median"}, {Name: "k", Kind: 9},
		},
		Dim: -1, Hidden: []int{4, 0, 1 << 20}, CrossLayers: -2, Dropout: 1, EmbeddingL2: -1, BiasL2: -2,
		DenseL2: float32(math.NaN()), ClipNorm: math.Inf(1),
		BiasOptimizer: optim.SGD{LR: -1}, VecOptimizer: optim.Adam{Beta1: 3}, DenseOptimizer: optim.EMA{Decay: 2},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`model "deepfn" is unknown, did you mean "deepfm"?`,
		`feature "a" is listed twice`, "feature 2 has no name", `feature "x": dim 0`, `feature "c": combiner "median" is unknown`, `feature "k": kind 9`,
		"dim -1", "hidden layer 1 0", "hidden layer 2 1048576", "cross_layers -2", "dropout 1",
		"embedding_l2 -1", "bias_l2 -2", "dense_l2 NaN", "clip_norm +Inf",
		"bias optimizer: optim: sgd: lr -1", "vec optimizer: optim: adam: beta1 3", "dense optimizer: optim: ema: decay 2",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
	if _, err := zoo.New(zoo.Config{Name: zoo.LR}); err == nil || !strings.Contains(err.Error(), "no features") {
		t.Errorf("without features: %v", err)
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{"LR": "lr", "fmm": "fm", "deepctr": "deepfm", "dcn": "dcnv2", "dcn_v2": "dcnv2"} {
		_, err := zoo.New(zoo.Config{Name: got, Features: mixed()})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("did you mean %q?", want)) {
			t.Errorf("%q: %v, want %q suggested", got, err, want)
		}
	}
}

func TestPredictsAsTrained(t *testing.T) {
	t.Parallel()
	for _, name := range zoo.Names() {
		if !mustNew(t, zoo.Config{Name: name, Features: mixed()}).NewSession(1).PredictsAsTrained() {
			t.Errorf("%s without batch norm and dropout predicts as trained", name)
		}
	}
	for _, cfg := range []zoo.Config{{BatchNorm: true}, {Dropout: 0.1}} {
		cfg.Name, cfg.Features = zoo.DeepFM, mixed()
		if mustNew(t, cfg).NewSession(1).PredictsAsTrained() {
			t.Errorf("%s does not predict as trained", cfg)
		}
	}
}

package zoo_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
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

// small gives the settings that few models have small values, so that central differences take no time.
func small(c zoo.Config) zoo.Config {
	c.Attention, c.AttentionLayers, c.AttentionHeads, c.AttentionWidth = 5, 2, 2, 4
	c.Positions = 2
	c.Maps, c.Bottom, c.Second, c.Tower = []int{3, 2}, []int{3}, []int{6}, []int{3}
	c.Blocks, c.BlockWidth, c.Reduction = 2, 4, 2
	c.Experts, c.OwnExperts, c.Levels, c.Relation, c.Vector = 2, 1, 2, []int{3}, 4
	c.Products, c.Sums, c.Rank, c.Tokens, c.TokenWidth, c.Expansion, c.Gate = 2, 1, 2, 2, 4, 2, []int{3}
	c.Domain = []string{c.Features[len(c.Features)-1].Name}
	if c.FusionHeads = 1; c.Hidden[len(c.Hidden)-1]%2 == 0 {
		c.FusionHeads = 2
	}
	return c
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
		"mixed": mixed(), "sparse only": {{Name: "user"}, {Name: "item", Combiner: graph.Mean}}, "dense only": {{Name: "x", Kind: model.Dense, Dim: 2}, {Name: "y", Kind: model.Dense, Dim: 1}},
	}
	for _, name := range zoo.Names() {
		for kind, features := range inputs {
			for _, full := range []bool{false, true} {
				cfg := small(zoo.Config{Name: name, Features: features, Dim: 4, Hidden: []int{9, 5}, CrossLayers: 2})
				cfg.Blocks = 1 // of MaskNet, which has the most parameters
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
	want := `dcnv2(seed=0,dim=16,init=uniform(-0.05,0.05),embedding_l2=0,vec=` + zoo.Config{}.RowRules().Vec.String() +
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
		"norm's decay":    func(c *zoo.Config) { c.BatchNorm, c.Norm.Decay = true, 0.99 },
		"renorm scale":    func(c *zoo.Config) { c.BatchNorm, c.Norm.MaxScale = true, 3 },
		"renorm shift":    func(c *zoo.Config) { c.BatchNorm, c.Norm.MaxScale, c.Norm.MaxShift = true, 3, 5 },
		"kernel norm":     func(c *zoo.Config) { c.KernelNorm = true },
		"fixed lengths":   func(c *zoo.Config) { c.KernelNorm, c.KernelNormFixed = true, true },
		"no bias":         func(c *zoo.Config) { c.NoBias = true },
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
		"dropout":    func(c *zoo.Config) { c.Dropout = 0.1 },
		"activation": func(c *zoo.Config) { c.Activation = "swish" },
		"clip norm":  func(c *zoo.Config) { c.ClipNorm = 3 },
	} {
		cfg := base
		set(&cfg)
		if m := mustNew(t, cfg); m.String() == base.String() || m.Layout().Hash() != want {
			t.Errorf("%s must reach the name and not the layout", name)
		}
	}
	for setting, of := range map[string]struct {
		models []string
		set    func(c *zoo.Config)
	}{
		"cross layers":     {[]string{zoo.DCN, zoo.DCNv2}, func(c *zoo.Config) { c.CrossLayers = 2 }},
		"cross rank":       {[]string{zoo.DCNv2}, func(c *zoo.Config) { c.CrossRank = 2 }},
		"attention":        {[]string{zoo.AFM}, func(c *zoo.Config) { c.Attention = 7 }},
		"attention layers": {[]string{zoo.AutoInt, zoo.HSTU}, func(c *zoo.Config) { c.AttentionLayers = 1 }},
		"attention width":  {[]string{zoo.AutoInt, zoo.HSTU}, func(c *zoo.Config) { c.AttentionWidth = 8 }},
		"positions":        {[]string{zoo.HSTU}, func(c *zoo.Config) { c.Positions = 5 }},
		"maps":             {[]string{zoo.XDeepFM}, func(c *zoo.Config) { c.Maps = []int{5} }},
		"reduction":        {[]string{zoo.FiBiNET}, func(c *zoo.Config) { c.Reduction = 2 }},
		"bottom":           {[]string{zoo.DLRM}, func(c *zoo.Config) { c.Bottom = []int{5} }},
		"blocks":           {[]string{zoo.MaskNet, zoo.Wukong, zoo.RankMixer}, func(c *zoo.Config) { c.Blocks = 1 }},
		"block width":      {[]string{zoo.MaskNet, zoo.Wukong}, func(c *zoo.Config) { c.BlockWidth = 5 }},
		"second":           {[]string{zoo.FinalMLP}, func(c *zoo.Config) { c.Second = []int{5} }},
		"fusion heads":     {[]string{zoo.FinalMLP}, func(c *zoo.Config) { c.FusionHeads = 4 }},
		"experts":          {[]string{zoo.MMoE, zoo.PLE, zoo.SNR}, func(c *zoo.Config) { c.Experts = 3 }},
		"own experts":      {[]string{zoo.PLE}, func(c *zoo.Config) { c.OwnExperts = 3 }},
		"levels":           {[]string{zoo.PLE, zoo.SNR}, func(c *zoo.Config) { c.Levels = 1 }},
		"tower":            {[]string{zoo.MMoE, zoo.PLE, zoo.SNR, zoo.DBMTL}, func(c *zoo.Config) { c.Tower = []int{5} }},
		"average":          {[]string{zoo.SNR}, func(c *zoo.Config) { c.Average = true }},
		"relation":         {[]string{zoo.DBMTL}, func(c *zoo.Config) { c.Relation = []int{5} }},
		"item":             {[]string{zoo.DSSM}, func(c *zoo.Config) { c.Item = []string{"price"} }},
		"domain":           {[]string{zoo.PEPNet}, func(c *zoo.Config) { c.Domain = []string{"tags"} }},
		"personal":         {[]string{zoo.PEPNet}, func(c *zoo.Config) { c.Personal = []string{"tags", "user"} }},
		"gate":             {[]string{zoo.PEPNet}, func(c *zoo.Config) { c.Gate = []int{5} }},
		"gates":            {[]string{zoo.PEPNet}, func(c *zoo.Config) { c.Gate = []int{32, 8} }},
		"no layer of gate": {[]string{zoo.PEPNet}, func(c *zoo.Config) { c.Gate = []int{} }},
		"products":         {[]string{zoo.Wukong}, func(c *zoo.Config) { c.Products = 5 }},
		"sums":             {[]string{zoo.Wukong}, func(c *zoo.Config) { c.Sums = 5 }},
		"rank":             {[]string{zoo.Wukong}, func(c *zoo.Config) { c.Rank = 5 }},
		"tokens":           {[]string{zoo.RankMixer}, func(c *zoo.Config) { c.Tokens = 2 }},
		"token width":      {[]string{zoo.RankMixer}, func(c *zoo.Config) { c.TokenWidth = 8 }},
		"expansion":        {[]string{zoo.RankMixer}, func(c *zoo.Config) { c.Expansion = 2 }},
		"vector":           {[]string{zoo.DSSM}, func(c *zoo.Config) { c.Vector = 5 }},
	} {
		for _, name := range zoo.Names() {
			before := zoo.Config{Name: name, Features: mixed()}
			if name == zoo.HSTU { // whose layers are those of histories
				before.Features = append(before.Features, zoo.Feature{Name: "history", Attends: "user"})
			}
			after := before
			of.set(&after)
			used := slices.Contains(of.models, name)
			if (before.String() != after.String()) != used || (mustNew(t, before).Layout().Hash() != mustNew(t, after).Layout().Hash()) != used {
				t.Errorf("%s of %s: %s, want it to change the name and the layout: %t", setting, name, after, used)
			}
		}
	}
	low := zoo.Config{Name: zoo.DCNv2, Features: []zoo.Feature{{Name: "user"}}, CrossRank: 2}
	more := low
	more.CrossExperts = 5
	if mustNew(t, more).String() == mustNew(t, low).String() {
		t.Error("cross experts do not reach the name")
	}
	few := zoo.Config{Name: zoo.MMoE, Features: mixed(), TopExperts: 2}
	for _, other := range []zoo.Config{{}, {TopExperts: 3}, {TopExperts: 2, GateNoise: true}, {TopExperts: 2, Balance: 0.1}} {
		other.Name, other.Features = zoo.MMoE, mixed()
		if few.String() == other.String() || mustNew(t, few).Text() == mustNew(t, other).Text() {
			t.Errorf("%s is %s", other, few)
		}
	}
	for _, name := range zoo.Names() {
		one := zoo.Config{Name: name, Features: mixed()}
		dropped := one
		dropped.CrossDropout = 0.1
		if used := name == zoo.DCN || name == zoo.DCNv2; (one.String() != dropped.String()) != used || (mustNew(t, one).Text() != mustNew(t, dropped).Text()) != used {
			t.Errorf("cross dropout of %s: want it to change something: %t", name, used)
		}
	}
	heads := zoo.Config{Name: zoo.AutoInt, Features: mixed(), AttentionHeads: 4}
	if one := (zoo.Config{Name: zoo.AutoInt, Features: mixed()}); heads.String() == one.String() || mustNew(t, heads).Text() == mustNew(t, one).Text() {
		t.Error("attention heads change nothing")
	}
	// Gates by other settings, and the other of two recurrent units, are other models of one layout.
	routed := zoo.Config{Name: zoo.SNR, Features: mixed()}
	for _, r := range []graph.HardConcrete{{L0: 1}, {High: 1.5}, {Low: -0.5}, {Temperature: 0.25}, {StraightThrough: true}} {
		other := routed
		if other.Routes = r; other.String() == routed.String() || mustNew(t, other).Text() == mustNew(t, routed).Text() {
			t.Errorf("gates %+v change nothing", r)
		}
		for _, name := range []string{zoo.MMoE, zoo.PLE} {
			if other.Name = name; other.String() != (zoo.Config{Name: name, Features: mixed()}).String() {
				t.Errorf("%s has gates %+v", name, r)
			}
		}
	}
	evolving := zoo.Config{Name: zoo.DIEN, Features: append(mixed(), zoo.Feature{Name: "history", Attends: "user"})}
	replaced := evolving
	if replaced.AGRU = true; replaced.String() == evolving.String() || mustNew(t, replaced).Text() == mustNew(t, evolving).Text() {
		t.Error("agru changes nothing")
	}
	// As models wrote it whose gates had one layer, so that they are the same.
	if gated := (zoo.Config{Name: zoo.PEPNet, Features: mixed()}).String(); !strings.Contains(gated, ",gate=32,") {
		t.Errorf("%s does not have gate=32", gated)
	}
	for _, f := range graph.Candidates() {
		other := evolving
		if other.CellActivation = f; (other.String() != evolving.String()) != (f != graph.Tanh) || (mustNew(t, other).Text() != mustNew(t, evolving).Text()) != (f != graph.Tanh) {
			t.Errorf("cell activation %s is %s, and without one %s", f, other, evolving)
		}
	}
	lr := zoo.Config{Name: zoo.LR, Features: mixed()}
	other := lr
	other.Dim, other.Hidden, other.Dropout, other.VecOptimizer = 3, []int{4}, 0.5, optim.SGD{}
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
		Dim: -1, Hidden: []int{4, 0, 1 << 20}, CrossLayers: -2, CrossRank: -1, CrossExperts: 1 << 20, Dropout: 1, CrossDropout: -0.5, EmbeddingL2: -1, BiasL2: -2,
		Activation: "swich", CellActivation: "reluu", DenseL2: float32(math.NaN()), ClipNorm: math.Inf(1), Experts: -1, Tower: []int{3, 0},
		BiasOptimizer: optim.SGD{LR: -1}, VecOptimizer: optim.Adam{Beta1: 3}, DenseOptimizer: optim.EMA{Decay: 2},
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`model "deepfn" is unknown, did you mean "deepfm"?`,
		`feature "a" is listed twice`, "feature 2 has no name", `feature "x": dim 0`, `feature "c": combiner "median" is unknown`, `feature "k": kind 9`,
		"dim -1", "hidden layer 1 0", "hidden layer 2 1048576", "cross_layers -2", "cross_rank -1", "cross_experts 1048576", "experts -1", "tower 0", "dropout 1", "cross_dropout -0.5", `activation "swich" is unknown, did you mean "swish"?`,
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

// TestFaultsOfModels: settings that are right one by one and make no such model.
func TestFaultsOfModels(t *testing.T) {
	t.Parallel()
	one, two := []zoo.Feature{{Name: "user"}}, []zoo.Feature{{Name: "user"}, {Name: "item"}}
	for _, c := range []struct {
		cfg  zoo.Config
		want string
	}{
		{zoo.Config{Name: zoo.FwFM, Features: one}, "fwfm of one field has no two vectors that meet; add features, or use lr"},
		{zoo.Config{Name: zoo.FFM, Features: one}, "ffm of one field"},
		{zoo.Config{Name: zoo.FFM, Features: append([]zoo.Feature{{Name: "x", Kind: model.Dense, Dim: 1000}}, one...), Dim: 64}, "ffm of 1001 fields with dim 64 has vectors of 1001·1000·64 numbers"},
		{zoo.Config{Name: zoo.DSSM, Features: one}, "dssm has no features of the user"},
		{zoo.Config{Name: zoo.DSSM, Features: two, Item: []string{"itme", "user", "user"}}, `item names "itme", which is no feature, or one that attends, did you mean "item"?`},
		{zoo.Config{Name: zoo.PEPNet, Features: two, Domain: []string{"place"}}, `domain names "place", which is no feature`},
		{zoo.Config{Name: zoo.PEPNet, Features: append([]zoo.Feature{{Name: "seen", Attends: "item"}}, two...), Personal: []string{"seen"}}, `personal names "seen", which is no feature, or one that attends`},
		{zoo.Config{Name: zoo.RankMixer, Features: two, Tokens: 4, TokenWidth: 6}, "token_width 6 does not divide among tokens 4"},
		{zoo.Config{Name: zoo.RankMixer, Features: two, Dim: 1}, "the features have 2 numbers together, which make no 4 tokens"},
		{zoo.Config{Name: zoo.DSSM, Features: two, Item: []string{"user", "user"}}, `item names "user" twice`},
		{zoo.Config{Name: zoo.MMoE, Features: two, TopExperts: 5}, "top_experts 5 is not between 1 and experts, 4"},
		{zoo.Config{Name: zoo.MMoE, Features: two, GateNoise: true}, "gate_noise and balance are of gates that choose among experts"},
		{
			zoo.Config{Name: zoo.DSSM, Features: two, Heads: []model.Head{{Name: "click", Loss: loss.BatchSoftmax}}},
			`features "item" and "user" share table "embedding": with batch_softmax that of the item's id counts how often items occur`,
		},
		{
			zoo.Config{Name: zoo.DSSM, Features: mixed(), Item: []string{"price", "tags"}, Heads: []model.Head{{Name: "click", Loss: loss.BatchSoftmax}}},
			`the first feature of item is "price", which is dense`,
		},
		{
			zoo.Config{Name: zoo.FM, Features: two, Heads: []model.Head{{Name: "click", Loss: loss.BatchSoftmax}}},
			`head "click": batch_softmax compares what two towers give, and fm has none; use dssm, or a graph`,
		},
		{zoo.Config{Name: zoo.DSSM, Features: two, Temperature: -1}, "temperature -1 is not a number above 0"},
		{zoo.Config{Name: zoo.NFM, Features: one}, "nfm of one field"},
		{zoo.Config{Name: zoo.AFM, Features: one}, "afm of one field"},
		{zoo.Config{Name: zoo.FiBiNET, Features: one}, "fibinet of one field"},
		{zoo.Config{Name: zoo.DLRM, Features: one}, "dlrm of one field"},
		{zoo.Config{Name: zoo.AutoInt, Features: two, AttentionWidth: 6, AttentionHeads: 4}, "attention_width 6 does not divide among attention_heads 4"},
		{zoo.Config{Name: zoo.XDeepFM, Features: two, Maps: []int{}}, "maps is empty"},
		{zoo.Config{Name: zoo.FinalMLP, Features: two, Second: []int{}}, "has no layer (hidden, second)"},
		{zoo.Config{Name: zoo.FinalMLP, Features: two, Hidden: []int{8}, Second: []int{6}, FusionHeads: 4}, "6 units, which do not divide among fusion_heads 4"},
		{
			zoo.Config{Name: zoo.ESMM, Features: two, Heads: []model.Head{{Name: "click", Loss: loss.CrossEntropy}, {Name: "price", Loss: loss.Squared}}},
			`head "price" has loss squared and width 1: heads of esmm are probabilities`,
		},
	} {
		if _, err := zoo.New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.cfg, err, c.want)
		}
	}
}

// TestTowersInBatch: with the softmax over a batch the table of the item's id, and no other, counts how often items occur; values and gradients are those of the slow
// reference, and the temperature is part of the name.
func TestTowersInBatch(t *testing.T) {
	t.Parallel()
	cfg := zoo.Config{
		Name: zoo.DSSM, Dim: 4, Hidden: []int{5}, Vector: 3, Temperature: .5, Item: []string{"item", "price"},
		Features: []zoo.Feature{{Name: "user"}, {Name: "item", Table: "items"}, {Name: "seen", Combiner: graph.Mean}, {Name: "price", Kind: model.Dense, Dim: 2}},
		Heads:    []model.Head{{Name: "click", Loss: loss.BatchSoftmax}},
	}
	m := mustNew(t, cfg)
	graphtest.Check(t, m.Graph)
	got := describe(m.Layout())
	for _, want := range []string{"items.vec 4", "items." + zoo.IntervalSegment + " 1", "embedding.vec 4"} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s among %q", want, got)
		}
	}
	if slices.Contains(got, "embedding."+zoo.IntervalSegment+" 1") || slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "out.") }) {
		t.Errorf("other tables count, or there is a factor: %q", got)
	}
	other := cfg
	other.Temperature = .25
	if m.String() == mustNew(t, other).String() || m.Layout().Hash() != mustNew(t, other).Layout().Hash() {
		t.Error("the temperature is not in the name, or in the layout")
	}
	cfg.Heads, other.Heads = nil, nil
	if cfg.String() != other.String() {
		t.Error("other losses have a temperature")
	}
}

func TestUnknownNames(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{"LR": "lr", "fmm": "fm", "deepctr": "deepfm", "dcn_v2": "dcnv2", "mmeo": "mmoe"} {
		_, err := zoo.New(zoo.Config{Name: got, Features: mixed()})
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("did you mean %q?", want)) {
			t.Errorf("%q: %v, want %q suggested", got, err, want)
		}
	}
}

func TestPredictsAsTrained(t *testing.T) {
	t.Parallel()
	for _, name := range zoo.Names() {
		// The gates of SNR are drawn in training.
		if got := mustNew(t, zoo.Config{Name: name, Features: mixed()}).NewSession(1).PredictsAsTrained(); got != (name != zoo.SNR) {
			t.Errorf("%s without batch norm and dropout predicts as trained: %t", name, got)
		}
	}
	if !mustNew(t, zoo.Config{Name: zoo.MMoE, Features: mixed(), TopExperts: 2, Balance: 0.1}).NewSession(1).PredictsAsTrained() {
		t.Error("gates without noise differ in training")
	}
	for _, cfg := range []zoo.Config{{BatchNorm: true}, {Dropout: 0.1}, {Name: zoo.MMoE, TopExperts: 2, GateNoise: true}} {
		if cfg.Features = mixed(); cfg.Name == "" {
			cfg.Name = zoo.DeepFM
		}
		if mustNew(t, cfg).NewSession(1).PredictsAsTrained() {
			t.Errorf("%s does not predict as trained", cfg)
		}
	}
}

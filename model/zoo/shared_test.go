package zoo_test

import (
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

// sharedBottom has two heads, one a regression, a sequence and two tables.
func sharedBottom() zoo.Config {
	return zoo.Config{
		Name: zoo.SharedBottom, Seed: 1, Dim: 4, Hidden: []int{6}, Attention: 5,
		Features: []zoo.Feature{
			{Name: "user", Table: "users"},
			{Name: "item"},
			{Name: "history", Attends: "item"},
			{Name: "tags", Combiner: graph.Max},
			{Name: "age", Kind: model.Dense, Dim: 2, Decay: 0.9},
		},
		Tables: []zoo.Table{{Name: "users", Dim: 3, EmbeddingInit: param.Normal(0, 0.1), EmbeddingL2: new(float32(0.5)), VecOptimizer: optim.Adam{LR: 0.01}}},
		Heads: []model.Head{
			{Name: "click", Loss: loss.CrossEntropy},
			{Name: "time", Loss: loss.Huber, Labels: []string{"seconds"}, Weight: 0.25, Mask: "clicked"},
		},
	}
}

// TestHeadsFollowReference: every model of several heads, with a sequence.
func TestHeadsFollowReference(t *testing.T) {
	t.Parallel()
	for _, name := range []string{zoo.SharedBottom, zoo.MMoE, zoo.PLE, zoo.ESMM, zoo.SNR, zoo.DBMTL, zoo.PEPNet, zoo.RankMixer, zoo.DIN, zoo.DIEN, zoo.HSTU} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := small(sharedBottom())
			cfg.Name = name
			if name == zoo.ESMM {
				cfg.Heads[1].Loss, cfg.Heads[1].Labels = loss.CrossEntropy, nil
			}
			graphtest.Check(t, mustNew(t, cfg).Graph)
		})
	}
	t.Run("several heads of attention", func(t *testing.T) {
		t.Parallel()
		cfg := small(sharedBottom())
		before := mustNew(t, cfg).String()
		cfg.Features[2].AttentionHeads = 2
		m := mustNew(t, cfg)
		if m.String() == before {
			t.Errorf("the name is the same: %s", before)
		}
		graphtest.Check(t, m.Graph)
	})
}

func TestSharedBottom(t *testing.T) {
	t.Parallel()
	m := mustNew(t, sharedBottom())
	want := []string{
		"users.vec 3", "embedding.vec 4", "moments.age [3 2]",
		"attention.history.0.bias [5]", "attention.history.0.weight [12 5]", "attention.history.1.bias [1]", "attention.history.1.weight [5 1]",
		"deep.0.bias [6]", "deep.0.weight [17 6]", "head.click.bias [1]", "head.click.weight [6 1]", "head.time.bias [1]", "head.time.weight [6 1]",
	}
	if diff := cmp.Diff(want, describe(m.Layout())); diff != "" {
		t.Error(diff)
	}
	users := m.Layout().Tables[0].Segments[0]
	if users.Init != param.Normal(0, 0.1) || users.L2 != 0.5 || users.Optimizer != (optim.Adam{LR: 0.01}) {
		t.Errorf("the table of users is %+v", users)
	}
	tables := map[string]int{}
	for _, f := range m.Features() {
		tables[f.Name] = f.Table
	}
	if diff := cmp.Diff(map[string]int{"user": 0, "item": 1, "history": 1, "tags": 1, "age": 0}, tables); diff != "" {
		t.Error(diff)
	}
	heads := m.Heads()
	if len(heads) != 2 || heads[1].Width != 1 || heads[1].Weight != 0.25 || heads[0].SampleRate != 1 {
		t.Errorf("heads %+v", heads)
	}
	for _, part := range []string{
		`,attention=5,table("users",dim=3,init=normal(0,0.1),embedding_l2=0.5,vec=adam(lr=0.01,`,
		`,head("click",loss=cross_entropy,labels=[],width=1,weight=1,sample_rate=1,mask="",metrics=[]),head("time",loss=huber,labels=["seconds"],`,
		`"user":sum@"users" "item":sum "history":attention("item") "tags":max "age":dense[2]/ema(0.9)`,
	} {
		if !strings.Contains(m.String(), part) {
			t.Errorf("%s does not say %s", m, part)
		}
	}
}

// TestModelsCanBeWritten reads each back and compares a session's results.
func TestModelsCanBeWritten(t *testing.T) {
	t.Parallel()
	configs := []zoo.Config{sharedBottom()}
	for _, name := range zoo.Names() {
		configs = append(configs, zoo.Config{Name: name, Features: mixed(), Dim: 4, Hidden: []int{9, 5}, BatchNorm: true, Dropout: 0.2, ClipNorm: 0.1})
	}
	for _, cfg := range configs {
		m := mustNew(t, cfg)
		written, err := m.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := graph.Unmarshal(written)
		if err != nil {
			t.Fatal(err)
		}
		in := graphtest.Inputs(m, graphtest.Shape{Rows: 30, MaxList: 3, Weighted: true}, 1)
		results := [2][]float32{}
		for i, g := range []*graph.Graph{m.Graph, back} {
			s := g.NewSession(1)
			s.SetDense(graphtest.Dense(m.Graph, 2))
			predictions, losses := s.Step(in, 9)
			for h, p := range predictions {
				results[i] = append(append(results[i], p...), float32(losses[h]))
			}
			for _, grads := range s.Grads() {
				results[i] = append(results[i], grads...)
			}
			results[i] = append(results[i], s.DenseGrad()...)
		}
		if !graph.Equal(m.Graph, back) || !cmp.Equal(results[0], results[1]) {
			t.Errorf("%s: read back it computes something else", cfg.Name)
		}
	}
}

func TestSharedBottomFaults(t *testing.T) {
	t.Parallel()
	cfg := sharedBottom()
	cfg.Features = append(cfg.Features, zoo.Feature{Name: "a", Attends: "user"}, zoo.Feature{Name: "b", Attends: "age", AttentionHeads: 65}, zoo.Feature{Name: "e", AttentionHeads: 1}, zoo.Feature{Name: "d", Kind: model.Dense, Dim: 1, Table: "x"})
	cfg.Tables = append(cfg.Tables, zoo.Table{Name: "users"}, zoo.Table{Name: "spare", Dim: -1, EmbeddingL2: new(float32(-1)), VecOptimizer: optim.SGD{LR: -1}})
	cfg.Heads = append(cfg.Heads, model.Head{Name: "x", Loss: "mse"})
	cfg.Attention = -1
	_, err := zoo.New(cfg)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`feature "a" attends to "user", and their vectors have 4 and 3 numbers`, `feature "b" attends to "age", which is no sparse feature`,
		`feature "b": 65 heads of attention`, `feature "e": 1 heads of attention`,
		`feature "d" is dense and has no table`, `table name "users" is empty or used twice`, `table "spare" has no feature`,
		`table "spare": dim -1`, `table "spare": l2 -1`, `table "spare": optim: sgd: lr -1`, "attention -1",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
	cfg = sharedBottom()
	cfg.Heads[1].Loss = "mse"
	if _, err := zoo.New(cfg); err == nil || !strings.Contains(err.Error(), `head "time": loss "mse" is unknown`) {
		t.Errorf("error %v", err)
	}
	cfg = sharedBottom()
	cfg.Name = zoo.DeepFM
	_, err = zoo.New(cfg)
	for _, want := range []string{
		"deepfm has one head of width 1, not 2; use shared_bottom or mmoe or ple or snr", // and not esmm, which wants probabilities
		`feature "history" attends to "item", which deepfm does not support`,
		`table "users": dim 3 is not 4`, `feature "tags": its entries interact and cannot be pooled by their maximum`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error does not contain %q:\n%v", want, err)
		}
	}
}

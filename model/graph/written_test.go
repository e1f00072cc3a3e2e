package graph_test

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the goldens")

// run returns everything a session computes of a batch.
func run(g *graph.Graph, in *model.Inputs) (out [][]float32) { return runOn(g, in, 1) }

func runOn(g *graph.Graph, in *model.Inputs, threads int) (out [][]float32) {
	s := g.NewSession(threads)
	defer s.Close()
	s.SetDense(graphtest.Dense(g, 1))
	for _, p := range s.Predict(in) {
		out = append(out, slices.Clone(p))
	}
	predictions, losses := s.Step(in, 7)
	for h, p := range predictions {
		out = append(out, p, []float32{float32(losses[h])})
	}
	return append(append(out, s.Grads()...), s.DenseGrad())
}

// TestWrittenGraphsAreTheSame writes and reads a graph of every operator and compares text, parameters, features, heads,
// and the bits of a step.
func TestWrittenGraphsAreTheSame(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for name, build := range operators {
		b := newBed()
		g, err := b.Build(3, b.outputs(build)...)
		if err != nil {
			t.Fatal(err)
		}
		written, err := g.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := graph.Unmarshal(written)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, written)
		}
		again, err := back.Marshal()
		if err != nil || string(again) != string(written) || !graph.Equal(g, back) {
			t.Errorf("%s: written again it is something else (%v):\n%s", name, err, cmp.Diff(string(written), string(again)))
		}
		if back.Text() != g.Text() || back.Layout().String() != g.Layout().String() || back.String() != g.String() {
			t.Errorf("%s: read back it is\n%s, want\n%s", name, back.Text(), g.Text())
		}
		if diff := cmp.Diff(g.Features(), back.Features()) + cmp.Diff(g.Heads(), back.Heads()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		in := graphtest.Inputs(g, graphtest.Shape{Rows: 9, MaxList: 3, Valued: true, Weighted: true}, 5)
		if diff := cmp.Diff(run(g, in), run(back, in)); diff != "" {
			t.Errorf("%s: other bits: %s", name, diff)
		}
		for _, o := range g.Operators() {
			seen[o.Name] = true
		}
	}
	for _, name := range graph.OperatorNames() {
		if !seen[name] {
			t.Errorf("no test has operator %s", name)
		}
	}
}

// TestOperatorsLeave: every operator is one that exports have a form for or one that they refuse, and nothing else is.
func TestOperatorsLeave(t *testing.T) {
	t.Parallel()
	exported, refused := forward.Operators()
	got, want := append(exported, refused...), graph.OperatorNames()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operators of graphs (-) and of exports (+): %s", diff)
	}
}

// TestFusedActivationsHaveTheBits: a linear operator and the relu that alone takes its value are run as one, with the bits of two, in values
// and gradients, on any number of threads; one whose value is taken elsewhere too stays as it is.
func TestFusedActivationsHaveTheBits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fused int
		build func(b *bed) graph.Node
	}{
		"tower": {2, func(b *bed) graph.Node {
			bias := b.tensor("b1", 4000)
			x := b.Relu(b.Linear(b.dense, b.tensor("w1", 4, 4000), &bias))
			return b.weigh(b.Relu(b.Linear(x, b.tensor("w2", 4000, 31), nil)))
		}},
		"wide layers": {1, func(b *bed) graph.Node {
			bias, other, last := b.tensor("b1", 4000), b.tensor("b2", 4000), b.tensor("b3", 1)
			x := b.Concat(b.Relu(b.Linear(b.dense, b.tensor("w1", 4, 4000), &bias)), b.Linear(b.dense, b.tensor("w2", 4, 4000), &other))
			return b.Linear(x, b.tensor("w3", 8000, 1), &last)
		}},
		"taken twice": {0, func(b *bed) graph.Node {
			x := b.linear(b.dense, "w", 8)
			return b.weigh(b.Concat(x, b.Relu(x)))
		}},
		"the same relu twice": {1, func(b *bed) graph.Node { // is one
			x := b.linear(b.dense, "w", 8)
			return b.weigh(b.Add(b.Relu(x), b.Relu(x)))
		}},
		"a head": {0, func(b *bed) graph.Node { return b.Relu(b.linear(b.dense, "w", 1)) }},
		"relu taken twice": {1, func(b *bed) graph.Node {
			x := b.Relu(b.linear(b.dense, "w", 8))
			return b.weigh(b.Mul(x, b.Add(x, b.linear(x, "v", 8))))
		}},
	} {
		graphs := [2]*graph.Graph{}
		for i := range graphs {
			b := newBed()
			if i == 1 {
				b.Unfused()
			}
			var err error
			if graphs[i], err = b.Build(3, click(c.build(b))); err != nil {
				t.Fatal(err)
			}
		}
		if got := graphs[0].FusedLinears(); got != c.fused || graphs[1].FusedLinears() != 0 {
			t.Errorf("%s: %d are fused, want %d, and %d that should not be", name, got, c.fused, graphs[1].FusedLinears())
		}
		for i, shape := range graphtest.Shapes {
			in := graphtest.Inputs(graphs[0], shape, uint64(i))
			var all [][][]float32
			for _, g := range graphs {
				for _, threads := range []int{1, 3} {
					all = append(all, runOn(g, in, threads))
				}
			}
			for k, got := range all[1:] {
				for j := range got {
					if !slices.EqualFunc(got[j], all[0][j], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
						t.Errorf("%s, %s, run %d: values %d are %v, want %v", name, shape, k+1, j, got[j], all[0][j])
					}
				}
			}
		}
	}
}

// TestGatheredPoolsAreTheUnfused compares pools that read tables with pools of lookups that were written down.
func TestGatheredPoolsAreTheUnfused(t *testing.T) {
	t.Parallel()
	gathered := 0
	for name, build := range operators {
		graphs := [2]*graph.Graph{}
		for i := range graphs {
			b := newBed()
			if i == 1 {
				b.Unfused()
			}
			g, err := b.Build(3, b.outputs(build)...)
			if err != nil {
				t.Fatal(err)
			}
			graphs[i] = g
		}
		if graphs[0].Gathered() {
			gathered++
		}
		for i, shape := range graphtest.Shapes {
			in := graphtest.Inputs(graphs[0], shape, uint64(i))
			fused, unfused := run(graphs[0], in), run(graphs[1], in)
			for k := range fused {
				for j, v := range fused[k] {
					limit := 1e-6 * max(1, math.Abs(float64(v)))
					if d := math.Abs(float64(v - unfused[k][j])); !(d <= limit) {
						t.Fatalf("%s, %s: value %d.%d is %v, unfused %v", name, shape, k, j, v, unfused[k][j])
					}
				}
			}
		}
	}
	if gathered < 10 {
		t.Errorf("only %d graphs write no lookup down", gathered)
	}
	b := newBed()
	b.Unfused()
	g, err := b.Build(1, click(b.weigh(b.vec())))
	if err != nil {
		t.Fatal(err)
	}
	if g.Gathered() {
		t.Error("the unfused graph gathers")
	}
}

// everything is a graph with all that is written: several heads, tables, settings.
func everything(t testing.TB) *graph.Graph {
	t.Helper()
	b := newBed()
	now, history := b.pooled(b.Lookup(b.b, "vec"), graph.Mean), b.Lookup(b.a, "vec")
	q := b.Expand(now, b.a)
	score := b.linear(b.Sigmoid(b.linear(b.Concat(q, history, b.Mul(q, history)), "hidden", 4)), "score", 1)
	x := b.Concat(now, b.WeightedSum(b.Softmax(score), history), b.pooled(b.Lookup(b.c, "vec"), graph.Sum), b.Standardise(b.dense, "moments", 0.5))
	x = b.Dropout(b.Relu(b.BatchNorm(b.linear(x, "w", 8), graph.BatchNorm{Name: "bn", Optimizer: optim.Adam{}})), 0.25)
	b.ClipNorm(2)
	g, err := b.Build(
		11,
		graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy, SampleRate: 0.1, Metrics: []string{"auc"}}, Node: b.linear(x, "click", 1)},
		graph.Output{
			Head: model.Head{Name: "times", Loss: loss.Poisson, Labels: []string{"watch", "wait"}, Width: 2, Weight: 0.5, Mask: "clicked"}, Node: b.linear(x, "times", 2),
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestWrittenGolden holds the written form: programs of other versions read it.
func TestWrittenGolden(t *testing.T) {
	t.Parallel()
	g := everything(t)
	got, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "graph.golden.json")
	if *rewrite {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Error(diff)
	}
	back, err := graph.Unmarshal(want)
	if err != nil {
		t.Fatal(err)
	}
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 9, MaxList: 3}, 5)
	if diff := cmp.Diff(run(g, in), run(back, in)); diff != "" {
		t.Errorf("other bits: %s", diff)
	}
	graphtest.Check(t, mustUnclipped(t, want))
}

// mustUnclipped is the graph without its limit of gradients, which the reference does not know.
func mustUnclipped(t *testing.T, written []byte) *graph.Graph {
	t.Helper()
	g, err := graph.Unmarshal([]byte(strings.Replace(string(written), `"clip_norm": 2`, `"clip_norm": 0`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestWithOtherHeads compares a graph with other heads and another seed with one that was built so: what is written, and the bits of
// a step.
func TestWithOtherHeads(t *testing.T) {
	t.Parallel()
	build := func(seed uint64, heads ...model.Head) *graph.Graph {
		b := newBed()
		x := b.Concat(b.vec(), b.dense)
		var outputs []graph.Output
		values := map[string]graph.Node{"click": b.linear(x, "click", 1), "times": b.linear(x, "times", 2)}
		for _, h := range heads {
			outputs = append(outputs, graph.Output{Head: h, Node: values[h.Name]})
		}
		g, err := b.Build(seed, outputs...)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	click, times := model.Head{Name: "click", Loss: loss.CrossEntropy}, model.Head{Name: "times", Loss: loss.Poisson, Width: 2}
	masked, weighed := click, times
	masked.Mask, masked.SampleRate, masked.Metrics = "seen", 0.1, []string{"auc"}
	weighed.Labels, weighed.Weight = []string{"watch", "wait"}, 0.25
	first := build(1, click, times)
	before := first.String()
	got, err := first.With(7, []model.Head{weighed, masked})
	if err != nil {
		t.Fatal(err)
	}
	want := build(7, weighed, masked)
	if !graph.Equal(want, got) || got.Layout().Seed != 7 {
		x, _ := want.Marshal()
		y, _ := got.Marshal()
		t.Errorf("it is written as something else: %s", cmp.Diff(string(x), string(y)))
	}
	in := graphtest.Inputs(want, graphtest.Shape{Rows: 9, MaxList: 3}, 5)
	if diff := cmp.Diff(run(want, in), run(got, in)); diff != "" {
		t.Errorf("other bits: %s", diff)
	}
	if first.String() != before || len(first.Heads()) != 2 || first.Layout().Seed != 1 {
		t.Error("the graph itself has changed")
	}
	other := click
	other.Loss = loss.Squared
	for _, test := range []struct {
		heads []model.Head
		want  string
	}{
		{[]model.Head{click}, `the graph has a head "times" too`},
		{[]model.Head{click, times, {Name: "like", Loss: loss.CrossEntropy}}, `head "like" is none of the graph's`},
		{[]model.Head{click, click, times}, `head "click" is there twice`},
		{[]model.Head{other, times}, `head "click" learns by squared, in the graph by cross_entropy`},
		{[]model.Head{click, {Name: "times", Loss: loss.Poisson}}, "the output has 2 columns, want 1"},
	} {
		if _, err := first.With(1, test.heads); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
}

// ownRule is an update rule that package optim does not have.
type ownRule struct{ optim.SGD }

// StateDim is not that of the rule which ownRule embeds.
func (ownRule) StateDim(dim int) int { return 3*dim + 1 }

// TestOwnRulesAreWrittenByName: a graph whose rules are the program's own is read back with the same parameters, names and text, and refuses to train.
func TestOwnRulesAreWrittenByName(t *testing.T) {
	t.Parallel()
	build := func(lr float32) *graph.Graph {
		b := graph.NewBuilder()
		own := ownRule{optim.SGD{LR: lr}}
		table := b.Table(param.Table{Name: "ids", Segments: []param.Segment{
			{Name: "half", Dim: 2, Init: param.Uniform(-1, 1), Optimizer: optim.Stored(own, optim.BF16)}, {Name: "vec", Dim: 3, Optimizer: optim.Adagrad{LR: lr}},
		}})
		ids := b.SparseFeature(model.Feature{Name: "id"}, table)
		x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 1})
		w := b.Tensor(param.Tensor{Name: "w", Shape: []int{3, 1}, Optimizer: own})
		g, err := b.Build(1, click(b.Linear(b.Concat(b.Pool(graph.Pooled{X: b.Lookup(ids, "half"), By: graph.Sum}), x), w, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := build(1)
	written, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := graph.Unmarshal(written)
	if err != nil {
		t.Fatal(err)
	}
	if !graph.Equal(g, back) || g.String() != back.String() || back.String() == build(2).String() {
		t.Errorf("%s is read back as %s, another learning rate is %s", g, back, build(2))
	}
	if got, want := back.Layout().Shape(), g.Layout().Shape(); !reflect.DeepEqual(got, want) {
		t.Errorf("read back the parameters are %+v, want %+v", got, want)
	}
	half, vec := back.Layout().Tables[0].Segments[0].Optimizer, back.Layout().Tables[0].Segments[1].Optimizer
	if !optim.IsNamed(half) || optim.ValuesOf(half) != optim.BF16 || optim.IsNamed(vec) || !optim.IsNamed(back.Layout().Dense[0].Optimizer) {
		t.Errorf("read back the rules are %v, %v and %v", half, vec, back.Layout().Dense[0].Optimizer)
	}
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "sgd(lr=1) is known by its name alone") {
			t.Errorf("an update gives %s", text)
		}
	}()
	back.Layout().Dense[0].Optimizer.Update(make([]float32, 3), make([]float32, 10), make([]float32, 3), 1)
}

func TestUnmarshalNamesFaults(t *testing.T) {
	t.Parallel()
	good, err := everything(t).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ old, with, want string }{
		{`"version": 1`, `"version": 2`, "it has version 2, this program reads version 1"},
		{`"op": "relu"`, `"op": "gelu"`, `"gelu" is unknown`},
		{`"optimizer": {`, `"own": {"text": "x()", "state": -1}, "optimizer": {`, "-1 numbers of state"},
		{`"op": "relu"`, `"op": "relu", "speed": 3`, "unknown field"},
		{`"rate": 0.25`, `"rate": 1.25`, "dropout: rate 1.25"},
		{`"weights": "w"`, `"weights": "nothing"`, `linear: no tensor "nothing"`},
		{`"table": "other"`, `"table": "nowhere"`, `feature "c": a table of another graph, or none`},
		{`"statistic": true`, `"statistic": false`, "is learned or observed"},
		{`"dim": 3,`, `"dim": 0,`, "dim 0 is not between 1"},
		{`"loss": "poisson"`, `"loss": "fish"`, `loss "fish" is unknown`},
		{`"uniform"`, `"triangle"`, `no initializer is called "triangle"`},
		{`"lr": 0.1`, `"lr": -1`, "lr -1"},
		{`"value": `, `"value": 9`, "there is no value 9"},
	}
	for _, test := range tests {
		if !strings.Contains(string(good), test.old) {
			t.Fatalf("the written graph has no %s:\n%s", test.old, good)
		}
		_, err := graph.Unmarshal([]byte(strings.Replace(string(good), test.old, test.with, 1)))
		if !errors.Is(err, graph.ErrWritten) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.with, err, test.want)
		}
	}
	for _, text := range []string{"", "{}", "[]", string(good) + "x", string(good[:len(good)/2])} {
		if _, err := graph.Unmarshal([]byte(text)); !errors.Is(err, graph.ErrWritten) {
			t.Errorf("%.20q: error %v", text, err)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	good, err := everything(f).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, build := range operators {
		b := newBed()
		g, err := b.Build(3, b.outputs(build)...)
		if err != nil {
			f.Fatal(err)
		}
		written, err := g.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(written)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := graph.Unmarshal(data)
		if err != nil {
			if !errors.Is(err, graph.ErrWritten) {
				t.Fatalf("error %v", err)
			}
			return
		}
		written, err := g.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		back, err := graph.Unmarshal(written)
		if err != nil || !graph.Equal(g, back) {
			t.Fatalf("%v: a graph that was read is written as something else:\n%s", err, written)
		}
		_ = fmt.Sprint(g.Text(), g.FLOPs(3), g)
	})
}

func TestOperatorsAnswer(t *testing.T) {
	t.Parallel()
	g := everything(t)
	differ := map[string]bool{}
	for _, o := range g.Operators() {
		if o.Differs {
			differ[o.Name] = true
		}
	}
	if len(differ) != 2 || !differ["dropout"] || !differ["batch_norm"] || g.PredictsAsTrained() {
		t.Errorf("operators that differ in training: %v", differ)
	}

	b := newBed()
	bias := b.tensor("bias", 5)
	g, err := b.Build(1, click(b.weigh(b.Relu(b.Linear(b.vec(), b.tensor("w", 6, 5), &bias)))))
	if err != nil {
		t.Fatal(err)
	}
	// Pooling 3 vectors in 6 columns, 6·5 products and sums, 5 comparisons, 5 products and sums.
	if got := g.FLOPs(3); got != 18+60+5+10 {
		t.Errorf("%v operations a row", got)
	}
	var settings []string
	for _, o := range g.Operators() {
		settings = append(settings, o.Name+string(o.Settings))
	}
	if diff := cmp.Diff([]string{
		`lookup{"feature":"a","segment":"vec"}`, `lookup{"feature":"b","segment":"vec"}`, `pool{"combiners":["sum","mean"]}`, `linear{"weights":"w","bias":"bias"}`, "relu{}",
		`linear{"weights":"out"}`,
	}, settings); diff != "" {
		t.Error(diff)
	}
	if out := g.Outputs(); len(out) != 1 || out[0] != g.Operators()[len(settings)-1].ID {
		t.Errorf("the head learns through %v", out)
	}
}

// TestOwnLossIsNotWritten: a graph whose head has a loss of the program's own trains, and says why it cannot be written.
func TestOwnLossIsNotWritten(t *testing.T) {
	t.Parallel()
	own := loss.Own(loss.Loss{Name: "mine", Labels: loss.AnyNumber(), Link: loss.Identity}, func(z, y float64) (float64, float64) { return (z - y) * (z - y), 2 * (z - y) })
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 1})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{1, 1}, Optimizer: optim.SGD{LR: 1}})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "h", Loss: "mine", Own: own}, Node: b.Linear(x, w, nil)})
	if err != nil {
		t.Fatal(err)
	}
	s := g.NewSession(1)
	s.SetDense([]float32{2})
	if _, losses := s.Step(&model.Inputs{NumRows: 1, Dense: [][]float32{{3}}, Labels: [][]float32{{1}}}, 1); losses[0] != 25 || s.DenseGrad()[0] != 30 {
		t.Errorf("loss %v, gradient %v, want 25 and 30", losses, s.DenseGrad())
	}
	if _, err := g.Marshal(); err == nil || !strings.Contains(err.Error(), `head "h": loss mine cannot be written`) {
		t.Errorf("written: %v", err)
	}
}

package forward_test

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/export/exporttest"
	"github.com/monolith-go/monolith/export/forward"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// predictions compares what a forward pass computes with the predictions of a session, of ids and of the numbers of their rows. Every other id of a batch has a row, the others get
// initial values. Then the same without an entry, as matrices without a column.
func predictions(t *testing.T, g *graph.Graph, shape graphtest.Shape, seed uint64) {
	t.Helper()
	for _, numbers := range []bool{false, true} {
		predictionsOf(t, g, shape, seed, numbers, false)
		predictionsOf(t, g, shape, seed, numbers, true)
	}
}

func predictionsOf(t *testing.T, g *graph.Graph, shape graphtest.Shape, seed uint64, numbers, empty bool) {
	t.Helper()
	in, dense, layout := graphtest.Inputs(g, shape, seed), graphtest.Dense(g, seed), g.Layout()
	for i := range in.Sparse {
		if r := &in.Sparse[i]; empty {
			clear(r.Offsets)
			r.Index, r.Values = r.Index[:0], r.Values[:0]
		}
	}
	e := &evaluator{}
	id := func(i int) int64 { return int64(i)<<48 | int64(uint64(i)*2654435761%(1<<48)) }
	var rows []int64
	for k := range layout.Tables {
		table, dim := &layout.Tables[k], layout.Tables[k].Dim()
		ids, values := map[int64]int64{}, data{dims: []int{0, dim}}
		for i := range len(in.Values[k]) / dim {
			row := in.Values[k][i*dim:][:dim]
			if i%2 == 0 {
				ids[id(i)] = int64(len(ids))
				values.append(data{dims: []int{1, dim}, f: row})
				continue
			}
			at := 0
			for _, s := range table.Segments {
				s.Init.Fill(row[at:][:s.Dim], layout.Seed, param.HashName(table.Name, s.Name), uint64(id(i)))
				optim.ValuesOf(s.Optimizer).Round(row[at:][:s.Dim])
				at += s.Dim
			}
		}
		values.append(data{dims: []int{1, dim}, f: forward.Spare(table)})
		e.ids, e.tables, rows = append(e.ids, ids), append(e.tables, values), append(rows, int64(len(ids)))
	}
	for i, d := range layout.Dense {
		at := layout.DenseOffset(i)
		e.dense = append(e.dense, data{dims: d.Shape, f: dense[at : at+d.Len()]})
	}
	inputs := forward.Inputs{NumRows: e.Ints(nil, int64(in.NumRows))}
	at := map[model.Kind]int{}
	for _, f := range g.Features() {
		i := at[f.Kind]
		at[f.Kind]++
		if f.Kind == model.Dense {
			inputs.Dense = append(inputs.Dense, e.Floats([]int64{int64(in.NumRows), int64(f.Dim)}, in.Dense[i]...))
			continue
		}
		unpad, send := forward.Unpad, id
		if numbers {
			unpad = func(t forward.Target, x forward.Value) (forward.Entries, forward.Value) {
				return forward.UnpadNumbers(t, x, rows[f.Table])
			}
			send = func(i int) int64 {
				if row, ok := e.ids[f.Table][id(i)]; ok {
					return row
				}
				return -2 - id(i)
			}
		}
		inputs.Sparse = append(inputs.Sparse, padded(e, &in.Sparse[i], send, unpad, !numbers))
	}
	s := g.NewSession(1)
	defer s.Close()
	s.SetDense(dense)
	want := s.Predict(in)
	for h, v := range forward.Write(e, g, rows, inputs) {
		got := e.get(v)
		if len(got.f) != len(want[h]) || len(got.dims) != 2 || got.dims[1] != g.Heads()[h].Width {
			t.Fatalf("head %d has the shape %v for %d predictions", h, got.dims, len(want[h]))
		}
		for i := range want[h] {
			if d := math.Abs(float64(got.f[i]) - float64(want[h][i])); !(d <= 1e-5*max(1, math.Abs(float64(want[h][i])))) {
				t.Fatalf("head %d: prediction %d is %v, want %v", h, i, got.f[i], want[h][i])
			}
		}
	}
}

// padded makes entries of lists that are filled up as matrices are, with -1 or where any is to do with another negative number.
func padded(e *evaluator, r *model.Ragged, id func(int) int64, unpad func(forward.Target, forward.Value) (forward.Entries, forward.Value), any bool) forward.Entries {
	fill := int64(-1)
	if any {
		fill = -7
	}
	rows, width := len(r.Offsets)-1, 0
	for i := range rows {
		width = max(width, int(r.Offsets[i+1]-r.Offsets[i]))
	}
	if width > 0 {
		width++
	}
	ids, values := make([]int64, rows*width), make([]float32, rows*width)
	for i := range rows {
		for k := range width {
			ids[i*width+k], values[i*width+k] = fill, float32(math.NaN())
			if at := int(r.Offsets[i]) + k; at < int(r.Offsets[i+1]) {
				ids[i*width+k] = id(int(r.Index[at]))
				if r.Values != nil {
					values[i*width+k] = r.Values[at]
				}
			}
		}
	}
	shape := []int64{int64(rows), int64(width)}
	out, places := unpad(e, e.Ints(shape, ids...))
	if r.Values != nil {
		out.Values = forward.Pick(e, e.Floats(shape, values...), places)
	}
	return out
}

// TestEveryOperator: what is written computes what a session predicts, ids without rows included.
func TestEveryOperator(t *testing.T) {
	t.Parallel()
	g := exporttest.EveryOperator(t)
	if err := forward.Check(g); err != nil {
		t.Fatal(err)
	}
	for i, shape := range graphtest.Shapes {
		t.Run(shape.String(), func(t *testing.T) {
			t.Parallel()
			if !shape.Valued { // the graph has a feature with values; graphtest gives all features some, or none
				shape.Valued = i%2 == 0
			}
			predictions(t, g, shape, uint64(i))
		})
	}
	used := map[string]bool{}
	for _, o := range g.Operators() {
		used[o.Name] = true
	}
	exported, _ := forward.Operators()
	if got := slices.Sorted(maps.Keys(used)); !slices.Equal(got, exported) {
		t.Errorf("the graph has the operators %q, exported are %q", got, exported)
	}
}

// TestProductsIn16Bits: operands are rounded as the graph rounds them.
func TestProductsIn16Bits(t *testing.T) {
	t.Parallel()
	m, err := exporttest.EveryOperator(t).InPrecision(param.BF16)
	if err != nil {
		t.Fatal(err)
	}
	predictions(t, m.(*graph.Graph), graphtest.Shape{Rows: 40, MaxList: 3}, 5)
}

// TestZoo: every model of the zoo is exported, and computes what it predicts.
func TestZoo(t *testing.T) {
	t.Parallel()
	for _, name := range zoo.Names() {
		for k, features := range [][]zoo.Feature{
			{{Name: "user"}, {Name: "item", Combiner: graph.Mean}, {Name: "price", Kind: model.Dense, Dim: 2, Decay: 0.9}},
			{{Name: "user", Combiner: graph.SqrtN}, {Name: "item", Table: "items"}},
			{{Name: "user"}, {Name: "history", Attends: "user"}, {Name: "item"}},
		} {
			if features[1].Attends != "" && !attends(name) {
				continue
			}
			// One narrow layer of attention: with the weights of this test wide ones make scores so large that float32 shows in the fifth place.
			m, err := zoo.New(zoo.Config{Name: name, Features: features, Dim: 4, Hidden: []int{6}, BatchNorm: true, AttentionLayers: 1, AttentionWidth: 8})
			if err != nil {
				t.Fatal(err)
			}
			g := m.(*zoo.Model).Graph
			if err := forward.Check(g); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			for i, shape := range graphtest.Shapes {
				t.Run(fmt.Sprintf("%s/%d/%s", name, k, shape), func(t *testing.T) {
					t.Parallel()
					predictions(t, g, shape, uint64(i))
				})
			}
		}
	}
}

// TestLayerOptions: layers in forms that no model of the zoo has by default are exported too.
func TestLayerOptions(t *testing.T) {
	t.Parallel()
	b, rule := graph.NewBuilder(), layer.Rule{Optimizer: optim.SGD{LR: 1}}
	table := b.Table(param.Table{Name: "ids", Segments: []param.Segment{{Name: "vec", Dim: 4, Optimizer: optim.SGD{LR: 1}}}})
	item, history := b.SparseFeature(model.Feature{Name: "item"}, table), b.SparseFeature(model.Feature{Name: "history"}, table)
	query := b.Pool(graph.Pooled{X: b.Lookup(item, "vec"), By: graph.Sum})
	each := layer.Attention(b, "attention", query, b.Lookup(history, "vec"), history, layer.AttentionConfig{Hidden: []int{3}, Each: true, Rule: rule})
	x := b.Concat(query, b.Pool(graph.Pooled{X: each, By: graph.Max}))
	x = b.Concat(x, layer.SelfAttention(b, "plain", x, 4, layer.SelfAttentionConfig{Layers: 2, Plain: true}))
	x = layer.CrossVector(b, "cross", x, layer.CrossConfig{Layers: 1, Dropout: 0.5, Rule: rule})
	x = b.Concat(b.BatchNorm(x, graph.BatchNorm{Name: "plain", NoScale: true, NoCenter: true, Optimizer: optim.SGD{LR: 1}}), b.BatchNorm(x, graph.BatchNorm{Name: "renorm", Training: graph.BatchNormTraining{MaxScale: 3}, Optimizer: optim.SGD{LR: 1}}))
	routed := layer.SNR(b, "snr", x, []string{"a"}, layer.ExpertsConfig{Experts: 2, Levels: 2, Average: true, Routes: graph.HardConcrete{High: 1.25, Low: -0.5}, Expert: layer.MLPConfig{Hidden: []int{5}, Rule: rule}})
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "y", Loss: loss.CrossEntropy}, Node: layer.Dense(b, "out", routed[0], 1, rule)})
	if err != nil {
		t.Fatal(err)
	}
	if err := forward.Check(g); err != nil {
		t.Fatal(err)
	}
	for i, shape := range graphtest.Shapes {
		predictions(t, g, shape, uint64(i))
	}
}

// TestRefused: what no format has is refused by name, all of it at once.
func TestRefused(t *testing.T) {
	t.Parallel()
	b := graph.NewBuilder()
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: 2})
	w := b.Tensor(param.Tensor{Name: "w", Shape: []int{2, 2}, Optimizer: optim.SGD{LR: 1}})
	y := b.Linear(x, w, nil)
	pairs := b.Softmax(b.Similarity(x, y))
	odd := b.Table(param.Table{Name: "odd", Segments: []param.Segment{{Name: "vec", Dim: 3, Optimizer: optim.SGD{LR: 1}, Init: param.Init{Kind: 99}}}})
	last := b.Last(b.Lookup(b.SparseFeature(model.Feature{Name: "history"}, odd), "vec"))
	own := loss.Own(loss.Loss{Name: "mine", Labels: loss.AnyNumber()}, func(z, y float64) (float64, float64) { return z - y, 1 })
	g, err := b.Build(1,
		graph.Output{Head: model.Head{Name: "near", Loss: loss.Squared}, Node: b.Diagonal(pairs)},
		graph.Output{Head: model.Head{Name: "mean", Loss: loss.Squared, Width: 2}, Node: b.Broadcast(b.Relu(b.BatchMean(y)))},
		graph.Output{Head: model.Head{Name: "last", Loss: loss.Squared, Width: 3}, Node: last},
		graph.Output{Head: model.Head{Name: "own", Loss: "mine", Own: own, Width: 2}, Node: y},
	)
	if err != nil {
		t.Fatal(err)
	}
	err = forward.Check(g)
	if !errors.Is(err, forward.ErrRefused) {
		t.Fatal(err)
	}
	_, refused := forward.Operators()
	for _, want := range append(refused, "softmax", "relu", `head "own": its loss mine`, `table "odd" segment "vec": no format`) {
		if !strings.Contains(err.Error(), ", "+want) && !strings.Contains(err.Error(), ": "+want) {
			t.Errorf("nothing of %s in\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n"); n != len(refused)+3 {
		t.Errorf("%d lines: %v", n+1, err)
	}
}

// TestDocumented: the page says of every operator whether it is exported, and of no other.
func TestDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/export.md")
	if err != nil {
		t.Fatal(err)
	}
	exported, refused := forward.Operators()
	for what, names := range map[string][]string{"exported": exported, "refused": refused} {
		if line := fmt.Sprintf("\n* %s: `%s`", what, strings.Join(names, "`, `")); !strings.Contains(string(page), line) {
			t.Errorf("docs/export.md has no line%s", line)
		}
	}
}

// TestIdentifier: what formats do not take in a name is left away.
func TestIdentifier(t *testing.T) {
	t.Parallel()
	if got := forward.Identifier("deep.0/weight-a:ü b"); got != "deep.0/weight-a___b" {
		t.Errorf("got %q", got)
	}
}

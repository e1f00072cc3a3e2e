package graph_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// matrix is a slow matrix of float64.
type matrix [][]float64

func newMatrix(rows, columns int, at func(i, j int) float64) matrix {
	m := make(matrix, rows)
	for i := range m {
		m[i] = make([]float64, columns)
		for j := range m[i] {
			m[i][j] = at(i, j)
		}
	}
	return m
}

func (m matrix) transposed() matrix {
	return newMatrix(len(m[0]), len(m), func(i, j int) float64 { return m[j][i] })
}

func (m matrix) times(n matrix) matrix {
	return newMatrix(len(m), len(n[0]), func(i, j int) (sum float64) {
		for k := range n {
			sum += m[i][k] * n[k][j]
		}
		return sum
	})
}

// rounded has each element as the nearest number of 8 bits of precision, ties to even.
func (m matrix) rounded() matrix {
	return newMatrix(len(m), len(m[0]), func(i, j int) float64 {
		fraction, exponent := math.Frexp(m[i][j])
		return math.Ldexp(math.RoundToEven(fraction*256)/256, exponent)
	})
}

// TestBF16: two layers of several outputs multiply rounded operands, ahead and back; biases, their gradients, the layer of one output, and what
// is returned are not rounded.
func TestBF16(t *testing.T) {
	t.Parallel()
	const rows, in, hidden, out = 33, 7, 9, 5
	b := graph.NewBuilder()
	tensor := func(name string, shape ...int) graph.Tensor {
		return b.Tensor(param.Tensor{Name: name, Shape: shape, Optimizer: optim.SGD{}})
	}
	bias, last := tensor("b1", hidden), tensor("w3", out, 1)
	x := b.DenseFeature(model.Feature{Name: "x", Kind: model.Dense, Dim: in})
	h := b.Relu(b.Linear(x, tensor("w1", in, hidden), &bias))
	y := b.Linear(b.Linear(h, tensor("w2", hidden, out), nil), last, nil)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "price", Loss: loss.Squared}, Node: y})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	dense := make([]float32, g.Layout().DenseLen())
	for i := range dense {
		dense[i] = 2*rng.Float32() - 1
	}
	inputs := &model.Inputs{NumRows: rows, Dense: [][]float32{make([]float32, rows*in)}, Labels: [][]float32{make([]float32, rows)}}
	for _, s := range [][]float32{inputs.Dense[0], inputs.Labels[0]} {
		for i := range s {
			s[i] = 2*rng.Float32() - 1
		}
	}
	at := func(s []float32, columns int) func(i, j int) float64 {
		return func(i, j int) float64 { return float64(s[i*columns+j]) }
	}
	parameter := func(name string) []float32 {
		for i, p := range g.Layout().Dense {
			if p.Name == name {
				return dense[g.Layout().DenseOffset(i):][:p.Len()]
			}
		}
		t.Fatal(name)
		return nil
	}
	float := func(m matrix) matrix { // values are stored in float32
		return newMatrix(len(m), len(m[0]), func(i, j int) float64 { return float64(float32(m[i][j])) })
	}
	w1, w2, w3 := newMatrix(in, hidden, at(parameter("w1"), hidden)), newMatrix(hidden, out, at(parameter("w2"), out)), newMatrix(out, 1, at(parameter("w3"), 1))
	vx := newMatrix(rows, in, at(inputs.Dense[0], in))
	sum1 := vx.rounded().times(w1.rounded())
	vh := float(newMatrix(rows, hidden, func(i, j int) float64 { return max(sum1[i][j]+float64(parameter("b1")[j]), 0) }))
	v2 := float(vh.rounded().times(w2.rounded()))
	vy := v2.times(w3)
	dy := newMatrix(rows, 1, func(i, _ int) float64 { return 2 * (vy[i][0] - float64(inputs.Labels[0][i])) / rows })
	d2 := float(dy.times(w3.transposed()))
	dh := d2.rounded().times(w2.rounded().transposed())
	d1 := float(newMatrix(rows, hidden, func(i, j int) float64 {
		if vh[i][j] > 0 {
			return dh[i][j]
		}
		return 0
	}))
	want := map[string]matrix{
		"w1": vx.rounded().transposed().times(d1.rounded()), "w2": vh.rounded().transposed().times(d2.rounded()), "w3": v2.transposed().times(dy),
		"b1": newMatrix(1, rows, func(_, _ int) float64 { return 1 }).times(d1),
	}

	m, err := g.InPrecision(param.BF16)
	if err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{1, 2} {
		s := m.NewSession(threads)
		defer s.Close()
		s.SetDense(dense)
		predictions, _ := s.Step(inputs, 0)
		for i, got := range predictions[0] {
			if math.Abs(float64(got)-vy[i][0]) > 1e-5 {
				t.Errorf("row %d: prediction %v, want %v", i, got, vy[i][0])
			}
		}
		for i, p := range g.Layout().Dense {
			for j, got := range s.DenseGrad()[g.Layout().DenseOffset(i):][:p.Len()] {
				columns := len(want[p.Name][0])
				if w := want[p.Name][j/columns][j%columns]; math.Abs(float64(got)-w) > 1e-5 {
					t.Errorf("gradient of %s[%d]: %v, want %v", p.Name, j, got, w)
				}
			}
		}
		for i, got := range s.Predict(inputs)[0] {
			if got != predictions[0][i] {
				t.Errorf("row %d: predicted as %v, in training %v", i, got, predictions[0][i])
			}
		}
	}
}

// TestPrecisionIsWritten: the name and the written form of a graph in bf16 say so, what is read back computes in it, and nothing else does.
func TestPrecisionIsWritten(t *testing.T) {
	t.Parallel()
	g := tower(t, 0, 0)
	m, err := g.InPrecision(param.BF16)
	if err != nil {
		t.Fatal(err)
	}
	written, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := graph.Unmarshal(written)
	if err != nil {
		t.Fatal(err)
	}
	if back.Precision() != param.BF16 || back.String() != m.String() || back.String() == g.String() || g.Precision() != param.Float32 {
		t.Errorf("read back it is %s in %s; written %s, in float32 %s", back, back.Precision(), m, g)
	}
	again, err := back.InPrecision(param.Float32)
	if err != nil || again.String() != g.String() {
		t.Errorf("in float32 again it is %s (%v), was %s", again, err, g)
	}
	if _, err := g.InPrecision(param.FP16); err == nil || !strings.Contains(err.Error(), "float32 or bf16") {
		t.Errorf("fp16: %v", err)
	}
	for _, word := range []string{"fp16", "float32", "half"} {
		if _, err := graph.Unmarshal([]byte(strings.Replace(string(written), `"bf16"`, `"`+word+`"`, 1))); err == nil || !strings.Contains(err.Error(), "want bf16") {
			t.Errorf("precision %q: %v", word, err)
		}
	}
}

// TestHalves: a step that keeps in 16 bits what products alone take has the bits of one that does not, in graphs of all operators and of forty random ones, with sessions of one and two threads, on batches of several sizes by turns with
// predictions; and a tower takes less memory.
func TestHalves(t *testing.T) {
	t.Parallel()
	cases := map[string]func(b *bed) []graph.Output{}
	for name, build := range operators {
		cases[name] = func(b *bed) []graph.Output { return b.outputs(build) }
	}
	for seed := range uint64(40) {
		cases[fmt.Sprint("chain ", seed)] = chain(seed)
	}
	cases["normalised"] = func(b *bed) []graph.Output {
		x := b.vec()
		for i := range 3 {
			x = b.BatchNorm(b.linear(x, fmt.Sprint("w", i), 40), graph.BatchNorm{Name: fmt.Sprint("norm", i), Optimizer: optim.SGD{}})
			x = b.Dropout(b.Relu(x), 0.5)
		}
		return []graph.Output{click(b.weigh(b.linear(b.Relu(x), "last", 3)))}
	}
	cases["values read back and heads"] = func(b *bed) []graph.Output {
		classes := b.linear(b.Sigmoid(b.linear(b.vec(), "w", 40)), "v", 3)
		late := b.linear(b.linear(b.linear(classes, "x", 30), "y", 30), "z", 5)
		return []graph.Output{click(b.weigh(b.Relu(late))), {Head: model.Head{Name: "three", Loss: loss.Squared, Width: 3}, Node: classes}}
	}
	halves := 0
	for name, build := range cases {
		b := newBed()
		g, err := b.Build(3, build(b)...)
		if err != nil {
			t.Fatal(err)
		}
		half := rounding(t, g)
		halves += half.Halves()
		sessions := []model.Session{half.Unhalved().NewSession(1), half.NewSession(1), half.NewSession(2)}
		for _, s := range sessions {
			defer s.Close()
			s.SetDense(graphtest.Dense(g, 1))
		}
		for round := range 2 {
			for i, shape := range append(slices.Clone(graphtest.Shapes), graphtest.Shape{Rows: 600, MaxList: 2}) {
				in := graphtest.Inputs(g, shape, uint64(i))
				var out [3][][]float32
				for k, s := range sessions {
					predictions, _ := s.Step(in, 7)
					for _, p := range slices.Concat(predictions, s.Grads(), [][]float32{s.DenseGrad()}, s.Predict(in)) {
						out[k] = append(out[k], slices.Clone(p))
					}
				}
				for k := range out[1:] {
					for j := range out[0] {
						if !slices.EqualFunc(out[0][j], out[k+1][j], func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) }) {
							t.Fatalf("%s, %s, round %d, session %d: values %d are not those without halves", name, shape, round, k+1, j)
						}
					}
				}
			}
		}
	}
	if halves < 60 {
		t.Errorf("%d values are kept in 16 bits", halves)
	}
}

// rounding is a graph whose products are rounded.
func rounding(t *testing.T, g *graph.Graph) *graph.Graph {
	t.Helper()
	m, err := g.InPrecision(param.BF16)
	if err != nil {
		t.Fatal(err)
	}
	return m.(*graph.Graph)
}

// TestMemoryOfHalves: of a tower whose products are rounded the input and all activations but the last are kept in 16 bits, beside one buffer that they are computed in; the last, which is not rounded, and the input lie where they are computed.
func TestMemoryOfHalves(t *testing.T) {
	t.Parallel()
	b := newBed()
	x := b.dense // 4 numbers
	for i, dim := range []int{10, 8, 8, 6} {
		x = b.Relu(b.linear(x, fmt.Sprint("w", i), dim))
	}
	g, err := b.Build(3, click(b.weigh(x)))
	if err != nil {
		t.Fatal(err)
	}
	const rows = 100
	_, train := g.Memory(rows, 1)
	_, half := rounding(t, g).Memory(rows, 1)
	if gradients := int64(4 * (10 + 8)); train != rows*(4*(4+10+8+8+6+1)+gradients) || half != rows*(2*(4+10+8+8)+4*(10+1)+gradients) {
		t.Errorf("%d bytes a row to train, and %d with products that are rounded", train/rows, half/rows)
	}
}

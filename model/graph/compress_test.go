package graph_test

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// compressed is a graph of two segments, whose vectors are read as a compressor leaves them.
func compressed(t *testing.T, c param.Compressor) *graph.Graph {
	t.Helper()
	b := newBed()
	g, err := b.Build(1, click(b.weigh(b.Concat(b.vec(), b.pool("bias")))))
	if err != nil {
		t.Fatal(err)
	}
	g.Layout().Tables[0].Segments[1].Compressor = c
	return g
}

func TestCompressorsFollowReference(t *testing.T) {
	t.Parallel()
	oneBit := compressed(t, param.Compressor{Kind: param.CompressOneBit, Amplitude: 0.4, Every: 3})
	graphtest.Check(t, oneBit) // it is smooth, so its gradients are derivatives
	if oneBit.PredictsAsTrained() {
		t.Error("one bit is read alike in training and predictions")
	}
	for _, g := range []*graph.Graph{oneBit, compressed(t, param.Compressor{Kind: param.CompressFixedR8, Range: 0.5})} {
		for _, n := range []int64{0, 7, 3000} {
			in := graphtest.Inputs(g, graphtest.Shape{Rows: 9, MaxList: 3}, 5)
			in.Examples = n
			dense := graphtest.Dense(g, 6)
			wide := func(x []float32) (out []float64) {
				for _, v := range x {
					out = append(out, float64(v))
				}
				return out
			}
			var values [][]float64
			for _, v := range in.Values {
				values = append(values, wide(v))
			}
			before := [][]float32{slices.Clone(in.Values[0]), slices.Clone(in.Values[1])}
			s := g.NewSession(1)
			s.SetDense(dense)
			for train, got := range map[bool][]float32{false: slices.Clone(s.Predict(in)[0]), true: func() []float32 { p, _ := s.Step(in, 1); return p[0] }()} {
				for i, want := range g.Reference(in, wide(dense), values, train, 1).Predictions[0] {
					if math.Abs(float64(got[i])-want) > 1e-5 {
						t.Errorf("%s after %d examples, training %v: row %d is %v, want %v", g.Layout().Tables[0].Segments[1].Compressor, n, train, i, got[i], want)
					}
				}
			}
			if diff := cmp.Diff(before, in.Values); diff != "" {
				t.Errorf("the weights themselves have changed:\n%s", diff)
			}
		}
	}
}

// The gradient passes through fixed_r8 as if the weights were what is read.
func TestFixedR8PassesGradients(t *testing.T) {
	t.Parallel()
	c := param.Compressor{Kind: param.CompressFixedR8, Range: 0.5}
	g, plain := compressed(t, c), compressed(t, param.Compressor{})
	in := graphtest.Inputs(g, graphtest.Shape{Rows: 9, MaxList: 3}, 5)
	of := func(g *graph.Graph) [][]float32 {
		s := g.NewSession(1)
		s.SetDense(graphtest.Dense(g, 6))
		s.Step(in, 1)
		return s.Grads()
	}
	got, unread := of(g), of(plain)
	for row := 0; row < len(in.Values[0]); row += 4 { // a bias and a vector of 3
		c.Read(in.Values[0][row+1:row+4], slices.Clone(in.Values[0][row+1:row+4]), true, 0)
	}
	if diff := cmp.Diff(of(plain), got); diff != "" {
		t.Errorf("gradients (-of what is read +of the weights):\n%s", diff)
	}
	if cmp.Equal(unread, got) {
		t.Error("nothing was compressed: the test says nothing")
	}
}

// What steps of parameters go by is written with them and read back.
func TestStepsAreWritten(t *testing.T) {
	t.Parallel()
	g := compressed(t, param.Compressor{Kind: param.CompressOneBit, Amplitude: 0.4, Every: 3})
	plain, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	l := g.Layout()
	l.Tables[0].Segments[1].Clip, l.Tables[0].Segments[1].Delay = 0.25, 0.5
	l.Tables[1].Segments[0].Schedule = optim.Schedule{Kind: optim.CosineSchedule, Over: 10, End: 0.1}
	l.Dense[0].Schedule = optim.Schedule{WarmUp: 7}
	b, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	back, err := graph.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(l.String(), back.Layout().String()); diff != "" || string(plain) == string(b) {
		t.Errorf("layout (-written +read):\n%s", diff)
	}
}

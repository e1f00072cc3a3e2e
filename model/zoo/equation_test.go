package zoo_test

import (
	"math"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph/graphtest"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// equation computes models by their papers' equations, a row at a time, in float64. The features are two sparse ones
// with one fid in each row and a dense one of two numbers.
type equation struct {
	layout *param.Layout
	dense  []float32
	in     *model.Inputs
	row    int
}

// tensor returns a dense parameter by its name.
func (e *equation) tensor(name string) []float32 {
	i := slices.IndexFunc(e.layout.Dense, func(p param.Tensor) bool { return p.Name == name })
	return e.dense[e.layout.DenseOffset(i):][:e.layout.Dense[i].Len()]
}

// segment returns a segment of the embedding row of the row's fid of a sparse feature.
func (e *equation) segment(feature int, name string) []float32 {
	t := e.layout.Tables[0]
	values := e.in.Values[0][int(e.in.Sparse[feature].Index[e.row])*t.Dim():]
	for _, s := range t.Segments {
		if s.Name == name {
			return values[:s.Dim]
		}
		values = values[s.Dim:]
	}
	return nil
}

func (e *equation) number(i int) float64 { return float64(e.in.Dense[0][2*e.row+i]) }

// linear is w₀ + Σ wᵢxᵢ.
func (e *equation) linear() float64 {
	sum := float64(e.tensor("linear.bias")[0])
	for f := range 2 {
		sum += float64(e.segment(f, "bias")[0]) + float64(e.tensor("linear.weight")[f])*e.number(f)
	}
	return sum
}

// fields are the vectors vᵢxᵢ.
func (e *equation) fields() [][]float64 {
	var fields [][]float64
	for f := range 2 {
		var v []float64
		for _, w := range e.segment(f, "vec") {
			v = append(v, float64(w))
		}
		fields = append(fields, v)
	}
	dim := len(fields[0])
	for i := range 2 {
		var v []float64
		for _, w := range e.tensor("dense.vectors")[i*dim:][:dim] {
			v = append(v, float64(w)*e.number(i))
		}
		fields = append(fields, v)
	}
	return fields
}

func pairs(fields [][]float64) (sum float64) {
	for i := range fields {
		for j := range i {
			for k := range fields[i] {
				sum += fields[i][k] * fields[j][k]
			}
		}
	}
	return sum
}

// layer is x·W + b.
func (e *equation) layer(name string, x []float64) []float64 {
	w, b := e.tensor(name+".weight"), e.tensor(name+".bias")
	y := make([]float64, len(b))
	for j := range y {
		y[j] = float64(b[j])
		for i, v := range x {
			y[j] += v * float64(w[i*len(b)+j])
		}
	}
	return y
}

func (e *equation) deep(x []float64) []float64 {
	for _, name := range []string{"deep.0", "deep.1"} {
		x = e.layer(name, x)
		for j := range x {
			x[j] = max(x[j], 0)
		}
	}
	return x
}

func (e *equation) cross(x0 []float64) []float64 {
	x := x0
	for _, name := range []string{"cross.0", "cross.1", "cross.2"} {
		y := e.layer(name, x)
		for j := range y {
			y[j] = x0[j]*y[j] + x[j]
		}
		x = y
	}
	return x
}

func TestModelsComputeTheirEquations(t *testing.T) {
	t.Parallel()
	logits := map[string]func(e *equation) float64{
		zoo.LR: (*equation).linear,
		zoo.FM: func(e *equation) float64 { return e.linear() + pairs(e.fields()) },
		zoo.DeepFM: func(e *equation) float64 {
			fields := e.fields()
			return e.linear() + pairs(fields) + e.layer("deep.out", e.deep(slices.Concat(fields...)))[0]
		},
		zoo.DCNv2: func(e *equation) float64 {
			x := slices.Concat(e.fields()...)
			return e.layer("out", append(e.cross(x), e.deep(x)...))[0]
		},
	}
	for name, logit := range logits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := mustNew(t, zoo.Config{
				Name: name, Features: []zoo.Feature{{Name: "a"}, {Name: "b"}, {Name: "x", Kind: model.Dense, Dim: 2}},
				Dim: 3, Hidden: []int{6, 4},
			})
			e := &equation{layout: m.Layout(), dense: graphtest.Dense(m.Graph, 5)}
			e.in = graphtest.Inputs(m, graphtest.Shape{Rows: 20}, 6)
			s := m.NewSession(1)
			s.SetDense(e.dense)
			for r, got := range s.Predict(e.in)[0] {
				e.row = r
				if want := 1 / (1 + math.Exp(-logit(e))); math.Abs(float64(got)-want) > 1e-5 {
					t.Errorf("row %d: got %v, want %v", r, got, want)
				}
			}
		})
	}
}

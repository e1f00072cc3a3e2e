package optim_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
)

// TestShampooOfShapes: matrices, with and without whole statistics of their sides, follow the reference of float64, and a tensor of three dimensions is the matrix of its last.
func TestShampooOfShapes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		shape        []int
		rows, maxDim int
	}{
		{[]int{4, 3}, 4, 512}, {[]int{1, 5}, 1, 512}, {[]int{5, 1}, 5, 512}, {[]int{3, 6}, 3, 4}, {[]int{6, 3}, 6, 4}, {[]int{6, 5}, 6, 4}, {[]int{2, 3, 4}, 6, 512}, {[]int{5}, 0, 512}, {nil, 0, 512},
	} {
		t.Run(fmt.Sprint(test.shape, test.maxDim), func(t *testing.T) {
			t.Parallel()
			o := optim.Shampoo{LR: 0.01, WarmUp: 10, Refresh: 7, Every: 2, Damping: 0.01, MaxDim: test.maxDim}
			rule := o.OfShape(test.shape)
			dim := 1
			for _, d := range test.shape {
				dim *= d
			}
			ref := &refShampoo{rows: test.rows, b1: 0.9, b2: 1, damping: 0.01, warmUp: 10, refresh: 7, every: 2, maxDim: test.maxDim}
			rng := rand.New(rand.NewPCG(8, 9))
			w, g, state := make([]float32, dim), make([]float32, dim), make([]float32, rule.StateDim(dim))
			want, exact := make([]float64, dim), make([]float64, dim)
			rule.Init(w, state)
			for step := range 60 {
				for k := range g {
					g[k] = float32(rng.NormFloat64())
					exact[k] = float64(g[k])
				}
				rule.Update(w, state, g, 0.5)
				ref.update(want, exact, 0.005)
				for k := range w {
					if diff := math.Abs(float64(w[k]) - want[k]); diff > 2e-6 {
						t.Fatalf("step %d element %d: got %v, want %v", step, k, w[k], want[k])
					}
				}
			}
			if err := optim.CheckState(rule, dim, state); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShampooLearns: of inputs of which some are a hundred times as large as others, and all depend on each other, the preconditioned steps come to a quarter of the loss that those of the warm-up alone come to.
func TestShampooLearns(t *testing.T) {
	t.Parallel()
	const rows, columns, examples = 6, 4, 64
	rng := rand.New(rand.NewPCG(1, 7))
	normal := func(n int) []float64 {
		x := make([]float64, n)
		for k := range x {
			x[k] = rng.NormFloat64()
		}
		return x
	}
	mix, x, truth := normal(rows*rows), make([]float64, examples*rows), normal(rows*columns)
	for e := range examples {
		for k, v := range normal(rows) {
			for i := range rows {
				x[e*rows+i] += v * mix[k*rows+i] * math.Pow(0.3, float64(k))
			}
		}
	}
	learn := func(rule optim.Optimizer) (loss float64) {
		w, state, grad := make([]float32, rows*columns), make([]float32, rule.StateDim(rows*columns)), make([]float32, rows*columns)
		rule.Init(w, state)
		for range 800 {
			clear(grad)
			loss = 0
			for e := range examples {
				for c := range columns {
					off := 0.0
					for i := range rows {
						off += x[e*rows+i] * (float64(w[i*columns+c]) - truth[i*columns+c])
					}
					loss += off * off / examples
					for i := range rows {
						grad[i*columns+c] += float32(2 * off * x[e*rows+i] / examples)
					}
				}
			}
			rule.Update(w, state, grad, 1)
		}
		return loss
	}
	o := optim.Shampoo{LR: 0.2, WarmUp: 20, Refresh: 10, Every: 1}
	preconditioned := learn(o.OfShape([]int{rows, columns}))
	o.WarmUp = 2000
	warming := learn(o.OfShape([]int{rows, columns}))
	t.Logf("loss %.4g, of the warm-up alone %.4g", preconditioned, warming)
	if !(preconditioned < warming/4) {
		t.Errorf("the loss is %.4g, that of the warm-up alone %.4g", preconditioned, warming)
	}
}

// TestShampooOutOfRange: gradients whose squares are beyond float32 leave the former preconditioners, and never a panic.
func TestShampooOutOfRange(t *testing.T) {
	t.Parallel()
	rule := optim.Shampoo{WarmUp: 2, Refresh: 1, Every: 1}.OfShape([]int{3, 2})
	w, state := make([]float32, 6), make([]float32, rule.StateDim(6))
	rule.Init(w, state)
	for _, size := range []float32{1, 1, 1, 1e25, 1, 1} {
		rule.Update(w, state, []float32{size, -size, size, size, 0, size}, 1)
	}
	if i := slices.IndexFunc(w, func(v float32) bool { return v-v != 0 }); i >= 0 {
		t.Errorf("weight %d is %v", i, w[i])
	}
	rule.Update(w, state, []float32{float32(math.NaN()), 0, 0, 0, 0, 0}, 1)
}

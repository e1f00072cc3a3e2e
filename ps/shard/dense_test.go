package shard

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestDenseUpdatesHaveTheSameBits updates dense tensors of several sizes and rules on one goroutine and on several.
func TestDenseUpdatesHaveTheSameBits(t *testing.T) {
	t.Parallel()
	l := &param.Layout{Seed: 1}
	for i, rule := range []optim.Optimizer{optim.Adam{}, optim.Adagrad{}, optim.SGD{LR: .1}, optim.FTRL{}} {
		for j, n := range []int{1, 7, 300, spreadDense / 3} {
			d := param.Tensor{Name: string(rune('a'+i)) + string(rune('a'+j)), Shape: []int{n}, Init: param.Uniform(-1, 1), Optimizer: rule}
			if j == 2 {
				d.L2, d.L1 = .1, .01
			}
			if j == 1 {
				d.Delay = .5
			}
			l.Dense = append(l.Dense, d)
		}
	}
	var of [2]*Shard
	for i := range of {
		s, err := New(l, 0, 1, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		of[i] = s
	}
	of[1].SetThreads(3)
	r := rand.New(rand.NewPCG(2, 3))
	b := &batch{lr: .5, examples: 100, dense: make([]float32, of[0].place.PushLen(0))}
	for range 5 {
		for i := range b.dense {
			b.dense[i] = r.Float32() - .5
		}
		for _, s := range of {
			s.updateDense(b)
		}
	}
	for i := range of[0].dense {
		a, b := &of[0].dense[i], &of[1].dense[i]
		if !slices.Equal(a.weights, b.weights) || !slices.Equal(a.state, b.state) {
			t.Errorf("tensor %s is not the same", a.spec.Name)
		}
		if slices.Equal(a.weights, make([]float32, len(a.weights))) {
			t.Errorf("tensor %s is all zeros", a.spec.Name)
		}
	}
}

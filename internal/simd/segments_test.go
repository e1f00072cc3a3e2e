package simd_test

import (
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/monolith-go/monolith/internal/simd"
)

// TestSegments compares rows that are updated together with the same rows updated one after the other by the functions for vectors in
// the portable family: the same bits, and nothing beside the segment is written.
func TestSegments(t *testing.T) {
	const rate, beta1, beta2 = 0.1, 0.9, 0.999
	adam := func(nesterov bool) simd.AdamRule {
		return simd.AdamRule{Beta1: beta1, C1: 0.1, C2: 0.001, Epsilon: 1e-3, Decay: 0.01, Nesterov: nesterov}
	}
	alone := func(o simd.AdamRule, w, state, g []float32) {
		d := len(w)
		b := state[2*d:]
		b1, b2 := f64(beta1), f64(beta2)
		b[0], b[1] = float32(1-b1+b1*f64(b[0])), float32(1-b2+b2*f64(b[1]))
		o.Rate = float32(rate * math.Sqrt(f64(b[1])) / f64(b[0]))
		simd.Adam(w, state[:d], state[d:2*d], g, o)
	}
	amsgrad := func(o simd.AdamRule, w, state, g []float32) {
		d := len(w)
		b := state[3*d:]
		b1, b2 := f64(beta1), f64(beta2)
		b[0], b[1] = float32(1-b1+b1*f64(b[0])), float32(1-b2+b2*f64(b[1]))
		o.Rate = float32(rate * math.Sqrt(f64(b[1])) / f64(b[0]))
		simd.AMSGrad(w, state[:d], state[d:2*d], state[2*d:3*d], g, o)
	}
	rules := []struct {
		name            string
		vectors, others int // of state, and floats after them
		squares         int // the vector of state that is never below 0
		all             func(s *simd.Segments)
		one             func(w, state, g []float32)
	}{
		{"sgd", 0, 0, 0, func(s *simd.Segments) { s.SGD(rate) }, func(w, _, g []float32) { simd.SGD(w, g, rate) }},
		{"ema", 0, 0, 0, func(s *simd.Segments) { s.EMA(0.9, 0.1) }, func(w, _, g []float32) { simd.EMA(w, g, 0.9, 0.1) }},
		{"adagrad", 1, 0, 0, func(s *simd.Segments) { s.Adagrad(rate, 0.01) }, func(w, n, g []float32) { simd.Adagrad(w, n, g, rate, 0.01) }},
		{"ftrl", 2, 0, 0, func(s *simd.Segments) { s.FTRL(rate, 1, 0.25, 0.125) }, func(w, state, g []float32) {
			simd.FTRL(w, state[:len(w)], state[len(w):], g, rate, 1, 0.25, 0.125)
		}},
		{"adagradw", 1, 0, 0, func(s *simd.Segments) { s.AdagradW(rate, 0.01) }, func(w, n, g []float32) { simd.AdagradW(w, n, g, rate, 0.01) }},
		{"row adagrad", 0, 1, 0, func(s *simd.Segments) { s.RowAdagrad(rate, 0.01) }, func(w, sum, g []float32) { simd.RowAdagrad(w, sum, g, rate, 0.01) }},
		{"group adagrad", 0, 1, 0, func(s *simd.Segments) { s.GroupAdagrad(rate, 0.01, 0.5, 0) }, func(w, sum, g []float32) { simd.GroupAdagrad(w, sum, g, rate, 0.01, 0.5, 0) }},
		{"group adagrad, l2", 0, 1, 0, func(s *simd.Segments) { s.GroupAdagrad(rate, 0.01, 0.5, 15) }, func(w, sum, g []float32) { simd.GroupAdagrad(w, sum, g, rate, 0.01, 0.5, 15) }},
		{"rmsprop", 1, 0, 0, func(s *simd.Segments) { s.RMSprop(averagesRule) }, func(w, n, g []float32) { simd.RMSprop(w, n, g, averagesRule) }},
		{"of two vectors", 2, 0, 0, func(s *simd.Segments) { s.Each(2, func(v [5][]float32) { ofTwo(v[0], v[1], v[2], v[3]) }) }, func(w, state, g []float32) {
			ofTwo(w, state[:len(w)], state[len(w):], g)
		}},
		{"adadelta", 2, 0, 0, func(s *simd.Segments) { s.Adadelta(averagesRule) }, func(w, state, g []float32) {
			simd.Adadelta(w, state[:len(w)], state[len(w):], g, averagesRule)
		}},
		{"momentum", 1, 0, 0, func(s *simd.Segments) { s.Momentum(momentumRule(false)) }, func(w, v, g []float32) { simd.Momentum(w, v, g, momentumRule(false)) }},
		{"momentum, nesterov", 1, 0, 0, func(s *simd.Segments) { s.Momentum(momentumRule(true)) }, func(w, v, g []float32) { simd.Momentum(w, v, g, momentumRule(true)) }},
		{"amsgrad", 3, 2, 1, func(s *simd.Segments) { s.AMSGrad(adam(false), rate, beta2) }, func(w, state, g []float32) { amsgrad(adam(false), w, state, g) }},
		{"amsgrad, nesterov", 3, 2, 1, func(s *simd.Segments) { s.AMSGrad(adam(true), rate, beta2) }, func(w, state, g []float32) { amsgrad(adam(true), w, state, g) }},
		{"adam", 2, 2, 1, func(s *simd.Segments) { s.Adam(adam(false), rate, beta2) }, func(w, state, g []float32) { alone(adam(false), w, state, g) }},
		{"adam, nesterov", 2, 2, 1, func(s *simd.Segments) { s.Adam(adam(true), rate, beta2) }, func(w, state, g []float32) { alone(adam(true), w, state, g) }},
	}
	eachActive(t, func(t *testing.T) {
		var s simd.Segments // its buffers are used again for all rules and sizes
		for _, r := range rules {
			for _, dim := range []int{1, 2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 17, 24, 31, 32, 33} {
				sizes := []int{0, 1, 2, 7, 8, 9, 31, 64}
				if dim == 1 {
					sizes = append(sizes, 600) // several runs
				}
				for _, n := range sizes {
					for _, l2 := range []float32{0, 0.02} {
						for k, gap := range []int{0, 3, 3} {
							s.Distinct = k == 2
							place := func(i int) int { // where the row of a number lies: the last one first, but for some that lie where others do
								if i%6 == 5 && !s.Distinct {
									return n - 1 - i/2
								}
								return n - 1 - i
							}
							const before, between, after = 3, 2, 1 // what else a row has
							states := r.vectors*dim + r.others
							stride := before + dim + between + states + after
							rng := newRand(uint64(1000*dim + 10*n + gap))
							number := func() float32 {
								if gap > 0 && rng.IntN(20) == 0 {
									return special[rng.IntN(len(special))]
								}
								return 2*rng.Float32() - 1
							}
							rows, grads := make([]float32, (n+1)*stride), make([]float32, n*(dim+gap))
							for i := range rows {
								rows[i] = number()
								if c := i%stride - before - dim - between; c >= 0 && (c/dim == r.squares || c/dim == r.vectors) && rows[i] < 0 {
									rows[i] = -rows[i]
								}
							}
							for i := range grads {
								grads[i] = number()
							}
							want := append([]float32(nil), rows...)
							s.Rows = s.Rows[:0]
							for i := range n {
								s.Rows = append(s.Rows, uintptr(unsafe.Pointer(&rows[place(i)*stride])))
							}
							s.Weights, s.State, s.Dim = 4*before, uintptr(4*(before+dim+between)), dim
							s.Grads, s.Step, s.L2 = grads, dim+gap, l2
							r.all(&s)
							restore := simd.SetActive(simd.Portable)
							for i := range n {
								row, g := want[place(i)*stride:], append([]float32(nil), grads[i*(dim+gap):][:dim]...)
								w := row[before:][:dim]
								if l2 != 0 {
									simd.AddScaled(l2, w, g)
								}
								r.one(w, row[before+dim+between:][:states], g)
							}
							restore()
							what := fmt.Sprintf("%s: %d rows of dim %d, l2 %g, gap %d", r.name, n, dim, l2, gap)
							for i := range rows {
								if got, want := rows[i], want[i]; math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
									t.Fatalf("%s: row %d, float %d is %g, want %g", what, i/stride, i%stride, got, want)
								}
							}
						}
					}
				}
			}
		}
	})
}

// TestSegmentsAllocateNothing: buffers are kept.
func TestSegmentsAllocateNothing(t *testing.T) {
	if simd.Interpreted {
		t.Skip("the interpreter allocates")
	}
	const n = 64
	rows, s := make([]float32, 5*n), simd.Segments{State: 4, Dim: 1, Grads: make([]float32, 2*n), Step: 2}
	for i := range n {
		rows[5*i+1] = 1
		s.Rows = append(s.Rows, uintptr(unsafe.Pointer(&rows[5*i])))
	}
	if got := testing.AllocsPerRun(20, func() {
		s.FTRL(0.1, 1, 0.25, 0.125)
		s.RowAdagrad(0.1, 0)
		s.Adadelta(averagesRule)
		s.Adam(simd.AdamRule{Beta1: 0.9, C1: 0.1, C2: 0.001, Epsilon: 1e-3}, 0.1, 0.999)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// ofTwo is a rule without a kernel.
func ofTwo(w, a, b, g []float32) {
	for k := range w {
		a[k] += g[k]
		b[k] -= a[k]
		w[k] -= float32(0.125 * b[k])
	}
}

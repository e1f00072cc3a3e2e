package main

import (
	"strings"

	"github.com/mmcloughlin/avo/operand"
)

// rule is an update of model/optim, in its order of operations and with its roundings, so that it gives its bits. The arrays are the
// weights, the state and, last, the gradient.
type rule struct {
	name, doc       string
	arrays, scalars []string
	unroll          int
	// rates is set where the first scalar is one of each row, and where of each element: an array behind the gradient.
	rates bool
	// rows is set where there is a kernel for segments of rows too.
	rows bool
	// singles is set where there is one for rows of one weight.
	singles bool
	body    func(o operands, s func(i int) vector)
}

// rules emits them as kernels over vectors.
func (a *asm) rules() {
	for _, r := range a.all() {
		a.each(r.name, r.doc, r.arrays, r.scalars, r.unroll, func(o operands, s []vector) {
			r.body(o, func(i int) vector { return s[i] })
		})
		if r.rates {
			doc := r.doc + " Each element has a rate of its own."
			a.each(r.name+"Rates", doc, append(r.arrays[:len(r.arrays):len(r.arrays)], "rates"), r.scalars[1:], r.unroll, func(o operands, s []vector) {
				r.body(o, func(i int) vector {
					if i == 0 {
						return o.load(len(r.arrays))
					}
					return s[i-1]
				})
			})
		}
	}
}

func (a *asm) all() []rule {
	sgd := rule{
		name: "sgd", doc: "is w -= rate·g.", arrays: []string{"w", "grad"}, scalars: []string{"rate"}, unroll: 2, rows: true, singles: true,
		body: func(o operands, s func(int) vector) {
			o.store(a.sub(o.load(0), a.mul(o.load(1), s(0))), 0)
		},
	}
	ema := rule{
		name: "ema", doc: "is w = decay·w + rest·g.", arrays: []string{"w", "grad"}, scalars: []string{"decay", "rest"}, unroll: 2, rows: true,
		body: func(o operands, s func(int) vector) {
			o.store(a.add(a.mul(o.load(0), s(0)), a.mul(o.load(1), s(1))), 0)
		},
	}
	adagrad := rule{
		name: "adagrad", doc: "is g += decay·w, n += g·g, w -= rate·g/√n.", arrays: []string{"w", "n1", "grad"}, scalars: []string{"rate", "decay"},
		unroll: 1, rows: true, singles: true,
		body: func(o operands, s func(int) vector) {
			w := o.load(0)
			g := a.add(o.load(2), a.mul(w, s(1)))
			n := a.add(o.load(1), a.mul(g, g))
			o.store(n, 1)
			o.store(a.sub(w, a.div(a.mul(g, s(0)), a.sqrt(n))), 0)
		},
	}
	adagradW := rule{
		name: "adagradW", doc: "is n += g·g, w -= rate·g/√n + shrink·w.", arrays: []string{"w", "n1", "grad"}, scalars: []string{"rate", "shrink"},
		unroll: 1, rows: true,
		body: func(o operands, s func(int) vector) {
			w, g := o.load(0), o.load(2)
			n := a.add(o.load(1), a.mul(g, g))
			o.store(n, 1)
			o.store(a.sub(w, a.add(a.div(a.mul(g, s(0)), a.sqrt(n)), a.mul(w, s(1)))), 0)
		},
	}
	rmsprop := rule{
		name: "rmsprop", doc: "is g += decay·w, n = rho·n + rest·g·g, w -= rate·g/(√n+epsilon).", arrays: []string{"w", "n1", "grad"},
		scalars: []string{"rate", "rho", "rest", "epsilon", "decay"}, unroll: 1, rows: true,
		body: func(o operands, s func(int) vector) {
			w := o.load(0)
			g := a.add(o.load(2), a.mul(w, s(4)))
			n := a.add(a.mul(o.load(1), s(1)), a.mul(a.mul(g, g), s(2)))
			o.store(n, 1)
			o.store(a.sub(w, a.div(a.mul(g, s(0)), a.add(a.sqrt(n), s(3)))), 0)
		},
	}
	adadelta := rule{
		name: "adadelta", doc: "is g += decay·w, a = rho·a + rest·g·g, u = √(c+epsilon)·g/√(a+epsilon), w -= rate·u, c = rho·c + rest·u·u.",
		arrays: []string{"w", "a", "c", "grad"}, scalars: []string{"rate", "rho", "rest", "epsilon", "decay"}, unroll: 1, rows: true,
		body: func(o operands, s func(int) vector) {
			w := o.load(0)
			g := a.add(o.load(3), a.mul(w, s(4)))
			squares := a.add(a.mul(o.load(1), s(1)), a.mul(a.mul(g, g), s(2)))
			o.store(squares, 1)
			changes := o.load(2)
			u := a.div(a.mul(g, a.sqrt(a.add(changes, s(3)))), a.sqrt(a.add(squares, s(3))))
			o.store(a.sub(w, a.mul(u, s(0))), 0)
			o.store(a.add(a.mul(changes, s(1)), a.mul(a.mul(u, u), s(2))), 2)
		},
	}
	all := []rule{sgd, ema, adagrad, adagradW, rmsprop, adadelta}
	for _, nesterov := range []bool{false, true} {
		momentum := rule{
			name: "momentum", doc: "is g += decay·w, v = mu·v - rate·g, w += v.", arrays: []string{"w", "v", "grad"}, scalars: []string{"rate", "mu", "decay"},
			unroll: 1, rows: true, singles: true,
		}
		if nesterov {
			momentum.name, momentum.doc = "momentumNesterov", "is g += decay·w, v' = mu·v - rate·g, w += ahead·v' - mu·v, v = v'."
			momentum.scalars = append(momentum.scalars, "ahead")
		}
		momentum.body = func(o operands, s func(int) vector) {
			w := o.load(0)
			g := a.add(o.load(2), a.mul(w, s(2)))
			former := a.mul(o.load(1), s(1))
			v := a.sub(former, a.mul(g, s(0)))
			o.store(v, 1)
			if nesterov {
				v = a.sub(a.mul(v, s(3)), former)
			}
			o.store(a.add(w, v), 0)
		}
		all = append(all, momentum)
	}
	for _, nesterov := range []bool{false, true} {
		for _, largest := range []bool{false, true} {
			all = append(all, a.adam(nesterov, largest))
		}
	}
	return append(all, rule{
		name: "ftrl", doc: "is the update of FTRL-Proximal; l2rate is l2·rate.", arrays: []string{"w", "n1", "z", "grad"},
		scalars: []string{"rate", "beta", "l1", "l2", "l2rate"}, unroll: 1, rows: true, singles: true,
		body: func(o operands, s func(int) vector) {
			const rate, beta, l1, l2, l2rate = 0, 1, 2, 3, 4
			w, n, g := o.load(0), o.load(1), o.load(3)
			root := a.sqrt(n)
			n = a.add(n, a.mul(g, g))
			o.store(n, 1)
			newRoot := a.sqrt(n)
			z := o.load(2)
			shrunk := a.shrink(z, s(l1))
			slow := a.add(s(beta), newRoot)
			made := a.sub(a.add(a.sub(shrunk, a.mul(s(l2), w)), g), a.mul(a.div(slow, s(rate)), w))
			initial := a.sub(g, a.mul(a.div(a.sub(newRoot, root), s(rate)), w))
			z = a.add(z, a.choose(a.compare(shrunk, notEqual, a.zeros()), made, initial))
			o.store(z, 2)
			o.store(a.div(a.mul(s(rate), a.shrink(z, s(l1))), a.add(slow, s(l2rate))), 0)
		},
	})
}

// adam is Adam's update; with largest it is AMSGrad's, whose denominator is made of the largest v so far.
func (a *asm) adam(nesterov, largest bool) rule {
	r := rule{
		name: "adam", doc: "is g += decay·w, m += (g-m)·c1, v += (g·g-v)·c2, w -= rate·m/(√v+epsilon).", arrays: []string{"w", "m", "v", "grad"},
		scalars: []string{"rate", "c1", "c2", "epsilon", "decay"}, unroll: 1, rates: true, rows: true,
	}
	grad := 3
	if largest {
		r.name, r.doc = "amsgrad", "is Adam's update with the largest v so far, h, in place of v in the last."
		r.arrays, grad = []string{"w", "m", "v", "h", "grad"}, 4
	}
	if nesterov {
		r.name += "Nesterov"
		r.doc = strings.TrimSuffix(r.doc, ".") + "; its m is c1·g + beta1·m."
		r.scalars = append(r.scalars, "beta1")
	}
	r.body = func(o operands, s func(int) vector) {
		w := o.load(0)
		g := a.add(o.load(grad), a.mul(w, s(4)))
		m := o.load(1)
		m = a.add(m, a.mul(a.sub(g, m), s(1)))
		v := o.load(2)
		v = a.add(v, a.mul(a.sub(a.mul(g, g), v), s(2)))
		o.store(m, 1)
		o.store(v, 2)
		if largest {
			v = a.max(o.load(3), v)
			o.store(v, 3)
		}
		if nesterov {
			m = a.add(a.mul(g, s(1)), a.mul(m, s(5)))
		}
		o.store(a.sub(w, a.div(a.mul(m, s(0)), a.add(a.sqrt(v), s(3)))), 0)
	}
	return r
}

// groups emits what rules are made of that treat a vector as one.
func (a *asm) groups() {
	a.each("sgdDecayed", "is w -= rate·(g + decay·w).", []string{"w", "grad"}, []string{"rate", "decay"}, 2, func(o operands, s []vector) {
		w := o.load(0)
		o.store(a.sub(w, a.mul(a.add(o.load(1), a.mul(w, s[1])), s[0])), 0)
	})
	a.each("compensate", "is y = g + lambda·g·g·(w-seen) from least to most, or g where that is no number.", []string{"w", "seen", "grad", "y"},
		[]string{"lambda", "least", "most"}, 1, func(o operands, s []vector) {
			g := o.load(2)
			v := a.add(g, a.mul(a.mul(g, s[0]), a.mul(g, a.sub(o.load(0), o.load(1)))))
			// max and min return their second operand for a NaN: v.
			v = a.min(s[2], a.max(s[1], v))
			o.store(a.choose(a.compare(v, unordered, v), g, v), 3)
		})
	a.each("groupLeader", "is z += g - (√(n+g·g)-√n)/rate·w, n += g·g.", []string{"w", "n1", "z", "grad"}, []string{"rate"}, 1, func(o operands, s []vector) {
		w, n, g := o.load(0), o.load(1), o.load(3)
		sum := a.add(n, a.mul(g, g))
		o.store(sum, 1)
		o.store(a.add(o.load(2), a.sub(g, a.mul(a.div(a.sub(a.sqrt(sum), a.sqrt(n)), s[0]), w))), 2)
	})
	a.each("groupLeaderMade", "is n += g·g, z += c·z - l2·w + g - (beta+√n)/rate·w.",
		[]string{"w", "n1", "z", "grad"}, []string{"rate", "beta", "l2", "c"}, 1, func(o operands, s []vector) {
			w, g, z := o.load(0), o.load(3), o.load(2)
			n := a.add(o.load(1), a.mul(g, g))
			o.store(n, 1)
			d := a.add(a.sub(a.mul(z, s[3]), a.mul(w, s[2])), g)
			o.store(a.add(z, a.sub(d, a.mul(a.div(a.add(a.sqrt(n), s[1]), s[0]), w))), 2)
		})
	a.each("groupWeights", "is w = rate·(c·z)/(beta+√n+l2rate).", []string{"w", "n1", "z"}, []string{"rate", "beta", "l2rate", "c"}, 1, func(o operands, s []vector) {
		o.store(a.div(a.mul(a.mul(o.load(2), s[3]), s[0]), a.add(a.add(a.sqrt(o.load(1)), s[1]), s[2])), 0)
	})
}

// groupSums emits sums over a vector that rules go by. They have one width for all families, since the order of a sum is part of its bits.
func (a *asm) groupSums() {
	decayed := func(name, doc string, add func(acc, square vector)) {
		a.fn(name, "func(n int, x, w *float32, decay float32) float32", doc)
		decay, n, p := a.scalar("decay"), a.gp("n"), a.ptrs("x", "w")
		acc := a.zeros()
		a.elementwise(n, p, 1, func(_ int, m func(int) operand.Mem, t *tail) {
			d := a.add(a.load(m(0), t), a.mul(a.load(m(1), t), decay))
			add(acc, a.mul(d, d))
		})
		if name == "largestSquare" {
			a.Store(a.largestLane(acc), a.ReturnIndex(0))
		} else {
			a.Store(a.sumLanes(acc), a.ReturnIndex(0))
		}
		a.ret()
	}
	decayed("lanesSquares", "is the sum of the squares of the n elements of x + decay·w: in eight lanes, element k in lane k mod 8, without fused products.",
		func(acc, square vector) { a.VADDPS(square, acc, acc) })
	decayed("largestSquare", "is the largest of the squares of the n elements of x + decay·w, or 0; NaN are left out.",
		func(acc, square vector) { a.VMAXPS(acc, square, acc) })
}

// shrink is l1 - z where z > l1, -l1 - z where z < -l1, else 0.
func (a *asm) shrink(z, l1 vector) vector {
	zero, low := a.zeros(), a.vec()
	if a.wide {
		a.VPXORD(a.constantBits(0x80000000), l1, low)
	} else {
		a.VXORPS(a.constantBits(0x80000000), l1, low)
	}
	v := a.choose(a.compare(z, less, low), a.sub(low, z), zero)
	return a.choose(a.compare(z, greater, l1), a.sub(l1, z), v)
}

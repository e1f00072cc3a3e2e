package main

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
	body func(o operands, s func(i int) vector)
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
		name: "sgd", doc: "is w -= rate·g.", arrays: []string{"w", "grad"}, scalars: []string{"rate"}, unroll: 2, rows: true,
		body: func(o operands, s func(int) vector) {
			o.store(a.sub(o.load(0), a.mul(o.load(1), s(0))), 0)
		},
	}
	momentum := rule{
		name: "momentum", doc: "is v = mu·v + g, w -= rate·v.", arrays: []string{"w", "v", "grad"}, scalars: []string{"rate", "mu"}, unroll: 1,
		body: func(o operands, s func(int) vector) {
			v := a.add(a.mul(o.load(1), s(1)), o.load(2))
			o.store(v, 1)
			o.store(a.sub(o.load(0), a.mul(v, s(0))), 0)
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
		unroll: 1, rows: true,
		body: func(o operands, s func(int) vector) {
			w := o.load(0)
			g := a.add(o.load(2), a.mul(w, s(1)))
			n := a.add(o.load(1), a.mul(g, g))
			o.store(n, 1)
			o.store(a.sub(w, a.div(a.mul(g, s(0)), a.sqrt(n))), 0)
		},
	}
	all := []rule{sgd, momentum, ema, adagrad}
	for _, nesterov := range []bool{false, true} {
		adam := rule{
			name: "adam", doc: "is g += decay·w, m += (g-m)·c1, v += (g·g-v)·c2, w -= rate·m/(√v+epsilon).", arrays: []string{"w", "m", "v", "grad"},
			scalars: []string{"rate", "c1", "c2", "epsilon", "decay"}, unroll: 1, rates: true, rows: true,
		}
		if nesterov {
			adam.name, adam.doc = "adamNesterov", "is Adam's update with c1·g + beta1·m in place of m in the last."
			adam.scalars = append(adam.scalars, "beta1")
		}
		adam.body = func(o operands, s func(int) vector) {
			w := o.load(0)
			g := a.add(o.load(3), a.mul(w, s(4)))
			m := o.load(1)
			m = a.add(m, a.mul(a.sub(g, m), s(1)))
			v := o.load(2)
			v = a.add(v, a.mul(a.sub(a.mul(g, g), v), s(2)))
			o.store(m, 1)
			o.store(v, 2)
			if nesterov {
				m = a.add(a.mul(g, s(1)), a.mul(m, s(5)))
			}
			o.store(a.sub(w, a.div(a.mul(m, s(0)), a.add(a.sqrt(v), s(3)))), 0)
		}
		all = append(all, adam)
	}
	return append(all, rule{
		name: "ftrl", doc: "is the update of FTRL-Proximal; l2rate is l2·rate.", arrays: []string{"w", "n1", "z", "grad"},
		scalars: []string{"rate", "beta", "l1", "l2", "l2rate"}, unroll: 1, rows: true,
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

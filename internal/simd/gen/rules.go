package main

// rules are the updates of model/optim, in its order of operations and with its roundings, so that they give its bits.
func (a *asm) rules() {
	a.each("sgd", "is w -= rate·g.", []string{"w", "grad"}, []string{"rate"}, 2, func(o operands, s []vector) {
		o.store(a.sub(o.load(0), a.mul(o.load(1), s[0])), 0)
	})
	a.each("momentum", "is v = mu·v + g, w -= rate·v.", []string{"w", "v", "grad"}, []string{"rate", "mu"}, 1, func(o operands, s []vector) {
		v := a.add(a.mul(o.load(1), s[1]), o.load(2))
		o.store(v, 1)
		o.store(a.sub(o.load(0), a.mul(v, s[0])), 0)
	})
	a.each("ema", "is w = decay·w + rest·g.", []string{"w", "grad"}, []string{"decay", "rest"}, 2, func(o operands, s []vector) {
		o.store(a.add(a.mul(o.load(0), s[0]), a.mul(o.load(1), s[1])), 0)
	})
	a.each("adagrad", "is g += decay·w, n += g·g, w -= rate·g/√n.", []string{"w", "n1", "grad"}, []string{"rate", "decay"}, 1, func(o operands, s []vector) {
		w := o.load(0)
		g := a.add(o.load(2), a.mul(w, s[1]))
		n := a.add(o.load(1), a.mul(g, g))
		o.store(n, 1)
		o.store(a.sub(w, a.div(a.mul(g, s[0]), a.sqrt(n))), 0)
	})
	for _, nesterov := range []bool{false, true} {
		name, doc, scalars := "adam", "is g += decay·w, m += (g-m)·c1, v += (g·g-v)·c2, w -= rate·m/(√v+epsilon).", []string{"rate", "c1", "c2", "epsilon", "decay"}
		if nesterov {
			name, doc = "adamNesterov", "is Adam's update with c1·g + beta1·m in place of m in the last."
			scalars = append(scalars, "beta1")
		}
		a.each(name, doc, []string{"w", "m", "v", "grad"}, scalars, 1, func(o operands, s []vector) {
			w := o.load(0)
			g := a.add(o.load(3), a.mul(w, s[4]))
			m := o.load(1)
			m = a.add(m, a.mul(a.sub(g, m), s[1]))
			v := o.load(2)
			v = a.add(v, a.mul(a.sub(a.mul(g, g), v), s[2]))
			o.store(m, 1)
			o.store(v, 2)
			if nesterov {
				m = a.add(a.mul(g, s[1]), a.mul(m, s[5]))
			}
			o.store(a.sub(w, a.div(a.mul(m, s[0]), a.add(a.sqrt(v), s[3]))), 0)
		})
	}
	a.each("ftrl", "is the update of FTRL-Proximal; l2rate is l2·rate.", []string{"w", "n1", "z", "grad"},
		[]string{"rate", "beta", "l1", "l2", "l2rate"}, 1, func(o operands, s []vector) {
			rate, beta, l1, l2, l2rate := s[0], s[1], s[2], s[3], s[4]
			w, n, g := o.load(0), o.load(1), o.load(3)
			root := a.sqrt(n)
			n = a.add(n, a.mul(g, g))
			o.store(n, 1)
			newRoot := a.sqrt(n)
			z := o.load(2)
			shrunk := a.shrink(z, l1)
			slow := a.add(beta, newRoot)
			made := a.sub(a.add(a.sub(shrunk, a.mul(l2, w)), g), a.mul(a.div(slow, rate), w))
			initial := a.sub(g, a.mul(a.div(a.sub(newRoot, root), rate), w))
			z = a.add(z, a.choose(a.compare(shrunk, notEqual, a.zeros()), made, initial))
			o.store(z, 2)
			o.store(a.div(a.mul(rate, a.shrink(z, l1)), a.add(slow, l2rate)), 0)
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

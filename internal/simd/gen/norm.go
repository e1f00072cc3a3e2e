package main

import (
	"strings"

	"github.com/mmcloughlin/avo/operand"
)

// normalisation is what batch and layer norm do with each row; mean and inv are numbers of the row in one, of the column in the
// other.
func (a *asm) normalisation() {
	a.each("normalise", "is y = gamma·((x-mean)·inv) + beta, mean and inv being numbers.",
		[]string{"x", "gamma", "beta", "y"}, []string{"mean", "inv"}, 1, func(o operands, s []vector) {
			h := a.mul(a.sub(o.load(0), s[0]), s[1])
			o.store(a.add(a.mul(o.load(1), h), o.load(2)), 3)
		})
	a.each("normaliseColumns", "is y = gamma·((x-mean)·inv) + beta, all being vectors.",
		[]string{"x", "mean", "inv", "gamma", "beta", "y"}, nil, 1, func(o operands, _ []vector) {
			h := a.mul(a.sub(o.load(0), o.load(1)), o.load(2))
			o.store(a.add(a.mul(o.load(3), h), o.load(4)), 5)
		})
	a.each("normaliseGrad", "adds dy to dbeta and dy·h, h = (x-mean)·inv, to dgamma, and puts h into xhat and dy·gamma into dhat.",
		[]string{"x", "dy", "gamma", "dgamma", "dbeta", "xhat", "dhat"}, []string{"mean", "inv"}, 1, func(o operands, s []vector) {
			h, dy := a.mul(a.sub(o.load(0), s[0]), s[1]), o.load(1)
			o.store(h, 5)
			o.store(a.mul(dy, o.load(2)), 6)
			o.store(a.add(o.load(3), a.mul(dy, h)), 3)
			o.store(a.add(o.load(4), dy), 4)
		})
	a.each("addCentred", "adds inv·((dhat-m)-xhat·v) to dx.",
		[]string{"xhat", "dhat", "dx"}, []string{"m", "v", "inv"}, 1, func(o operands, s []vector) {
			d := a.sub(a.sub(o.load(1), s[0]), a.mul(o.load(0), s[1]))
			o.store(a.add(o.load(2), a.mul(d, s[2])), 2)
		})
	a.each("addColumnsGrad", "adds factor·((dy-m)-((x-mean)·inv)·v) to dx, all being vectors.",
		[]string{"x", "dy", "mean", "inv", "m", "v", "factor", "dx"}, nil, 1, func(o operands, _ []vector) {
			h := a.mul(a.sub(o.load(0), o.load(2)), o.load(3))
			d := a.sub(a.sub(o.load(1), o.load(4)), a.mul(h, o.load(5)))
			o.store(a.add(o.load(7), a.mul(d, o.load(6))), 7)
		})
}

// wide is arithmetic in float64: half a vector of floats at a time, or one at the end.
type wide struct {
	*asm
	one bool
}

func (w wide) reg() vector {
	if w.one {
		return w.XMM()
	}
	return w.vec()
}

// half is a register for the floats that become a vector of float64.
func (w wide) half() vector {
	if w.one || !w.asm.wide {
		return w.XMM()
	}
	return w.YMM()
}

// loadHalf reads floats.
func (w wide) loadHalf(p operand.Mem) vector {
	h := w.half()
	if w.one {
		w.VMOVSS(p, h)
	} else {
		w.VMOVUPS(p, h)
	}
	return h
}

// widen makes float64 of floats.
func (w wide) widen(h vector) vector {
	v := w.reg()
	if w.one {
		w.VCVTSS2SD(h, h, v)
	} else {
		w.VCVTPS2PD(h, v)
	}
	return v
}

func (w wide) halfOp(name string, x, y vector) vector {
	v := w.half()
	switch name {
	case "sub":
		w.VSUBPS(y, x, v)
	case "mul":
		w.VMULPS(y, x, v)
	}
	return v
}

func (w wide) load(p operand.Mem) vector {
	v := w.reg()
	if w.one {
		w.VMOVSD(p, v)
	} else {
		w.VMOVUPD(p, v)
	}
	return v
}

// addTo adds v to the float64 at p.
func (w wide) addTo(v vector, p operand.Mem) {
	if w.one {
		w.VADDSD(p, v, v)
		w.VMOVSD(v, p)
	} else {
		w.VADDPD(p, v, v)
		w.VMOVUPD(v, p)
	}
}

func (w wide) sub(x, y vector) vector {
	v := w.reg()
	if w.one {
		w.VSUBSD(y, x, v)
	} else {
		w.VSUBPD(y, x, v)
	}
	return v
}

func (w wide) square(x vector) vector {
	v := w.reg()
	if w.one {
		w.VMULSD(x, x, v)
	} else {
		w.VMULPD(x, x, v)
	}
	return v
}

// doubles emits a kernel over n elements of arrays of floats and of float64.
func (a *asm) doubles(name, doc string, floats, doubles []string, body func(w wide, f, d []operand.Mem)) {
	a.fn(name, "func(n int, "+strings.Join(floats, ", ")+" *float32, "+strings.Join(doubles, ", ")+" *float64)", doc)
	n, f, d := a.gp("n"), a.ptrs(floats...), a.ptrs(doubles...)
	round := func(one bool, lanes int) {
		var mf, md []operand.Mem
		for _, p := range f {
			mf = append(mf, at(p, 0))
		}
		for _, p := range d {
			md = append(md, at(p, 0))
		}
		body(wide{a, one}, mf, md)
		for _, p := range f {
			a.ADDQ(imm(4*lanes), p)
		}
		for _, p := range d {
			a.ADDQ(imm(8*lanes), p)
		}
	}
	lanes := a.lanes() / 2
	a.SUBQ(imm(lanes), n)
	a.JL(label("tail"))
	a.Label("loopmany")
	round(false, lanes)
	a.SUBQ(imm(lanes), n)
	a.JGE(label("loopmany"))
	a.Label("tail")
	a.ADDQ(imm(lanes), n)
	a.JLE(label("done"))
	a.Label("loopone")
	round(true, 1)
	a.DECQ(n)
	a.JNZ(label("loopone"))
	a.Label("done")
	a.ret()
}

// moments are the sums of columns that batch norm takes in float64.
func (a *asm) moments() {
	a.doubles("addWide", "adds x to sums.", []string{"x"}, []string{"sums"}, func(w wide, f, d []operand.Mem) {
		w.addTo(w.widen(w.loadHalf(f[0])), d[0])
	})
	a.doubles("addWideSquares", "adds (x-mean)² to squares.", []string{"x"}, []string{"mean", "squares"}, func(w wide, f, d []operand.Mem) {
		w.addTo(w.square(w.sub(w.widen(w.loadHalf(f[0])), w.load(d[0]))), d[1])
	})
	a.doubles("addWideGrads", "adds dy to sums and dy·((x-mean)·inv) to products.", []string{"x", "dy", "mean", "inv"}, []string{"sums", "products"}, func(w wide, f, d []operand.Mem) {
		dy := w.loadHalf(f[1])
		h := w.halfOp("mul", w.halfOp("sub", w.loadHalf(f[0]), w.loadHalf(f[2])), w.loadHalf(f[3]))
		w.addTo(w.widen(dy), d[0])
		w.addTo(w.widen(w.halfOp("mul", dy, h)), d[1])
	})
}

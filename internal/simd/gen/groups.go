package main

import (
	"strconv"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// groupRules emits Adagrad with one sum for a vector, of a vector and of segments of rows: of these, one's sum is added up while others are updated.
func (a *asm) groupRules() {
	for _, rows := range []bool{false, true} {
		a.adagradOfGroups("rowAdagrad", "s += Σd²/dim, w -= rate/√s·d, with d = g + decay·w.", rows, false)
		a.adagradOfGroups("groupAdagrad", "s += max d², w -= r·d, with d = g + decay·w and r = rate/(beta+√s), and then w *= 1 - r·l2/‖w‖, or w = 0 where that is not above 0, unless l2 is 0.", rows, true)
	}
}

// adagradOfGroups emits Adagrad with one sum, of the mean square of gradients or of the largest.
func (a *asm) adagradOfGroups(name, doc string, inRows, largest bool) {
	scalars := ", rate, decay float32"
	if largest {
		scalars = ", rate, decay, beta, l2 float32"
	}
	var n, rows reg.GPVirtual
	p, sum, k := a.GP64(), a.GP64(), a.GP64()
	if inRows {
		a.fn(name+"Rows", "func(n int, at *uintptr, w, state uintptr, dim int, grad *float32, step int, penalty float32"+scalars+")", "does to n > 0 rows, whose addresses are given: "+doc+
			" The dim >= 8 weights begin w bytes into a row, the sum s is state bytes into it; gradients are step bytes apart, and penalty·w is added to them unless penalty is 0.")
		n, rows = a.gp("n"), a.gp("at")
	} else {
		a.fn(name, "func(dim int, w, sum, grad *float32"+scalars+")", "is "+doc+" dim >= 8.")
		p, sum = a.gp("w"), a.gp("sum")
	}
	grad, whole, rest := a.gp("grad"), a.gp("dim"), a.gp("dim")
	dim := a.XMM()
	a.VXORPS(dim, dim, dim)
	a.VCVTSI2SSQ(whole, dim, dim)
	a.SHRQ(imm(3), whole)
	a.SHLQ(imm(5), whole) // bytes of whole vectors
	a.ANDQ(imm(a.lanes()-1), rest)
	t, decay := a.tailMask(rest), a.scalar("decay")

	mem := func(base reg.Register) operand.Mem { return operand.Mem{Base: base, Index: k, Scale: 1} }
	labels := 0
	unless := func(param string, do func()) {
		labels++
		skip := "without" + strconv.Itoa(labels)
		a.CMPL(a.param(param), imm(0))
		a.JEQ(label(skip))
		do()
		a.Label(skip)
	}
	decayed := func(t *tail) (w, d vector) {
		w, g := a.load(mem(p), t), a.load(mem(grad), t)
		if inRows {
			unless("penalty", func() { a.VADDPS(a.mul(a.scalar("penalty"), w), g, g) })
		}
		return w, a.add(g, a.mul(w, decay))
	}
	sweep := func(name string, body func(t *tail)) {
		a.XORQ(k, k)
		a.Label("loop" + name)
		body(nil)
		a.ADDQ(imm(a.bytes), k)
		a.CMPQ(k, whole)
		a.JL(label("loop" + name))
		a.TESTQ(rest, rest)
		a.JZ(label("end" + name))
		body(&t)
		a.Label("end" + name)
	}

	if inRows {
		a.Label("row")
		a.MOVQ(at(rows, 0), p)
		a.MOVQ(p, sum)
		a.ADDQ(a.param("state"), sum)
		a.ADDQ(a.param("w"), p)
	}
	acc := a.zeros()
	sweep("sum", func(t *tail) {
		_, d := decayed(t)
		if square := a.mul(d, d); largest {
			a.VMAXPS(acc, square, acc)
		} else {
			a.VADDPS(square, acc, acc)
		}
	})
	var s reg.Register
	if largest {
		s = a.largestLane(acc)
	} else {
		s = a.sumLanes(acc)
		a.VDIVSS(dim, s, s)
	}
	a.VADDSS(at(sum, 0), s, s)
	a.VMOVSS(s, at(sum, 0))
	a.VSQRTSS(s, s, s)
	if largest {
		a.VADDSS(a.param("beta"), s, s)
	}
	r, rate := a.XMM(), a.vec()
	a.VMOVSS(a.param("rate"), r)
	a.VDIVSS(s, r, r)
	a.VBROADCASTSS(r, rate)
	squares := acc
	if largest {
		a.zero(squares)
	}
	sweep("step", func(t *tail) {
		w, d := decayed(t)
		w = a.sub(w, a.mul(d, rate))
		a.store(w, mem(p), t)
		if largest {
			unless("l2", func() {
				v := a.add(w, a.mul(w, a.zeros())) // as GroupSquares has it
				a.VADDPS(a.mul(v, v), squares, squares)
			})
		}
	})
	if largest {
		unless("l2", func() {
			length, shrink, factor := a.sumLanes(squares), a.XMM(), a.vec()
			a.VSQRTSS(length, length, length)
			a.VMULSS(a.param("l2"), r, shrink)
			a.VUCOMISS(length, shrink)
			a.JAE(label("clear"))
			a.VDIVSS(length, shrink, shrink)
			one := a.XMM()
			a.VMOVSS(a.constant(1), one)
			a.VSUBSS(shrink, one, one)
			a.VBROADCASTSS(one, factor)
			sweep("scale", func(t *tail) { a.store(a.mul(a.load(mem(p), t), factor), mem(p), t) })
			a.JMP(label("next"))
			a.Label("clear")
			sweep("clear", func(t *tail) { a.store(a.zeros(), mem(p), t) })
			a.Label("next")
		})
	}
	if inRows {
		a.ADDQ(imm(8), rows)
		a.ADDQ(a.param("step"), grad)
		a.DECQ(n)
		a.JNZ(label("row"))
	}
	a.ret()
}

// largestLane returns a register whose lowest lane is the largest lane of v.
func (a *asm) largestLane(v vector) reg.Register {
	h, s := a.XMM(), a.XMM()
	a.VEXTRACTF128(imm(1), v.AsY(), h)
	a.VMAXPS(h, v.AsX(), s)
	a.VMOVHLPS(s, s, h)
	a.VMAXPS(h, s, s)
	a.VMOVSHDUP(s, h)
	a.VMAXSS(h, s, s)
	return s
}

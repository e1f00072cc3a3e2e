package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// elementwise emits a kernel over n elements of the given arrays: body once for a vector, with t nil or the mask of the last
// lanes. unroll vectors are done in one round of the main loop; u is which, so that a sum can have as many accumulators.
func (a *asm) elementwise(n reg.GPVirtual, ptrs []reg.GPVirtual, unroll int, body func(u int, m func(i int) operand.Mem, t *tail)) {
	mems := func(u int) func(i int) operand.Mem {
		return func(i int) operand.Mem { return at(ptrs[i], u*a.bytes) }
	}
	advance := func(vectors int) {
		for _, p := range ptrs {
			a.ADDQ(imm(vectors*a.bytes), p)
		}
	}
	if unroll > 1 {
		a.SUBQ(imm(unroll*a.lanes()), n)
		a.JL(label("ones"))
		a.Label("loopmany")
		for u := range unroll {
			body(u, mems(u), nil)
		}
		advance(unroll)
		a.SUBQ(imm(unroll*a.lanes()), n)
		a.JGE(label("loopmany"))
		a.Label("ones")
		a.ADDQ(imm(unroll*a.lanes()), n)
	}
	a.SUBQ(imm(a.lanes()), n)
	a.JL(label("tail"))
	a.Label("loopone")
	body(0, mems(0), nil)
	advance(1)
	a.SUBQ(imm(a.lanes()), n)
	a.JGE(label("loopone"))
	a.Label("tail")
	a.ADDQ(imm(a.lanes()), n)
	a.JLE(label("done"))
	t := a.tailMask(n)
	body(0, mems(0), &t)
	a.Label("done")
}

func (a *asm) ptrs(names ...string) []reg.GPVirtual {
	var p []reg.GPVirtual
	for _, n := range names {
		p = append(p, a.gp(n))
	}
	return p
}

// scalar broadcasts a float parameter.
func (a *asm) scalar(param string) reg.VecVirtual {
	x, v := a.XMM(), a.vec()
	a.Load(a.Param(param), x)
	a.VBROADCASTSS(x, v)
	return v
}

func vectorKernels(a *asm) {
	a.dot()
	a.axpy()
}

func (a *asm) dot() {
	a.fn("dot", "func(n int, x, y *float32) float32", "is the sum of the n products of x and y.")
	const unroll = 4
	acc := make([]reg.VecVirtual, unroll)
	for i := range acc {
		acc[i] = a.vec()
		a.zero(acc[i])
	}
	n, p := a.gp("n"), a.ptrs("x", "y")
	a.elementwise(n, p, unroll, func(u int, m func(int) operand.Mem, t *tail) {
		x := a.load(m(0), t)
		if t == nil {
			a.VFMADD231PS(m(1), x, acc[u])
		} else {
			a.VFMADD231PS(a.load(m(1), t), x, acc[u])
		}
	})
	a.VADDPS(acc[1], acc[0], acc[0])
	a.VADDPS(acc[3], acc[2], acc[2])
	a.VADDPS(acc[2], acc[0], acc[0])
	a.Store(a.sumLanes(acc[0]), a.ReturnIndex(0))
	a.ret()
}

func (a *asm) axpy() {
	a.fn("axpy", "func(n int, alpha float32, x, y *float32)", "adds alpha·x to y.")
	alpha, n, p := a.scalar("alpha"), a.gp("n"), a.ptrs("x", "y")
	a.elementwise(n, p, 4, func(_ int, m func(int) operand.Mem, t *tail) {
		y := a.load(m(1), t)
		if t == nil {
			a.VFMADD231PS(m(0), alpha, y)
		} else {
			a.VFMADD231PS(a.load(m(0), t), alpha, y)
		}
		a.store(y, m(1), t)
	})
	a.ret()
}

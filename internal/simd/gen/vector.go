package main

import (
	"strings"

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
	return a.broadcast(a.param(param))
}

func vectorKernels(a *asm) {
	a.dot()
	a.sum()
	a.largest()
	a.axpy()
	a.maps()
	a.roundBF16()
	a.keep()
	a.sumRows()
	a.normalisation()
	a.moments()
	a.functions()
	a.rules()
	a.groups()
	a.fm()
	a.fmEntries()
	a.entries()
	a.largestBits()
	a.conversions()
}

// operands are those of a round: vectors of memory by the order of the pointers.
type operands struct {
	load  func(i int) vector
	store func(v vector, i int)
}

// each emits a whole kernel over n elements: arrays and scalars are the names of its parameters.
func (a *asm) each(name, doc string, arrays, scalars []string, unroll int, body func(o operands, s []vector)) {
	signature := "func(n int, " + strings.Join(arrays, ", ") + " *float32"
	if len(scalars) > 0 {
		signature += ", " + strings.Join(scalars, ", ") + " float32"
	}
	a.fn(name, signature+")", doc)
	n, p := a.gp("n"), a.ptrs(arrays...)
	var s []vector
	for _, name := range scalars {
		s = append(s, a.scalar(name))
	}
	a.elementwise(n, p, unroll, func(_ int, m func(int) operand.Mem, t *tail) {
		body(operands{
			load:  func(i int) vector { return a.load(m(i), t) },
			store: func(v vector, i int) { a.store(v, m(i), t) },
		}, s)
	})
	a.ret()
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

// total adds four accumulators and their lanes up and returns the result.
func (a *asm) total(acc []vector) {
	a.VADDPS(acc[1], acc[0], acc[0])
	a.VADDPS(acc[3], acc[2], acc[2])
	a.VADDPS(acc[2], acc[0], acc[0])
	a.Store(a.sumLanes(acc[0]), a.ReturnIndex(0))
	a.ret()
}

func (a *asm) accumulators(n int) []vector {
	var acc []vector
	for range n {
		acc = append(acc, a.zeros())
	}
	return acc
}

func (a *asm) sum() {
	a.fn("sum", "func(n int, x *float32) float32", "is the sum of the n elements of x.")
	acc, n, p := a.accumulators(4), a.gp("n"), a.ptrs("x")
	a.elementwise(n, p, 4, func(u int, m func(int) operand.Mem, t *tail) {
		if t == nil {
			a.VADDPS(m(0), acc[u], acc[u])
		} else {
			a.VADDPS(a.load(m(0), t), acc[u], acc[u])
		}
	})
	a.total(acc)

	a.fn("sumSquares", "func(n int, x *float32, about float32) float32", "is the sum of the squares of the n distances of x from about.")
	about, n, p := a.scalar("about"), a.gp("n"), a.ptrs("x")
	acc = a.accumulators(4)
	a.elementwise(n, p, 4, func(u int, m func(int) operand.Mem, t *tail) {
		d := a.vec()
		if t == nil {
			a.VMOVUPS(m(0), d)
			a.VSUBPS(about, d, d)
		} else {
			d = a.sub(a.load(m(0), t), about)
			if a.wide {
				a.VMOVAPS_Z(d, t.k, d)
			} else {
				a.VANDPS(t.v, d, d)
			}
		}
		a.VFMADD231PS(d, d, acc[u])
	})
	a.total(acc)
}

// largest begins with the first element in all lanes, so that lanes without an element change nothing; those of the tail are
// zeros, and are replaced.
func (a *asm) largest() {
	a.fn("largest", "func(n int, x *float32) float32", "is the largest of the n > 0 elements of x, of which NaN are as good as absent unless the first is one.")
	n, p := a.gp("n"), a.ptrs("x")
	acc := a.broadcast(at(p[0], 0))
	first := a.vec()
	a.VMOVAPS(acc, first)
	a.elementwise(n, p, 1, func(_ int, m func(int) operand.Mem, t *tail) {
		x := a.load(m(0), t)
		if t != nil {
			if a.wide {
				a.VBLENDMPS(x, first, t.k, x)
			} else {
				a.VBLENDVPS(t.v, x, first, x)
			}
		}
		a.VMAXPS(acc, x, acc)
	})
	if a.wide {
		h, s := a.YMM(), a.YMM()
		a.VEXTRACTF64X4(imm(1), acc, h)
		a.VMAXPS(h, acc.AsY(), s)
		acc = s
	}
	h, s := a.XMM(), a.XMM()
	a.VEXTRACTF128(imm(1), acc.AsY(), h)
	a.VMAXPS(h, acc.AsX(), s)
	a.VMOVHLPS(s, s, h)
	a.VMAXPS(h, s, s)
	a.VMOVSHDUP(s, h)
	a.VMAXSS(h, s, s)
	a.Store(s, a.ReturnIndex(0))
	a.ret()
}

// maps are the kernels of one or two operations an element.
func (a *asm) maps() {
	a.each("add", "adds x to y.", []string{"x", "y"}, nil, 4, func(o operands, _ []vector) {
		o.store(a.add(o.load(1), o.load(0)), 1)
	})
	a.each("scale", "multiplies x by alpha.", []string{"x"}, []string{"alpha"}, 4, func(o operands, s []vector) {
		o.store(a.mul(o.load(0), s[0]), 0)
	})
	a.each("addScaled", "adds alpha·x to y, with a rounding after the product.", []string{"x", "y"}, []string{"alpha"}, 4, func(o operands, s []vector) {
		o.store(a.add(o.load(1), a.mul(o.load(0), s[0])), 1)
	})
	a.each("mul", "is z = x·y.", []string{"x", "y", "z"}, nil, 2, func(o operands, _ []vector) {
		o.store(a.mul(o.load(0), o.load(1)), 2)
	})
	a.each("addMul", "adds x·y to z, with a rounding after the product.", []string{"x", "y", "z"}, nil, 2, func(o operands, _ []vector) {
		o.store(a.add(o.load(2), a.mul(o.load(0), o.load(1))), 2)
	})
	a.each("relu", "is y = max(x, 0).", []string{"x", "y"}, nil, 2, func(o operands, _ []vector) {
		zero, y := a.zeros(), a.vec()
		a.relu(o.load(0), zero, y)
		o.store(y, 1)
	})
	a.each("reluGrad", "is dx = dy where y > 0, else 0.", []string{"y", "dy", "dx"}, nil, 2, func(o operands, _ []vector) {
		o.store(a.where(a.compare(o.load(0), greater, a.zeros()), o.load(1)), 2)
	})
	a.each("addReluGrad", "adds dy where y > 0 to dx.", []string{"y", "dy", "dx"}, nil, 2, func(o operands, _ []vector) {
		d := a.where(a.compare(o.load(0), greater, a.zeros()), o.load(1))
		o.store(a.add(o.load(2), d), 2)
	})
	a.each("addSigmoidGrad", "adds (dy·y)·(1-y) to dx.", []string{"y", "dy", "dx"}, nil, 1, func(o operands, _ []vector) {
		y, one := o.load(0), a.broadcast(a.constant(1))
		o.store(a.add(o.load(2), a.mul(a.mul(o.load(1), y), a.sub(one, y))), 2)
	})
	a.each("addTanhGrad", "adds dy·(1-y·y) to dx.", []string{"y", "dy", "dx"}, nil, 1, func(o operands, _ []vector) {
		y, one := o.load(0), a.broadcast(a.constant(1))
		o.store(a.add(o.load(2), a.mul(o.load(1), a.sub(one, a.mul(y, y)))), 2)
	})
}

// rounder rounds to bfloat16 in the upper halves of lanes, with zeros in the lower ones, as roundBF16 does.
type rounder struct{ one, half, upper, quiet vector }

func (a *asm) rounder() rounder {
	return rounder{
		a.load(a.constantBits(1), nil), a.load(a.constantBits(0x7fff), nil),
		a.load(a.constantBits(0xffff0000), nil), a.load(a.constantBits(0x400000), nil),
	}
}

func (a *asm) round(r rounder, x vector) vector {
	odd := a.and(a.right(x, 16), r.one)
	rounded := a.addInt(a.addInt(x, r.half), odd)
	return a.and(a.choose(a.compare(x, unordered, x), a.or(x, r.quiet), rounded), r.upper)
}

// roundBF16 has its constants in registers: it is run over the operands of products, which should cost little more for it.
func (a *asm) roundBF16() {
	a.fn("roundBF16", "func(n int, x, y *float32)", "is y = x, rounded to bfloat16.")
	r := a.rounder()
	n, p := a.gp("n"), a.ptrs("x", "y")
	a.elementwise(n, p, 4, func(_ int, m func(int) operand.Mem, t *tail) {
		a.store(a.round(r, a.load(m(0), t)), m(1), t)
	})
	a.ret()
}

// sumRows has the columns outside: four vectors of sums at a time stay in registers while the rows pass.
func (a *asm) sumRows() {
	a.fn("sumRows", "func(rows, columns int, x *float32, stride int, sums *float32)",
		"adds rows of x, stride bytes apart, to sums, each column from above to below.")
	rows, n, x, stride, sums := a.gp("rows"), a.gp("columns"), a.gp("x"), a.gp("stride"), a.gp("sums")
	group := func(name string, vectors int, t *tail) {
		var acc []vector
		for v := range vectors {
			acc = append(acc, a.load(at(sums, v*a.bytes), t))
		}
		p, left := a.GP64(), a.GP64()
		a.MOVQ(x, p)
		a.MOVQ(rows, left)
		a.Label("looprow" + name)
		for v := range vectors {
			if t == nil {
				a.VADDPS(at(p, v*a.bytes), acc[v], acc[v])
			} else {
				a.VADDPS(a.load(at(p, v*a.bytes), t), acc[v], acc[v])
			}
		}
		a.ADDQ(stride, p)
		a.DECQ(left)
		a.JNZ(label("looprow" + name))
		for v := range vectors {
			a.store(acc[v], at(sums, v*a.bytes), t)
		}
		if t == nil {
			a.ADDQ(imm(vectors*a.bytes), x)
			a.ADDQ(imm(vectors*a.bytes), sums)
		}
	}
	a.TESTQ(rows, rows)
	a.JZ(label("done"))
	for _, vectors := range []int{4, 1} {
		name := map[int]string{4: "many", 1: "one"}[vectors]
		a.Label("columns" + name)
		a.CMPQ(n, imm(vectors*a.lanes()))
		a.JL(label("end" + name))
		group(name, vectors, nil)
		a.SUBQ(imm(vectors*a.lanes()), n)
		a.JMP(label("columns" + name))
		a.Label("end" + name)
	}
	a.TESTQ(n, n)
	a.JZ(label("done"))
	t := a.tailMask(n)
	group("tail", 1, &t)
	a.Label("done")
	a.ret()
}

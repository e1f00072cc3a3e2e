package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
)

// gemvKernels multiply a matrix and a vector.
func gemvKernels(a *asm) {
	gemvRows(a)
	gemvColumns(a)
}

// gemvRows takes four rows at a time, so that x is read once for them, then one; each row is summed in the same order in
// both: two accumulators of a vector each.
func gemvRows(a *asm) {
	a.fn("gemvRows", "func(rows, n int, x *float32, stride int, v, y *float32)", "adds the products of rows of n floats, stride bytes apart, and v to y.")
	rows, n, x, stride, v, y := a.gp("rows"), a.gp("n"), a.gp("x"), a.gp("stride"), a.gp("v"), a.gp("y")
	stride3 := a.GP64()
	a.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	for _, count := range []int{4, 1} {
		name := fmt.Sprint(count)
		a.Label("rows" + name)
		a.SUBQ(imm(count), rows)
		a.JL(label("end" + name))
		p, q, left := a.GP64(), a.GP64(), a.GP64()
		a.MOVQ(x, p)
		a.MOVQ(v, q)
		a.MOVQ(n, left)
		acc := make([][]vector, count)
		for i := range acc {
			acc[i] = a.accumulators(2)
		}
		mem := func(i, disp int) operand.Mem {
			m := at(p, disp)
			switch i {
			case 1:
				m.Index, m.Scale = stride, 1
			case 2:
				m.Index, m.Scale = stride, 2
			case 3:
				m.Index, m.Scale = stride3, 1
			}
			return m
		}
		round := func(u int, t *tail) {
			w := a.load(at(q, u*a.bytes), t)
			for i := range count {
				if t == nil {
					a.VFMADD231PS(mem(i, u*a.bytes), w, acc[i][u])
				} else {
					a.VFMADD231PS(a.load(mem(i, u*a.bytes), t), w, acc[i][u])
				}
			}
		}
		advance := func(vectors int) {
			a.ADDQ(imm(vectors*a.bytes), p)
			a.ADDQ(imm(vectors*a.bytes), q)
		}
		a.SUBQ(imm(2*a.lanes()), left)
		a.JL(label("ones" + name))
		a.Label("loopmany" + name)
		round(0, nil)
		round(1, nil)
		advance(2)
		a.SUBQ(imm(2*a.lanes()), left)
		a.JGE(label("loopmany" + name))
		a.Label("ones" + name)
		a.ADDQ(imm(2*a.lanes()), left)
		a.CMPQ(left, imm(a.lanes()))
		a.JL(label("tail" + name))
		round(0, nil)
		advance(1)
		a.SUBQ(imm(a.lanes()), left)
		a.Label("tail" + name)
		a.TESTQ(left, left)
		a.JZ(label("sum" + name))
		t := a.tailMask(left)
		round(0, &t)
		a.Label("sum" + name)
		for i := range count {
			a.VADDPS(acc[i][1], acc[i][0], acc[i][0])
			s := a.sumLanes(acc[i][0])
			a.VADDSS(at(y, 4*i), s, s)
			a.VMOVSS(s, at(y, 4*i))
		}
		if count == 4 {
			a.LEAQ(operand.Mem{Base: x, Index: stride, Scale: 4}, x)
		} else {
			a.ADDQ(stride, x)
		}
		a.ADDQ(imm(4*count), y)
		a.JMP(label("rows" + name))
		a.Label("end" + name)
		if count == 4 {
			a.ADDQ(imm(4), rows)
		}
	}
	a.ret()
}

// gemvColumns takes eight rows at a time, so that y is read and written once for them, then one; each element is summed from the
// first row to the last in both.
func gemvColumns(a *asm) {
	a.fn("gemvColumns", "func(rows, n int, x *float32, stride int, v, y *float32)", "adds rows of n floats, stride bytes apart, times the elements of v to y.")
	for _, count := range []int{8, 1} {
		name := fmt.Sprint(count)
		if count == 1 {
			a.Label("begin1")
		}
		rows, n, x, stride, v, y := a.gp("rows"), a.gp("n"), a.gp("x"), a.gp("stride"), a.gp("v"), a.gp("y")
		if count == 1 {
			// Those that the groups of eight have done are behind.
			done := a.GP64()
			a.MOVQ(rows, done)
			a.ANDQ(operand.I32(-8), done)
			a.SUBQ(done, rows)
			a.LEAQ(operand.Mem{Base: v, Index: done, Scale: 4}, v)
			a.IMULQ(stride, done)
			a.ADDQ(done, x)
		}
		stride3 := a.GP64()
		a.LEAQ(operand.Mem{Base: stride, Index: stride, Scale: 2}, stride3)
		a.Label("rows" + name)
		a.SUBQ(imm(count), rows)
		a.JL(label("end" + name))
		p, p4, q, left := a.GP64(), a.GP64(), a.GP64(), a.GP64()
		a.MOVQ(x, p)
		if count == 8 {
			a.LEAQ(operand.Mem{Base: x, Index: stride, Scale: 4}, p4)
		}
		a.MOVQ(y, q)
		a.MOVQ(n, left)
		var w []vector
		for i := range count {
			w = append(w, a.broadcast(at(v, 4*i)))
		}
		mem := func(i, disp int) operand.Mem {
			m := at(p, disp)
			if i >= 4 {
				m = at(p4, disp)
			}
			switch i % 4 {
			case 1:
				m.Index, m.Scale = stride, 1
			case 2:
				m.Index, m.Scale = stride, 2
			case 3:
				m.Index, m.Scale = stride3, 1
			}
			return m
		}
		round := func(u int, t *tail) {
			s := a.load(at(q, u*a.bytes), t)
			for i := range count {
				if t == nil {
					a.VFMADD231PS(mem(i, u*a.bytes), w[i], s)
				} else {
					a.VFMADD231PS(a.load(mem(i, u*a.bytes), t), w[i], s)
				}
			}
			a.store(s, at(q, u*a.bytes), t)
		}
		advance := func(vectors int) {
			a.ADDQ(imm(vectors*a.bytes), p)
			if count == 8 {
				a.ADDQ(imm(vectors*a.bytes), p4)
			}
			a.ADDQ(imm(vectors*a.bytes), q)
		}
		const unroll = 4
		a.SUBQ(imm(unroll*a.lanes()), left)
		a.JL(label("ones" + name))
		a.Label("loopmany" + name)
		for u := range unroll {
			round(u, nil)
		}
		advance(unroll)
		a.SUBQ(imm(unroll*a.lanes()), left)
		a.JGE(label("loopmany" + name))
		a.Label("ones" + name)
		a.ADDQ(imm(unroll*a.lanes()), left)
		a.Label("loopone" + name)
		a.CMPQ(left, imm(a.lanes()))
		a.JL(label("tail" + name))
		round(0, nil)
		advance(1)
		a.SUBQ(imm(a.lanes()), left)
		a.JMP(label("loopone" + name))
		a.Label("tail" + name)
		a.TESTQ(left, left)
		a.JZ(label("next" + name))
		t := a.tailMask(left)
		round(0, &t)
		a.Label("next" + name)
		if count == 8 {
			a.LEAQ(operand.Mem{Base: x, Index: stride, Scale: 8}, x)
		} else {
			a.ADDQ(stride, x)
		}
		a.ADDQ(imm(4*count), v)
		a.JMP(label("rows" + name))
		a.Label("end" + name)
	}
	a.ret()
}

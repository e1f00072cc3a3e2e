package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Bits of the flags of a tile.
const (
	flagAdd  = 1
	flagBias = 2
	flagRelu = 4
)

func gemmKernels(a *asm) {
	rows := []int{6, 5, 4, 3, 2, 1}
	if a.wide {
		rows = []int{14, 8, 4, 2, 1}
	}
	for _, mr := range rows {
		for _, nv := range []int{2, 1} {
			tile(a, mr, nv)
		}
	}
	packRows(a)
	gemvKernels(a)
	packColumns(a, rows[0])
	if !a.wide {
		transpose(a)
	}
}

// tile multiplies mr rows of A by nv vectors of columns of a panel that is two vectors wide.
func tile(a *asm, mr, nv int) {
	of := ""
	if a.pairs {
		of = " of pairs"
	}
	a.fn(fmt.Sprintf("tile%dx%d", mr, nv*a.lanes()),
		"func(kc int, x *float32, rs, cs int, b, c *float32, ldc, flags int, bias *float32)",
		fmt.Sprintf("computes %d rows and %d columns of C, rows ldc bytes apart: kc products%s of x, whose rows are rs and columns cs bytes apart, and of the panel b, %d columns wide.",
			mr, nv*a.lanes(), of, 2*a.lanes()))
	kc, x, rs, cs, b, c, ldc := a.gp("kc"), a.gp("x"), a.gp("rs"), a.gp("cs"), a.gp("b"), a.gp("c"), a.gp("ldc")
	acc := make([][]reg.VecVirtual, mr)
	for i := range acc {
		for range nv {
			v := a.vec()
			a.zero(v)
			acc[i] = append(acc[i], v)
		}
	}
	bases := []reg.GPVirtual{x}
	rs3 := a.GP64()
	if mr > 3 {
		a.LEAQ(operand.Mem{Base: rs, Index: rs, Scale: 2}, rs3)
	}
	for i := 4; i < mr; i += 4 {
		next := a.GP64()
		a.LEAQ(operand.Mem{Base: bases[len(bases)-1], Index: rs, Scale: 4}, next)
		bases = append(bases, next)
	}
	row := func(i int) operand.Mem {
		m := operand.Mem{Base: bases[i/4]}
		switch i % 4 {
		case 1:
			m.Index, m.Scale = rs, 1
		case 2:
			m.Index, m.Scale = rs, 2
		case 3:
			m.Index, m.Scale = rs3, 1
		}
		return m
	}
	cp := a.GP64()
	a.MOVQ(c, cp)
	for i := range mr {
		for d := 0; d < nv*a.bytes; d += 64 {
			a.PREFETCHT0(at(cp, d))
		}
		if i < mr-1 {
			a.ADDQ(ldc, cp)
		}
	}
	panel := 2 * a.bytes
	step := func(disp int) {
		bv := make([]reg.VecVirtual, nv)
		for j := range bv {
			bv[j] = a.vec()
			a.VMOVUPS(at(b, disp+j*a.bytes), bv[j])
		}
		for i := range mr {
			t := a.vec()
			a.VBROADCASTSS(row(i), t)
			for j := range bv {
				a.VFMADD231PS(bv[j], t, acc[i][j])
			}
		}
		for d := 0; d < panel; d += 64 {
			a.PREFETCHT0(at(b, disp+d+8*panel))
		}
		for _, p := range bases {
			a.ADDQ(cs, p)
		}
	}
	const unroll = 4
	a.SUBQ(imm(unroll), kc)
	a.JL(label("rest"))
	a.Label("loop4")
	for u := range unroll {
		step(u * panel)
	}
	a.ADDQ(imm(unroll*panel), b)
	a.SUBQ(imm(unroll), kc)
	a.JGE(label("loop4"))
	a.Label("rest")
	a.ADDQ(imm(unroll), kc)
	a.JZ(label("summed"))
	a.Label("loop1")
	step(0)
	a.ADDQ(imm(panel), b)
	a.DECQ(kc)
	a.JNZ(label("loop1"))
	a.Label("summed")
	flags := a.gp("flags")
	each := func(f func(i, j int, m operand.Mem)) {
		a.MOVQ(c, cp)
		for i := range mr {
			for j := range nv {
				f(i, j, at(cp, j*a.bytes))
			}
			if i < mr-1 {
				a.ADDQ(ldc, cp)
			}
		}
	}
	a.BTQ(imm(0), flags)
	a.JCC(label("added"))
	each(func(i, j int, m operand.Mem) { a.VADDPS(m, acc[i][j], acc[i][j]) })
	a.Label("added")
	a.BTQ(imm(1), flags)
	a.JCC(label("biased"))
	bias := a.gp("bias")
	for j := range nv {
		v := a.vec()
		a.VMOVUPS(at(bias, j*a.bytes), v)
		for i := range mr {
			a.VADDPS(v, acc[i][j], acc[i][j])
		}
	}
	a.Label("biased")
	a.BTQ(imm(2), flags)
	a.JCC(label("store"))
	z := a.vec()
	a.zero(z)
	for i := range mr {
		for j := range nv {
			a.relu(acc[i][j], z, acc[i][j])
		}
	}
	a.Label("store")
	each(func(i, j int, m operand.Mem) { a.VMOVUPS(acc[i][j], m) })
	a.ret()
}

// relu is max(x, 0) as Go has it: of a NaN a NaN, because the instruction returns its second operand (here the first, x) for
// one; of -0 a 0, by the sum.
func (a *asm) relu(x, zero, to reg.VecVirtual) {
	a.VMAXPS(x, zero, to)
	a.VADDPS(zero, to, to)
}

// packRows copies rows of B that are ldb bytes apart into panels of two vectors of columns.
func packRows(a *asm) {
	a.fn("packRows", "func(rows, panels int, src *float32, ldb int, dst *float32, size int)",
		fmt.Sprintf("copies rows of %d·panels floats, ldb bytes apart, to panels that are size bytes apart.", 2*a.lanes()))
	rows, panels, src, ldb, dst, size := a.gp("rows"), a.gp("panels"), a.gp("src"), a.gp("ldb"), a.gp("dst"), a.gp("size")
	s, d, n := a.GP64(), a.GP64(), a.GP64()
	a.Label("looprow")
	a.MOVQ(src, s)
	a.MOVQ(dst, d)
	a.MOVQ(panels, n)
	a.Label("looppanel")
	v, w := a.vec(), a.vec()
	a.VMOVUPS(at(s, 0), v)
	a.VMOVUPS(at(s, a.bytes), w)
	a.VMOVUPS(v, at(d, 0))
	a.VMOVUPS(w, at(d, a.bytes))
	a.ADDQ(imm(2*a.bytes), s)
	a.ADDQ(size, d)
	a.DECQ(n)
	a.JNZ(label("looppanel"))
	a.ADDQ(ldb, src)
	a.ADDQ(imm(2*a.bytes), dst)
	a.DECQ(rows)
	a.JNZ(label("looprow"))
	a.ret()
}

// packColumns copies columns of a transposed A into a panel of n: a whole vector at a time, of which the next columns
// overwrite what is too much. The last row is left to the caller, so that nothing is read past it.
func packColumns(a *asm, n int) {
	a.fn(fmt.Sprintf("packColumns%d", n), "func(rows int, src *float32, lda int, dst *float32)",
		fmt.Sprintf("copies rows of %d floats, lda bytes apart, to rows without gaps, but for the last row.", n))
	rows, src, lda, dst := a.gp("rows"), a.gp("src"), a.gp("lda"), a.gp("dst")
	a.DECQ(rows)
	a.JLE(label("end"))
	a.Label("loop")
	v := a.vec()
	a.VMOVUPS(at(src, 0), v)
	a.VMOVUPS(v, at(dst, 0))
	a.ADDQ(lda, src)
	a.ADDQ(imm(4*n), dst)
	a.DECQ(rows)
	a.JNZ(label("loop"))
	a.Label("end")
	a.ret()
}

// transpose turns eight rows into eight columns.
func transpose(a *asm) {
	a.fn("transpose8", "func(n int, s *float32, ss int, d *float32, ds int)",
		"copies 8 rows of n floats, ss bytes apart, to 8 columns of n rows, ds bytes apart.")
	n, s, ss, d, ds := a.gp("n"), a.gp("s"), a.gp("ss"), a.gp("d"), a.gp("ds")
	s3, d3, s4, d4 := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.LEAQ(operand.Mem{Base: ss, Index: ss, Scale: 2}, s3)
	a.LEAQ(operand.Mem{Base: ds, Index: ds, Scale: 2}, d3)
	a.LEAQ(operand.Mem{Base: s, Index: ss, Scale: 4}, s4)
	a.LEAQ(operand.Mem{Base: d, Index: ds, Scale: 4}, d4)
	addr := func(low, high, stride, stride3 reg.Register, i int) operand.Mem {
		m := operand.Mem{Base: low}
		if i >= 4 {
			m.Base = high
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
	a.Label("loop8")
	a.CMPQ(n, imm(8))
	a.JL(label("loop1"))
	r, t, u := make([]reg.VecVirtual, 8), make([]reg.VecVirtual, 8), make([]reg.VecVirtual, 8)
	for i := range r {
		r[i] = a.YMM()
		a.VMOVUPS(addr(s, s4, ss, s3, i), r[i])
	}
	for i := 0; i < 8; i += 2 {
		t[i], t[i+1] = a.YMM(), a.YMM()
		a.VUNPCKLPS(r[i+1], r[i], t[i])
		a.VUNPCKHPS(r[i+1], r[i], t[i+1])
	}
	for g := range 2 {
		for i := range 4 {
			u[4*g+i] = a.YMM()
		}
		a.VSHUFPS(imm(0x44), t[4*g+2], t[4*g], u[4*g])
		a.VSHUFPS(operand.Imm(0xee), t[4*g+2], t[4*g], u[4*g+1])
		a.VSHUFPS(imm(0x44), t[4*g+3], t[4*g+1], u[4*g+2])
		a.VSHUFPS(operand.Imm(0xee), t[4*g+3], t[4*g+1], u[4*g+3])
	}
	for i := range 8 {
		half := 0x20
		if i >= 4 {
			half = 0x31
		}
		o := a.YMM()
		a.VPERM2F128(imm(half), u[4+i%4], u[i%4], o)
		a.VMOVUPS(o, addr(d, d4, ds, d3, i))
	}
	a.ADDQ(imm(32), s)
	a.ADDQ(imm(32), s4)
	a.LEAQ(operand.Mem{Base: d, Index: ds, Scale: 8}, d)
	a.LEAQ(operand.Mem{Base: d4, Index: ds, Scale: 8}, d4)
	a.SUBQ(imm(8), n)
	a.JMP(label("loop8"))
	a.Label("loop1")
	a.DECQ(n)
	a.JL(label("end"))
	x := a.XMM()
	for i := range 8 {
		a.VMOVSS(addr(s, s4, ss, s3, i), x)
		a.VMOVSS(x, at(d, 4*i))
	}
	a.ADDQ(imm(4), s)
	a.ADDQ(imm(4), s4)
	a.ADDQ(ds, d)
	a.JMP(label("loop1"))
	a.Label("end")
	a.ret()
}

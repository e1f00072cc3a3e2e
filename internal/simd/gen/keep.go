package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
)

// golden is what SplitMix64 adds from one number to the next (Steele, Lea and Flood, 2014).
const golden = 0x9e3779b97f4a7c15

// keep decides for elements by numbers of SplitMix64: sixteen at a time, in as many vectors of eight bytes as that takes.
func (a *asm) keep() {
	a.fn("keep", "func(n, z, limit int, keep float32, factors *float32)",
		"is factors[i] = 0 where the upper 53 bits of the number of SplitMix64 after z + i·golden are below limit, else keep; n is a multiple of 16.")
	each := a.bytes / 8 // numbers in a vector
	step := uint64(golden)
	n, factors := a.gp("n"), a.gp("factors")
	z := a.add64(a.all64("z"), a.table64("steps", func(i int) uint64 { return uint64(i) * step }))
	limit, kept, one := a.all64("limit"), a.scalar("keep"), a.load(a.constantBits(1), nil)
	stride := a.load(a.table64("stride", func(int) uint64 { return uint64(each) * step }), nil)
	m1, m2 := a.factor64(0xbf58476d1ce4e5b9), a.factor64(0x94d049bb133111eb)
	a.SUBQ(imm(16), n)
	a.JL(label("done"))
	a.Label("loop")
	var below []vector // 1 in each number that is below
	for range 16 / each {
		r := a.mul64(a.xor(z, a.right64(z, 30)), m1)
		r = a.mul64(a.xor(r, a.right64(r, 27)), m2)
		r = a.right64(a.xor(r, a.right64(r, 31)), 11)
		d := a.vec()
		a.VPSUBQ(limit, r, d)
		below = append(below, a.right64(d, 63)) // both are below 2⁶³
		a.VPADDQ(stride, z, z)
	}
	for i, v := range a.narrow(below) {
		o := v.AsY()
		a.VPSUBD(one.AsY(), o, o)
		if a.wide {
			a.VPANDD(kept.AsY(), o, o)
		} else {
			a.VANDPS(kept.AsY(), o, o)
		}
		a.VMOVUPS(o, at(factors, i*32))
	}
	a.ADDQ(imm(64), factors)
	a.SUBQ(imm(16), n)
	a.JGE(label("loop"))
	a.Label("done")
	a.ret()
}

func (a *asm) xor(x, y vector) vector {
	v := a.vec()
	if a.wide {
		a.VPXORD(y, x, v)
	} else {
		a.VPXOR(y, x, v)
	}
	return v
}

func (a *asm) right64(x vector, n int) vector { v := a.vec(); a.VPSRLQ(imm(n), x, v); return v }

func (a *asm) add64(x vector, y operand.Op) vector { v := a.vec(); a.VPADDQ(y, x, v); return v }

// all64 has an integer parameter in each place.
func (a *asm) all64(param string) vector {
	v := a.vec()
	a.VPBROADCASTQ(a.param(param), v)
	return v
}

// table64 is a vector of numbers in memory.
func (a *asm) table64(name string, number func(i int) uint64) operand.Mem {
	m := a.StaticGlobal(name + a.suffix)
	a.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range a.bytes / 8 {
		a.AppendDatum(operand.U32(uint32(number(i))))
		a.AppendDatum(operand.U32(uint32(number(i) >> 32)))
	}
	return m
}

// factor64 is a number to multiply by, and, for AVX2, its upper half.
type factor64 struct{ all, upper vector }

func (a *asm) factor64(c uint64) factor64 {
	f := factor64{all: a.load(a.table64(fmt.Sprintf("all%x", c), func(int) uint64 { return c }), nil)}
	if !a.wide {
		f.upper = a.right64(f.all, 32)
	}
	return f
}

// mul64 is the lower half of the products, of which AVX2 has those of 32 bits alone.
func (a *asm) mul64(x vector, f factor64) vector {
	v := a.vec()
	if a.wide {
		a.VPMULLQ(f.all, x, v)
		return v
	}
	upper, cross := a.vec(), a.vec()
	a.VPMULUDQ(f.all, a.right64(x, 32), upper)
	a.VPMULUDQ(f.upper, x, cross)
	a.VPADDQ(upper, cross, cross)
	a.VPSLLQ(imm(32), cross, cross)
	a.VPMULUDQ(f.all, x, v)
	a.VPADDQ(cross, v, v)
	return v
}

// narrow puts the lower halves of numbers of 64 bits into vectors of 32 bytes, in their order.
func (a *asm) narrow(x []vector) []vector {
	var out []vector
	if a.wide {
		for _, v := range x {
			o := a.ZMM()
			a.VPMOVQD(v, o.AsY())
			out = append(out, o)
		}
		return out
	}
	for i := 0; i < len(x); i += 2 {
		o := a.vec()
		a.VSHUFPS(operand.Imm(0x88), x[i+1], x[i], o)
		a.VPERMQ(operand.Imm(0xd8), o, o)
		out = append(out, o)
	}
	return out
}

package main

import (
	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// isa is what the kernels of one family are made of.
type isa struct {
	suffix string
	bytes  int // of a vector register
	wide   bool
	regs   int
	pairs  bool // products are those of pairs; see pairKernels
	tiles  bool // there are registers of AMX
}

var (
	avx2   = isa{suffix: "AVX2", bytes: 32, regs: 16}
	avx512 = isa{suffix: "AVX512", bytes: 64, wide: true, regs: 32}
)

// asm writes instructions of one family.
type asm struct {
	*build.Context
	isa
	masks operand.Mem // of the tail; see loadMask
	made  bool

	constants map[uint32]operand.Mem
}

// lanes is the number of float32 in a vector.
func (a *asm) lanes() int { return a.bytes / 4 }

func (a *asm) vec() reg.VecVirtual {
	if a.wide {
		return a.ZMM()
	}
	return a.YMM()
}

func (a *asm) zero(v reg.VecVirtual) {
	if a.wide {
		a.VPXORD(v, v, v)
	} else {
		a.VXORPS(v, v, v)
	}
}

// fn begins a function without a frame.
func (a *asm) fn(name, signature, doc string) {
	name += a.suffix
	a.Function(name)
	a.Attributes(attr.NOSPLIT | attr.NOFRAME)
	a.SignatureExpr(signature)
	a.Doc(name + " " + doc)
	a.Pragma("noescape")
}

func (a *asm) gp(param string) reg.GPVirtual {
	return a.Load(a.Param(param), a.GP64()).(reg.GPVirtual)
}

func (a *asm) ret() {
	a.VZEROUPPER()
	a.RET()
}

func label(s string) operand.LabelRef { return operand.LabelRef(s) }

func imm(n int) operand.Constant {
	if n < 128 {
		return operand.Imm(uint64(n))
	}
	return operand.U32(uint32(n))
}

func at(base reg.Register, disp int) operand.Mem { return operand.Mem{Base: base, Disp: disp} }

// tail is the mask of the last lanes of a vector.
type tail struct{ k, v reg.Register }

// tailMask returns the mask of the first n lanes, 0 < n < lanes. The tables begin with as many set lanes as a vector has.
func (a *asm) tailMask(n reg.GPVirtual) tail {
	if a.wide {
		k, bits, count := a.K(), a.GP32(), a.GP64()
		a.MOVQ(n, count)
		a.MOVL(operand.U32(0xffffffff), bits)
		a.BZHIL(count.As32(), bits, bits)
		a.KMOVW(bits, k)
		return tail{k: k}
	}
	if !a.made {
		a.masks = a.StaticGlobal("tailMasks" + a.suffix)
		a.DataAttributes(attr.RODATA | attr.NOPTR)
		for i := range 16 {
			m := uint32(0)
			if i < 8 {
				m = 0xffffffff
			}
			a.AppendDatum(operand.U32(m))
		}
		a.made = true
	}
	v, base, neg := a.YMM(), a.GP64(), a.GP64()
	a.LEAQ(a.masks, base)
	a.MOVQ(n, neg)
	a.NEGQ(neg)
	a.VMOVUPS(operand.Mem{Base: base, Disp: 32, Index: neg, Scale: 4}, v)
	return tail{v: v}
}

// load reads a vector, or its first lanes with zeros in the others.
func (a *asm) load(m operand.Mem, t *tail) reg.VecVirtual {
	v := a.vec()
	switch {
	case t == nil:
		a.VMOVUPS(m, v)
	case a.wide:
		a.VMOVUPS_Z(m, t.k, v)
	default:
		a.VMASKMOVPS(m, t.v, v)
	}
	return v
}

// store writes a vector, or its first lanes.
func (a *asm) store(v reg.VecVirtual, m operand.Mem, t *tail) {
	switch {
	case t == nil:
		a.VMOVUPS(v, m)
	case a.wide:
		a.VMOVUPS(v, t.k, m)
	default:
		a.VMASKMOVPS(v, t.v, m)
	}
}

// sumLanes adds up the lanes of v, halves first, and returns a register whose lowest lane is the sum.
func (a *asm) sumLanes(v reg.VecVirtual) reg.Register {
	if a.wide {
		h, s := a.YMM(), a.YMM()
		a.VEXTRACTF64X4(imm(1), v, h)
		a.VADDPS(h, v.AsY(), s)
		v = s
	}
	h, s := a.XMM(), a.XMM()
	a.VEXTRACTF128(imm(1), v.AsY(), h)
	a.VADDPS(h, v.AsX(), s)
	a.VMOVHLPS(s, s, h)
	a.VADDPS(h, s, s)
	a.VMOVSHDUP(s, h)
	a.VADDSS(h, s, s)
	return s
}

package main

import (
	"fmt"
	"math"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Arithmetic over whole vectors: each returns a new register. An operand is a register or memory where it comes last in the
// instruction (y).

type vector = reg.VecVirtual

func (a *asm) add(x vector, y operand.Op) vector { v := a.vec(); a.VADDPS(y, x, v); return v }
func (a *asm) sub(x vector, y operand.Op) vector { v := a.vec(); a.VSUBPS(y, x, v); return v }
func (a *asm) mul(x vector, y operand.Op) vector { v := a.vec(); a.VMULPS(y, x, v); return v }
func (a *asm) div(x vector, y operand.Op) vector { v := a.vec(); a.VDIVPS(y, x, v); return v }
func (a *asm) sqrt(x vector) vector              { v := a.vec(); a.VSQRTPS(x, v); return v }

// max returns y for a NaN in either.
func (a *asm) max(x vector, y operand.Op) vector { v := a.vec(); a.VMAXPS(y, x, v); return v }
func (a *asm) min(x vector, y operand.Op) vector { v := a.vec(); a.VMINPS(y, x, v); return v }

func (a *asm) and(x vector, y operand.Op) vector {
	v := a.vec()
	if a.wide {
		a.VPANDD(y, x, v)
	} else {
		a.VANDPS(y, x, v)
	}
	return v
}

func (a *asm) or(x vector, y operand.Op) vector {
	v := a.vec()
	if a.wide {
		a.VPORD(y, x, v)
	} else {
		a.VORPS(y, x, v)
	}
	return v
}

func (a *asm) zeros() vector { v := a.vec(); a.zero(v); return v }

// Predicates of a comparison.
const (
	equal     = 0x00
	less      = 0x11 // LT_OQ: false for NaN
	unordered = 0x03
	notEqual  = 0x04 // true for NaN
	greater   = 0x1e // GT_OQ
)

// mask is the outcome of a comparison.
type mask struct{ r reg.Register }

func (a *asm) compare(x vector, predicate int, y operand.Op) mask {
	if a.wide {
		k := a.K()
		a.VCMPPS(imm(predicate), y, x, k)
		return mask{k}
	}
	v := a.vec()
	a.VCMPPS(imm(predicate), y, x, v)
	return mask{v}
}

// choose is yes where m is set, else no.
func (a *asm) choose(m mask, yes, no vector) vector {
	v := a.vec()
	if a.wide {
		a.VBLENDMPS(yes, no, m.r, v)
	} else {
		a.VBLENDVPS(m.r, yes, no, v)
	}
	return v
}

// where is x where m is set, else 0.
func (a *asm) where(m mask, x vector) vector {
	v := a.vec()
	if a.wide {
		a.VMOVAPS_Z(x, m.r, v)
	} else {
		a.VANDPS(m.r, x, v)
	}
	return v
}

// constant is a vector of one number in memory.
func (a *asm) constant(f float64) operand.Mem { return a.constantBits(math.Float32bits(float32(f))) }

func (a *asm) constantBits(bits uint32) operand.Mem {
	if a.constants == nil {
		a.constants = map[uint32]operand.Mem{}
	}
	m, ok := a.constants[bits]
	if !ok {
		m = a.StaticGlobal(fmt.Sprintf("all%08x%s", bits, a.suffix))
		a.DataAttributes(attr.RODATA | attr.NOPTR)
		for range a.lanes() {
			a.AppendDatum(operand.U32(bits))
		}
		a.constants[bits] = m
	}
	return m
}

// broadcast is a vector of the float at m.
func (a *asm) broadcast(m operand.Mem) vector { v := a.vec(); a.VBROADCASTSS(m, v); return v }

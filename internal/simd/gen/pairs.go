package main

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// avx512bf16 has the tiles of AVX-512 whose products are those of pairs of bfloat16 numbers, and what makes pairs.
var avx512bf16 = isa{suffix: "AVX512BF16", bytes: 64, wide: true, regs: 32, pairs: true}

// A pair is 32 bits: of two numbers that follow each other along k the first in the upper half. VDPBF16PS adds the product of the upper
// halves to a sum, then that of the lower ones, each with a rounding, so that sums are in the order of k, as in the tiles of float32.
func pairKernels(a *asm) {
	for _, mr := range []int{14, 8, 4, 2, 1} {
		for _, nv := range []int{2, 1} {
			tile(a, mr, nv)
		}
	}
	a.pairsOf()
	a.pairsOfHalves()
	order := a.interleave()
	a.pairRows(order)
	a.pairColumns(order)
	a.pairColumnsOfHalves()
}

// rounded rounds two vectors to bfloat16, to the nearest, ties to even, with numbers below 2⁻¹²⁶ as zeros, into one: low in front of high.
func (a *asm) rounded(low, high vector) vector {
	v := a.vec()
	a.Instruction(&ir.Instruction{Opcode: "VCVTNE2PS2BF16", Operands: []operand.Op{low, high, v}, Inputs: []operand.Op{low, high}, Outputs: []operand.Op{v}, ISA: []string{"AVX512_BF16"}})
	return v
}

// interleave is the order in which merge takes the numbers of two vectors that were rounded.
func (a *asm) interleave() operand.Mem {
	m := a.StaticGlobal("interleave" + a.suffix)
	a.DataAttributes(attr.RODATA | attr.NOPTR)
	for i := range uint32(16) {
		a.AppendDatum(operand.U32(i | (i+16)<<16))
	}
	return m
}

// merge is the pairs of the numbers of x, rounded, and those of y.
func (a *asm) merge(order, x, y vector) vector {
	v := a.vec()
	a.VPERMW(a.rounded(y, x), order, v)
	return v
}

// pairsOf turns a row into pairs, 32 numbers at a time.
func (a *asm) pairsOf() {
	a.fn("pairs", "func(n int, x, y *float32)", "puts the pairs of the n numbers x, rounded, into y, the last with a zero if n is odd.")
	n, x, y := a.gp("n"), a.gp("x"), a.gp("y")
	swapped := func(low, high vector) vector {
		v := a.vec()
		a.VPROLD(imm(16), a.rounded(low, high), v)
		return v
	}
	body := func(u int) {
		a.VMOVUPS(swapped(a.load(at(x, u*128), nil), a.load(at(x, u*128+64), nil)), at(y, u*64))
	}
	const unroll = 4
	a.SUBQ(imm(unroll*32), n)
	a.JL(label("ones"))
	a.Label("loopmany")
	for u := range unroll {
		body(u)
	}
	a.ADDQ(imm(unroll*128), x)
	a.ADDQ(imm(unroll*64), y)
	a.SUBQ(imm(unroll*32), n)
	a.JGE(label("loopmany"))
	a.Label("ones")
	a.ADDQ(imm(unroll*32), n)
	a.SUBQ(imm(32), n)
	a.JL(label("tail"))
	a.Label("loopone")
	body(0)
	a.ADDQ(imm(128), x)
	a.ADDQ(imm(64), y)
	a.SUBQ(imm(32), n)
	a.JGE(label("loopone"))
	a.Label("tail")
	a.ADDQ(imm(32), n)
	a.JLE(label("done"))
	low, high := a.halfMasks(n)
	v := swapped(a.load(at(x, 0), &low), a.load(at(x, 64), &high))
	a.INCQ(n)
	a.SHRQ(imm(1), n)
	t := a.tailMask(n)
	a.store(v, at(y, 0), &t)
	a.Label("done")
	a.ret()
}

// halfMasks are the masks of the first n of 32 lanes, in two vectors.
func (a *asm) halfMasks(n reg.GPVirtual) (low, high tail) {
	bits := a.GP32()
	low.k, high.k = a.K(), a.K()
	a.MOVL(operand.U32(0xffffffff), bits)
	a.BZHIL(n.As32(), bits, bits)
	a.KMOVW(bits, low.k)
	a.SHRL(imm(16), bits)
	a.KMOVW(bits, high.k)
	return low, high
}

// pairsOfHalves swaps the halves of pairs that lie in memory.
func (a *asm) pairsOfHalves() {
	a.fn("pairsOfHalves", "func(pairs int, x *uint16, y *float32)", "puts pairs of the numbers x, which have 16 bits, into y.")
	pairs, x, y := a.gp("pairs"), a.gp("x"), a.gp("y")
	a.elementwise(pairs, []reg.GPVirtual{x, y}, 4, func(_ int, m func(int) operand.Mem, t *tail) {
		v, o := a.load(m(0), t), a.vec()
		a.VPROLD(imm(16), v, o)
		a.store(o, m(1), t)
	})
	a.ret()
}

// pairRows is packRows of pairs.
func (a *asm) pairRows(interleave operand.Mem) {
	a.fn("pairRows", "func(pairs, panels int, src *float32, ldb int, dst *float32, size int)",
		fmt.Sprintf("puts the pairs of rows of %d·panels floats, ldb bytes apart, rounded, into panels that are size bytes apart.", 2*a.lanes()))
	order := a.load(interleave, nil)
	pairs, panels, src, ldb, dst, size := a.gp("pairs"), a.gp("panels"), a.gp("src"), a.gp("ldb"), a.gp("dst"), a.gp("size")
	s, d, n := a.GP64(), a.GP64(), a.GP64()
	a.Label("looprow")
	a.MOVQ(src, s)
	a.MOVQ(dst, d)
	a.MOVQ(panels, n)
	a.Label("looppanel")
	for u := range 2 {
		upper, lower := a.load(at(s, u*64), nil), a.load(operand.Mem{Base: s, Index: ldb, Scale: 1, Disp: u * 64}, nil)
		a.VMOVUPS(a.merge(order, upper, lower), at(d, u*64))
	}
	a.ADDQ(imm(2*a.bytes), s)
	a.ADDQ(size, d)
	a.DECQ(n)
	a.JNZ(label("looppanel"))
	a.LEAQ(operand.Mem{Base: src, Index: ldb, Scale: 2}, src)
	a.ADDQ(imm(2*a.bytes), dst)
	a.DECQ(pairs)
	a.JNZ(label("looprow"))
	a.ret()
}

// columns emits a loop over pairs of rows of n numbers each, n up to 16, whose pairs are stored without gaps.
func (a *asm) columns(load func(m operand.Mem, t *tail) vector, merge func(x, y vector) vector) {
	pairs, n, src, lda, dst := a.gp("pairs"), a.gp("n"), a.gp("src"), a.gp("lda"), a.gp("dst")
	t, width := a.tailMask(n), a.GP64()
	a.MOVQ(n, width)
	a.SHLQ(imm(2), width)
	a.Label("loop")
	x, y := load(at(src, 0), &t), load(operand.Mem{Base: src, Index: lda, Scale: 1}, &t)
	a.store(merge(x, y), at(dst, 0), &t)
	a.LEAQ(operand.Mem{Base: src, Index: lda, Scale: 2}, src)
	a.ADDQ(width, dst)
	a.DECQ(pairs)
	a.JNZ(label("loop"))
	a.ret()
}

// pairColumns is packColumns of pairs.
func (a *asm) pairColumns(interleave operand.Mem) {
	a.fn("pairColumns", "func(pairs, n int, src *float32, lda int, dst *float32)",
		"puts the pairs of rows of n floats, at most 16, lda bytes apart, rounded, into rows without gaps.")
	order := a.load(interleave, nil)
	a.columns(a.load, func(x, y vector) vector { return a.merge(order, x, y) })
}

func (a *asm) pairColumnsOfHalves() {
	a.fn("pairColumnsOfHalves", "func(pairs, n int, src *uint16, lda int, dst *float32)",
		"puts the pairs of rows of n numbers of 16 bits, at most 16, lda bytes apart, into rows without gaps.")
	a.columns(func(m operand.Mem, t *tail) vector {
		v := a.vec()
		a.VPMOVZXWD_Z(m, t.k, v)
		return v
	}, func(x, y vector) vector {
		v := a.vec()
		a.VPSLLD(imm(16), x, v)
		return a.or(v, y)
	})
}

var (
	fma      = regexp.MustCompile(`VFMADD231PS +Z(\d+), Z(\d+), Z(\d+)`)
	rounding = regexp.MustCompile(`VCVTNE2PS2BF16 +Z(\d+), Z(\d+), Z(\d+)`)
)

// brainFloats puts VDPBF16PS, which neither avo nor Go's assembler has, in the place of VFMADD231PS, as its bytes with its name behind them, and the bytes of VCVTNE2PS2BF16 in front of its name.
func brainFloats(text []byte) []byte {
	replace := func(of *regexp.Regexp, name string, prefix, opcode byte) {
		text = of.ReplaceAllFunc(text, func(line []byte) []byte {
			m := of.FindSubmatch(line)
			var z [3]int
			for i := range z {
				z[i], _ = strconv.Atoi(string(m[i+1]))
			}
			b := encodeBrainFloat(prefix, opcode, z[0], z[1], z[2])
			return fmt.Appendf(nil, "LONG $0x%02x%02x%02x%02x; WORD $0x%02x%02x // %s Z%d, Z%d, Z%d", b[3], b[2], b[1], b[0], b[5], b[4], name, z[0], z[1], z[2])
		})
	}
	const f3, f2 = 2, 3
	replace(fma, "VDPBF16PS", f3, 0x52)
	replace(rounding, "VCVTNE2PS2BF16", f2, 0x72)
	return text
}

// encodeBrainFloat is an instruction of AVX512-BF16 of Z registers in the order of Go's assembler: y, x, and the result, which is in Intel's EVEX.NDS.512.0F38.W0 /r
// ModRM.reg, x being EVEX.vvvv and y ModRM.rm (Intel, Architecture Instruction Set Extensions Programming Reference, 2.6.1, VDPBF16PS and VCVTNE2PS2BF16).
func encodeBrainFloat(prefix, opcode byte, y, x, to int) [6]byte {
	not := func(n, bit int) byte { return byte(n>>bit&1 ^ 1) }
	return [6]byte{
		0x62,
		not(to, 3)<<7 | not(y, 4)<<6 | not(y, 3)<<5 | not(to, 4)<<4 | 0b010,
		byte(^x&15)<<3 | 1<<2 | prefix,
		0b10<<5 | not(x, 4)<<3,
		opcode,
		0b11<<6 | byte(to&7)<<3 | byte(y&7),
	}
}

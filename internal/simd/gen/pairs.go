package main

import (
	"fmt"
	"regexp"
	"strconv"

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
	a.pairRows()
	a.pairColumns()
	a.pairColumnsOfHalves()
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

// merge is the pair of the upper halves of x and y, whose lower ones are zeros.
func (a *asm) merge(x, y vector) vector { return a.or(x, a.right(y, 16)) }

// pairsOf turns a row into pairs. Of two lanes the second goes into the lower half of the first, and the firsts are stored.
func (a *asm) pairsOf() {
	a.fn("pairs", "func(n int, x, y *float32)", "puts the pairs of the n numbers x, rounded, into y, the last with a zero if n is odd; up to 7 pairs more are overwritten.")
	r := a.rounder()
	n, x, y := a.gp("n"), a.gp("x"), a.gp("y")
	body := func(u int, t *tail) {
		v := a.round(r, a.load(at(x, u*64), t))
		next, both, out := a.ZMM(), a.ZMM(), a.YMM()
		a.VPSRLQ(imm(48), v, next)
		a.VPORD(v, next, both)
		a.VPMOVQD(both, out)
		a.VMOVUPS(out, at(y, u*32))
	}
	const unroll = 4
	a.SUBQ(imm(unroll*16), n)
	a.JL(label("ones"))
	a.Label("loopmany")
	for u := range unroll {
		body(u, nil)
	}
	a.ADDQ(imm(unroll*64), x)
	a.ADDQ(imm(unroll*32), y)
	a.SUBQ(imm(unroll*16), n)
	a.JGE(label("loopmany"))
	a.Label("ones")
	a.ADDQ(imm(unroll*16), n)
	a.SUBQ(imm(16), n)
	a.JL(label("tail"))
	a.Label("loopone")
	body(0, nil)
	a.ADDQ(imm(64), x)
	a.ADDQ(imm(32), y)
	a.SUBQ(imm(16), n)
	a.JGE(label("loopone"))
	a.Label("tail")
	a.ADDQ(imm(16), n)
	a.JLE(label("done"))
	t := a.tailMask(n)
	body(0, &t)
	a.Label("done")
	a.ret()
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
func (a *asm) pairRows() {
	a.fn("pairRows", "func(pairs, panels int, src *float32, ldb int, dst *float32, size int)",
		fmt.Sprintf("puts the pairs of rows of %d·panels floats, ldb bytes apart, rounded, into panels that are size bytes apart.", 2*a.lanes()))
	r := a.rounder()
	pairs, panels, src, ldb, dst, size := a.gp("pairs"), a.gp("panels"), a.gp("src"), a.gp("ldb"), a.gp("dst"), a.gp("size")
	s, d, n := a.GP64(), a.GP64(), a.GP64()
	a.Label("looprow")
	a.MOVQ(src, s)
	a.MOVQ(dst, d)
	a.MOVQ(panels, n)
	a.Label("looppanel")
	for u := range 2 {
		upper := a.round(r, a.load(at(s, u*64), nil))
		lower := a.round(r, a.load(operand.Mem{Base: s, Index: ldb, Scale: 1, Disp: u * 64}, nil))
		a.VMOVUPS(a.merge(upper, lower), at(d, u*64))
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
func (a *asm) pairColumns() {
	a.fn("pairColumns", "func(pairs, n int, src *float32, lda int, dst *float32)",
		"puts the pairs of rows of n floats, at most 16, lda bytes apart, rounded, into rows without gaps.")
	r := a.rounder()
	a.columns(func(m operand.Mem, t *tail) vector { return a.round(r, a.load(m, t)) }, a.merge)
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

var fma = regexp.MustCompile(`VFMADD231PS +Z(\d+), Z(\d+), Z(\d+)`)

// dotProducts puts VDPBF16PS, which neither avo nor Go's assembler has, in the place of VFMADD231PS, as its bytes with its name behind them.
func dotProducts(text []byte) []byte {
	return fma.ReplaceAllFunc(text, func(line []byte) []byte {
		m := fma.FindSubmatch(line)
		var z [3]int
		for i := range z {
			z[i], _ = strconv.Atoi(string(m[i+1]))
		}
		b := encodeDotProduct(z[0], z[1], z[2])
		return fmt.Appendf(nil, "LONG $0x%02x%02x%02x%02x; WORD $0x%02x%02x // VDPBF16PS Z%d, Z%d, Z%d", b[3], b[2], b[1], b[0], b[5], b[4], z[0], z[1], z[2])
	})
}

// encodeDotProduct is VDPBF16PS of Z registers in the order of Go's assembler: y, x, and the sum, which is in Intel's EVEX.NDS.512.F3.0F38.W0 52 /r
// ModRM.reg, x being EVEX.vvvv and y ModRM.rm (Intel, Architecture Instruction Set Extensions Programming Reference, 2.6.1 and VDPBF16PS).
func encodeDotProduct(y, x, sum int) [6]byte {
	not := func(n, bit int) byte { return byte(n>>bit&1 ^ 1) }
	return [6]byte{
		0x62,
		not(sum, 3)<<7 | not(y, 4)<<6 | not(y, 3)<<5 | not(sum, 4)<<4 | 0b010,
		byte(^x&15)<<3 | 1<<2 | 0b10,
		0b10<<5 | not(x, 4)<<3,
		0x52,
		0b11<<6 | byte(sum&7)<<3 | byte(y&7),
	}
}

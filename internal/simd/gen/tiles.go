package main

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/mmcloughlin/avo/ir"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// amx has the products of pairs of bfloat16 numbers by AMX-BF16, whose registers are tiles: 16 rows of 64 bytes.
var amx = isa{suffix: "AMX", bytes: 64, wide: true, regs: 32, tiles: true}

func tileKernels(a *asm) {
	a.sumTiles()
	a.endTiles()
}

// sumTiles multiplies blocks of 32 rows of A by a panel of 32 columns. Four tiles hold the sums of a block, two a step of its rows and two a step of the panel: 16 pairs, 32 numbers along k.
func (a *asm) sumTiles() {
	a.fn("sumTiles", "func(steps, blocks int, x *float32, rs int, b, sums *float32, config *byte, c *float32, ldc int)",
		"computes the sums of blocks of 32 rows of pairs x, rs bytes apart, times the panel b, 32 pairs wide, over steps of 16 pairs each, at least 1. A block's are 32 rows of 32 floats without gaps; rows of C, ldc bytes apart, are asked for.")
	steps, blocks, x, rs, b, sums := a.gp("steps"), a.gp("blocks"), a.gp("x"), a.gp("rs"), a.gp("b"), a.gp("sums")
	a.tiled("LDTILECFG", nil, at(a.gp("config"), 0))
	c, ldc := a.gp("c"), a.gp("ldc")
	stride := a.GP64() // of rows of the panel and of the sums
	a.MOVQ(operand.U32(128), stride)
	from := func(base, index reg.Register, disp int) operand.Mem {
		return operand.Mem{Base: base, Index: index, Scale: 1, Disp: disp}
	}
	n, upper, lower, panel := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(x, upper)
	a.Label("loopblock")
	a.MOVQ(rs, lower)
	a.SHLQ(imm(4), lower)
	a.ADDQ(upper, lower)
	a.MOVQ(upper, x)
	a.MOVQ(b, panel)
	a.MOVQ(operand.U32(16), n)
	a.Label("askrow")
	a.PREFETCHT0(at(c, 0))
	a.PREFETCHT0(at(c, 64))
	a.PREFETCHT0(at(c, 124))
	a.PREFETCHT0(from(c, ldc, 0))
	a.PREFETCHT0(from(c, ldc, 64))
	a.PREFETCHT0(from(c, ldc, 124))
	a.LEAQ(operand.Mem{Base: c, Index: ldc, Scale: 2}, c)
	a.DECQ(n)
	a.JNZ(label("askrow"))
	a.MOVQ(steps, n)
	for t := range 4 {
		a.tiled("TILEZERO", tileRegister(t))
	}
	a.Label("loopstep")
	a.tiled("TILELOADD", tileRegister(4), from(x, rs, 0))
	a.tiled("TILELOADD", tileRegister(6), from(panel, stride, 0))
	a.tiled("TDPBF16PS", nil, tileRegister(6), tileRegister(4), tileRegister(0))
	a.tiled("TILELOADD", tileRegister(7), from(panel, stride, 64))
	a.tiled("TDPBF16PS", nil, tileRegister(7), tileRegister(4), tileRegister(1))
	a.tiled("TILELOADD", tileRegister(5), from(lower, rs, 0))
	a.tiled("TDPBF16PS", nil, tileRegister(6), tileRegister(5), tileRegister(2))
	a.tiled("TDPBF16PS", nil, tileRegister(7), tileRegister(5), tileRegister(3))
	a.ADDQ(imm(64), x)
	a.ADDQ(imm(64), lower)
	a.ADDQ(imm(16*128), panel)
	a.DECQ(n)
	a.JNZ(label("loopstep"))
	for t := range 4 {
		a.tiled("TILESTORED", nil, tileRegister(t), from(sums, stride, t%2*64))
		if t == 1 {
			a.ADDQ(imm(16*128), sums)
		}
	}
	a.ADDQ(imm(16*128), sums)
	a.MOVQ(rs, lower)
	a.SHLQ(imm(5), lower)
	a.ADDQ(lower, upper)
	a.DECQ(blocks)
	a.JNZ(label("loopblock"))
	a.tiled("TILERELEASE", nil)
	a.RET()
}

// endTiles ends sums as the tiles of float32 do.
func (a *asm) endTiles() {
	a.fn("endTiles", "func(rows, columns int, sums, c *float32, ldc, flags int, bias *float32)",
		"stores rows of sums, of which 1 to 32 columns count, 128 bytes apart, to rows of C that are ldc bytes apart.")
	rows, columns, sums, c, ldc := a.gp("rows"), a.gp("columns"), a.gp("sums"), a.gp("c"), a.gp("ldc")
	low, high := a.halfMasks(columns)
	masks := [2]tail{low, high}
	flags, bias := a.gp("flags"), a.gp("bias")
	zero, b := a.vec(), [2]vector{a.vec(), a.vec()}
	a.zero(zero)
	a.zero(b[0])
	a.zero(b[1])
	a.BTQ(imm(1), flags)
	a.JCC(label("looprow"))
	for j := range b {
		a.VMOVUPS_Z(at(bias, j*64), masks[j].k, b[j])
	}
	a.Label("looprow")
	var v [2]vector
	for j := range v {
		v[j] = a.load(at(sums, j*64), nil)
	}
	a.BTQ(imm(0), flags)
	a.JCC(label("added"))
	for j := range v {
		a.VADDPS(a.load(at(c, j*64), &masks[j]), v[j], v[j])
	}
	a.Label("added")
	a.BTQ(imm(1), flags)
	a.JCC(label("biased"))
	for j := range v {
		a.VADDPS(b[j], v[j], v[j])
	}
	a.Label("biased")
	a.BTQ(imm(2), flags)
	a.JCC(label("store"))
	for j := range v {
		a.relu(v[j], zero, v[j])
	}
	a.Label("store")
	for j := range v {
		a.store(v[j], at(c, j*64), &masks[j])
	}
	a.ADDQ(imm(128), sums)
	a.ADDQ(ldc, c)
	a.DECQ(rows)
	a.JNZ(label("looprow"))
	a.ret()
}

// tileRegister is the name of a tile, which avo does not know.
func tileRegister(n int) operand.Op { return operand.LabelRef(fmt.Sprintf("T%d", n)) }

// tiled emits an instruction of AMX: operands in the order of Go's assembler, to being the last, nil if it is among them.
func (a *asm) tiled(opcode string, to operand.Op, operands ...operand.Op) {
	i := &ir.Instruction{Opcode: opcode, Operands: operands, ISA: []string{"AMX-BF16"}}
	for _, o := range operands {
		if m, ok := o.(operand.Mem); ok {
			i.Inputs = append(i.Inputs, m)
		}
	}
	if to != nil {
		i.Operands = append(i.Operands, to)
	}
	a.Instruction(i)
}

var (
	tileLine   = regexp.MustCompile(`(?m)^\t(LDTILECFG|TILE[A-Z]+|TDPBF16PS)\b *(.*)$`)
	tileMemory = regexp.MustCompile(`^(\d*)\((\w+)\)(?:\((\w+)\*1\))?$`)
	generals   = strings.Fields("AX CX DX BX SP BP SI DI R8 R9 R10 R11 R12 R13 R14 R15")
)

// tileBytes puts bytes in the place of instructions of AMX, which Go's assembler has not, with their text behind them.
func tileBytes(text []byte) []byte {
	return tileLine.ReplaceAllFunc(text, func(line []byte) []byte {
		m := tileLine.FindSubmatch(line)
		var operands []string
		if len(m[2]) > 0 {
			operands = strings.Split(string(m[2]), ", ")
		}
		code := encodeTile(string(m[1]), operands)
		out := fmt.Appendf(nil, "\tLONG $0x%02x%02x%02x%02x", code[3], code[2], code[1], code[0])
		for _, b := range code[4:] {
			out = fmt.Appendf(out, "; BYTE $0x%02x", b)
		}
		return bytes.TrimRight(fmt.Appendf(out, " // %s %s", m[1], m[2]), " ")
	})
}

// encodeTile is VEX.128.0F38.W0 of an instruction (Intel, Architecture Instruction Set Extensions Programming Reference, chapter 3): the operands of TDPBF16PS are, as
// in Go's assembler, those of Intel's in the reverse order, of which the first is VEX.vvvv, the second ModRM.rm and the last, the sum, ModRM.reg.
func encodeTile(name string, operands []string) []byte {
	const none, f3, f2 = 0, 2, 3
	tile := func(i int) int { n, err := strconv.Atoi(strings.TrimPrefix(operands[i], "T")); must(err); return n }
	prefixed := func(pp, vvvv, opcode int, notX, notB byte, rest ...byte) []byte {
		return append([]byte{0xc4, 1<<7 | notX<<6 | notB<<5 | 2, byte(^vvvv&15)<<3 | byte(pp), byte(opcode)}, rest...)
	}
	memory := func(pp, opcode, register, operand int) []byte {
		m := tileMemory.FindStringSubmatch(operands[operand])
		if m == nil {
			must(fmt.Errorf("%s of %s", name, operands[operand]))
		}
		number := func(r string) int {
			for i, g := range generals {
				if g == r {
					return i
				}
			}
			return -1
		}
		disp, _ := strconv.Atoi(m[1])
		base, index, modRM := number(m[2]), number(m[3]), byte(register<<3)
		rest := []byte{modRM | byte(base&7)}
		notX := byte(1)
		if index >= 0 {
			rest, notX = []byte{modRM | 4, byte(index&7<<3 | base&7)}, byte(index>>3^1)
		}
		if disp != 0 || base&7 == 5 {
			rest[0] |= 1 << 6
			rest = append(rest, byte(disp))
		}
		return prefixed(pp, 0, opcode, notX, byte(base>>3^1), rest...)
	}
	switch name {
	case "LDTILECFG":
		return memory(none, 0x49, 0, 0)
	case "TILERELEASE":
		return prefixed(none, 0, 0x49, 1, 1, 0xc0)
	case "TILEZERO":
		return prefixed(f2, 0, 0x49, 1, 1, 0xc0|byte(tile(0)<<3))
	case "TILELOADD":
		return memory(f2, 0x4b, tile(1), 0)
	case "TILESTORED":
		return memory(f3, 0x4b, tile(0), 1)
	default: // TDPBF16PS
		return prefixed(f3, tile(0), 0x5c, 1, 1, 0xc0|byte(tile(2)<<3|tile(1)))
	}
}

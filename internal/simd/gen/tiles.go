package main

import (
	"bytes"
	"encoding/binary"
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
	a.sumSplit()
	a.sumSplitOf("sumSplitNarrow", "two blocks of 32 rows of the parts x, gap bytes apart, by the first 16 columns of the panel b", 4)
	a.sumSplitOf("sumSplitFlat", "the first 16 rows of the parts x by two panels b, gap bytes apart", 1)
	a.splitRows()
	a.splitPanels()
	a.endTiles()
}

// sums emits a kernel that multiplies blocks of 32 rows of A by a panel of 32 columns. Four tiles hold the sums of a block, whose places are in C, two a step of its rows and two a step of the panel: 32 numbers along k.
// steps emits what begins a block, if anything does, and a step, after the last of which x is at the next block.
func (a *asm) sums(steps func(x, panel reg.GPVirtual) (begin, step func())) {
	blocks, x, b, c, ldc := a.gp("blocks"), a.gp("x"), a.gp("b"), a.gp("c"), a.gp("ldc")
	a.tiled("LDTILECFG", nil, at(a.gp("config"), 0))
	n, panel, lower, next := a.GP64(), a.GP64(), a.GP64(), a.GP64()
	place := func(t int) operand.Mem { return from([]reg.Register{c, lower}[t/2], ldc, t%2*64) }
	a.Label("loopblock")
	a.MOVQ(ldc, lower)
	a.SHLQ(imm(4), lower)
	a.ADDQ(c, lower)
	a.BTQ(imm(0), a.gp("flags"))
	a.JCC(label("anew"))
	for t := range 4 {
		a.tiled("TILELOADD", tileRegister(t), place(t))
	}
	a.JMP(label("begun"))
	a.Label("anew")
	for t := range 4 {
		a.tiled("TILEZERO", tileRegister(t))
	}
	a.Label("begun")
	a.MOVQ(ldc, next)
	a.SHLQ(imm(5), next)
	a.ADDQ(c, next)
	a.MOVQ(b, panel)
	a.Load(a.Param("steps"), n)
	begin, step := steps(x, panel)
	if begin != nil {
		begin()
	}
	a.Label("loopstep")
	for range 3 {
		a.PREFETCHT0(at(next, 0))
		a.PREFETCHT0(at(next, 64))
		a.ADDQ(ldc, next)
	}
	step()
	a.DECQ(n)
	a.JNZ(label("loopstep"))
	for t := range 4 {
		a.tiled("TILESTORED", nil, tileRegister(t), place(t))
	}
	a.MOVQ(ldc, lower)
	a.SHLQ(imm(5), lower)
	a.ADDQ(lower, c)
	a.DECQ(blocks)
	a.JNZ(label("loopblock"))
	a.tiled("TILERELEASE", nil)
	a.RET()
}

// sumTiles multiplies pairs of bfloat16 numbers.
func (a *asm) sumTiles() {
	a.fn("sumTiles", "func(steps, blocks int, x *float32, rs int, b, c *float32, ldc, flags int, config *byte)",
		"multiplies blocks of 32 rows of pairs x, rs bytes apart, by the panel b, 32 pairs wide, over steps of 16 pairs each, at least 1, into rows c that are ldc bytes apart. Sums begin with what these hold if a flag says so.")
	rs, stride := a.gp("rs"), a.GP64() // of rows of the panel
	a.MOVQ(operand.U32(128), stride)
	a.sums(func(x, panel reg.GPVirtual) (begin, step func()) {
		upper, lower := a.GP64(), a.GP64()
		return func() {
				a.MOVQ(x, upper)
				a.MOVQ(rs, lower)
				a.SHLQ(imm(4), lower)
				a.ADDQ(x, lower)
				a.LEAQ(from(lower, lower, 0), x)
				a.SUBQ(upper, x)
			}, func() {
				a.tiled("TILELOADD", tileRegister(4), from(upper, rs, 0))
				a.tiled("TILELOADD", tileRegister(6), from(panel, stride, 0))
				a.tiled("TDPBF16PS", nil, tileRegister(6), tileRegister(4), tileRegister(0))
				a.tiled("TILELOADD", tileRegister(7), from(panel, stride, 64))
				a.tiled("TDPBF16PS", nil, tileRegister(7), tileRegister(4), tileRegister(1))
				a.tiled("TILELOADD", tileRegister(5), from(lower, rs, 0))
				a.tiled("TDPBF16PS", nil, tileRegister(6), tileRegister(5), tileRegister(2))
				a.tiled("TDPBF16PS", nil, tileRegister(7), tileRegister(5), tileRegister(3))
				a.ADDQ(imm(64), upper)
				a.ADDQ(imm(64), lower)
				a.ADDQ(imm(16*128), panel)
			}
	})
}

// from is a place at a distance from a base.
func from(base, index reg.Register, disp int) operand.Mem {
	return operand.Mem{Base: base, Index: index, Scale: 1, Disp: disp}
}

// endTiles ends sums as the tiles of float32 do.
func (a *asm) endTiles() {
	a.fn("endTiles", "func(rows, columns int, sums *float32, rs int, c *float32, ldc, flags int, bias *float32)",
		"stores rows of sums, of which 1 to 32 columns count, rs bytes apart, to rows of C that are ldc bytes apart and may be the same.")
	rows, columns, sums, rs, c, ldc := a.gp("rows"), a.gp("columns"), a.gp("sums"), a.gp("rs"), a.gp("c"), a.gp("ldc")
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
		v[j] = a.load(at(sums, j*64), &masks[j])
	}
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
	a.ADDQ(rs, sums)
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
		switch {
		case disp != int(int8(disp)):
			rest[0] |= 2 << 6
			rest = binary.LittleEndian.AppendUint32(rest, uint32(disp))
		case disp != 0 || base&7 == 5:
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

package main

import (
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A step of a block of 32 rows of A, and of a panel of 32 columns of B: of each of three parts two tiles, each of 16 rows of 64 bytes.
const (
	tileBytesOf = 16 * 64
	partBytes   = 2 * tileBytesOf
	stepBytes   = 3 * partBytes
)

// products are the parts of A and of B that are multiplied. Of the nine products three are left out, and the smallest of a step come first.
var products = [][2]int{{0, 2}, {0, 1}, {0, 0}, {1, 0}, {1, 1}, {2, 0}}

// sumSplit multiplies numbers in three parts each.
func (a *asm) sumSplit() {
	a.fn("sumSplit", "func(steps, blocks int, x, b, c *float32, ldc, flags int, config *byte)",
		"multiplies blocks of 32 rows of the parts x by those of the panel b, over steps of 32 numbers each, at least 1, into rows c that are ldc bytes apart. Sums begin with what these hold if a flag says so.")
	row := a.GP64()
	a.MOVQ(operand.U32(64), row)
	a.sums(func(x, panel reg.GPVirtual) (begin, step func()) {
		return nil, func() {
			former := [2]int{-1, -1}
			for _, parts := range products {
				load := func(of, half int) { // rows of A are in tiles 4 and 5, columns of B in 6 and 7
					if m := from([]reg.Register{x, panel}[of], row, parts[of]*partBytes+half*tileBytesOf); parts[of] != former[of] {
						a.tiled("TILELOADD", tileRegister(4+2*of+half), m)
					}
				}
				multiply := func(rows, columns int) {
					a.tiled("TDPBF16PS", nil, tileRegister(6+columns), tileRegister(4+rows), tileRegister(2*rows+columns))
				}
				load(0, 0)
				load(0, 1)
				load(1, 0)
				load(1, 1)
				multiply(0, 0)
				multiply(0, 1)
				multiply(1, 0)
				multiply(1, 1)
				former = parts
			}
			a.ADDQ(operand.U32(stepBytes), x)
			a.ADDQ(operand.U32(stepBytes), panel)
		}
	})
}

// sumSplitOf is sumSplit of four tiles of sums in a column (rows 4), or in a row (rows 1), for what ends within 16 columns or rows: with two tiles alone an instruction would wait for the one before.
func (a *asm) sumSplitOf(name, doc string, rows int) {
	a.fn(name, "func(steps int, x, b *float32, gap int, c *float32, ldc, flags int, config *byte)",
		"multiplies "+doc+", over steps of 32 numbers each, at least 1, into rows c that are ldc bytes apart. Sums begin with what these hold if a flag says so.")
	n, x, b, c, ldc := a.gp("steps"), a.gp("x"), a.gp("b"), a.gp("c"), a.gp("ldc")
	a.tiled("LDTILECFG", nil, at(a.gp("config"), 0))
	one, many, column := b, x, 1 // the operand that has one tile of a part, and that which has four; which of the pair of parts is the former's
	if rows == 1 {
		one, many, column = x, b, 0
	}
	second, row := a.GP64(), a.GP64()
	a.Load(a.Param("gap"), second)
	a.ADDQ(many, second)
	a.MOVQ(operand.U32(64), row)
	place := a.GP64()
	each := func(do func(t int, m operand.Mem)) {
		a.MOVQ(c, place)
		down := a.GP64()
		a.MOVQ(ldc, down)
		a.SHLQ(imm(4), down)
		for t := range 4 {
			if rows == 1 {
				do(t, from(place, ldc, t*64))
				continue
			}
			do(t, from(place, ldc, 0))
			a.ADDQ(down, place)
		}
	}
	a.BTQ(imm(0), a.gp("flags"))
	a.JCC(label("anew"))
	each(func(t int, m operand.Mem) { a.tiled("TILELOADD", tileRegister(t), m) })
	a.JMP(label("loopstep"))
	a.Label("anew")
	for t := range 4 {
		a.tiled("TILEZERO", tileRegister(t))
	}
	a.Label("loopstep")
	former := -1
	for _, parts := range products {
		if parts[column] != former {
			a.tiled("TILELOADD", tileRegister(4), from(one, row, parts[column]*partBytes))
		}
		for t := range 4 {
			m := tileRegister(5 + t%3)
			a.tiled("TILELOADD", m, from([]reg.Register{many, second}[t/2], row, parts[1-column]*partBytes+t%2*tileBytesOf))
			if rows == 4 {
				a.tiled("TDPBF16PS", nil, tileRegister(4), m, tileRegister(t))
			} else {
				a.tiled("TDPBF16PS", nil, m, tileRegister(4), tileRegister(t))
			}
		}
		former = parts[column]
	}
	for _, r := range []reg.GPVirtual{x, b, second} {
		a.ADDQ(operand.U32(stepBytes), r)
	}
	a.DECQ(n)
	a.JNZ(label("loopstep"))
	each(func(t int, m operand.Mem) { a.tiled("TILESTORED", nil, tileRegister(t), m) })
	a.tiled("TILERELEASE", nil)
	a.RET()
}

// splitter splits vectors of numbers into pairs of parts.
type splitter struct {
	*asm
	half, upper vector // what a number is rounded with, and its upper half
	zero        vector
	special     [2]vector // NaN in a lane where a number had no finite parts
}

func (a *asm) splitter() *splitter {
	s := &splitter{asm: a, half: a.broadcast(a.constantBits(1 << 15)), upper: a.broadcast(a.constantBits(0xffff << 16)), zero: a.vec(), special: [2]vector{a.vec(), a.vec()}}
	a.zero(s.zero)
	a.zero(s.special[0])
	a.zero(s.special[1])
	return s
}

// store splits x and y and stores the pairs of each part, x in the lower half. What is in the middle of two numbers of 8 bits is rounded away from zero, which an addition does.
func (s *splitter) store(x, y vector, to func(part int) operand.Mem) {
	for part := range 3 {
		a, b, c := s.vec(), s.vec(), s.vec()
		if part == 2 { // no more than 8 bits are left
			s.VPSRLD(imm(16), x, a)
			s.VPTERNLOGD(operand.Imm(0xf8), s.upper, y, a) // a | upper & y
			s.VMOVUPS(a, to(part))
			return
		}
		s.VPADDD(s.half, x, a)
		s.VPADDD(s.half, y, b)
		s.VPSRLD(imm(16), a, c)
		s.VPTERNLOGD(operand.Imm(0xf8), s.upper, b, c)
		s.VMOVUPS(c, to(part))
		s.VPANDD(s.upper, a, a)
		s.VPANDD(s.upper, b, b)
		s.VSUBPS(a, x, x)
		s.VSUBPS(b, y, y)
		if part == 0 {
			s.VFMADD231PS(x, s.zero, s.special[0])
			s.VFMADD231PS(y, s.zero, s.special[1])
		}
	}
}

// end returns 0, or NaN if a number had no finite parts.
func (s *splitter) end() {
	s.VADDPS(s.special[1], s.special[0], s.special[0])
	s.Store(s.sumLanes(s.special[0]), s.ReturnIndex(0))
	s.ret()
}

// splitRows splits rows of A.
func (a *asm) splitRows() {
	a.fn("splitRows", "func(rows, n int, x *float32, lda int, y *float32) float32",
		"splits up to 32 rows of n numbers x, lda bytes apart, into the parts y of steps of 32, with zeros behind the last. Numbers of a step that are 16 apart are a pair. It is 0, or NaN if the parts of a number are not finite.")
	rows, n, x, lda, y := a.gp("rows"), a.gp("n"), a.gp("x"), a.gp("lda"), a.gp("y")
	s := a.splitter()
	px, py, left := a.GP64(), a.GP64(), a.GP64()
	to := func(part int) operand.Mem { return at(py, part*partBytes) }
	step := func(name string, low, high *tail) {
		a.MOVQ(x, px)
		a.MOVQ(y, py)
		a.MOVQ(rows, left)
		a.Label(name)
		s.store(a.load(at(px, 0), low), a.load(at(px, 64), high), to)
		a.ADDQ(lda, px)
		a.ADDQ(imm(64), py)
		a.DECQ(left)
		a.JNZ(label(name))
		a.ADDQ(imm(128), x)
		a.ADDQ(operand.U32(stepBytes), y)
	}
	a.SUBQ(imm(32), n)
	a.JL(label("rest"))
	a.Label("loopstep")
	step("looprow", nil, nil)
	a.SUBQ(imm(32), n)
	a.JGE(label("loopstep"))
	a.Label("rest")
	a.ADDQ(imm(32), n)
	a.JZ(label("done"))
	low, high := a.halfMasks(n)
	step("looprest", &low, &high)
	a.Label("done")
	s.end()
}

// splitPanels splits columns of B.
func (a *asm) splitPanels() {
	a.fn("splitPanels", "func(steps, panels int, x *float32, ldb int, y *float32, gap int) float32",
		"splits panels of 32 columns, of steps of 32 rows x, ldb bytes apart, into the parts y, those of a panel gap bytes behind the former's. Rows of a step that are 16 apart are pairs. It is 0, or NaN if the parts of a number are not finite.")
	steps, panels, x, ldb, y, gap := a.gp("steps"), a.gp("panels"), a.gp("x"), a.gp("ldb"), a.gp("y"), a.gp("gap")
	s := a.splitter()
	n, left, px, py, below := a.GP64(), a.GP64(), a.GP64(), a.GP64(), a.GP64()
	a.MOVQ(ldb, below)
	a.SHLQ(imm(4), below)
	a.Label("loopstep")
	a.MOVQ(operand.U32(16), n)
	a.Label("looprow")
	a.MOVQ(x, px)
	a.MOVQ(y, py)
	a.MOVQ(panels, left)
	a.Label("looppanel")
	for half := range 2 {
		s.store(a.load(at(px, half*64), nil), a.load(from(px, below, half*64), nil), func(part int) operand.Mem { return at(py, part*partBytes+half*tileBytesOf) })
	}
	a.ADDQ(operand.U32(128), px)
	a.ADDQ(gap, py)
	a.DECQ(left)
	a.JNZ(label("looppanel"))
	a.ADDQ(ldb, x)
	a.ADDQ(imm(64), y)
	a.DECQ(n)
	a.JNZ(label("looprow"))
	a.ADDQ(below, x)
	a.ADDQ(operand.U32(stepBytes-tileBytesOf), y)
	a.DECQ(steps)
	a.JNZ(label("loopstep"))
	s.end()
}

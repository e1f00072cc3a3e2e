package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// fm are the kernels of factorization machines over one row.
func (a *asm) fm() {
	a.fn("fm", "func(fields, dim int, x, sums *float32) float32",
		"puts the sums of the fields' vectors into sums and returns half of the sum of their squares less the vectors' squares.")
	fields, n, x, sums := a.gp("fields"), a.gp("dim"), a.gp("x"), a.gp("sums")
	stride := a.GP64()
	a.MOVQ(n, stride)
	a.SHLQ(imm(2), stride)
	total := a.zeros()
	a.elementwise(n, []reg.GPVirtual{x, sums}, 1, func(_ int, m func(int) operand.Mem, t *tail) {
		s, q, p, left := a.zeros(), a.zeros(), a.GP64(), a.GP64()
		a.MOVQ(x, p)
		a.MOVQ(fields, left)
		name := "loopfield"
		if t != nil {
			name = "looplast"
		}
		a.Label(name)
		v := a.load(at(p, 0), t)
		a.VADDPS(v, s, s)
		a.VMULPS(v, v, v)
		a.VADDPS(v, q, q)
		a.ADDQ(stride, p)
		a.DECQ(left)
		a.JNZ(label(name))
		a.store(s, m(1), t)
		a.VADDPS(a.sub(a.mul(s, s), q), total, total)
	})
	r, half := a.sumLanes(total), a.XMM()
	a.VMOVSS(a.constant(0.5), half)
	a.VMULSS(half, r, r)
	a.Store(r, a.ReturnIndex(0))
	a.ret()

	a.fn("addFMGrad", "func(fields, dim int, d float32, x, sums, dx *float32)", "adds d·(sums-x) to dx for each field's vector.")
	fields, n = a.gp("fields"), a.gp("dim")
	d := a.scalar("d")
	p := a.ptrs("x", "dx", "sums")
	stride = a.GP64()
	a.MOVQ(n, stride)
	a.SHLQ(imm(2), stride)
	a.elementwise(n, p, 1, func(_ int, m func(int) operand.Mem, t *tail) {
		s, px, pd, left := a.load(m(2), t), a.GP64(), a.GP64(), a.GP64()
		a.MOVQ(p[0], px)
		a.MOVQ(p[1], pd)
		a.MOVQ(fields, left)
		name := "loopfield"
		if t != nil {
			name = "looplast"
		}
		a.Label(name)
		v := a.mul(a.sub(s, a.load(at(px, 0), t)), d)
		a.store(a.add(a.load(at(pd, 0), t), v), at(pd, 0), t)
		a.ADDQ(stride, px)
		a.ADDQ(stride, pd)
		a.DECQ(left)
		a.JNZ(label(name))
	})
	a.ret()
}

// fmEntries are the kernels of factorization machines over one entry in each of several rows.
func (a *asm) fmEntries() {
	a.fn("finishFM", "func(dim int, sums, squares *float32) float32", "returns half of the sum of the squares of sums less squares.")
	n := a.gp("dim")
	total := a.zeros()
	a.elementwise(n, a.ptrs("sums", "squares"), 1, func(_ int, m func(int) operand.Mem, t *tail) {
		s := a.load(m(0), t)
		a.VADDPS(a.sub(a.mul(s, s), a.load(m(1), t)), total, total)
	})
	r, half := a.sumLanes(total), a.XMM()
	a.VMOVSS(a.constant(0.5), half)
	a.VMULSS(half, r, r)
	a.Store(r, a.ReturnIndex(0))
	a.ret()

	for _, vectors := range []int{2, 1} {
		a.fmRows("addFM", "func(rows int, index *int32, values *float32, stride int, sums, squares *float32, gap, columns int)",
			"adds the vectors of rows' entries to sums and their squares to squares, whose rows are gap bytes apart", vectors,
			func(p reg.GPVirtual, rows []reg.GPVirtual, t *tail) {
				for v := range vectors {
					x := a.load(at(p, v*a.bytes), t)
					a.store(a.add(x, a.load(at(rows[0], v*a.bytes), t)), at(rows[0], v*a.bytes), t)
					a.store(a.add(a.mul(x, x), a.load(at(rows[1], v*a.bytes), t)), at(rows[1], v*a.bytes), t)
				}
			}, "sums", "squares")
		a.fmRows("spreadFM", "func(rows int, index *int32, values, grads *float32, stride int, dy, sums *float32, gap, columns int)",
			"adds dy·(sums-v) to the gradients of the vectors v of rows' entries; rows of sums are gap bytes apart", vectors,
			func(p reg.GPVirtual, rows []reg.GPVirtual, t *tail) {
				grads, dy := rows[1], rows[2]
				d := a.broadcast(at(dy, 0))
				g := a.GP64()
				a.MOVQ(p, g)
				a.ADDQ(grads, g) // grads is its distance from values
				for v := range vectors {
					x := a.mul(a.sub(a.load(at(rows[0], v*a.bytes), t), a.load(at(p, v*a.bytes), t)), d)
					a.store(a.add(a.load(at(g, v*a.bytes), t), x), at(g, v*a.bytes), t)
				}
				a.ADDQ(imm(4), dy)
			}, "sums")
	}
}

// fmRows emits a loop over rows with one entry each. body gets the address of the entry's vector and the named parameters, which move on
// by gap; after them, where the kernel has these, the distance from values to grads and dy.
func (a *asm) fmRows(name, signature, doc string, vectors int, body func(p reg.GPVirtual, rows []reg.GPVirtual, t *tail), names ...string) {
	a.fn(fmt.Sprintf("%s%d", name, vectors), signature, fmt.Sprintf("%s; %d·%d columns or fewer.", doc, vectors, a.lanes()))
	loop := func(t *tail) {
		suffix := "whole"
		if t != nil {
			suffix = "part"
		}
		n, index, values, stride, gap := a.gp("rows"), a.gp("index"), a.gp("values"), a.gp("stride"), a.gp("gap")
		rows := a.ptrs(names...)
		moving := len(rows)
		if moving == 1 {
			grads := a.gp("grads")
			a.SUBQ(values, grads)
			rows = append(rows, grads, a.gp("dy"))
		}
		p := a.GP64()
		a.Label("loop" + suffix)
		a.MOVLQSX(at(index, 0), p)
		a.IMULQ(stride, p)
		a.ADDQ(values, p)
		body(p, rows, t)
		for _, r := range rows[:moving] {
			a.ADDQ(gap, r)
		}
		a.ADDQ(imm(4), index)
		a.DECQ(n)
		a.JNZ(label("loop" + suffix))
	}
	if vectors > 1 {
		loop(nil)
		a.ret()
		return
	}
	columns := a.gp("columns")
	a.CMPQ(columns, imm(a.lanes()))
	a.JL(label("part"))
	loop(nil)
	a.ret()
	a.Label("part")
	t := a.tailMask(columns)
	loop(&t)
	a.ret()
}

// entries are pooling and its gradient: entries of rows, each the index of a vector in a table.
func (a *asm) entries() {
	for _, vectors := range []int{2, 1} {
		for _, weighted := range []bool{false, true} {
			a.pool(vectors, weighted)
			a.scatter(vectors, weighted)
		}
	}
}

const entriesSignature = "func(rows int, offsets, index *int32, weights, values *float32, stride int, dst *float32, gap, columns, mean int)"

// rowsOf emits the loop over rows and their entries. begin is called for each row with n, the number of its entries as a
// vector (1 unless the mean is asked for), entry with the address of a vector and its weight, end at the row's end.
func (a *asm) rowsOf(vectors int, weighted bool, begin func(factor vector), entry func(p reg.GPVirtual, weight vector), end func(factor vector), t *tail, dst reg.GPVirtual) {
	rows, offsets, index, values, stride := a.gp("rows"), a.gp("offsets"), a.gp("index"), a.gp("values"), a.gp("stride")
	gap, mean := a.gp("gap"), a.gp("mean")
	weights := a.gp("weights")
	suffix := "Whole"
	if t != nil {
		suffix = "Part"
	}
	from, to, i := a.GP64(), a.GP64(), a.GP64()
	a.MOVLQSX(at(offsets, 0), from)
	a.Label("looprow" + suffix)
	a.MOVLQSX(at(offsets, 4), to)
	factor := a.broadcast(a.constant(1))
	count := a.GP64()
	a.MOVQ(to, count)
	a.SUBQ(from, count)
	a.IMULQ(mean, count)
	a.CMPQ(count, imm(1))
	a.JLE(label("factor" + suffix))
	x, one := a.XMM(), a.XMM()
	a.VXORPS(x, x, x)
	a.VCVTSI2SSQ(count, x, x)
	a.VMOVSS(a.constant(1), one)
	a.VDIVSS(x, one, x)
	a.VBROADCASTSS(x, factor)
	a.Label("factor" + suffix)
	begin(factor)
	a.CMPQ(from, to)
	a.JGE(label("end" + suffix))
	a.Label("loopentry" + suffix)
	a.MOVLQSX(operand.Mem{Base: index, Index: from, Scale: 4}, i)
	a.IMULQ(stride, i)
	a.ADDQ(values, i)
	var w vector
	if weighted {
		w = a.broadcast(operand.Mem{Base: weights, Index: from, Scale: 4})
	}
	entry(i, w)
	a.INCQ(from)
	a.CMPQ(from, to)
	a.JL(label("loopentry" + suffix))
	a.Label("end" + suffix)
	end(factor)
	a.ADDQ(gap, dst)
	a.ADDQ(imm(4), offsets)
	a.MOVQ(to, from)
	a.DECQ(rows)
	a.JNZ(label("looprow" + suffix))
}

// entriesKernel emits body for whole vectors and, if there is one vector only, for the first of its lanes.
func (a *asm) entriesKernel(name, doc string, vectors int, weighted bool, body func(t *tail)) {
	if weighted {
		name += "Weighted"
	}
	a.fn(fmt.Sprintf("%s%d", name, vectors), entriesSignature, doc)
	if vectors > 1 {
		body(nil)
		a.ret()
		return
	}
	columns := a.gp("columns")
	a.CMPQ(columns, imm(a.lanes()))
	a.JL(label("part"))
	body(nil)
	a.ret()
	a.Label("part")
	t := a.tailMask(columns)
	body(&t)
	a.ret()
}

func (a *asm) pool(vectors int, weighted bool) {
	doc := fmt.Sprintf("puts the sums, or means, of the rows' vectors into dst, whose rows are gap bytes apart; %d·%d columns or fewer.", vectors, a.lanes())
	a.entriesKernel("pool", doc, vectors, weighted, func(t *tail) {
		dst := a.gp("dst")
		acc := make([]vector, vectors)
		a.rowsOf(vectors, weighted, func(vector) {
			for v := range acc {
				acc[v] = a.zeros()
			}
		}, func(p reg.GPVirtual, weight vector) {
			for v := range acc {
				x := a.load(at(p, v*a.bytes), t)
				if weighted {
					x = a.mul(x, weight)
				}
				a.VADDPS(x, acc[v], acc[v])
			}
		}, func(factor vector) {
			for v := range acc {
				a.store(a.mul(acc[v], factor), at(dst, v*a.bytes), t)
			}
		}, t, dst)
	})
}

func (a *asm) scatter(vectors int, weighted bool) {
	doc := fmt.Sprintf("adds each row of dst, times its entry's weight, to the vectors of its entries; %d·%d columns or fewer.", vectors, a.lanes())
	a.entriesKernel("scatter", doc, vectors, weighted, func(t *tail) {
		dst := a.gp("dst")
		src, f := make([]vector, vectors), vector(nil)
		a.rowsOf(vectors, weighted, func(factor vector) {
			f = factor
			for v := range src {
				src[v] = a.load(at(dst, v*a.bytes), t)
				if !weighted {
					a.VMULPS(factor, src[v], src[v])
				}
			}
		}, func(p reg.GPVirtual, weight vector) {
			for v := range src {
				x := src[v]
				if weighted {
					x = a.mul(x, a.mul(f, weight))
				}
				a.store(a.add(a.load(at(p, v*a.bytes), t), x), at(p, v*a.bytes), t)
			}
		}, func(vector) {}, t, dst)
	})
}

// largestBits are the largest of numbers taken as unsigned integers.
func (a *asm) largestBits() {
	for _, k := range []struct {
		name, parameter, doc string
		sign                 bool
	}{
		{"largestMagnitude", "x *float32", "is the largest of the n elements of x without their signs, in the order of their bits: of infinity and NaN the latter.", false},
		{"largestIndex", "x *int32", "has the bits of the largest of the n elements of x, of which the negative ones are taken as larger than the others.", true},
	} {
		a.fn(k.name, "func(n int, "+k.parameter+") float32", k.doc)
		n, p := a.gp("n"), a.ptrs("x")
		acc := []vector{a.zeros(), a.zeros()}
		a.elementwise(n, p, 2, func(u int, m func(int) operand.Mem, t *tail) {
			x := a.load(m(0), t)
			if !k.sign {
				x = a.and(x, a.constantBits(1<<31-1))
			}
			a.VPMAXUD(x, acc[u], acc[u])
		})
		v := acc[0]
		a.VPMAXUD(acc[1], v, v)
		if a.wide {
			h, s := a.YMM(), a.YMM()
			a.VEXTRACTF64X4(imm(1), v, h)
			a.VPMAXUD(h, v.AsY(), s)
			v = s
		}
		h, s := a.XMM(), a.XMM()
		a.VEXTRACTF128(imm(1), v.AsY(), h)
		a.VPMAXUD(h, v.AsX(), s)
		a.VMOVHLPS(s, s, h)
		a.VPMAXUD(h, s, s)
		a.VMOVSHDUP(s, h)
		a.VPMAXUD(h, s, s)
		a.Store(s, a.ReturnIndex(0))
		a.ret()
	}
}

// conversions treat whole vectors only: the caller does the rest.
func (a *asm) conversions() {
	loop := func(name, signature, doc string, size int, body func(src, dst reg.GPVirtual)) {
		a.fn(name, signature, doc)
		n, dst, src := a.gp("n"), a.gp("dst"), a.gp("src")
		a.SUBQ(imm(a.lanes()), n)
		a.JL(label("done"))
		a.Label("loop")
		body(src, dst)
		a.ADDQ(imm(a.lanes()*size), src)
		a.ADDQ(imm(a.lanes()*(6-size)), dst)
		a.SUBQ(imm(a.lanes()), n)
		a.JGE(label("loop"))
		a.Label("done")
		a.ret()
	}
	narrow, wide := "func(n int, dst *uint16, src *float32)", "func(n int, dst *float32, src *uint16)"
	loop("toBF16", narrow, "rounds whole vectors of the n floats of src to bfloat16.", 4, func(src, dst reg.GPVirtual) {
		x := a.load(at(src, 0), nil)
		high := a.right(x, 16)
		odd := a.and(high, a.constantBits(1))
		rounded := a.right(a.addInt(a.addInt(x, odd), a.constantBits(0x7fff)), 16)
		v := a.choose(a.compare(x, unordered, x), a.or(high, a.constantBits(0x40)), rounded)
		if a.wide {
			a.VPMOVDW(v, at(dst, 0))
			return
		}
		h, l := a.XMM(), a.XMM()
		a.VEXTRACTI128(imm(1), v, h)
		a.VPACKUSDW(h, v.AsX(), l)
		a.VMOVDQU(l, at(dst, 0))
	})
	loop("fromBF16", wide, "widens whole vectors of the n bfloat16 of src.", 2, func(src, dst reg.GPVirtual) {
		v := a.vec()
		a.VPMOVZXWD(at(src, 0), v)
		a.store(a.left(v, 16), at(dst, 0), nil)
	})
	loop("toFP16", narrow, "rounds whole vectors of the n floats of src to binary16.", 4, func(src, dst reg.GPVirtual) {
		a.VCVTPS2PH(imm(0), a.load(at(src, 0), nil), at(dst, 0))
	})
	loop("fromFP16", wide, "widens whole vectors of the n binary16 of src.", 2, func(src, dst reg.GPVirtual) {
		v := a.vec()
		a.VCVTPH2PS(at(src, 0), v)
		a.store(v, at(dst, 0), nil)
	})
}

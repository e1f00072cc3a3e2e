package main

import (
	"strconv"

	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// segmentKernels are the rules over the same segment of many rows, of which each lies at an address of its own. The memory sets their
// speed, so that there is one width of them for all families.
func segmentKernels(a *asm) {
	for _, r := range a.all() {
		if r.rows {
			a.segments(r)
		}
		if r.singles {
			a.singles(r)
		}
	}
	a.groupRules()
	a.groupSums()
	a.packing("packSegments", "copies dim < 8 floats, offset bytes into each of n rows, to dst, row after row.", func(row, array operand.Mem) (from, to operand.Mem) {
		return row, array
	})
	a.packing("unpackSegments", "copies dim < 8 floats of each of n rows from dst, row after row, to offset bytes into the rows.", func(row, array operand.Mem) (from, to operand.Mem) {
		return array, row
	})
}

// segments emits a rule for dim >= 8. What a row has beyond whole vectors is its last eight floats: they are computed before
// anything of the row is stored, and stored after the rest, so that those which a whole vector has too are given the same bits twice.
func (a *asm) segments(r rule) {
	scalars := r.scalars
	signature := "func(n int, at *uintptr, w, state uintptr, dim int, grad *float32, step int, penalty float32"
	if r.rates {
		signature += ", rates *float32"
		scalars = scalars[1:]
	}
	for _, s := range scalars {
		signature += ", " + s + " float32"
	}
	doc := "does to n > 0 rows, whose addresses are given: " + r.doc +
		" The weights begin w bytes into a row, the state, array after array of dim >= 8 floats, state bytes; gradients are step bytes apart, and penalty·w is added to them unless penalty is 0."
	a.fn(r.name+"Rows", signature+")", doc)
	n, rows, bytes, grad := a.gp("n"), a.gp("at"), a.gp("dim"), a.gp("grad")
	a.SHLQ(imm(2), bytes)
	var rates reg.GPVirtual
	if r.rates {
		rates = a.gp("rates")
	}
	var kept []vector // with few scalars there are registers for them
	if len(scalars) <= 2 {
		for _, name := range scalars {
			kept = append(kept, a.scalar(name))
		}
	}
	s := func(i int) vector {
		if r.rates {
			if i == 0 {
				return a.broadcast(at(rates, 0))
			}
			i--
		}
		if kept != nil {
			return kept[i]
		}
		return a.scalar(scalars[i])
	}
	k, last := a.GP64(), a.GP64()
	a.MOVQ(bytes, last)
	a.SUBQ(imm(a.bytes), last)

	labels := 0
	body := func(p []reg.GPVirtual, k reg.GPVirtual, store func(v vector, i int)) {
		mem := func(i int) operand.Mem { return operand.Mem{Base: p[i], Index: k, Scale: 1} }
		r.body(operands{
			load: func(i int) vector {
				v := a.load(mem(i), nil)
				if i == len(p)-1 {
					labels++
					skip := label("plain" + strconv.Itoa(labels))
					a.CMPL(a.param("penalty"), imm(0))
					a.JEQ(skip)
					a.VADDPS(a.mul(a.scalar("penalty"), mem(0)), v, v)
					a.Label(string(skip))
				}
				return v
			},
			store: store,
		}, s)
	}
	loop := func(name string, row func(p []reg.GPVirtual)) {
		a.Label("row" + name)
		p := []reg.GPVirtual{a.GP64()}
		a.MOVQ(at(rows, 0), p[0])
		for i := range len(r.arrays) - 2 {
			q := a.GP64()
			if i == 0 {
				a.MOVQ(p[0], q)
				a.ADDQ(a.param("state"), q)
			} else {
				a.LEAQ(operand.Mem{Base: p[i], Index: bytes, Scale: 1}, q)
			}
			p = append(p, q)
		}
		a.ADDQ(a.param("w"), p[0])
		row(append(p, grad))
		a.ADDQ(imm(8), rows)
		a.ADDQ(a.param("step"), grad)
		if r.rates {
			a.ADDQ(imm(4), rates)
		}
		a.DECQ(n)
		a.JNZ(label("row" + name))
		a.ret()
	}
	now := func(p []reg.GPVirtual) func(v vector, i int) {
		return func(v vector, i int) { a.store(v, operand.Mem{Base: p[i], Index: k, Scale: 1}, nil) }
	}
	a.TESTQ(operand.U32(uint32(a.bytes-1)), bytes)
	a.JNZ(label("part"))
	loop("whole", func(p []reg.GPVirtual) {
		a.XORQ(k, k)
		a.Label("loopwhole")
		body(p, k, now(p))
		a.ADDQ(imm(a.bytes), k)
		a.CMPQ(k, bytes)
		a.JL(label("loopwhole"))
	})
	a.Label("part")
	loop("part", func(p []reg.GPVirtual) {
		ends := make([]vector, len(p))
		body(p, last, func(v vector, i int) { ends[i] = v })
		a.XORQ(k, k)
		a.Label("looppart")
		body(p, k, now(p))
		a.ADDQ(imm(a.bytes), k)
		a.CMPQ(k, last)
		a.JLE(label("looppart"))
		for i, v := range ends {
			if v != nil {
				a.store(v, operand.Mem{Base: p[i], Index: last, Scale: 1}, nil)
			}
		}
	})
}

// singles emits a rule for rows of one weight, eight of them to a vector.
func (a *asm) singles(r rule) {
	signature := "func(n int, at *uintptr, w, state uintptr, grad *float32, step int, penalty float32"
	for _, s := range r.scalars {
		signature += ", " + s + " float32"
	}
	doc := "does to n > 0 rows, a multiple of eight, whose addresses are given and differ: " + r.doc +
		" The weight lies w bytes into a row, the state, one float after the other, state bytes; gradients are step bytes apart, and penalty·w is added to them unless penalty is 0."
	a.fn(r.name+"Singles", signature+")", doc)
	n, rows, w, state, grad, step := a.gp("n"), a.gp("at"), a.gp("w"), a.gp("state"), a.gp("grad"), a.gp("step")
	row := a.GP64()
	place := func(array, lane int) operand.Mem {
		a.MOVQ(at(rows, 8*lane), row)
		if array == 0 {
			return operand.Mem{Base: row, Index: w, Scale: 1}
		}
		return operand.Mem{Base: row, Index: state, Scale: 1, Disp: 4 * (array - 1)}
	}
	gather := func(of func(lane int) operand.Mem) vector {
		var halves [2]reg.VecVirtual
		for i := range halves {
			x := a.XMM()
			a.VMOVSS(of(4*i), x)
			for j := 1; j < 4; j++ {
				a.VINSERTPS(imm(j<<4), of(4*i+j), x, x)
			}
			halves[i] = x
		}
		v := a.YMM()
		a.VINSERTF128(imm(1), halves[1], halves[0].AsY(), v)
		return v
	}
	weights := func(lane int) operand.Mem { return place(0, lane) }
	a.Label("rows")
	r.body(operands{
		load: func(i int) vector {
			if i < len(r.arrays)-1 {
				return gather(func(lane int) operand.Mem { return place(i, lane) })
			}
			a.MOVQ(grad, row)
			v := gather(func(lane int) operand.Mem {
				if lane > 0 {
					a.ADDQ(step, row)
				}
				return at(row, 0)
			})
			a.CMPL(a.param("penalty"), imm(0))
			a.JEQ(label("plain"))
			a.VADDPS(a.mul(a.scalar("penalty"), gather(weights)), v, v)
			a.Label("plain")
			return v
		},
		store: func(v vector, i int) {
			low, high := v.AsX(), a.XMM()
			a.VEXTRACTF128(imm(1), v, high)
			for lane := range 8 {
				x, to := low, place(i, lane)
				if lane >= 4 {
					x = high
				}
				if lane%4 == 0 {
					a.VMOVSS(x, to)
				} else {
					a.VEXTRACTPS(imm(lane%4), x, to)
				}
			}
		},
	}, func(i int) vector { return a.scalar(r.scalars[i]) })
	a.LEAQ(operand.Mem{Base: grad, Index: step, Scale: 8}, grad)
	a.ADDQ(imm(64), rows)
	a.SUBQ(imm(8), n)
	a.JNZ(label("rows"))
	a.ret()
}

// param is a parameter where it lies in memory.
func (a *asm) param(name string) operand.Mem {
	m, err := a.Param(name).Resolve()
	must(err)
	return m.Addr
}

// packing emits a copy between rows and an array.
func (a *asm) packing(name, doc string, way func(row, array operand.Mem) (from, to operand.Mem)) {
	a.fn(name, "func(n int, at *uintptr, offset uintptr, dim int, dst *float32)", doc)
	n, rows, offset, dim, dst := a.gp("n"), a.gp("at"), a.gp("offset"), a.gp("dim"), a.gp("dst")
	row, x, v := a.GP64(), a.GP64(), a.XMM()
	a.CMPQ(dim, imm(1))
	a.JNE(label("row"))
	a.Label("loopone")
	a.MOVQ(at(rows, 0), row)
	from, to := way(operand.Mem{Base: row, Index: offset, Scale: 1}, at(dst, 0))
	a.MOVL(from, x.As32())
	a.MOVL(x.As32(), to)
	a.ADDQ(imm(8), rows)
	a.ADDQ(imm(4), dst)
	a.DECQ(n)
	a.JNZ(label("loopone"))
	a.ret()
	a.Label("row")
	a.MOVQ(at(rows, 0), row)
	a.ADDQ(offset, row)
	part := func(floats int, next string, copy func(from, to operand.Mem)) {
		a.TESTQ(operand.U32(uint32(floats)), dim)
		a.JZ(label(next))
		copy(way(at(row, 0), at(dst, 0)))
		a.ADDQ(imm(4*floats), row)
		a.ADDQ(imm(4*floats), dst)
		a.Label(next)
	}
	part(4, "two", func(from, to operand.Mem) { a.VMOVUPS(from, v); a.VMOVUPS(v, to) })
	part(2, "one", func(from, to operand.Mem) { a.MOVQ(from, x); a.MOVQ(x, to) })
	part(1, "next", func(from, to operand.Mem) { a.MOVL(from, x.As32()); a.MOVL(x.As32(), to) })
	a.ADDQ(imm(8), rows)
	a.DECQ(n)
	a.JNZ(label("row"))
	a.ret()
}

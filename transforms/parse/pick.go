package parse

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// picker copies the rows of a batch that a holdout keeps out of its plain columns, so that what is left is read a column at a time too.
// The zero value keeps all rows, and copies nothing.
type picker struct {
	rows []int32    // those that are kept, in order
	runs [][2]int32 // the same as borders of rows that lie side by side
	some bool       // there are others
	mem  memory.Allocator
	// source are the offsets of the list column before, and offsets those of its copy: columns of single values have the same ones.
	source  []int32
	offsets *memory.Buffer
}

// begin forgets all rows.
func (p *picker) begin(mem memory.Allocator) {
	p.end()
	p.rows, p.runs, p.some, p.mem = p.rows[:0], p.runs[:0], false, mem
}

// end gives back what the copies share.
func (p *picker) end() {
	if p.offsets != nil {
		p.offsets.Release()
	}
	p.source, p.offsets, p.some = nil, nil, false
}

// keep notes that a row is kept, or that it is not. Rows come in order.
func (p *picker) keep(row int, kept bool) {
	if !kept {
		p.some = true
		return
	}
	at := int32(row)
	if n := len(p.runs); n > 0 && p.runs[n-1][1] == at {
		p.runs[n-1][1]++
	} else {
		p.runs = append(p.runs, [2]int32{at, at + 1})
	}
	p.rows = append(p.rows, at)
}

// of returns the kept rows of a column of numbers, or lists of such, without nulls, which the caller releases; false: it is none of these.
func (p *picker) of(col arrow.Array) (arrow.Array, bool) {
	if !p.some {
		col.Retain()
		return col, true
	}
	if col.NullN() > 0 {
		return nil, false
	}
	list, ok := col.(*array.List)
	if !ok {
		items, ok := p.numbers(col, func(run [2]int32) (from, to int32) { return run[0], run[1] }, len(p.rows))
		if !ok {
			return nil, false
		}
		defer items.Release()
		return array.MakeFromData(items), true
	}
	offsets := list.Offsets()[list.Data().Offset():][:list.Len()+1]
	total := 0
	for _, run := range p.runs {
		total += int(offsets[run[1]] - offsets[run[0]])
	}
	items, ok := p.numbers(list.ListValues(), func(run [2]int32) (from, to int32) { return offsets[run[0]], offsets[run[1]] }, total)
	if !ok {
		return nil, false
	}
	defer items.Release()
	data := array.NewData(list.DataType(), len(p.rows), []*memory.Buffer{nil, p.offsetsOf(offsets)}, []arrow.ArrayData{items}, 0, 0)
	defer data.Release()
	return array.MakeFromData(data), true
}

// numbers copies what each run has of an array of n numbers altogether.
func (p *picker) numbers(col arrow.Array, part func(run [2]int32) (from, to int32), n int) (arrow.ArrayData, bool) {
	width := 0
	switch col.(type) {
	case *array.Int64, *array.Float64:
		width = 8
	case *array.Int32, *array.Float32:
		width = 4
	}
	if width == 0 || col.NullN() > 0 {
		return nil, false
	}
	buf := memory.NewResizableBuffer(p.mem)
	defer buf.Release()
	buf.Resize(width * n)
	if n > 0 {
		to, from := buf.Bytes(), col.Data().Buffers()[1].Bytes()[width*col.Data().Offset():]
		for _, run := range p.runs {
			a, b := part(run)
			to = to[copy(to, from[width*int(a):width*int(b)]):]
		}
	}
	return array.NewData(col.DataType(), n, []*memory.Buffer{nil, buf}, nil, 0, 0), true
}

// offsetsOf makes the offsets of the kept lists.
func (p *picker) offsetsOf(source []int32) *memory.Buffer {
	if p.offsets != nil && len(p.source) == len(source) && &p.source[0] == &source[0] {
		return p.offsets
	}
	if p.offsets != nil {
		p.offsets.Release()
	}
	p.source, p.offsets = source, memory.NewResizableBuffer(p.mem)
	p.offsets.Resize(4 * (len(p.rows) + 1))
	to, at := arrow.Int32Traits.CastFromBytes(p.offsets.Bytes()), int32(0)
	to[0] = 0
	for i, row := range p.rows {
		at += source[row+1] - source[row]
		to[i+1] = at
	}
	return p.offsets
}

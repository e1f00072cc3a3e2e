package parquetsource

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// numbers builds an array of numbers in memory of just the size that was reserved. arrow-go's builders round up to the
// next power of two and keep a bit for each value whether there are nulls or not, which for plain numbers costs more than
// reading them.
type numbers[T int64 | float32 | float64] struct {
	mem memory.Allocator
	dt  arrow.DataType
	// recycled is where buf comes from: every value of it is written.
	recycled memory.Allocator
	buf      *memory.Buffer // nil: nothing reserved
	values   []T            // all of buf
	n        int
	valid    *memory.Buffer // nil: no nulls so far
	nulls    int
}

func newNumbers[T int64 | float32 | float64](mem, recycled memory.Allocator, dt arrow.DataType) *numbers[T] {
	return &numbers[T]{mem: mem, recycled: recycled, dt: dt}
}

// Len is the number of values so far.
func (b *numbers[T]) Len() int { return b.n }

// Reserve makes room for k more values.
func (b *numbers[T]) Reserve(k int) {
	if b.n+k <= len(b.values) {
		return
	}
	size := max(b.n+k, 2*b.n)
	if b.buf == nil {
		b.buf = memory.NewResizableBuffer(b.recycled)
	}
	b.buf.Resize(size * b.dt.(arrow.FixedWidthDataType).Bytes())
	b.values = arrow.GetData[T](b.buf.Bytes())
	if b.valid != nil {
		b.valid.Resize(int(bitutil.BytesForBits(int64(size))))
	}
}

// AppendValues appends values.
func (b *numbers[T]) AppendValues(values []T) {
	b.Reserve(len(values))
	copy(b.values[b.n:], values)
	b.mark(len(values), true)
}

// mark counts k more values, valid or not.
func (b *numbers[T]) mark(k int, valid bool) {
	if b.valid != nil {
		bitutil.SetBitsTo(b.valid.Bytes(), int64(b.n), int64(k), valid)
	}
	b.n += k
}

// room returns the place for k more values, to be filled by the caller.
func (b *numbers[T]) room(k int) []T {
	b.Reserve(k)
	b.mark(k, true)
	return b.values[b.n-k : b.n]
}

// AppendNulls appends k nulls.
func (b *numbers[T]) AppendNulls(k int) {
	if k == 0 {
		return
	}
	b.Reserve(k)
	if b.valid == nil {
		b.valid = memory.NewResizableBuffer(b.mem)
		b.valid.Resize(int(bitutil.BytesForBits(int64(len(b.values)))))
		bitutil.SetBitsTo(b.valid.Bytes(), 0, int64(b.n), true)
	}
	clear(b.values[b.n : b.n+k])
	b.mark(k, false)
	b.nulls += k
}

// NewArray returns what was built and starts over.
func (b *numbers[T]) NewArray() arrow.Array {
	if b.buf == nil {
		b.buf = memory.NewResizableBuffer(b.recycled)
	}
	b.buf.ResizeNoShrink(b.n * b.dt.(arrow.FixedWidthDataType).Bytes())
	data := array.NewData(b.dt, b.n, []*memory.Buffer{b.valid, b.buf}, nil, b.nulls, 0)
	defer data.Release()
	b.Release()
	return array.MakeFromData(data)
}

// Release gives back what was built.
func (b *numbers[T]) Release() {
	if b.buf != nil {
		b.buf.Release()
	}
	if b.valid != nil {
		b.valid.Release()
	}
	b.buf, b.values, b.n, b.valid, b.nulls = nil, nil, 0, nil, 0
}

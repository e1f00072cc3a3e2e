package parquetsource

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/sources/parquetsource/internal/pqfile"
)

// builder is what arrow-go's builders and [numbers] have in common.
type builder interface {
	Len() int
	Reserve(n int)
	AppendNulls(n int)
	NewArray() arrow.Array
	Release()
}

// appender is a builder that takes the values of a page in the type it builds.
type appender struct {
	builder
	// add appends values [from, to) and reports whether what is built stays within limit bytes; otherwise it adds nothing.
	add func(v *pqfile.Values, from, to, limit int) bool
}

// newAppender returns the appender for a conversion that [converts] allows. What recycled gives need not be clear.
func newAppender(mem, recycled memory.Allocator, to arrow.DataType, leaf *pqfile.Node) appender {
	unsigned := leaf.Annotation == pqfile.Unsigned
	switch to.ID() {
	case arrow.BOOL:
		b := array.NewBooleanBuilder(mem)
		return appender{b, func(v *pqfile.Values, from, to, limit int) bool {
			if b.Len()+to-from > limit/8 {
				return false
			}
			b.AppendValues(v.Bool[from:to], nil)
			return true
		}}
	case arrow.INT64:
		b := newNumbers[int64](mem, recycled, to)
		switch {
		case leaf.Physical == pqfile.Int64, leaf.Physical == pqfile.Int96:
			return appender{b, same(b, func(v *pqfile.Values) []int64 { return v.Int64 })}
		case leaf.Physical == pqfile.Boolean:
			return appender{b, converted(b, bools, number[int64])}
		case unsigned:
			return appender{b, converted(b, int32s, func(x int32) int64 { return int64(uint32(x)) })}
		}
		return appender{b, converted(b, int32s, func(x int32) int64 { return int64(x) })}
	case arrow.FLOAT32:
		b := newNumbers[float32](mem, recycled, to)
		if leaf.Physical == pqfile.Float {
			return appender{b, same(b, func(v *pqfile.Values) []float32 { return v.Float })}
		}
		return appender{b, floats(b, leaf.Physical, unsigned)}
	case arrow.FLOAT64:
		b := newNumbers[float64](mem, recycled, to)
		if leaf.Physical == pqfile.Double {
			return appender{b, same(b, func(v *pqfile.Values) []float64 { return v.Double })}
		}
		return appender{b, floats(b, leaf.Physical, unsigned)}
	case arrow.STRING:
		b := array.NewStringBuilder(mem)
		return appender{b, spans(b.BinaryBuilder)}
	case arrow.BINARY:
		b := array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary)
		return appender{b, spans(b)}
	}
	panic(fmt.Sprintf("parquetsource: no way to build %s", to))
}

func bools(v *pqfile.Values) []bool   { return v.Bool }
func int32s(v *pqfile.Values) []int32 { return v.Int32 }

type float interface{ float32 | float64 }

// number is 1 for true and 0 for false.
func number[T float | int64](x bool) T {
	if x {
		return 1
	}
	return 0
}

// same appends values that are of the wanted type already.
func same[T float | int64](b *numbers[T], get func(*pqfile.Values) []T) func(*pqfile.Values, int, int, int) bool {
	return func(v *pqfile.Values, from, to, limit int) bool {
		if b.Len()+to-from > limit/8 {
			return false
		}
		b.AppendValues(get(v)[from:to])
		return true
	}
}

// converted appends values one by one.
func converted[S any, T float | int64](b *numbers[T], get func(*pqfile.Values) []S, convert func(S) T) func(*pqfile.Values, int, int, int) bool {
	return func(v *pqfile.Values, from, to, limit int) bool {
		if b.Len()+to-from > limit/8 {
			return false
		}
		out := b.room(to - from)
		for i, x := range get(v)[from:to] {
			out[i] = convert(x)
		}
		return true
	}
}

// floats appends numbers of any type as floating point numbers, rounded to the nearest.
func floats[T float](b *numbers[T], from pqfile.Physical, unsigned bool) func(*pqfile.Values, int, int, int) bool {
	switch {
	case from == pqfile.Boolean:
		return converted(b, bools, number[T])
	case from == pqfile.Float:
		return converted(b, func(v *pqfile.Values) []float32 { return v.Float }, func(x float32) T { return T(x) })
	case from == pqfile.Double:
		return converted(b, func(v *pqfile.Values) []float64 { return v.Double }, func(x float64) T { return T(x) })
	case from == pqfile.Int32 && unsigned:
		return converted(b, int32s, func(x int32) T { return T(uint32(x)) })
	case from == pqfile.Int32:
		return converted(b, int32s, func(x int32) T { return T(x) })
	case unsigned:
		return converted(b, func(v *pqfile.Values) []int64 { return v.Int64 }, func(x int64) T { return T(uint64(x)) })
	}
	return converted(b, func(v *pqfile.Values) []int64 { return v.Int64 }, func(x int64) T { return T(x) })
}

// spans appends byte arrays.
func spans(b *array.BinaryBuilder) func(*pqfile.Values, int, int, int) bool {
	return func(v *pqfile.Values, from, to, limit int) bool {
		size := b.DataLen() + 8*(b.Len()+to-from)
		for _, s := range v.Spans[from:to] {
			size += int(s.Len)
		}
		if size > limit {
			return false
		}
		b.Reserve(to - from)
		b.ReserveData(size - b.DataLen())
		for _, s := range v.Spans[from:to] {
			b.Append(v.Data[s.At : s.At+s.Len])
		}
		return true
	}
}

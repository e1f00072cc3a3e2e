package table

import (
	"unsafe"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// Weights of 16 bits lie two to a float32 of a row's memory, each segment from a whole one on. The rules of such segments leave numbers of the
// format behind, so that packing loses nothing of them; what a snapshot of other rules has is rounded to the nearest.

// unpack writes the weights of a row to dst, [dim].
func (t *Mem) unpack(dst, row []float32) {
	if !t.halves {
		copy(dst, row)
		return
	}
	for i := range t.segs {
		s := &t.segs[i]
		s.decode(dst[s.w:s.w+s.wn], row)
	}
}

// pack writes weights, [dim], to a row. They may be the row's own memory where there are no halves.
func (t *Mem) pack(row, w []float32) {
	if !t.halves {
		copy(row, w)
		return
	}
	for i := range t.segs {
		s := &t.segs[i]
		s.encode(row, w[s.w:s.w+s.wn])
	}
}

// decode writes the segment's weights of a row to dst.
func (s *segmentRule) decode(dst, row []float32) {
	if s.values == optim.FP32 {
		copy(dst, row[s.p:])
		return
	}
	s.precision().Decode(dst, halvesOf(row[s.p:], s.wn), 0)
}

// encode writes weights to the segment of a row.
func (s *segmentRule) encode(row, w []float32) {
	if s.values == optim.FP32 {
		copy(row[s.p:], w)
		return
	}
	s.precision().Encode(halvesOf(row[s.p:], s.wn), w, 0)
}

func (s *segmentRule) precision() param.Precision {
	if s.values == optim.BF16 {
		return param.BF16
	}
	return param.FP16
}

// halvesOf are n numbers of 16 bits at the beginning of memory.
func halvesOf(memory []float32, n int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(memory[:(n+1)/2]))), n)
}

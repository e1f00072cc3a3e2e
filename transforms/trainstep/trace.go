package trainstep

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrTrace is what [DecodeTrace] returns, wrapped, for bytes that are not records of [AppendTrace].
var ErrTrace = errors.New("trainstep: bad trace")

// traceRecord is the size of a record of a trace, one an example, all little-endian:
//
//	| probability float32 | label float32 | weight float32 |
const traceRecord = 3 * 4

// AppendTrace appends a record for each example, in their order, to dst: what an update carries as its trace. The slices
// have one length; nil weights stand for 1. It allocates nothing where dst has room.
func AppendTrace(dst []byte, probs, labels, weights []float32) []byte {
	for i, p := range probs {
		weight := float32(1)
		if weights != nil {
			weight = weights[i]
		}
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(p))
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(labels[i]))
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(weight))
	}
	return dst
}

// DecodeTrace returns the examples of a trace in their order, in slices of its own. Errors: [ErrTrace].
func DecodeTrace(b []byte) (probs, labels, weights []float32, err error) {
	if len(b)%traceRecord != 0 {
		return nil, nil, nil, fmt.Errorf("%w: %d bytes are not whole records of %d", ErrTrace, len(b), traceRecord)
	}
	n := len(b) / traceRecord
	all := make([]float32, 3*n)
	probs, labels, weights = all[:n:n], all[n:2*n:2*n], all[2*n:]
	for i := range probs {
		r := b[i*traceRecord:][:traceRecord]
		probs[i] = math.Float32frombits(binary.LittleEndian.Uint32(r))
		labels[i] = math.Float32frombits(binary.LittleEndian.Uint32(r[4:]))
		weights[i] = math.Float32frombits(binary.LittleEndian.Uint32(r[8:]))
	}
	return probs, labels, weights, nil
}

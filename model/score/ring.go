package score

import (
	"bytes"
	"slices"
)

const (
	// MaxExamples is the most examples that a [Ring] keeps.
	MaxExamples = 1 << 16
	// maxTrace bounds what a ring keeps in bytes, for models with many heads.
	maxTrace = 16 << 20
)

// Ring keeps the last examples of the traces that are added to it: [MaxExamples], or as many as have room in 16 MiB. A trace
// of another schema than the one before empties it first: examples of two models are not measured together. Its memory is
// taken with the first trace. The zero value is empty. Not for concurrent use.
type Ring struct {
	header []byte
	ring   []byte // whole records
	next   int    // where the next byte goes
	full   bool
}

// kept is how many bytes of records are kept at most.
func kept(size int) int { return min(MaxExamples, maxTrace/size) * size }

// AppendTail appends the part of a trace that a ring can keep: its header and the last records. Errors: [ErrTrace], and dst
// is as it was.
func AppendTail(dst, trace []byte) ([]byte, error) {
	header, size, err := split(trace)
	if err != nil || len(trace) == 0 {
		return dst, err
	}
	records := trace[len(header):]
	return append(append(dst, header...), records[max(0, len(records)-kept(size)):]...), nil
}

// Add adds a trace. It allocates nothing while the schema stays. Errors: [ErrTrace], and the ring is as it was.
func (r *Ring) Add(trace []byte) error {
	header, size, err := split(trace)
	if err != nil || len(trace) == len(header) {
		return err
	}
	if !bytes.Equal(header, r.header) {
		r.header = append(r.header[:0], header...)
		if n := kept(size); len(r.ring) != n {
			r.ring = make([]byte, n)
		}
		r.next, r.full = 0, false
	}
	records := trace[len(header):]
	records = records[max(0, len(records)-len(r.ring)):]
	n := copy(r.ring[r.next:], records)
	copy(r.ring, records[n:])
	r.full = r.full || r.next+len(records) >= len(r.ring)
	r.next = (r.next + len(records)) % len(r.ring)
	return nil
}

// Set replaces what the ring holds by the end of a trace; nil empties it. It keeps nothing of trace. Errors: [ErrTrace], and
// the ring is as it was.
func (r *Ring) Set(trace []byte) error {
	if err := Check(trace); err != nil {
		return err
	}
	r.header, r.next, r.full = r.header[:0], 0, false
	return r.Add(trace)
}

// Bytes returns a copy of what the ring holds, the oldest example first, or nil when that is nothing.
func (r *Ring) Bytes() []byte {
	if r.full {
		return slices.Concat(r.header, r.ring[r.next:], r.ring[:r.next])
	}
	if r.next == 0 {
		return nil
	}
	return slices.Concat(r.header, r.ring[:r.next])
}

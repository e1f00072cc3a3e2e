package ps

import "slices"

// TraceState is the key of the worker state that holds the trace: what the updates applied so far said in
// [param.Update].Trace, the oldest first, in the order of their commits. It is as old as the rows, to the update, wherever
// worker state goes: snapshots, digests, [Cluster.State]. Setting it replaces the trace and nil empties it; an empty trace
// is no entry.
//
// The last [MaxTrace] bytes are kept. Records are not cut where MaxTrace is a multiple of their size.
const TraceState = "trace"

// MaxTrace is the length of a full trace in bytes: 65,536 records of 12 bytes.
const MaxTrace = 12 << 16

// trace is a ring of the last MaxTrace bytes appended. Its memory is taken with the first of them.
type trace struct {
	ring []byte
	next int // where the next byte goes
	full bool
}

// tail is the part of b that a trace keeps of it.
func (*trace) tail(b []byte) []byte { return b[max(0, len(b)-MaxTrace):] }

// add appends b. It allocates nothing but the ring.
func (t *trace) add(b []byte) {
	if b = t.tail(b); len(b) == 0 {
		return
	}
	if t.ring == nil {
		t.ring = make([]byte, MaxTrace)
	}
	n := copy(t.ring[t.next:], b)
	copy(t.ring, b[n:])
	t.full = t.full || t.next+len(b) >= MaxTrace
	t.next = (t.next + len(b)) % MaxTrace
}

// set replaces what the trace holds; it keeps nothing of b.
func (t *trace) set(b []byte) {
	t.next, t.full = 0, false
	t.add(b)
}

// bytes returns a copy of what the trace holds, the oldest first, or nil when that is nothing.
func (t *trace) bytes() []byte {
	if t.full {
		return slices.Concat(t.ring[t.next:], t.ring[:t.next])
	}
	return slices.Concat(t.ring[:t.next])
}

package arrowx

import (
	"math/bits"
	"sync"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

const (
	// leastRecycled is the size below which buffers are left to the garbage collector, to which a small one is no burden.
	leastRecycled = 4 << 10
	// mostHeld bounds what a Recycler keeps for later, in bytes.
	mostHeld = 64 << 20
)

// Recycler is an allocator of buffers that serve again once they are released: what is allocated for every batch is neither cleared nor collected each time,
// and what is written next lies where something was read last, near the processor. It gives out memory with whatever was in there, so it is for buffers whose
// every byte is written before it is read. Of what is freed it keeps at most 64 MiB. The zero value is ready, and its methods may overlap.
type Recycler struct {
	mu   sync.Mutex
	free map[int][][]byte // by capacity
	held int
}

var _ memory.Allocator = (*Recycler)(nil)

// Allocate implements [memory.Allocator].
func (r *Recycler) Allocate(size int) []byte {
	if size < leastRecycled {
		return memory.DefaultAllocator.Allocate(size)
	}
	room := roomFor(size)
	r.mu.Lock()
	defer r.mu.Unlock()
	free := r.free[room]
	n := len(free)
	if n == 0 {
		return memory.DefaultAllocator.Allocate(room)[:size]
	}
	b := free[n-1]
	free[n-1] = nil
	r.free[room] = free[:n-1]
	r.held -= room
	return b[:size]
}

// Reallocate implements [memory.Allocator].
func (r *Recycler) Reallocate(size int, b []byte) []byte {
	if size <= cap(b) {
		return b[:size]
	}
	larger := r.Allocate(size)
	copy(larger, b)
	r.Free(b)
	return larger
}

// Free implements [memory.Allocator].
func (r *Recycler) Free(b []byte) {
	room := cap(b)
	if room < leastRecycled || room != roomFor(room) { // not one of Allocate's that are kept
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held+room > mostHeld {
		return
	}
	if r.free == nil {
		r.free = map[int][][]byte{}
	}
	r.free[room] = append(r.free[room], b[:room])
	r.held += room
}

// roomFor rounds a size up, by less than a quarter, to one that others are rounded to as well.
func roomFor(size int) int {
	step := 1 << max(bits.Len(uint(size-1))-3, 6)
	return (size + step - 1) / step * step
}

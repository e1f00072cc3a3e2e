package table

import "unsafe"

const (
	// chunkBytes is what an arena gives out and takes back at once: as much is given back to the system in one call.
	chunkBytes = 256 << 10
	// arenaBytes is what it maps at once.
	arenaBytes = 16 << 20
)

// arena is memory outside of the Go heap, where the system allows it, in chunks of one size with a free list. A chunk that
// was given back costs no memory until it is used again.
type arena struct {
	mem    *Memory
	size   int // of a chunk, at least chunkBytes
	maps   [][]byte
	chunks [][]byte
	free   []uint32
	taken  int64
	// mapped reports whether chunks are pages of their own.
	mapped bool
}

// get returns the number of a chunk of any contents.
func (a *arena) get() (uint32, error) {
	if len(a.free) == 0 {
		if err := a.grow(); err != nil {
			return 0, err
		}
	}
	if err := a.mem.take(int64(a.size)); err != nil {
		return 0, err
	}
	a.taken += int64(a.size)
	n := a.free[len(a.free)-1]
	a.free = a.free[:len(a.free)-1]
	return n, nil
}

func (a *arena) grow() error {
	b, mapped, err := mapMemory(max(arenaBytes, a.size), false)
	if err != nil {
		return err
	}
	a.mapped = mapped
	if mapped {
		a.maps = append(a.maps, b)
	} else {
		b = heapMemory(a.size)
	}
	for ; len(b) >= a.size; b = b[a.size:] {
		a.free = append(a.free, uint32(len(a.chunks)))
		a.chunks = append(a.chunks, b[:a.size:a.size])
	}
	return nil
}

// pages are those of a chunk, for dropMemory; nil when it has none of its own.
func (a *arena) pages(n uint32) []byte {
	if !a.mapped {
		return nil
	}
	return a.chunks[n]
}

// put makes a chunk one to be used again.
func (a *arena) put(n uint32) {
	a.free = append(a.free, n)
	a.taken -= int64(a.size)
	a.mem.give(int64(a.size))
}

// close gives everything back.
func (a *arena) close() {
	for _, m := range a.maps {
		unmapMemory(m)
	}
	a.mem.give(a.taken)
	a.maps, a.chunks, a.free, a.taken = nil, nil, nil, 0
}

// heapMemory is zeroed memory of the Go heap, aligned to 8 bytes.
func heapMemory(size int) []byte {
	words := make([]uint64, (size+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
}

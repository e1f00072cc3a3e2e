package table

import (
	"slices"
	"unsafe"
)

const (
	// chunkBytes is what an arena gives out and takes back at once: as much is given back to the system in one call.
	chunkBytes = 64 << 10
	// arenaBytes is what it maps at once.
	arenaBytes = 16 << 20
)

// arena is memory outside of the Go heap, where the system allows it, in chunks of one size with a free list. A chunk that
// was given back costs no memory until it is used again.
//
// What is next to be given out may be populated ahead, so that who writes there does not wait for the system: aheadChunks of it, which
// are not taken from mem yet.
type arena struct {
	mem    *Memory
	size   int // of a chunk, at least chunkBytes
	maps   [][]byte
	chunks [][]byte
	free   []uint32
	taken  int64
	// mapped reports whether chunks are pages of their own.
	mapped bool
	// given is a mapping to begin with, populated; nil: none.
	given []byte
	// populate, if not nil, populates ahead; the last ready of free were given to it, or came populated.
	populate *populator
	ready    int
}

// aheadChunks is how many chunks are populated ahead: one for each range of hashes, all of which mostly fill theirs at about the same time.
const aheadChunks = ranges

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
	a.free, a.ready = a.free[:len(a.free)-1], max(a.ready-1, 0)
	a.prepare()
	return n, nil
}

// prepare has chunks populated that are next.
func (a *arena) prepare() {
	for a.populate != nil && a.ready < aheadChunks {
		if a.ready == len(a.free) && (a.grow() != nil || !a.mapped) {
			return // who needs one says why there is none
		}
		next := a.chunks[a.free[len(a.free)-1-a.ready]]
		a.populate.extend(next, 0, len(next))
		a.ready++
	}
}

// grow makes more chunks free, the last ones to be given out.
func (a *arena) grow() error {
	b, mapped := a.given, true
	if a.given = nil; b == nil {
		var err error
		if b, mapped, err = mapMemory(max(arenaBytes, a.size), false); err != nil {
			return err
		}
	} else {
		a.ready += len(b) / a.size // nothing is free where it is used
	}
	a.mapped = mapped
	if mapped {
		a.maps = append(a.maps, b)
	} else {
		b = heapMemory(a.size)
	}
	var more []uint32
	for ; len(b) >= a.size; b = b[a.size:] {
		more = append(more, uint32(len(a.chunks)))
		a.chunks = append(a.chunks, b[:a.size:a.size])
	}
	a.free = slices.Insert(a.free, 0, more...)
	return nil
}

// pages are those of a chunk, for dropMemory; nil when it has none of its own.
func (a *arena) pages(n uint32) []byte {
	if !a.mapped {
		return nil
	}
	return a.chunks[n]
}

// put makes chunks ones to be used again, behind all others: their memory has gone back.
func (a *arena) put(chunks []uint32) {
	a.free = slices.Insert(a.free, 0, chunks...)
	given := int64(len(chunks)) * int64(a.size)
	a.taken -= given
	a.mem.give(given)
}

// close gives everything back.
func (a *arena) close() {
	if a.populate != nil {
		a.populate.close()
	}
	if a.given != nil {
		a.maps = append(a.maps, a.given)
	}
	for _, m := range a.maps {
		unmapMemory(m)
	}
	a.mem.give(a.taken)
	a.maps, a.chunks, a.free, a.given, a.taken, a.ready = nil, nil, nil, nil, 0, 0
}

// heapMemory is zeroed memory of the Go heap, aligned to 8 bytes.
func heapMemory(size int) []byte {
	words := make([]uint64, (size+7)/8)
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), size)
}

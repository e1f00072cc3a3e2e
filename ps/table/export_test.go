package table

import "slices"

// Portable makes a table work as it does where there are no functions in assembly.
func (t *Mem) Portable() *Mem {
	t.vector = false
	return t
}

// Vectors reports whether there are any here.
func Vectors() bool { return vectors() }

// RowBytes is what the weights and the state of a row take.
func (t *Mem) RowBytes() int { return 4 * t.slabs.stride }

// Listed reports whether the rows are listed.
func (c *Changes) Listed() bool { return c.listed }

// Order sorts hashes from one on, of so many bits above it, as a cut sorts the entries of a segment.
type Order struct{ order order }

func (o *Order) Sort(hashes []uint64, from uint64, width int) (sorted []uint64) {
	entries := make([]entry, len(hashes))
	for i, h := range hashes {
		entries[i] = entry{hash: h, key: int64(i), id: uint32(i)}
	}
	for _, e := range o.order.sort(entries, from, width) {
		if hashes[e.key] != e.hash || uint32(e.key) != e.id {
			panic("parts of an entry were taken apart")
		}
		sorted = append(sorted, e.hash)
	}
	return sorted
}

// NumberOf is the number of a row that is there.
func (t *Mem) NumberOf(key int64) uint32 {
	id, ok := t.index.find(Hash(key), key)
	if !ok {
		panic("no such row")
	}
	return id
}

// Searched is how many lines of the index a search for key looks at, and whether it finds it there.
func (t *Mem) Searched(key int64) (n int, found bool) {
	h := Hash(key)
	lines := t.index.linesOf(h)
	for n < maxProbe {
		l := lines[probe(h, uint64(n))&uint64(len(lines)-1)]
		n++
		if slices.Contains(l.key[:min(l.n, slots)], key) {
			return n, true
		}
		if l.passed == 0 {
			break
		}
	}
	return n, false
}

// LeftOf returns how many rows of a cut, at most, may have to be kept yet, as it counts them, and of how many of the given numbers that is so.
func LeftOf(of Cut, numbers []uint32) (counted, left int) {
	im := of.(*cut).saved
	for _, id := range numbers {
		if im.has[id/64]>>(id%64)&1 == 0 {
			left++
		}
	}
	return im.left, left
}

// Has reports whether the row of a number is among changes.
func Has(c *Changes, id uint32) bool { return c.has(id) }

// Populated waits until all memory is populated that the growth of a table has asked for.
func Populated(of Table) { of.(*Mem).index.populate.done.Wait() }

// Arena is memory in chunks, as images have it.
type Arena struct{ a arena }

// NewArena makes one that begins with so many bytes, and populates by the given function, if there is one, what is next.
func NewArena(mem *Memory, given int, populate func([]byte)) *Arena {
	a := &Arena{arena{mem: mem, size: chunkBytes}}
	if populate != nil {
		a.a.populate = newPopulator()
		a.a.populate.populate = populate
	}
	if given > 0 {
		if b, mapped, err := mapMemory(given, false); err == nil && mapped {
			a.a.given = b
		}
	}
	return a
}

// ChunkBytes is the size of a chunk.
const ChunkBytes = chunkBytes

// Mapped reports whether chunks are pages of their own.
func (a *Arena) Mapped() bool { return a.a.mapped }

// Given is what it began with, until it is used.
func (a *Arena) Given() []byte { return a.a.given }

// Get gives a chunk out, when all that was asked for is populated.
func (a *Arena) Get() (n uint32, chunk []byte, err error) {
	if p := a.a.populate; p != nil {
		p.done.Wait()
	}
	if n, err = a.a.get(); err == nil {
		chunk = a.a.chunks[n]
	}
	return n, chunk, err
}

// Put takes chunks back, and Close everything.
func (a *Arena) Put(chunks []uint32) { a.a.put(chunks) }
func (a *Arena) Close()              { a.a.close() }

// Visited is how many rows a table with a limit has looked at, in search of room for new ones.
func (t *Retained) Visited() int { return t.limit.visited }

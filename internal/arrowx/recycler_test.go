package arrowx_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
)

// Buffers of several goroutines hold what was written to them for as long as they are not released, whatever becomes of others.
func TestRecyclerKeepsBuffersApart(t *testing.T) {
	t.Parallel()
	var r arrowx.Recycler
	var group sync.WaitGroup
	for g := range 4 {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			type held struct {
				buf  *memory.Buffer
				mark byte
			}
			var all []held
			fill := func(b []byte, mark byte) {
				for i := range b {
					b[i] = mark
				}
			}
			for range 500 {
				if len(all) > 0 && rng.IntN(2) == 0 {
					i := rng.IntN(len(all))
					h := all[i]
					for _, x := range h.buf.Bytes() {
						if x != h.mark {
							t.Errorf("a buffer has %d where %d was written", x, h.mark)
							return
						}
					}
					if grown := h.buf.Len() + rng.IntN(9000); rng.IntN(4) == 0 {
						from := h.buf.Len()
						h.buf.Resize(grown)
						fill(h.buf.Bytes()[from:], h.mark)
						continue
					}
					h.buf.Release()
					all[i] = all[len(all)-1]
					all = all[:len(all)-1]
					continue
				}
				h := held{memory.NewResizableBuffer(&r), byte(rng.Uint32())}
				h.buf.Resize(1 + rng.IntN(40_000))
				fill(h.buf.Bytes(), h.mark)
				all = append(all, h)
			}
		})
	}
	group.Wait()
}

func TestRecyclerGivesBuffersOutAgain(t *testing.T) { // not beside others: it counts allocations
	var r arrowx.Recycler
	for _, size := range []int{4096, 5000, 32_768, 32_769, 1_000_000} {
		a := r.Allocate(size)
		if len(a) != size || cap(a) > size+size/4+64 || uintptr(unsafe.Pointer(&a[0]))%64 != 0 {
			t.Errorf("%d bytes of room for %d at %p, want %d to a quarter more at a multiple of 64", cap(a), len(a), a, size)
		}
		r.Free(a)
		if b := r.Allocate(size); &b[0] != &a[0] {
			t.Errorf("%d bytes that were freed are not given out again", size)
		}
		if c := r.Allocate(size); &c[0] == &a[0] {
			t.Errorf("%d bytes are given out twice", size)
		}
	}
	r.Free(make([]byte, 5000)) // somebody else's
	if allocs := testing.AllocsPerRun(100, func() { r.Free(r.Allocate(32_768)) }); allocs != 0 {
		t.Errorf("%v allocations for a buffer that was there", allocs)
	}
}

// What is freed is kept up to a bound.
func TestRecyclerIsBounded(t *testing.T) {
	t.Parallel()
	var r arrowx.Recycler
	const size, most = 1 << 20, 64
	var all [][]byte
	for range 2 * most {
		all = append(all, r.Allocate(size))
	}
	seen := map[*byte]bool{}
	for _, b := range all {
		seen[&b[0]] = true
		r.Free(b)
	}
	again := 0
	for range 2 * most {
		if b := r.Allocate(size); seen[&b[0]] {
			again++
		}
	}
	if again != most {
		t.Errorf("%d buffers of 1 MiB were kept of %d that were freed, want %d", again, 2*most, most)
	}
}

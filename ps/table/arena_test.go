package table_test

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/monolith-go/monolith/ps/table"
)

// TestArena gives chunks out and takes them back: none is given out twice, each has what was written to it, memory is accounted for, and where chunks are populated ahead every one was, but for the first where there was nothing to begin with.
func TestArena(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given int
		ahead bool
	}{"alone": {}, "ahead": {ahead: true}, "ahead, with some to begin with": {16 << 20, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 400 * table.ChunkBytes
			mem := table.NewMemory(table.MemoryOptions{Limit: most})
			var mu sync.Mutex
			populated := map[*byte]bool{}
			var populate func([]byte)
			if c.ahead {
				populate = func(b []byte) {
					mu.Lock()
					defer mu.Unlock()
					populated[unsafe.SliceData(b)] = true
				}
			}
			a := table.NewArena(mem, c.given, populate)
			r := rand.New(rand.NewPCG(1, 7))
			held := map[uint32][]byte{}
			for given := a.Given(); len(given) >= table.ChunkBytes; given = given[table.ChunkBytes:] {
				populated[unsafe.SliceData(given)] = true
			}
			gets := 0
			for range 3000 {
				if r.IntN(5) < 2 { // some chunks go back
					var back []uint32
					for n, b := range held {
						if b[0] != byte(n) || b[len(b)-1] != byte(n) {
							t.Fatalf("chunk %d has changed", n)
						}
						if back = append(back, n); len(back) == 3 {
							break
						}
					}
					for _, n := range back {
						mu.Lock()
						delete(populated, unsafe.SliceData(held[n])) // as its memory does
						mu.Unlock()
						delete(held, n)
					}
					a.Put(back)
					continue
				}
				n, b, err := a.Get()
				if err != nil {
					if int64(len(held)+1)*int64(len(b)) <= most {
						t.Fatal(err)
					}
					continue
				}
				if _, twice := held[n]; twice {
					t.Fatalf("chunk %d is given out twice", n)
				}
				held[n], b[0], b[len(b)-1] = b, byte(n), byte(n)
				mu.Lock()
				is := populated[unsafe.SliceData(b)]
				mu.Unlock()
				first := gets == 0 && c.given == 0
				if gets++; c.ahead && a.Mapped() && !is && !first {
					t.Fatalf("chunk %d, of %d given out, was not populated", n, len(held))
				}
				if used := mem.Used(); used != int64(len(held)*len(b)) {
					t.Fatalf("%d chunks take %d bytes", len(held), used)
				}
			}
			a.Close()
			if used := mem.Used(); used != 0 {
				t.Errorf("%d bytes are in use behind its end", used)
			}
		})
	}
}

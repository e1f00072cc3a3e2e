package table

import (
	"sync"
	"sync/atomic"

	"github.com/monolith-go/monolith/internal/crew"
)

// pieceRows is how many rows a goroutine looks up or updates at a time at least: some tens of microseconds, several times what it takes to wake one.
const pieceRows = 1024

// pieces deals rows out to goroutines, a few at a time, as none knows how fast the others are.
type pieces struct {
	rows, size int
	next       atomic.Int64
}

// deal begins again with so many rows, and returns how many goroutines are worth it, at most threads.
func (p *pieces) deal(rows, threads int) int {
	p.rows, p.size = rows, max((rows/(4*threads)+group-1)/group*group, pieceRows)
	p.next.Store(0)
	return min(threads, (rows+p.size-1)/p.size)
}

// take returns the next piece, [from, to), of which there is one while from < to.
func (p *pieces) take() (from, to int) {
	from = min(int(p.next.Add(1)-1)*p.size, p.rows)
	return from, min(from+p.size, p.rows)
}

// lookup is one that goroutines share.
type lookup struct {
	crew.Crew
	pieces
	t       *Mem
	keys    []int64
	dst     []float32
	numbers []uint32 // or nil
	found   atomic.Int64
}

// Part implements [crew.Task].
func (l *lookup) Part(int) {
	for {
		from, to := l.take()
		if from >= to {
			return
		}
		var numbers []uint32
		if l.numbers != nil {
			numbers = l.numbers[from:to]
		}
		l.found.Add(int64(l.t.lookup(l.keys[from:to], l.dst[from*l.t.dim:to*l.t.dim], numbers)))
	}
}

// lookups are those that are not under way, with their memory.
type lookups struct {
	mu   sync.Mutex
	idle []*lookup
}

func (s *lookups) get() *lookup {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.idle)
	if n == 0 {
		return &lookup{}
	}
	l := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return l
}

func (s *lookups) put(l *lookup) {
	l.keys, l.dst, l.numbers = nil, nil, nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, l)
}

// SetThreads has lookups and updates of many rows done by so many goroutines, at least one, which is what a new table has. The bits are the same with any number. It
// must not overlap anything else.
func (t *Mem) SetThreads(n int) { t.threads = max(n, 1) }

// lookupSpread is lookup on as many goroutines as are worth it.
func (t *Mem) lookupSpread(keys []int64, dst []float32, numbers []uint32) (found int) {
	if t.threads == 1 || len(keys) <= pieceRows {
		return t.lookup(keys, dst, numbers)
	}
	l := t.lookups.get()
	l.t, l.keys, l.dst, l.numbers = t, keys, dst, numbers
	l.found.Store(0)
	l.Do(l.deal(len(keys), t.threads), l)
	found = int(l.found.Load())
	t.lookups.put(l)
	return found
}

// lookup is [Mem.Lookup] on this goroutine. Where numbers, [keys], are not nil they become those of the rows, which takes functions in assembly.
func (t *Mem) lookup(keys []int64, dst []float32, numbers []uint32) (found int) {
	if t.vector {
		return t.lookupVector(keys, dst, numbers)
	}
	return t.lookupPortable(keys, dst)
}

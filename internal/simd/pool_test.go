package simd_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/simd"
)

// counts counts how often each block was done, and whether a worker was in two blocks at once.
type counts struct {
	done []atomic.Int32
	busy []atomic.Int32
	bad  atomic.Bool
}

func (c *counts) Block(worker, block int) {
	if c.busy[worker].Add(1) != 1 {
		c.bad.Store(true)
	}
	c.done[block].Add(1)
	c.busy[worker].Add(-1)
}

// TestPoolDoesEachBlockOnce over many runs of different length, some right behind each other, some after the goroutines sleep.
func TestPoolDoesEachBlockOnce(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{0, 1, 2, 4, 7} {
		pool := simd.NewPool(threads)
		for run := range 400 {
			n := run * 7 % 61
			c := &counts{done: make([]atomic.Int32, n), busy: make([]atomic.Int32, pool.Threads())}
			pool.Run(n, c)
			for i := range c.done {
				if got := c.done[i].Load(); got != 1 {
					t.Fatalf("%d threads, run %d: block %d of %d was done %d times", threads, run, i, n, got)
				}
			}
			if c.bad.Load() {
				t.Fatalf("%d threads: a worker was in two blocks at once", threads)
			}
			if run%100 == 99 {
				waitAsleep(t, pool)
			}
		}
		pool.Close()
		pool.Close()
	}
}

// meet is work whose first two blocks end only when both have begun, so that one thread alone cannot do it.
type meet struct{ both chan struct{} }

func (m meet) Block(_, block int) {
	if block == 0 {
		m.both <- struct{}{}
	} else {
		<-m.both
	}
}

// inOrder is work that one thread does block by block.
type inOrder struct {
	t    *testing.T
	next int
}

func (o *inOrder) Block(worker, block int) {
	if worker != 0 || block != o.next {
		o.t.Errorf("worker %d does block %d after %d others", worker, block, o.next)
	}
	o.next++
}

// TestPoolLimit: with a limit the caller does everything, and without it others help, as soon as it is asked again.
func TestPoolLimit(t *testing.T) {
	t.Parallel()
	pool := simd.NewPool(3)
	defer pool.Close()
	alone := false
	pool.Limit(func() bool { return alone })
	for range 20 {
		alone = false
		if pool.Run(2, meet{make(chan struct{})}); pool.Threads() != 3 {
			t.Fatalf("%d threads", pool.Threads())
		}
		alone = true
		o := &inOrder{t: t}
		if pool.Run(50, o); o.next != 50 || pool.Threads() != 1 {
			t.Fatalf("%d blocks on %d threads", o.next, pool.Threads())
		}
	}
	pool.Limit(nil)
	pool.Run(2, meet{make(chan struct{})})
}

// waitAsleep waits until the pool's goroutines sleep.
func waitAsleep(t *testing.T, pool *simd.Pool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !simd.Asleep(pool); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the goroutines of an idle pool do not sleep")
		}
	}
}

// meeting has blocks that end once all of them have begun, which needs as many goroutines.
type meeting struct{ begun atomic.Int32 }

func (m *meeting) Block(int, int) {
	for m.begun.Add(1); m.begun.Load() < 2; {
		runtime.Gosched()
	}
}

// TestPoolWakesItsGoroutines: two blocks that wait for each other end, whether the other goroutine is awake or sleeps.
func TestPoolWakesItsGoroutines(t *testing.T) {
	t.Parallel()
	pool := simd.NewPool(2)
	defer pool.Close()
	for i := range 30 {
		if i%3 == 0 {
			waitAsleep(t, pool)
		}
		pool.Run(2, &meeting{})
	}
}

// late has two blocks: the caller's ends once the other has begun, the other's once the caller of Run sleeps.
type late struct {
	pool  *simd.Pool
	begun atomic.Bool
	awake atomic.Bool
}

func (l *late) Block(worker, _ int) {
	deadline := time.Now().Add(3 * time.Minute)
	for worker == 0 && !l.begun.Load() {
		runtime.Gosched()
	}
	if worker == 0 {
		return
	}
	for l.begun.Store(true); !simd.CallerAsleep(l.pool); runtime.Gosched() {
		if time.Now().After(deadline) {
			l.awake.Store(true)
			return
		}
	}
}

// TestPoolsCallerSleeps while others do their last blocks for long, and is woken when they are done, run after run.
func TestPoolsCallerSleeps(t *testing.T) {
	t.Parallel()
	pool := simd.NewPool(2)
	defer pool.Close()
	for range 100 {
		l := &late{pool: pool}
		pool.Run(2, l)
		if l.awake.Load() {
			t.Fatal("the caller waits awake for minutes")
		}
		c := &counts{done: make([]atomic.Int32, 40), busy: make([]atomic.Int32, 2)}
		pool.Run(40, c) // another may be on its way out of the run before
		for i := range c.done {
			if got := c.done[i].Load(); got != 1 {
				t.Fatalf("block %d was done %d times", i, got)
			}
		}
	}
}

// TestPoolEndsItsGoroutines: Close returns when they have ended.
func TestPoolEndsItsGoroutines(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		pool := simd.NewPool(5)
		pool.Run(9, &counts{done: make([]atomic.Int32, 9), busy: make([]atomic.Int32, 5)})
		pool.Close()
	}
	for deadline := time.Now().Add(3 * time.Minute); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines before, %d after", before, runtime.NumGoroutine())
		}
	}
}

// together has blocks of which the first few end once so many have begun, and says who did which of these.
type together struct {
	threads int32
	begun   atomic.Int32
	first   []atomic.Int32 // of each worker
}

func (g *together) Block(worker, block int) {
	if g.begun.Add(1) > g.threads {
		return
	}
	for g.first[worker].Store(int32(block)); g.begun.Load() < g.threads; {
		runtime.Gosched()
	}
}

// TestPoolThreadsKeepTheirParts: each thread begins where its own part of the blocks does, in every run, also one that looks for work while the run begins.
func TestPoolThreadsKeepTheirParts(t *testing.T) {
	t.Parallel()
	const threads, blocks = 3, 7
	pool := simd.NewPool(threads)
	defer pool.Close()
	for run := range 200 {
		if run%20 == 0 {
			waitAsleep(t, pool)
		}
		g := &together{threads: threads, first: make([]atomic.Int32, threads)}
		pool.Run(blocks, g)
		for w, want := range []int32{0, 2, 4} {
			if got := g.first[w].Load(); got != want {
				t.Fatalf("run %d: thread %d begins with block %d, not %d", run, w, got, want)
			}
		}
	}
}

// slow has a first block that ends once all others have.
type slow struct {
	others atomic.Int32
	blocks int32
	alone  atomic.Bool
}

func (s *slow) Block(_, block int) {
	if block > 0 {
		s.others.Add(1)
		return
	}
	for deadline := time.Now().Add(3 * time.Minute); s.others.Load() < s.blocks-1; runtime.Gosched() {
		if time.Now().After(deadline) {
			s.alone.Store(true)
			return
		}
	}
}

// TestPoolThreadsTakeFromOthers: what a thread does not come to is done by others.
func TestPoolThreadsTakeFromOthers(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{2, 3, 5} {
		pool := simd.NewPool(threads)
		for run := range 10 {
			if run%5 == 0 {
				waitAsleep(t, pool)
			}
			s := &slow{blocks: int32(4 * threads)}
			if pool.Run(int(s.blocks), s); s.alone.Load() {
				t.Fatalf("%d threads, run %d: nobody does the blocks of a slow thread", threads, run)
			}
		}
		pool.Close()
	}
}

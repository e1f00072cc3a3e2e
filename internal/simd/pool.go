package simd

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Task is work in blocks that may be done in any order and at once.
type Task interface {
	// Block does one block. worker is below the number of threads of the pool; no two blocks run with the same worker at once.
	Block(worker, block int)
}

// Pool is the threads that kernels use, the calling goroutine among them, and the buffers they need. Its methods must not
// overlap: a pool belongs to one caller, such as a worker's model session. [Pool.Close] ends its goroutines.
//
// The goroutines are started once, because starting them for each product loses the second core at products of a
// millisecond. After work they wait a few microseconds for more before they sleep, as the caller does for their last blocks:
// where other programs have the processors, these last as long as a thread may go without one.
type Pool struct {
	family  Family // of all but products of matrices by AMX
	pairs   bool   // products of bfloat16 are those of pairs by VDPBF16PS
	tiles   bool   // products of matrices are those of AMX
	threads int
	alone   func() bool // of Limit

	// A worker that takes a block of a share may read task, blocks and sharers, which do not change until that block is done.
	shares  []share // one for each thread
	done    atomic.Int64
	task    Task
	blocks  int
	sharers int // the run's blocks are in so many shares, the first ones
	run     uint32

	sleepers []sleeper
	caller   sleeper // in Run
	closed   atomic.Bool
	joined   sync.WaitGroup

	gemm gemmTask
	gemv gemvTask
}

// share is what is left of one worker's part of a run: the number of the run in the upper half, the number of blocks not yet taken
// in the lower.
type share struct {
	word atomic.Uint64
	_    [56]byte // the next one is on a cache line of its own
}

// sleeper is where one goroutine waits when there is nothing to do.
type sleeper struct {
	asleep atomic.Bool
	wake   chan struct{}
	_      [48]byte // the next one is on a cache line of its own
}

// NewPool returns a pool of threads threads, at least 1, with kernels of the active family. It starts threads-1 goroutines.
func NewPool(threads int) *Pool { return newPool(threads, chosen) }

// NewPoolOf is NewPool for a family other than the active one, for comparisons. It panics if the processor has not its
// instructions; [Available] lists those it has.
func NewPoolOf(family Family, threads int) *Pool {
	if !slices.Contains(Available(), family) {
		panic("simd: this processor has not the instructions of " + family.String())
	}
	return newPool(threads, family)
}

func newPool(threads int, family Family) *Pool {
	threads = max(threads, 1)
	p := &Pool{family: family.vectors(), pairs: family == AVX512 && hasPairs(), tiles: family == AMX, threads: threads, sleepers: make([]sleeper, threads-1), shares: make([]share, threads)}
	p.gemm.pool, p.gemv.pool = p, p
	p.gemm.space = make([]space, threads)
	p.caller.wake = make(chan struct{}, 1)
	for i := range p.sleepers {
		p.sleepers[i].wake = make(chan struct{}, 1)
		p.joined.Add(1)
		go p.work(i)
	}
	return p
}

// Threads is the number of threads that are used now, the caller's among them.
func (p *Pool) Threads() int {
	if p.alone != nil && p.alone() {
		return 1
	}
	return p.threads
}

// Limit makes the caller do by itself what is begun while alone reports true, which is asked each time; nil: nothing is.
func (p *Pool) Limit(alone func() bool) { p.alone = alone }

// Family is the family of the pool's kernels.
func (p *Pool) Family() Family {
	if p.tiles {
		return AMX
	}
	return p.family
}

// Close ends the goroutines and waits for them. The pool must not be used afterwards but for Close.
func (p *Pool) Close() {
	if p.closed.Swap(true) {
		return
	}
	p.wake(len(p.sleepers))
	p.joined.Wait()
}

// Run does the n blocks of t and returns when all are done. Each thread has the same consecutive part of them in every run of n blocks, so that
// what they read and write stays in its processor's caches from one to the next, and takes from the others' when its own are done.
// It allocates nothing.
func (p *Pool) Run(n int, t Task) {
	if n <= 1 || p.Threads() == 1 {
		for i := range n {
			t.Block(0, i)
		}
		return
	}
	p.task, p.blocks, p.sharers = t, n, min(n, p.threads)
	p.done.Store(0)
	p.run++
	for w := range p.shares { // those beyond have none
		n := 0
		if w < p.sharers {
			n = p.first(w+1) - p.first(w)
		}
		p.shares[w].word.Store(uint64(p.run)<<32 | uint64(n))
	}
	p.wake(min(n-1, len(p.sleepers)))
	for p.take(0) {
	}
	p.await(int64(n)) // the others are within their last block
	p.task = nil
}

// await returns when n blocks are done.
func (p *Pool) await(n int64) {
	var began time.Time
	for spins := 0; p.done.Load() < n; spins++ {
		switch {
		case spins == 0:
			began = time.Now()
		case spins%16 == 0 && time.Since(began) > patience:
			p.sleep(n)
			return
		}
		pause()
	}
}

// sleep is await without the processor.
func (p *Pool) sleep(n int64) {
	s := &p.caller
	for {
		// Who does the last block counts it and looks at asleep then, so that one of the two sees the other.
		s.asleep.Store(true)
		if p.done.Load() >= n && s.asleep.CompareAndSwap(true, false) {
			return
		}
		<-s.wake
		if p.done.Load() >= n { // not so where who woke the caller had done the last block of the run before
			return
		}
	}
}

// first is the first block of the share of worker w.
func (p *Pool) first(w int) int { return w * p.blocks / p.sharers }

// take does one block of the current run, of the worker's own share or else of the next one that has any left, if there is one.
func (p *Pool) take(worker int) bool {
	for i := range p.shares {
		w := worker + i
		if w >= len(p.shares) {
			w -= len(p.shares)
		}
		for word := &p.shares[w].word; ; {
			left := word.Load()
			if uint32(left) == 0 {
				break
			}
			// While a run begins, its own share of it may have come, or be about to, since it was looked at: then it looks again.
			if i > 0 && p.shares[worker].word.Load() != left&^math.MaxUint32 {
				return false
			}
			if word.CompareAndSwap(left, left-1) {
				blocks := p.blocks
				p.task.Block(worker, p.first(w+1)-int(uint32(left)))
				if p.done.Add(1) == int64(blocks) {
					p.caller.rouse()
				}
				return true
			}
		}
	}
	return false
}

// left reports whether there are blocks that nobody has taken.
func (p *Pool) left() bool {
	for i := range p.shares {
		if uint32(p.shares[i].word.Load()) != 0 {
			return true
		}
	}
	return false
}

// wake wakes up to n sleeping goroutines; those that are awake need none of it.
func (p *Pool) wake(n int) {
	for i := range p.sleepers[:n] {
		p.sleepers[i].rouse()
	}
}

// rouse wakes the goroutine if it sleeps, or is about to.
func (s *sleeper) rouse() {
	if s.asleep.Load() && s.asleep.CompareAndSwap(true, false) {
		s.wake <- struct{}{}
	}
}

// patience is how long a goroutine waits awake. Between the products of a step pass tens of microseconds; waking a thread
// that sleeps costs about as much.
const patience = 50 * time.Microsecond

func (p *Pool) work(i int) {
	defer p.joined.Done()
	s := &p.sleepers[i]
	for {
		began := time.Now()
		for spins := 1; ; spins++ {
			if p.closed.Load() {
				return
			}
			if p.take(i + 1) {
				for p.take(i + 1) {
				}
				began = time.Now()
			}
			pause()
			if spins%16 == 0 && time.Since(began) > patience {
				break
			}
		}
		// What was published before asleep is set is seen below; for what comes after it the caller sees that it is set.
		s.asleep.Store(true)
		if (p.left() || p.closed.Load()) && s.asleep.CompareAndSwap(true, false) {
			continue
		}
		<-s.wake
	}
}

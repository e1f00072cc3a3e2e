package serving

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pins keep the two batches that are computed at once on two CPUs: the kernel's default scheduler lets two threads share one for some milliseconds while the other is idle. A thread is bound to its
// CPU while it computes a batch and no longer, so that there is nothing to hand over, and other programs share both as they do otherwise. Methods may overlap.
//
// A CPU that others keep busy is left to the kernel: where a thread did not get it for longer than lostMost, nothing is bound to it for lostRest times as long, and a thread that is bound for longer
// than boundMost may go anywhere as soon as another batch comes.
type pins struct {
	all  unix.CPUSet // that the process may use
	cpus [2]pinnedCPU
}

const (
	lostMost  = 4 * time.Millisecond // two of the kernel's slices
	lostRest  = 20
	boundMost = 8 * time.Millisecond
)

// pinnedCPU is a CPU on which one batch is computed at a time.
type pinnedCPU struct {
	number int
	only   unix.CPUSet // the CPU
	taken  atomic.Bool
	thread atomic.Int64 // that is bound to it; 0: none is, or it may go again
	since  atomic.Int64 // when it was bound, nanoseconds
	rests  atomic.Int64 // until when nothing is bound to it, nanoseconds
	// Of who has taken it: where the thread may run, and its processor time when it was bound.
	now unix.CPUSet
	cpu int64
}

// newPins makes pins for a process that may use two CPUs. Errors: it may use another number, or is not let say which.
func newPins() (*pins, error) {
	p := &pins{}
	if err := unix.SchedGetaffinity(0, &p.all); err != nil {
		return nil, fmt.Errorf("the kernel does not say which CPUs the process may use: %w", err)
	}
	if n := p.all.Count(); n != len(p.cpus) {
		return nil, fmt.Errorf("the process may use %d CPUs, not 2", n)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedSetaffinity(0, &p.all); err != nil {
		return nil, fmt.Errorf("the kernel does not let a thread choose its CPUs: %w", err)
	}
	var numbers []int
	for i := range 8 * int(unsafe.Sizeof(p.all)) {
		if p.all.IsSet(i) {
			numbers = append(numbers, i)
		}
	}
	for i, number := range numbers {
		p.cpus[i].is(number)
	}
	return p, nil
}

// is says which CPU it is.
func (c *pinnedCPU) is(number int) {
	c.number = number
	c.only.Set(number)
}

// pin binds the goroutine to its thread, and the thread to a CPU that no other batch has, until unpin. It returns nil, and has done nothing, where both are taken or others keep them busy, where somebody
// has said meanwhile where the thread may run, and where the kernel does not let it.
func (p *pins) pin() *pinnedCPU {
	runtime.LockOSThread()
	if c := p.take(); c != nil {
		if unix.SchedGetaffinity(0, &c.now) == nil && c.now == p.all && unix.SchedSetaffinity(0, &c.only) == nil {
			c.cpu = threadTime()
			c.since.Store(monotonic())
			c.thread.Store(int64(unix.Gettid()))
			return c
		}
		c.taken.Store(false)
	}
	runtime.UnlockOSThread()
	return nil
}

// take takes the CPU that the thread is on, or the other one.
func (p *pins) take() *pinnedCPU {
	var here uint32
	if _, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&here)), 0, 0); err != 0 {
		return nil
	}
	first := 0
	if int(here) == p.cpus[1].number {
		first = 1
	}
	now := monotonic()
	for i := range p.cpus {
		c := &p.cpus[(first+i)%len(p.cpus)]
		if now >= c.rests.Load() && c.taken.CompareAndSwap(false, true) {
			return c
		}
		if thread := c.thread.Load(); thread != 0 && now-c.since.Load() > int64(boundMost) && c.thread.CompareAndSwap(thread, 0) {
			_ = unix.SchedSetaffinity(int(thread), &p.all) // it has ended its batch meanwhile, or continues where it is
		}
	}
	return nil
}

// unpin undoes pin.
func (p *pins) unpin(c *pinnedCPU) {
	c.thread.Store(0)
	now := monotonic()
	if lost := now - c.since.Load() - (threadTime() - c.cpu); lost > int64(lostMost) {
		c.rests.Store(now + lostRest*lost)
	}
	if unix.SchedGetaffinity(0, &c.now) == nil && c.now == c.only { // unless somebody has said meanwhile where the thread may run
		_ = unix.SchedSetaffinity(0, &p.all) // fails only where none of them is the process's any more, and the kernel has moved the thread
	}
	c.taken.Store(false)
	runtime.UnlockOSThread()
}

// monotonic is a time that does not jump, nanoseconds.
func monotonic() int64 { return clock(unix.CLOCK_MONOTONIC) }

// threadTime is the processor time of this thread, nanoseconds.
func threadTime() int64 { return clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func clock(id int32) int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(id, &t) // both have been there since Linux 2.6
	return t.Nano()
}

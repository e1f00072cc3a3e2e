package serving

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// twoPins makes pins of the first two CPUs that the process may use; of one, twice, where there is one.
func twoPins(t *testing.T) *pins {
	t.Helper()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	p, n := &pins{}, 0
	for i := 0; n < min(2, all.Count()); i++ {
		if all.IsSet(i) {
			p.all.Set(i)
			p.cpus[n].is(i)
			n++
		}
	}
	if n == 1 {
		p.cpus[1].is(p.cpus[0].number)
	}
	return p
}

// TestNewPins: a process that may use two CPUs has pins of both, others have none.
func TestNewPins(t *testing.T) {
	t.Parallel()
	want := twoPins(t)
	for _, cpus := range [][]int{{0}, {1}, {0, 1}} {
		var set unix.CPUSet
		for _, i := range cpus {
			set.Set(want.cpus[i].number)
		}
		inThread(t, want, func() {
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				t.Error(err)
				return
			}
			got, err := newPins()
			if two := set.Count() == 2; two != (err == nil) || two != (got != nil) || two && (got.all != want.all || got.cpus[0].only != want.cpus[0].only || got.cpus[1].only != want.cpus[1].only) {
				t.Errorf("CPUs %v: %+v, %v", set, got, err)
			}
		})
	}
}

// mask is where the thread of the caller may run.
func mask(t *testing.T, thread int) unix.CPUSet {
	t.Helper()
	var m unix.CPUSet
	if err := unix.SchedGetaffinity(thread, &m); err != nil {
		t.Error(err)
	}
	return m
}

// inThread calls f in a thread of its own that may use the pins' CPUs. The thread ends with it.
func inThread(t *testing.T, p *pins, f func()) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // for good
		if err := unix.SchedSetaffinity(0, &p.all); err != nil {
			t.Error(err)
			return
		}
		f()
	})
	wg.Wait()
}

// TestPins: two at a time are bound, to different CPUs, a third is not, and all of them may go anywhere afterwards, also when a thread was told meanwhile where to run.
func TestPins(t *testing.T) {
	t.Parallel()
	p := twoPins(t)
	inThread(t, p, func() {
		a := p.pin()
		if a == nil || mask(t, 0) != a.only {
			t.Error("the first is not bound to its CPU")
			return
		}
		inThread(t, p, func() {
			b := p.pin()
			if b == nil || b == a || mask(t, 0) != b.only {
				t.Error("the second is not bound to the other CPU")
				return
			}
			inThread(t, p, func() {
				if c := p.pin(); c != nil || mask(t, 0) != p.all {
					t.Error("the third is bound too")
				}
			})
			if p.unpin(b); mask(t, 0) != p.all {
				t.Error("the second cannot go again")
			}
		})
		other := &p.cpus[0]
		if a == other {
			other = &p.cpus[1]
		}
		if other.only == p.all { // there is one CPU
			p.unpin(a)
			return
		}
		if err := unix.SchedSetaffinity(0, &other.only); err != nil {
			t.Error(err)
		}
		if p.unpin(a); mask(t, 0) != other.only {
			t.Error("somebody has said where the thread runs, and it was undone")
		}
		if c := p.pin(); c != nil || mask(t, 0) != other.only {
			t.Error("a thread is bound of which somebody has said where it runs")
		}
	})
	for i := range p.cpus {
		if p.cpus[i].taken.Load() {
			t.Errorf("CPU %d stays taken", i)
		}
	}
}

// TestPinsLeaveBusyCPUs: a CPU that a thread did not get for long has rest, and a thread that is bound for long is let go when another comes.
func TestPinsLeaveBusyCPUs(t *testing.T) {
	t.Parallel()
	p := twoPins(t)
	inThread(t, p, func() {
		a := p.pin()
		if a == nil {
			t.Error("not bound")
			return
		}
		thread := unix.Gettid()
		a.since.Add(-int64(time.Hour)) // of which it did not have the CPU
		inThread(t, p, func() {
			first := p.pin() // finds a's taken, or its own free
			if first == nil || first == a {
				t.Error("not bound to the other CPU")
				return
			}
			if c := p.take(); c != nil {
				t.Error("a third CPU")
			}
			if mask(t, thread) != p.all {
				t.Error("who is bound for an hour stays so")
			}
			p.unpin(first)
		})
		if p.unpin(a); mask(t, 0) != p.all {
			t.Error("not let go")
		}
		if rests := a.rests.Load() - monotonic(); rests < int64((lostRest-1)*time.Hour) {
			t.Errorf("a CPU that was not to be had for an hour rests for %s", time.Duration(rests))
		}
		for range 20 {
			if err := errors.Join(unix.SchedSetaffinity(0, &a.only), unix.SchedSetaffinity(0, &p.all)); err != nil { // on the CPU, if the kernel leaves it there
				t.Error(err)
			}
			b := p.pin()
			if b == nil {
				continue // the other has just been kept busy too
			}
			if b == a {
				t.Error("bound to a CPU that rests")
			}
			p.unpin(b)
		}
	})
}

// TestPinsTogether: of many threads no two have one CPU, and nothing is allocated.
func TestPinsTogether(t *testing.T) {
	t.Parallel()
	p := twoPins(t)
	var inside [2]atomic.Int32
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			inThread(t, p, func() {
				for range 500 {
					c := p.pin()
					if c == nil {
						continue
					}
					at := &inside[0]
					if c == &p.cpus[1] {
						at = &inside[1]
					}
					if at.Add(1) != 1 {
						t.Error("two batches are on one CPU")
					}
					at.Add(-1)
					p.unpin(c)
				}
				if mask(t, 0) != p.all {
					t.Error("a thread stays bound")
				}
			})
		})
	}
	wg.Wait()
}

func TestPinsAllocateNothing(t *testing.T) {
	p := twoPins(t)
	inThread(t, p, func() {
		if n := testing.AllocsPerRun(100, func() {
			if c := p.pin(); c != nil {
				p.unpin(c)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	})
}

package crew_test

import (
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/monolith-go/monolith/internal/crew"
)

type task func(i int)

func (t task) Part(i int) { t(i) }

func TestEveryPartIsDoneOnce(t *testing.T) {
	var c crew.Crew
	for _, parts := range []int{0, 1, 2, 7, 3, 64} {
		done := make([]atomic.Int64, 64)
		c.Do(parts, task(func(i int) { done[i].Add(1) }))
		for i := range done {
			want := int64(0)
			if i < parts {
				want = 1
			}
			if n := done[i].Load(); n != want {
				t.Errorf("of %d parts, part %d was done %d times", parts, i, n)
			}
		}
	}
}

// Each part waits for all others: they run at the same time.
func TestPartsRunAtOnce(t *testing.T) {
	var c crew.Crew
	const parts = 5
	var here atomic.Int64
	c.Do(parts, task(func(int) {
		for here.Add(1); here.Load() < parts; {
			runtime.Gosched()
		}
	}))
}

// A part that panics, or ends its goroutine, is the caller's panic, when nobody works on the task any more; the crew works afterwards.
func TestPanicsComeToTheCaller(t *testing.T) {
	for _, bad := range []int{0, 2} {
		for name, fail := range map[string]func(){"boom": func() { panic("boom") }, "ended its goroutine": runtime.Goexit} {
			if bad == 0 && name != "boom" {
				continue // the caller ends itself
			}
			t.Run(name, func(t *testing.T) {
				var c crew.Crew
				var done atomic.Int64
				got := caught(func() {
					c.Do(4, task(func(i int) {
						if i == bad {
							fail()
						}
						for range 1000 {
							runtime.Gosched()
						}
						done.Add(1)
					}))
				})
				if !strings.Contains(got, name) {
					t.Errorf("part %d: Do panicked with %q", bad, got)
				}
				if n := done.Load(); n != 3 {
					t.Errorf("part %d: %d of 3 other parts were done when Do ended", bad, n)
				}
				if got := caught(func() { c.Do(4, task(func(int) {})) }); got != "" {
					t.Errorf("the next task panicked with %q", got)
				}
			})
		}
	}
}

func caught(f func()) (why string) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case error:
			why = v.Error()
		case string:
			why = v
		}
	}()
	f()
	return ""
}

func TestNothingIsAllocated(t *testing.T) {
	var c crew.Crew
	var sum atomic.Int64
	add := task(func(i int) { sum.Add(int64(i)) })
	c.Do(3, add)
	if n := testing.AllocsPerRun(100, func() { c.Do(3, add) }); n != 0 {
		t.Errorf("a task of three parts allocates %v times", n)
	}
}

package serving

import (
	"runtime"
	"testing"
)

func TestCores(t *testing.T) {
	for _, tt := range []struct {
		procs, limit, busy int
		each               int
		taken              bool
	}{
		{procs: 1, busy: 1, each: 1, taken: true},
		{procs: 2, busy: 1, each: 1},
		{procs: 2, limit: 1, busy: 1, each: 1, taken: true},
		{procs: 2, limit: 8, busy: 1, each: 1},
		{procs: 3, busy: 1, each: 3},
		{procs: 3, busy: 2, each: 3, taken: true},
		{procs: 8, busy: 1, each: 4},
		{procs: 8, busy: 2, each: 4},
		{procs: 8, busy: 3, each: 4, taken: true},
		{procs: 8, limit: 4, busy: 2, each: 4, taken: true},
	} {
		before := runtime.GOMAXPROCS(tt.procs)
		c := newCores()
		if tt.limit > 0 {
			c.limit(tt.limit)
		}
		if err := c.pin(); tt.procs != 2 && (err == nil || c.pins.Load() != nil) {
			t.Errorf("%d threads are pinned", tt.procs)
		}
		runtime.GOMAXPROCS(before)
		c.busy.Store(int32(tt.busy))
		if c.each != tt.each || c.taken() != tt.taken {
			t.Errorf("%+v: a batch has %d at most, taken %v", tt, c.each, c.taken())
		}
	}
}

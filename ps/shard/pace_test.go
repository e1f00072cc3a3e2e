package shard

import (
	"context"
	"runtime"
	"testing"
	"time"
)

// paced runs a writer with so much work, in pieces, on a clock of its own; changes says whether streams change the state at a time. It
// returns how long it took.
func paced(t *testing.T, writers int, work, piece time.Duration, changes func(at time.Duration) bool) (took, longest time.Duration) {
	t.Helper()
	begin := time.Unix(1e9, 0)
	now, n := begin, uint64(0)
	p := newPace(t.Context(), writers, func() uint64 {
		if changes(now.Sub(begin)) {
			n++
		}
		return n
	})
	p.now = func() time.Time { return now }
	p.sleep = func(_ context.Context, d time.Duration) {
		now = now.Add(d)
		longest = max(longest, d)
	}
	for ; work > 0; work -= piece {
		p.pause()
		now = now.Add(piece)
	}
	return now.Sub(begin), longest
}

// TestPace: a writer takes its share while streams change the state, all of it when they do not, and what it waits has bounds.
func TestPace(t *testing.T) {
	t.Parallel()
	always := func(time.Duration) bool { return true }
	never := func(time.Duration) bool { return false }
	const second = time.Second
	share := min(paceShare*float64(runtime.GOMAXPROCS(0)), 1)
	want := time.Duration(float64(second) / share)
	if took, longest := paced(t, 1, second, time.Millisecond, always); took < want*9/10 || took > want || longest > time.Duration(3/share)*time.Millisecond {
		t.Errorf("one writer took %v with waits of %v, want about %v", took, longest, want)
	}
	if took, _ := paced(t, 2, second, time.Millisecond, always); took < 2*want*9/10 || took > 2*want {
		t.Errorf("one of two writers took %v, want about %v", took, 2*want)
	}
	if took, _ := paced(t, 1, second, time.Millisecond, never); took > second+second/5 {
		t.Errorf("with nobody in its way it took %v for %v of work", took, second)
	}
	// Streams that end set it free.
	if took, _ := paced(t, 1, second, time.Millisecond, func(at time.Duration) bool { return at < 2*second }); took > 3*second+second/2 {
		t.Errorf("after streams have ended at 2 s it took until %v", took)
	}
	if took, _ := paced(t, 1, paceFree, time.Millisecond, always); took > paceFree {
		t.Errorf("%v of work took %v", paceFree, took)
	}
	if took, _ := paced(t, 1, time.Hour, time.Millisecond, always); took > time.Hour+paceLongest+second {
		t.Errorf("an hour of work took %v", took)
	}
	// Pieces that take long, because the machine does something else, do not count for more than they can be.
	if took, _ := paced(t, 1, 10*second, second, always); took > 10*second+10*time.Duration(float64(pacePiece)/share) {
		t.Errorf("10 s in pieces of a second took %v", took)
	}
}

// TestPaceEnds: a wait ends with the context.
func TestPaceEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	sleep(ctx, time.Hour)
	if d := time.Since(start); d > time.Minute {
		t.Errorf("waited for %v", d)
	}
}

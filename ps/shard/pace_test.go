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
	p := newPace(t.Context(), writers, false, func() uint64 {
		if changes(now.Sub(begin)) {
			n++
		}
		return n
	})
	p.now, p.active = func() time.Time { return now }, now
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
	if took, _ := paced(t, 1, 10*time.Minute, time.Millisecond, always); took > 10*time.Minute+paceLongest+second {
		t.Errorf("ten minutes of work took %v", took)
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

// TestPaceThreads: a writer has all processors that its process's writers share where nobody has changed anything for long, or can, and one
// as soon as somebody does, unless it hurries: then it waits for nobody, either.
func TestPaceThreads(t *testing.T) {
	t.Parallel()
	all := runtime.GOMAXPROCS(0)
	now, calls := time.Unix(1e9, 0), uint64(5)
	begin := func(writers int, alone bool) *pace {
		p := newPace(t.Context(), writers, alone, func() uint64 { return calls })
		p.now, p.sleep = func() time.Time { return now }, func(context.Context, time.Duration) { t.Error("it waited") }
		if !alone {
			p.active = now
		}
		return p
	}
	p := begin(1, true)
	for range 200 { // of work, more than paceFree
		p.pause()
		now = now.Add(time.Millisecond)
	}
	if n := p.threads(); n != all {
		t.Errorf("nobody is there: %d threads of %d", n, all)
	}
	if n := begin(2*all, true).threads(); n != 1 {
		t.Errorf("one of many writers has %d threads", n)
	}
	calls++
	if n := p.threads(); n != 1 {
		t.Errorf("somebody changes something: %d threads", n)
	}
	now = now.Add(paceSilence + time.Millisecond)
	if n := p.threads(); n != 1 {
		t.Errorf("after %v, which a step may take: %d threads", paceSilence, n)
	}
	now = now.Add(paceAlone)
	if n := p.threads(); n != all {
		t.Errorf("after %v: %d threads of %d", paceAlone, n, all)
	}
	if n := begin(1, false).threads(); n != 1 {
		t.Errorf("streams are open: %d threads", n)
	}
	p = begin(1, false)
	p.hurry()
	for range 200 {
		calls++
		p.pause() // which does not wait
		now = now.Add(time.Millisecond)
	}
	if n := p.threads(); n != all {
		t.Errorf("a writer that hurries has %d threads of %d", n, all)
	}
}

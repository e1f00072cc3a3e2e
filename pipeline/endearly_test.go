package pipeline

import "testing"

// TestStoppedBeforeDrained: stages that are asked for what they hold back do not give it to a run that still takes it. In
// deterministic order the moment would decide where a batch ends.
func TestStoppedBeforeDrained(t *testing.T) {
	t.Parallel()
	for _, now := range []bool{false, true} {
		r, drained := &run{stop: make(chan struct{})}, 0
		r.drain = func() {
			drained++
			if r.stopped() != now {
				t.Errorf("now %v: stopped is %v when reading ends", now, r.stopped())
			}
		}
		r.endEarly(now, false)
		r.endEarly(now, false)
		if drained != 2 || r.stopped() != now {
			t.Errorf("now %v: drained %d times, stopped %v", now, drained, r.stopped())
		}
	}
}

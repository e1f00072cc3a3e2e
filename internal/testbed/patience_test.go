package testbed_test

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testbed"
)

// until is a test with a limit, or without one.
type until struct {
	testing.TB
	at time.Time
}

// Deadline is that of [testing.T].
func (u until) Deadline() (time.Time, bool) { return u.at, !u.at.IsZero() }

// TestPatience: a test waits as long as it has, but for the time in which it says what it has waited for.
func TestPatience(t *testing.T) {
	t.Parallel()
	for left, want := range map[time.Duration][2]time.Duration{10 * time.Hour: {9 * time.Hour, 10*time.Hour - time.Minute}, 0: {time.Hour, time.Hour}} {
		u := until{TB: t}
		if left > 0 {
			u.at = time.Now().Add(left)
		}
		if got := testbed.Patience(u); got < want[0] || got > want[1] {
			t.Errorf("%s left: %s, want %s to %s", left, got, want[0], want[1])
		}
	}
	if got := testbed.Patience(until{t, time.Now().Add(-time.Second)}); got > 0 {
		t.Errorf("no time left: %s", got)
	}
}

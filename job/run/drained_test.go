package run

import (
	"context"
	"testing"
)

// TestUntilDrained: a wish to end that was there before ends the context at once, a later one soon, none never; and the end of the run is not taken for a wish.
func TestUntilDrained(t *testing.T) {
	t.Parallel()
	before := make(chan struct{})
	close(before)
	within, end := untilDrained(t.Context(), before)
	if !wasDrained(t.Context(), within) {
		t.Error("a wish from before does not end it at once")
	}
	end()

	later := make(chan struct{})
	within, end = untilDrained(t.Context(), later)
	if within.Err() != nil {
		t.Error("nobody has wished for an end")
	}
	close(later)
	<-within.Done()
	if !wasDrained(t.Context(), within) {
		t.Error("a later wish does not end it")
	}
	end()

	ctx, cancel := context.WithCancel(t.Context())
	within, end = untilDrained(ctx, nil)
	cancel()
	<-within.Done()
	if wasDrained(ctx, within) {
		t.Error("the end of the run is taken for a wish")
	}
	end()
}

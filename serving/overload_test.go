package serving

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestOverload: with the thread taken one request waits, the next is refused at once, and who waited gets the thread or gives up with its context.
func TestOverload(t *testing.T) {
	t.Parallel()
	s := NewServer(Options{Threads: 1, Waiting: 1})
	if err := s.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- s.enter(t.Context()) }()
	for s.waiting.Load() == 0 {
		select {
		case err := <-waits:
			t.Fatalf("the second did not wait: %v", err)
		default:
		}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.enter(gone); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the third: %v", err)
	}
	<-s.threads
	if err := <-waits; err != nil {
		t.Errorf("who waited: %v", err)
	}
	if err := s.enter(gone); status.Code(err) != codes.Canceled || s.waiting.Load() != 0 {
		t.Errorf("whose caller has gone: %v, and %d wait", err, s.waiting.Load())
	}
}

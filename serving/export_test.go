package serving

import (
	"context"

	tfs "github.com/monolith-go/monolith/proto/tensorflow/serving"
)

// Answer answers a stored request.
func (v *Version) Answer(ctx context.Context, b []byte) error { return v.answerStored(ctx, b) }

// Add keeps a request, and waits for the disk where a server would not.
func (l *RequestLog) Add(p *tfs.PredictionLog) {
	for len(l.queue) == cap(l.queue) {
	}
	l.add(nil, p)
}

// Hold takes a thread until the function that it returns is called.
func (s *Server) Hold() (release func()) {
	s.threads <- struct{}{}
	return func() { <-s.threads }
}

// Waiting is how many requests wait.
func (s *Server) Waiting() int64 { return s.waiting.Load() }

// Calls is how many calls there are.
func (s *Server) Calls() int64 { return s.calls.Load() }

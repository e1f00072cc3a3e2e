package serving

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// shared is a batch of the examples of several requests for a version. Who began it leads: it waits for others, then for a thread, and computes for all.
//
//	request 1 ── begins ── waits for BatchDelay or a full batch ── waits for a thread ── computes ── its rows
//	request 2 ──────────── joins ─────────────────────────────────────────────────────────────────── its rows
//
// While it is [Version].open it is guarded by the version's lock; then it belongs to who leads it, until done is closed.
type shared struct {
	x        *examples
	full     chan struct{} // closed when no more can join
	done     chan struct{} // closed when heads or err are there
	requests int           // whose examples it has
	// heads are the predictions of all rows.
	heads [][]float32
	err   error
}

// together predicts the examples of a request, which become the version's, with those of requests that come meanwhile. The caller has no thread. The predictions are the caller's. Where the rows of
// a batch cannot be read of a row shard, each request is computed by itself: it may have none of that shard.
func (s *Server) together(ctx context.Context, v *Version, model string, x *examples) ([][]float32, error) {
	defer v.free(x)
	if err := s.wait(); err != nil {
		return nil, err
	}
	rows := x.rows
	b, from, leads := v.join(x, s.o.BatchExamples)
	if leads {
		s.lead(ctx, v, model, b)
	} else {
		select {
		case <-b.done:
		case <-ctx.Done():
		}
		s.waited()
	}
	if err := ctx.Err(); err != nil {
		return nil, asStatus(err)
	}
	if status.Code(b.err) == codes.Unavailable && b.requests > 1 {
		if leads {
			x.keep(rows)
		}
		if err := s.enter(ctx); err != nil {
			return nil, err
		}
		defer func() { <-s.threads }()
		s.o.Metrics.batch(model)
		return v.compute(ctx, x, nil)
	}
	if b.err != nil {
		return nil, b.err
	}
	heads := make([][]float32, len(b.heads))
	for i, head := range b.heads {
		width := v.heads[i].Width
		heads[i] = head[from*width : (from+rows)*width : (from+rows)*width]
	}
	return heads, nil
}

// join adds the examples of a request to the batch that is open, or begins another one, which the caller then leads. from is where its rows begin.
func (v *Version) join(x *examples, most int) (b *shared, from int, leads bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open != nil && v.open.x.rows+x.rows > most {
		close(v.open.full)
		v.open = nil
	}
	if v.open == nil {
		v.open, leads = &shared{x: x, full: make(chan struct{}), done: make(chan struct{})}, true
	} else {
		from = v.open.x.rows
		v.open.x.add(x)
	}
	b = v.open
	b.requests++
	if b.x.rows >= most {
		close(b.full)
		v.open = nil
	}
	return b, from, leads
}

// lead computes a shared batch. It is computed though its caller has gone, since others may have joined.
func (s *Server) lead(ctx context.Context, v *Version, model string, b *shared) {
	defer close(b.done)
	b.err = status.Error(codes.Internal, "the server met a fault of its own in a request that was computed with this one; its log says which") // unless it is computed
	if s.o.BatchDelay > 0 {
		t := time.NewTimer(s.o.BatchDelay)
		select {
		case <-b.full:
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
	s.threads <- struct{}{}
	s.waited()
	defer func() { <-s.threads }()
	v.mu.Lock()
	if v.open == b {
		v.open = nil
	}
	v.mu.Unlock()
	s.o.Metrics.batch(model)
	b.heads, b.err = v.compute(context.WithoutCancel(ctx), b.x, nil)
}

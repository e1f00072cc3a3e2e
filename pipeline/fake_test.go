package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
)

// item is an element that knows whether it was released exactly once.
type item struct {
	pool     *pool
	origin   pipeline.Origin
	rows     int
	event    event        // what tests of event time put into it
	owners   atomic.Int64 // beyond the first
	released atomic.Bool
}

func (i *item) Origin() pipeline.Origin { return i.origin }
func (i *item) NumRows() int            { return i.rows }
func (i *item) Release() {
	if i.owners.Add(-1) < 0 && i.released.Swap(true) {
		i.pool.double.Add(1)
	}
	i.pool.live.Add(-1)
}

func (i *item) String() string            { return fmt.Sprintf("%v %d rows %+v", i.origin, i.rows, i.event) }
func (i *item) SetWatermark(micros int64) { i.origin.Watermark = micros }

// pool counts items.
type pool struct{ live, double atomic.Int64 }

func (p *pool) make(origin pipeline.Origin, rows int) *item {
	p.live.Add(1)
	return &item{pool: p, origin: origin, rows: rows}
}

func (p *pool) check(t *testing.T) {
	t.Helper()
	if n := p.live.Load(); n != 0 {
		t.Errorf("%d elements were not released", n)
	}
	if n := p.double.Load(); n != 0 {
		t.Errorf("%d elements were released twice", n)
	}
}

var itemSchema = arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)

// fakeSource has splits of so many rows, one row an element; -1: never a row, waits for ever.
type fakeSource struct {
	pool   *pool
	sizes  map[string]int
	failAt int               // rows into split "a"; 0: never
	slow   chan struct{}     // when not nil, split "a" waits for a receive before each row
	ends   pipeline.Position // what lag is counted to; 0: it is not known
	rows   int64             // what splits say that they have
	end    pipeline.Position // of the splits; 0: it is not known
	opened atomic.Int64
	closed atomic.Int64
	most   atomic.Int64 // readers that were open at once
}

func (s *fakeSource) Schema() *arrow.Schema { return itemSchema }
func (s *fakeSource) Bounded() bool         { return true }
func (s *fakeSource) String() string        { return "fake source" }
func (s *fakeSource) Fingerprint() string   { return "fake source" }
func (s *fakeSource) Splits(context.Context) ([]pipeline.Split, error) {
	var out []pipeline.Split
	for name := range s.sizes {
		sp := pipeline.Split{Name: name, Rows: s.rows, End: pipeline.NoPosition}
		if s.end > 0 {
			sp.End = s.end
		}
		out = append(out, sp)
	}
	return out, nil
}

func (s *fakeSource) Open(_ context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*item], error) {
	open := s.opened.Add(1) - s.closed.Load()
	for was := s.most.Load(); open > was && !s.most.CompareAndSwap(was, open); was = s.most.Load() {
	}
	return &fakeReader{src: s, source: env.Source, split: split.Name, at: from}, nil
}

type fakeReader struct {
	src           *fakeSource
	source, split string
	at            pipeline.Position
	once          sync.Once
}

var errBroken = errors.New("broken")

func (r *fakeReader) Next(ctx context.Context) (*item, error) {
	size := r.src.sizes[r.split]
	if size < 0 {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if int(r.at) == size {
		return nil, io.EOF
	}
	if r.split == "a" && r.src.failAt > 0 && int(r.at) == r.src.failAt {
		return nil, errBroken
	}
	if r.split == "a" && r.src.slow != nil {
		select {
		case <-r.src.slow:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	r.at++
	return r.src.pool.make(pipeline.Origin{Source: r.source, Split: r.split, From: r.at - 1, To: r.at}, 1), nil
}
func (r *fakeReader) Position() pipeline.Position { return r.at }
func (r *fakeReader) Lag(at pipeline.Position) int64 {
	if r.src.ends == 0 {
		return -1
	}
	return int64(r.src.ends - at)
}

func (r *fakeReader) Close() error {
	r.once.Do(func() { r.src.closed.Add(1) })
	return nil
}

// fakeStage joins so many elements into one, as batching does.
type fakeStage struct {
	pool   *pool
	join   int
	panics bool
	opened atomic.Int64
}

func (s *fakeStage) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (s *fakeStage) String() string                                 { return fmt.Sprintf("join %d", s.join) }
func (s *fakeStage) Fingerprint() string                            { return s.String() }

func (s *fakeStage) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	s.opened.Add(1)
	return &fakeProcessor{stage: s}, nil
}

type fakeProcessor struct {
	stage *fakeStage
	held  *item
	n     int
}

func (p *fakeProcessor) Process(_ context.Context, in *item, emit func(*item) error) error {
	if p.stage.panics {
		in.Release()
		panic("the stage's own bug")
	}
	p.n++
	if p.held == nil {
		p.held = in
	} else {
		joined := p.stage.pool.make(p.held.origin.Join(in.origin), p.held.rows+in.rows)
		p.held.Release()
		in.Release()
		p.held = joined
	}
	if p.n == p.stage.join {
		return p.Flush(context.Background(), emit)
	}
	return nil
}

func (p *fakeProcessor) Flush(_ context.Context, emit func(*item) error) error {
	if p.held == nil {
		return nil
	}
	out := p.held
	p.held, p.n = nil, 0
	return emit(out)
}

func (p *fakeProcessor) Close() error {
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
	return nil
}

// fakeSink remembers the origins it was given and plays a store that keeps positions.
type fakeSink struct {
	resume     map[string]pipeline.Progress
	boundaries map[string][]pipeline.Position
	failAt     int // elements; 0: never
	gate       chan struct{}
	mu         sync.Mutex
	origins    []pipeline.Origin
	workers    map[int]int
	flushed    int
	idles      int
	closed     int
}

func (s *fakeSink) String() string      { return "fake sink" }
func (s *fakeSink) Fingerprint() string { return "fake sink" }
func (s *fakeSink) Open(_ context.Context, env *pipeline.Env) (pipeline.Writer[*item], error) {
	return &fakeWriter{s, env.Worker}, nil
}

type fakeWriter struct {
	s      *fakeSink
	worker int
}

var (
	_ pipeline.Resumer = (*fakeWriter)(nil)
	_ pipeline.Idler   = (*fakeWriter)(nil)
)

func (w *fakeWriter) Write(ctx context.Context, e *item) error {
	defer e.Release()
	if w.s.gate != nil {
		select {
		case <-w.s.gate:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.failAt > 0 && len(w.s.origins) == w.s.failAt {
		return errBroken
	}
	w.s.origins = append(w.s.origins, e.origin)
	if w.s.workers == nil {
		w.s.workers = map[int]int{}
	}
	w.s.workers[w.worker]++
	return nil
}

func (w *fakeWriter) Flush(context.Context) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.flushed++
	return nil
}

func (w *fakeWriter) Close() error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.closed++
	return nil
}

func (w *fakeWriter) Resume(context.Context, string, []pipeline.Split) (map[string]pipeline.Progress, error) {
	return w.s.resume, nil
}

func (w *fakeWriter) Boundaries(_, split string) []pipeline.Position { return w.s.boundaries[split] }

func (w *fakeWriter) Idle(context.Context) error {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.idles++
	return nil
}

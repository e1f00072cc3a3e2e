package pipeline_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// holder is a fakeStage whose processors give what they hold back when a run is drained, and after delay when it is not 0.
type holder struct {
	fakeStage
	delay time.Duration
}

func (s *holder) Open(ctx context.Context, env *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	p, err := s.fakeStage.Open(ctx, env)
	if err != nil {
		return nil, err
	}
	h := &holdingProcessor{fakeProcessor: p.(*fakeProcessor), delay: s.delay}
	if s.delay > 0 {
		return tickingProcessor{h}, nil
	}
	return h, nil
}

type holdingProcessor struct {
	*fakeProcessor
	delay time.Duration
	since time.Time
}

func (p *holdingProcessor) Process(ctx context.Context, in *item, emit func(*item) error) error {
	if p.held == nil {
		p.since = time.Now()
	}
	return p.fakeProcessor.Process(ctx, in, emit)
}

func (p *holdingProcessor) Drain(ctx context.Context, emit func(*item) error) error {
	return p.Flush(ctx, emit)
}

func (p *holdingProcessor) Held() int {
	if p.held == nil {
		return 0
	}
	return p.held.rows
}

type tickingProcessor struct{ *holdingProcessor }

var (
	_ pipeline.Drainer[*item] = (*holdingProcessor)(nil)
	_ pipeline.Ticker[*item]  = tickingProcessor{}
)

func (p tickingProcessor) Due() time.Time {
	if p.held == nil {
		return time.Time{}
	}
	return p.since.Add(p.delay)
}

func (p tickingProcessor) Tick(ctx context.Context, now time.Time, emit func(*item) error) error {
	if now.Before(p.Due()) {
		return fmt.Errorf("called at %s, due at %s", now, p.Due())
	}
	return p.Flush(ctx, emit)
}

// counting counts what hooks get of rows and lag.
type counting struct {
	mu   sync.Mutex
	read int64
	lags []int64
}

func (c *counting) RowsRead(_, _ string, rows int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read += int64(rows)
}

func (c *counting) Lag(_, _ string, records int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.lags); n == 0 || c.lags[n-1] != records {
		c.lags = append(c.lags, records)
	}
}

// newHolding is source -> join -> [queue] -> pass -> [queue] -> sink with a holder for the join, or for the pass.
func newHolding(t *testing.T, sizes map[string]int, join int, delay time.Duration, behind bool) *fixture {
	t.Helper()
	f := &fixture{}
	f.src = &fakeSource{pool: &f.pool, sizes: sizes}
	f.sink = &fakeSink{}
	first, second := &holder{fakeStage{pool: &f.pool, join: join}, delay}, &holder{fakeStage{pool: &f.pool, join: 1}, 0}
	if behind {
		first, second = second, first
	}
	g := pipeline.New("test")
	s := pipeline.Via(pipeline.Read(g, "clicks", f.src), "first", pipeline.Stage[*item, *item](first))
	s = pipeline.Prefetch(pipeline.Via(pipeline.Prefetch(s, "queue0", 2), "second", pipeline.Stage[*item, *item](second)), "queue1", 1)
	pipeline.Into(s, "sink", f.sink)
	var err error
	if f.plan, err = g.Plan(); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestEnds ends runs early while the sink is slow: a drained one writes every row that was read, a stopped one and one in
// deterministic order say how many they leave, and in each the splits continue where they ended.
func TestEnds(t *testing.T) {
	for _, tc := range []struct {
		name         string
		drain, stop  bool
		det, nothing bool
	}{
		{name: "drain", drain: true, nothing: true},
		{name: "stop", stop: true},
		{name: "drain, then stop", drain: true, stop: true},
		{name: "drain in deterministic order", drain: true, det: true},
	} {
		for _, behind := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/behind=%v", tc.name, behind), func(t *testing.T) {
				splits := map[string]int{"a": 10000, "b": 10000}
				if behind { // the fake joins what comes, whatever its split
					splits = map[string]int{"a": 20000}
				}
				f := newHolding(t, splits, 7, 0, behind)
				end, gate := make(chan struct{}), make(chan struct{})
				f.sink.gate = gate
				var hooks counting
				opts := pipeline.RunOptions{Deterministic: tc.det, Env: func(int) *pipeline.Env { return &pipeline.Env{Hooks: pipeline.NewHooks(&hooks)} }}
				if tc.drain {
					opts.Drain = end
				}
				if tc.stop {
					opts.Stop = end
				}
				go func() {
					for range 5 {
						gate <- struct{}{}
					}
					time.Sleep(10 * time.Millisecond) // queues fill
					close(end)
					time.Sleep(10 * time.Millisecond) // and readers are notified
					close(gate)
				}()
				stats, err := f.plan.Segments[0].Run(t.Context(), opts)
				f.pool.check(t)
				if err != nil || !stats.Drained || stats.Full {
					t.Fatalf("stats %+v, %v", stats, err)
				}
				if stats.Rows+stats.Left != hooks.read || hooks.read >= 20000 {
					t.Errorf("%d rows read, %d written, %d left", hooks.read, stats.Rows, stats.Left)
				}
				if (stats.Left == 0) != tc.nothing {
					t.Errorf("%d rows are left", stats.Left)
				}
				to := map[string]pipeline.Position{}
				rows := int64(0)
				for _, o := range f.sink.origins {
					if o.From != to[o.Split] {
						t.Errorf("%s does not continue at %d", o, to[o.Split])
					}
					to[o.Split] = o.To
					rows += int64(o.To - o.From)
				}
				if rows != stats.Rows {
					t.Errorf("%d rows written, %d counted", rows, stats.Rows)
				}
			})
		}
	}
}

// TestTicker: a stream that stops still has its last rows written, just when their delay is over, whether the stage
// stands before or after a queue; not so in deterministic order.
func TestTicker(t *testing.T) {
	const delay = 300 * time.Millisecond
	for _, behind := range []bool{false, true} {
		for _, det := range []bool{false, true} {
			t.Run(fmt.Sprintf("behind=%v/deterministic=%v", behind, det), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newHolding(t, map[string]int{"a": 1000}, 4, delay, behind)
					f.src.slow = make(chan struct{})
					drain := make(chan struct{})
					done := make(chan error, 1)
					go func() {
						_, err := f.plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Drain: drain, Deterministic: det})
						done <- err
					}()
					written := func(want string) {
						t.Helper()
						synctest.Wait()
						f.sink.mu.Lock()
						defer f.sink.mu.Unlock()
						if got := f.splitsOf()["a"]; got != want {
							t.Errorf("written %s, want %s", got, want)
						}
					}
					for range 6 {
						f.src.slow <- struct{}{}
					}
					written("[0,4)")
					time.Sleep(delay - time.Millisecond)
					written("[0,4)")
					time.Sleep(time.Millisecond)
					if det {
						written("[0,4)")
					} else {
						written("[0,4)[4,6)")
						f.src.slow <- struct{}{}
						time.Sleep(delay / 2)
						f.src.slow <- struct{}{}
						time.Sleep(delay / 2)
						written("[0,4)[4,6)[6,8)") // since the first of them came
					}
					close(drain)
					if err := <-done; err != nil {
						t.Error(err)
					}
					f.pool.check(t)
				})
			})
		}
	}
}

// TestLagCountsWhatIsNotWritten has a sink that takes nothing while a split of 10 rows is read to its end.
func TestLagCountsWhatIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHolding(t, map[string]int{"a": 10}, 1, 0, false)
		f.src.ends = 10
		gate := make(chan struct{})
		f.sink.gate = gate
		var hooks counting
		done := make(chan error, 1)
		go func() {
			_, err := f.plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Env: func(int) *pipeline.Env { return &pipeline.Env{Hooks: pipeline.NewHooks(&hooks)} }})
			done <- err
		}()
		time.Sleep(5100 * time.Millisecond) // not when lag is reported
		for range 3 {
			gate <- struct{}{}
		}
		time.Sleep(5100 * time.Millisecond) // not when lag is reported
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]int64{10, 7, 0}, hooks.lags); diff != "" {
			t.Errorf("lags (-want +got):\n%s", diff)
		}
	})
}

package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// laggard holds the last so many elements of each split back until others follow; an action takes all with it.
type laggard struct{ last int }

func (s *laggard) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (s *laggard) String() string                                 { return fmt.Sprintf("hold %d", s.last) }
func (s *laggard) Fingerprint() string                            { return s.String() }
func (s *laggard) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	return &lagging{s.last, map[pipeline.SplitID][]*item{}}, nil
}

type lagging struct {
	last int
	held map[pipeline.SplitID][]*item
}

func (p *lagging) Process(_ context.Context, in *item, emit func(*item) error) error {
	id := in.origin.ID()
	p.held[id] = append(p.held[id], in)
	keep := p.last
	if in.event.Action {
		keep = 0
	}
	for len(p.held[id]) > keep {
		if err := p.first(id, emit); err != nil {
			return err
		}
	}
	return nil
}

func (p *lagging) first(id pipeline.SplitID, emit func(*item) error) error {
	out := p.held[id][0]
	p.held[id] = p.held[id][1:]
	return emit(out)
}

func (p *lagging) Flush(_ context.Context, emit func(*item) error) error {
	for _, id := range slices.SortedFunc(keys(p.held), pipeline.SplitID.Compare) {
		for len(p.held[id]) > 0 {
			if err := p.first(id, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *lagging) Close() error {
	for _, held := range p.held {
		for _, it := range held {
			it.Release()
		}
	}
	p.held = nil
	return nil
}

// punctual refuses an event from before the watermark that it has heard.
type punctual struct{ listener }

func (s *punctual) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	return &watching{listener: &s.listener}, nil
}

type watching struct {
	*listener
	now int64
}

func (p *watching) Process(_ context.Context, in *item, emit func(*item) error) error {
	if in.event.Time < p.now {
		err := fmt.Errorf("%s comes when the watermark is %d", in, p.now)
		in.Release()
		return err
	}
	return emit(in)
}

func (p *watching) Advance(ctx context.Context, watermark int64, emit func(*item) error) error {
	if watermark <= p.now {
		return fmt.Errorf("the watermark went from %d to %d", p.now, watermark)
	}
	p.now = watermark
	return p.listener.Advance(ctx, watermark, emit)
}

// TestWatermarkWaitsForWhatIsHeld: in graphs of any shape, whatever holds rows back and wherever sinks continue, no event comes
// to an event timer after the watermark that it was told of. Splits end early and late, and none has late events.
func TestWatermarkWaitsForWhatIsHeld(t *testing.T) {
	advances := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 17))
		p := &pool{}
		source := func(splits int) *eventSource {
			s := &eventSource{pool: p, events: map[string][]event{}}
			for i := range splits {
				var events []event
				at := rng.Int64N(300)
				for range rng.IntN(60) {
					at += rng.Int64N(20)
					events = append(events, event{Time: at + 1})
				}
				s.events[fmt.Sprint(i)] = events
			}
			return s
		}
		clicks, views := source(1+rng.IntN(3)), source(1+rng.IntN(2))
		ends := map[string]*eventSource{"clicks": clicks, "views": views}
		stages := 0
		maybe := func(s pipeline.Stream[*item]) pipeline.Stream[*item] {
			if rng.IntN(2) == 0 {
				return s
			}
			stages++
			return pipeline.Via(s, fmt.Sprint("hold", stages), &laggard{1 + rng.IntN(3)})
		}
		queued := func(s pipeline.Stream[*item]) pipeline.Stream[*item] {
			if rng.IntN(2) == 0 {
				return s
			}
			stages++
			return pipeline.Prefetch(s, fmt.Sprint("queue", stages), rng.IntN(3))
		}
		var mu sync.Mutex
		var heard []int64
		timer := func(s pipeline.Stream[*item], name string) pipeline.Stream[*item] {
			return pipeline.Via(s, name, &punctual{listener{mu: &mu, heard: &heard}})
		}
		g := pipeline.New("punctual")
		s := pipeline.Merge(g, "all", maybe(pipeline.Read(g, "clicks", clicks)), maybe(pipeline.Read(g, "views", views)))
		s = maybe(queued(maybe(s)))
		if rng.IntN(2) == 0 {
			s = maybe(timer(s, "in front"))
		}
		branches := pipeline.Tee(queued(s), "tee", 2)
		for i, b := range branches {
			sink := newDurable(1)
			for name, source := range ends {
				for split, events := range source.events {
					if rng.IntN(2) == 0 {
						sink.at[pipeline.SplitID{Source: name, Split: split}] = pipeline.Progress{Position: pipeline.Position(rng.IntN(len(events) + 1))}
					}
				}
			}
			pipeline.Into(queued(timer(maybe(queued(b)), fmt.Sprint("timer", i))), fmt.Sprint("sink", i), sink)
		}
		plan, err := g.Plan()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Workers: 1 + rng.IntN(3), Deterministic: seed%2 == 0}); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, plan.Text())
		}
		p.check(t)
		advances += len(heard)
	}
	if advances < 2000 {
		t.Errorf("%d watermarks were heard of", advances)
	}
}

// TestWatermarkOfASilentSplit: what a stage holds back of a split counts while the split is silent, wherever the stage is; when
// all has come the split is left out, until it gives something again.
func TestWatermarkOfASilentSplit(t *testing.T) {
	for name, build := range map[string]func(s pipeline.Stream[*item]) pipeline.Stream[*item]{
		"before the queue": func(s pipeline.Stream[*item]) pipeline.Stream[*item] {
			return pipeline.Prefetch(pipeline.Via(s, "hold", &laggard{1}), "q", 1)
		},
		"behind the queue": func(s pipeline.Stream[*item]) pipeline.Stream[*item] {
			return pipeline.Via(pipeline.Prefetch(s, "q", 1), "hold", &laggard{1})
		},
		"between queues": func(s pipeline.Stream[*item]) pipeline.Stream[*item] {
			return pipeline.Prefetch(pipeline.Via(pipeline.Prefetch(s, "q", 1), "hold", &laggard{1}), "r", 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pool{}
				src := &eventSource{pool: p, events: map[string][]event{}, gates: map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}}
				for i := range 20 {
					src.events["a"] = append(src.events["a"], event{Time: int64(100 * (i + 1)), Action: i == 3}) // 400 is not held back
					src.events["b"] = append(src.events["b"], event{Time: int64(100*(i+1) + 50)})
				}
				var mu sync.Mutex
				var heard []int64
				g := pipeline.New("test")
				s := build(pipeline.ReadWith(g, "in", src, pipeline.ReadOptions{Idle: time.Minute}))
				pipeline.Into(pipeline.Via(s, "timer", &punctual{listener{mu: &mu, heard: &heard}}), "sink", &fakeSink{})
				plan, err := g.Plan()
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				done := make(chan error)
				go func() {
					_, err := plan.Segments[0].Run(ctx, pipeline.RunOptions{})
					done <- err
				}()
				// give has a split give so many events, and expects watermarks.
				give := func(split string, n int, want ...int64) {
					t.Helper()
					for range n {
						src.gates[split] <- struct{}{}
					}
					time.Sleep(time.Second)
					mu.Lock()
					defer mu.Unlock()
					if diff := gocmp.Diff(want, heard); diff != "" {
						t.Errorf("%d events of %s (-want +got):\n%s", n, split, diff)
					}
					heard = nil
				}
				give("a", 2)      // 100 comes, 200 is held back
				give("b", 2, 100) // 150 comes, 250 is held back
				give("b", 1)      // 250 comes
				time.Sleep(56 * time.Second)
				give("b", 1) // 350 comes
				time.Sleep(3 * time.Second)
				give("b", 1)      // 450 comes; a is silent, and 200 has not come
				give("a", 1, 200) // which it does now
				give("b", 1)      // 550 comes; a is not silent any more
				give("a", 1, 300, 400)
				time.Sleep(56 * time.Second)
				give("b", 1) // 650 comes
				time.Sleep(2 * time.Second)
				give("b", 0, 650) // a is left out
				give("a", 1)      // 500 is held back
				give("b", 1)      // 750 comes, a is at 400
				cancel(errBroken)
				if err := <-done; !errors.Is(err, errBroken) {
					t.Error(err)
				}
				p.check(t)
			})
		})
	}
}

// TestWatermarkBehindASinkThatIsAhead: a split of which nothing comes, because the sink has all of it, holds nothing back.
func TestWatermarkBehindASinkThatIsAhead(t *testing.T) {
	p := &pool{}
	src := &eventSource{pool: p, events: map[string][]event{"a": {{Time: 1}, {Time: 2}, {Time: 3}}, "b": {{Time: 10}, {Time: 20}, {Time: 30}, {Time: 40}}}}
	var mu sync.Mutex
	var heard []int64
	ahead := newDurable(1)
	ahead.at[pipeline.SplitID{Source: "in", Split: "a"}] = pipeline.Progress{Position: 3, Rows: 3}
	g := pipeline.New("test")
	branches := pipeline.Tee(pipeline.Prefetch(pipeline.Read(g, "in", src), "q", 1), "tee", 2)
	pipeline.Into(pipeline.Via(branches[0], "timer", &punctual{listener{mu: &mu, heard: &heard}}), "ahead", ahead)
	pipeline.Into(branches[1], "behind", newDurable(1))
	plan, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Deterministic: true}); err != nil {
		t.Fatal(err)
	}
	p.check(t)
	// In deterministic order a has a turn, and ends, when b has as many rows.
	if diff := gocmp.Diff([]int64{30, 40}, heard); diff != "" {
		t.Errorf("watermarks (-want +got):\n%s", diff)
	}
}

package pipeline_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
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

// event is an impression, or an action that follows one, of a request.
type event struct {
	Request int
	Time    int64 // microseconds
	Action  bool
	Clicked bool // set by the join
}

// eventSource gives the events of each split one by one.
type eventSource struct {
	pool   *pool
	events map[string][]event
	gates  map[string]chan struct{} // a split with one waits for a receive before each event, and never ends
}

func (s *eventSource) Schema() *arrow.Schema { return itemSchema }
func (s *eventSource) Bounded() bool         { return true }
func (s *eventSource) String() string        { return "events" }
func (s *eventSource) Fingerprint() string   { return "events" }
func (s *eventSource) Splits(context.Context) (out []pipeline.Split, _ error) {
	for name := range s.events {
		out = append(out, pipeline.Split{Name: name, End: pipeline.NoPosition})
	}
	return out, nil
}

func (s *eventSource) Open(_ context.Context, env *pipeline.Env, split pipeline.Split, from pipeline.Position) (pipeline.Reader[*item], error) {
	return &eventReader{s, pipeline.SplitID{Source: env.Source, Split: split.Name}, from}, nil
}

type eventReader struct {
	s  *eventSource
	id pipeline.SplitID
	at pipeline.Position
}

func (r *eventReader) Next(ctx context.Context) (*item, error) {
	if gate := r.s.gates[r.id.Split]; gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	events := r.s.events[r.id.Split]
	if int(r.at) == len(events) {
		return nil, io.EOF
	}
	e := events[r.at]
	r.at++
	it := r.s.pool.make(pipeline.Origin{Source: r.id.Source, Split: r.id.Split, From: r.at - 1, To: r.at, MinTime: e.Time, MaxTime: e.Time}, 1)
	it.event = e
	return it, nil
}

func (r *eventReader) Position() pipeline.Position { return r.at }
func (r *eventReader) Close() error                { return nil }

// join tells of each impression whether an action of its request followed within a window. It holds impressions back until
// the watermark has passed their window, and keeps actions as state until no impression can need them any more: what it
// emits of an impression is a function of the events alone, so a run that is killed anywhere gives the same rows.
type join struct {
	pool   *pool
	window int64
}

func (s *join) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (s *join) String() string                                 { return fmt.Sprintf("join within %d µs", s.window) }
func (s *join) Fingerprint() string                            { return s.String() }
func (s *join) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	return &joiner{join: s, held: map[pipeline.SplitID][]*item{}, actions: map[pipeline.SplitID][]event{}}, nil
}

type joiner struct {
	*join
	held    map[pipeline.SplitID][]*item // impressions, in the order of their split
	actions map[pipeline.SplitID][]event
}

var (
	_ pipeline.Stateful          = (*joiner)(nil)
	_ pipeline.EventTimer[*item] = (*joiner)(nil)
)

func (j *joiner) Process(_ context.Context, in *item, emit func(*item) error) error {
	id := in.origin.ID()
	if !in.event.Action {
		j.held[id] = append(j.held[id], in)
		return nil
	}
	j.actions[id] = append(j.actions[id], in.event)
	out := j.pool.make(in.origin, 0)
	in.Release()
	return emit(out)
}

// Advance emits the impressions whose window has passed, and forgets actions.
func (j *joiner) Advance(_ context.Context, watermark int64, emit func(*item) error) error {
	oldest := watermark // of the impressions that are still to be emitted
	for _, id := range slices.SortedFunc(keys(j.held), pipeline.SplitID.Compare) {
		for len(j.held[id]) > 0 && j.held[id][0].event.Time+j.window < watermark {
			if err := j.emit(id, emit); err != nil {
				return err
			}
		}
		for _, e := range j.held[id] {
			oldest = min(oldest, e.event.Time)
		}
	}
	for id, actions := range j.actions {
		j.actions[id] = slices.DeleteFunc(actions, func(a event) bool { return a.Time < oldest })
	}
	return nil
}

func keys[K comparable, V any](m map[K]V) func(func(K) bool) {
	return func(yield func(K) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// emit joins the first impression of a split.
func (j *joiner) emit(id pipeline.SplitID, emit func(*item) error) error {
	in := j.held[id][0]
	j.held[id] = j.held[id][1:]
	out := j.pool.make(in.origin, 1)
	out.event = in.event
	in.Release()
	for _, actions := range j.actions {
		for _, a := range actions {
			if after := a.Time - out.event.Time; a.Request == out.event.Request && after >= 0 && after <= j.window {
				out.event.Clicked = true
			}
		}
	}
	return emit(out)
}

func (j *joiner) Flush(_ context.Context, emit func(*item) error) error {
	for _, id := range slices.SortedFunc(keys(j.held), pipeline.SplitID.Compare) {
		for len(j.held[id]) > 0 {
			if err := j.emit(id, emit); err != nil {
				return err
			}
		}
	}
	return nil
}

func (j *joiner) Save(split pipeline.SplitID) ([]byte, error) {
	if len(j.actions[split]) == 0 {
		return nil, nil
	}
	return json.Marshal(j.actions[split])
}

func (j *joiner) Restore(split pipeline.SplitID, state []byte) error {
	var actions []event
	err := json.Unmarshal(state, &actions)
	j.actions[split] = actions
	return err
}

func (j *joiner) Close() error {
	for _, held := range j.held {
		for _, e := range held {
			e.Release()
		}
	}
	j.held = nil
	return nil
}

// cuts is a store of state that makes a cut when it feels like it: what it was given after that is lost in a kill.
type cuts struct {
	mu     sync.Mutex
	rng    *rand.Rand
	stored map[string][]byte
	put    int
}

func (c *cuts) Load(_ context.Context, stage string, split pipeline.SplitID) (st pipeline.State, ok bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.stored[stage+" "+split.String()]
	if ok {
		err = st.UnmarshalBinary(b)
	}
	return st, ok, err
}

func (c *cuts) Put(stage string, states map[pipeline.SplitID]pipeline.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put++
	if c.rng.IntN(3) > 0 {
		return
	}
	for id, st := range states {
		c.stored[stage+" "+id.String()] = st.Bytes()
	}
}

// TestJoinIsExact joins impressions with actions under kills at random, with one worker or two between which splits change,
// in order of arrival or in deterministic order, into two sinks that store at times of their own.
func TestJoinIsExact(t *testing.T) {
	const window, late = 50, 7
	for seed := range uint64(seeds()) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 15))
			p := &pool{}
			impressions := &eventSource{pool: p, events: map[string][]event{"0": nil, "1": nil}}
			actions := &eventSource{pool: p, events: map[string][]event{"0": nil, "1": nil}}
			var want []event
			for request := range 120 {
				part := fmt.Sprint(request % 2) // both sources are partitioned by request
				e := event{Request: request, Time: 1000 + int64(request)*5 + rng.Int64N(late)}
				impressions.events[part] = append(impressions.events[part], e)
				for range rng.IntN(3) {
					a := event{Request: request, Time: e.Time + rng.Int64N(2*window) - 5, Action: true}
					actions.events[part] = append(actions.events[part], a)
					if after := a.Time - e.Time; after >= 0 && after <= window {
						e.Clicked = true
					}
				}
				want = append(want, e)
			}
			for _, events := range actions.events { // in order of time, but for what may be late
				slices.SortFunc(events, func(a, b event) int { return cmp.Compare(a.Time, b.Time) })
				for i := range len(events) - 1 {
					if events[i+1].Time-events[i].Time < late && rng.IntN(2) == 0 && (i == 0 || events[i+1].Time > events[i-1].Time-late) {
						events[i], events[i+1] = events[i+1], events[i]
					}
				}
			}
			store := &cuts{rng: rng, stored: map[string][]byte{}}
			train, log := newDurable(1+rng.IntN(5)), newDurable(1+rng.IntN(30))
			kills := 0
			for {
				g := pipeline.New("join")
				opts := pipeline.ReadOptions{Lateness: 2 * late * time.Microsecond}
				both := pipeline.Merge(g, "both", pipeline.ReadWith(g, "impressions", impressions, opts), pipeline.ReadWith(g, "actions", actions, opts))
				joined := pipeline.Via(pipeline.Prefetch(both, "q", 1+rng.IntN(3)), "join", &join{p, window})
				out := pipeline.Tee(joined, "out", 2)
				pipeline.Into(pipeline.Prefetch(out[0], "r", rng.IntN(3)), "train", train)
				pipeline.Into(out[1], "log", log)
				plan, err := g.Plan()
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				left := int64(1 + rng.IntN(200))
				if kills > 100 {
					left = math.MaxInt64
				}
				var mu sync.Mutex
				run := pipeline.RunOptions{Workers: 1 + rng.IntN(2), Deterministic: seed%2 == 0, StateEvery: time.Nanosecond, Reached: func(pipeline.SplitID, pipeline.Progress, int64) {
					mu.Lock()
					defer mu.Unlock()
					if left--; left == 0 {
						cancel(errBroken)
					}
				}, Env: func(w int) *pipeline.Env { return &pipeline.Env{Worker: w, State: store} }}
				stop := make(chan struct{})
				if rng.IntN(4) == 0 { // end in order, now and then
					left += 1000
					run.Stop = stop
					time.AfterFunc(time.Duration(rng.IntN(500))*time.Microsecond, func() { close(stop) })
				}
				stats, err := plan.Segments[0].Run(ctx, run)
				p.check(t)
				cancel(nil)
				if err == nil && !stats.Drained {
					break
				}
				if err != nil && !errors.Is(err, errBroken) {
					t.Fatal(err)
				}
				kills++
			}
			for name, sink := range map[string]*durable{"train": train, "log": log} {
				slices.SortFunc(sink.events, func(a, b event) int { return cmp.Compare(a.Request, b.Request) })
				if diff := gocmp.Diff(want, sink.events); diff != "" {
					t.Errorf("%s after %d kills (-want +got):\n%s", name, kills, diff)
				}
			}
			if store.put == 0 {
				t.Error("no state was ever stored")
			}
		})
	}
}

// TestStateIsStoredWhenSinksHaveIt: a sink that has not stored what was made holds state back, and state that is ahead of a
// sink is not used.
func TestStateIsStoredWhenSinksHaveIt(t *testing.T) {
	p := &pool{}
	actions := &eventSource{pool: p, events: map[string][]event{"a": nil}}
	for i := range 10 {
		actions.events["a"] = append(actions.events["a"], event{Request: i, Time: int64(i + 1), Action: true})
	}
	store := &lastPut{}
	run := func(sink *durable) error {
		g := pipeline.New("test")
		pipeline.Into(pipeline.Via(pipeline.Read(g, "actions", actions), "join", &join{p, 1000}), "sink", sink)
		plan, err := g.Plan()
		if err != nil {
			t.Fatal(err)
		}
		_, err = plan.Segments[0].Run(t.Context(), pipeline.RunOptions{StateEvery: time.Nanosecond, Env: func(int) *pipeline.Env { return &pipeline.Env{State: store} }})
		p.check(t)
		return err
	}
	sink := newDurable(4)
	store.seen = func(st pipeline.State) {
		if at := sink.at[pipeline.SplitID{Source: "actions", Split: "a"}].Position; st.Position > at {
			t.Errorf("state at %d is stored, the sink is at %d", st.Position, at)
		}
	}
	if err := run(sink); err != nil {
		t.Fatal(err)
	}
	if store.state.Position != 10 {
		t.Errorf("the last state is at %d, want 10: everything was flushed", store.state.Position)
	}
	// Another sink, which has less: what it lacks is made again from the beginning.
	store.seen = nil
	fresh := newDurable(1)
	fresh.at[pipeline.SplitID{Source: "actions", Split: "a"}] = pipeline.Progress{Position: 6}
	store.state.Data = []byte("not to be read")
	if err := run(fresh); err != nil {
		t.Fatal(err)
	}
	if got := len(fresh.steps); got != 4 {
		t.Errorf("%d elements, want those after position 6", got)
	}
	store.state.Data = []byte("not JSON")
	if err := run(newDurableAt(10)); err == nil {
		t.Error("state that cannot be restored was taken")
	}
}

func newDurableAt(at pipeline.Position) *durable {
	s := newDurable(1)
	s.at[pipeline.SplitID{Source: "actions", Split: "a"}] = pipeline.Progress{Position: at}
	return s
}

// lastPut keeps the last state of one split.
type lastPut struct {
	mu    sync.Mutex
	state pipeline.State
	ok    bool
	seen  func(pipeline.State)
}

func (s *lastPut) Load(context.Context, string, pipeline.SplitID) (pipeline.State, bool, error) {
	return s.state, s.ok, nil
}

func (s *lastPut) Put(_ string, states map[pipeline.SplitID]pipeline.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range states {
		s.state, s.ok = st, true
		if s.seen != nil {
			s.seen(st)
		}
	}
}

// TestWatermark: the smallest over the splits counts, one that is silent for long enough is left out, and what has ended is
// too.
func TestWatermark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{}
		events := map[string][]event{"a": nil, "b": nil, "c": {{Time: 5}}}
		for i := range 100 {
			events["a"], events["b"] = append(events["a"], event{Time: int64(100 * (i + 1))}), append(events["b"], event{Time: int64(100*(i+1) + 50)})
		}
		gates := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
		var mu sync.Mutex
		var heard []int64
		g := pipeline.New("test")
		s := pipeline.ReadWith(g, "in", &eventSource{pool: p, events: events, gates: gates}, pipeline.ReadOptions{Lateness: 10 * time.Microsecond, Idle: time.Minute})
		s = pipeline.Prefetch(pipeline.Via(pipeline.Prefetch(s, "q", 1), "pass", &fakeStage{pool: p, join: 1}), "r", 1)
		pipeline.Into(pipeline.Via(s, "listen", &listener{mu: &mu, heard: &heard}), "sink", &fakeSink{})
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
		expect := func(what string, want ...int64) {
			t.Helper()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			if diff := gocmp.Diff(want, heard); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
			heard = nil
		}
		expect("c has ended, nothing is known of a and b")
		gates["a"] <- struct{}{}
		expect("a is at 90, nothing is known of b")
		gates["b"] <- struct{}{}
		expect("a is at 90, b at 140", 90)
		gates["a"] <- struct{}{}
		gates["a"] <- struct{}{}
		expect("b is at 140, a at 290", 140)
		time.Sleep(56 * time.Second)
		gates["a"] <- struct{}{}
		expect("a is at 390, and b not silent for long enough")
		time.Sleep(time.Second)
		expect("b is left out", 390)
		gates["b"] <- struct{}{}
		expect("b is back at 240, which takes nothing back")
		gates["a"] <- struct{}{}
		expect("b is at 240")
		for range 3 {
			gates["b"] <- struct{}{}
		}
		expect("b is at 540, a at 490", 440, 490)
		cancel(errBroken)
		if err := <-done; !errors.Is(err, errBroken) {
			t.Error(err)
		}
		p.check(t)
	})
}

// listener notes the watermarks it is notified of.
type listener struct {
	mu    *sync.Mutex
	heard *[]int64
}

func (l *listener) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (l *listener) String() string                                 { return "listen" }
func (l *listener) Fingerprint() string                            { return "listen" }
func (l *listener) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	return l, nil
}

func (l *listener) Process(_ context.Context, in *item, emit func(*item) error) error {
	return emit(in)
}

func (l *listener) Flush(context.Context, func(*item) error) error { return nil }
func (l *listener) Close() error                                   { return nil }
func (l *listener) Advance(_ context.Context, watermark int64, _ func(*item) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.heard = append(*l.heard, watermark)
	return nil
}

// number gives each row its number within its split, which only state can give after a kill.
type number struct{ pool *pool }

func (s *number) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (s *number) String() string                                 { return "number" }
func (s *number) Fingerprint() string                            { return "number" }
func (s *number) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	return &numberer{s, map[pipeline.SplitID]int{}}, nil
}

type numberer struct {
	*number
	n map[pipeline.SplitID]int
}

func (p *numberer) Process(_ context.Context, in *item, emit func(*item) error) error {
	p.n[in.origin.ID()] += in.rows
	out := p.pool.make(in.origin, in.rows)
	out.event = event{Request: p.n[in.origin.ID()], Time: int64(in.origin.To)}
	in.Release()
	return emit(out)
}

func (p *numberer) Flush(context.Context, func(*item) error) error { return nil }
func (p *numberer) Close() error                                   { return nil }
func (p *numberer) Save(split pipeline.SplitID) ([]byte, error)    { return json.Marshal(p.n[split]) }

func (p *numberer) Restore(split pipeline.SplitID, state []byte) error {
	n := 0
	err := json.Unmarshal(state, &n)
	p.n[split] = n
	return err
}

// TestStateCountsOnce numbers rows in two stages, in front of the first queue or after it, under kills: no row is counted
// twice, and none left out, by either, whatever the sinks and the other stage have stored.
func TestStateCountsOnce(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 16))
		p := &pool{}
		sizes := map[string]int{"a": 150, "b": 90}
		store := &cuts{rng: rng, stored: map[string][]byte{}}
		first, second := newDurable(1+rng.IntN(5)), newDurable(1+rng.IntN(20))
		for kills := 0; ; kills++ {
			g := pipeline.New("number")
			s := pipeline.Read(g, "clicks", &fakeSource{pool: p, sizes: sizes})
			if seed%5 == 0 { // elements of several rows, which must end where states do
				s = pipeline.Via(s, "join", pipeline.Stage[*item, *item](&cutStage{fakeStage{pool: p, join: 3}}))
			}
			s = pipeline.Via(s, "one", &number{p})
			if seed%3 == 0 { // a state in front of another, on the same way
				s = pipeline.Via(s, "also", &number{p})
			}
			if seed%2 == 0 {
				s = pipeline.Prefetch(s, "q", 2)
			}
			branches := pipeline.Tee(s, "tee", 2)
			pipeline.Into(pipeline.Via(pipeline.Prefetch(branches[0], "r", 2), "two", &number{p}), "first", first)
			pipeline.Into(branches[1], "second", second)
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			left := 1 + rng.IntN(120)
			if kills > 100 {
				left = math.MaxInt
			}
			var mu sync.Mutex
			_, err = plan.Segments[0].Run(ctx, pipeline.RunOptions{
				Workers: 1 + rng.IntN(2), StateEvery: time.Nanosecond, Env: func(int) *pipeline.Env { return &pipeline.Env{State: store} },
				Reached: func(pipeline.SplitID, pipeline.Progress, int64) {
					mu.Lock()
					defer mu.Unlock()
					if left--; left == 0 {
						cancel(errBroken)
					}
				},
			})
			cancel(nil)
			p.check(t)
			if err == nil {
				break
			}
			if !errors.Is(err, errBroken) {
				t.Fatal(err)
			}
		}
		for name, sink := range map[string]*durable{"first": first, "second": second} {
			rows := int64(0)
			for _, at := range sink.at {
				rows += at.Rows
			}
			if rows != 240 {
				t.Errorf("seed %d: %s has %d rows, want 240", seed, name, rows)
			}
			for _, e := range sink.events {
				if e.Request != int(e.Time) {
					t.Fatalf("seed %d: %s: row %d has number %d", seed, name, e.Time, e.Request)
				}
			}
		}
	}
}

// seeds is how many random histories a test tries.
func seeds() int {
	if testing.Short() {
		return 12
	}
	return 40
}

package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// Retain lets items be shared: every owner releases once.
func (i *item) Retain() {
	i.pool.live.Add(1)
	i.owners.Add(1)
}

// sieve hands on the rows at even positions, emits those at odd ones to its side output "odd", and covers every position at both.
type sieve struct{ pool *pool }

func (s *sieve) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (s *sieve) Sides(in *arrow.Schema) (map[string]*arrow.Schema, error) {
	return map[string]*arrow.Schema{"odd": in}, nil
}
func (s *sieve) String() string      { return "sieve" }
func (s *sieve) Fingerprint() string { return "sieve" }

func (s *sieve) Open(_ context.Context, env *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	odd, err := pipeline.OpenSide[*item](env, "odd")
	return &siever{s.pool, env, odd}, err
}

type siever struct {
	pool *pool
	env  *pipeline.Env
	odd  *pipeline.SideOutput[*item]
}

func (p *siever) Process(_ context.Context, in *item, emit func(*item) error) error {
	if in.rows != 1 {
		return fmt.Errorf("%v has %d rows", in.origin, in.rows)
	}
	even := int(in.origin.From+1) % 2
	o := in.origin
	in.Release()
	if even == 0 {
		p.env.LeftOut(o.ID(), []int64{int64(o.To)})
	}
	if p.odd.Wanted() {
		if err := p.odd.Emit(p.pool.make(o, 1-even)); err != nil {
			return err
		}
	}
	return emit(p.pool.make(o, even))
}
func (p *siever) Flush(context.Context, func(*item) error) error { return nil }
func (p *siever) Close() error                                   { return nil }

// plain hides that a sink stores positions.
type plain struct{ *fakeSink }

func (s plain) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[*item], error) {
	w, err := s.fakeSink.Open(ctx, env)
	return struct{ pipeline.Writer[*item] }{w}, err
}

// network is the graph of these tests: two sources, of which one is sieved, merged and shared.
//
//	clicks ─> sieve ─┬─ weight 2 ─> all ─[q]─> both ─┬─> join ─[r]─> push
//	views ───────────┼──────────────┘                └─> rows
//	                 └ odd ─> odd rows
type network struct {
	pool             pool
	clicks, views    *fakeSource
	push, rows, odd  *fakeSink
	graph            *pipeline.Graph
	plan             *pipeline.Plan
	weight, gatherAt int
}

func newNetwork(t *testing.T, clicks, views map[string]int, change func(*network)) *network {
	t.Helper()
	n := &network{push: &fakeSink{}, rows: &fakeSink{}, odd: &fakeSink{}, weight: 2, gatherAt: 2}
	n.clicks, n.views = &fakeSource{pool: &n.pool, sizes: clicks}, &fakeSource{pool: &n.pool, sizes: views}
	if change != nil {
		change(n)
	}
	g := pipeline.New("network")
	n.graph = g
	sieved := pipeline.Via(pipeline.Read(g, "clicks", n.clicks), "sieve", &sieve{pool: &n.pool})
	odd := pipeline.Side[*item](sieved, "odd")
	s := pipeline.Merge(g, "all", sieved.Weight(n.weight), pipeline.Read(g, "views", n.views))
	if n.gatherAt >= 0 {
		s = pipeline.Prefetch(s, "q", n.gatherAt)
	}
	both := pipeline.Tee(s, "both", 2)
	pass := pipeline.Prefetch(pipeline.Via(both[0], "pass", &fakeStage{pool: &n.pool, join: 1}), "r", 2)
	pipeline.Into(pass, "push", n.push)
	pipeline.Into(both[1], "rows", n.rows)
	pipeline.Into(odd, "odd rows", n.odd)
	var err error
	if n.plan, err = g.Plan(); err != nil {
		t.Fatal(err)
	}
	return n
}

// ranges groups the ranges that a sink got by split, as text, and sums up rows.
func (s *fakeSink) ranges() (out map[string]string) {
	out = map[string]string{}
	for _, o := range s.origins {
		out[o.ID().String()] += fmt.Sprintf("[%d,%d)", o.From, o.To)
	}
	return out
}

func ones(n int) (out string) {
	for i := range n {
		out += fmt.Sprintf("[%d,%d)", i, i+1)
	}
	return out
}

// TestNetwork runs the graph in every mode: each sink gets every position of the sources that lead to it, in order, and
// every share of every element is released.
func TestNetwork(t *testing.T) {
	for _, gatherAt := range []int{-1, 0, 3} { // no queue before the tee, or one
		for _, workers := range []int{1, 2, 9} {
			for _, det := range []bool{false, true} {
				t.Run(fmt.Sprintf("gather=%d/workers=%d/deterministic=%v", gatherAt, workers, det), func(t *testing.T) {
					n := newNetwork(t, map[string]int{"a": 40, "b": 3}, map[string]int{"a": 9}, func(n *network) { n.gatherAt = gatherAt })
					if len(n.plan.Segments) != 1 {
						t.Fatalf("%d segments", len(n.plan.Segments))
					}
					stats, err := n.plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Workers: workers, Deterministic: det})
					n.pool.check(t)
					if err != nil {
						t.Fatal(err)
					}
					all := map[string]string{"clicks/a": ones(40), "clicks/b": ones(3), "views/a": ones(9)}
					clicks := map[string]string{"clicks/a": ones(40), "clicks/b": ones(3)}
					for name, d := range map[string]string{
						"push": cmp.Diff(all, n.push.ranges()), "rows": cmp.Diff(all, n.rows.ranges()), "odd": cmp.Diff(clicks, n.odd.ranges()),
					} {
						if d != "" {
							t.Errorf("%s (-want +got):\n%s", name, d)
						}
					}
					want := map[string]pipeline.SinkStats{"push": {Rows: 31, Elements: 52}, "rows": {Rows: 31, Elements: 52}, "odd rows": {Rows: 21, Elements: 43}}
					if d := cmp.Diff(want, stats.Sinks); d != "" || stats.Rows != 31 || stats.Batches != 52 || stats.Left != 0 {
						t.Errorf("stats %+v (-want +got):\n%s", stats, d)
					}
					p := stats.Splits[pipeline.SplitID{Source: "clicks", Split: "a"}]
					if p.Position != 40 || p.Rows != 20 || len(stats.Splits) != 3 {
						t.Errorf("splits %+v", stats.Splits)
					}
				})
			}
		}
	}
}

// TestNetworkEnds: whichever part fails, or when the run is cancelled, drained or stopped, every share is released.
func TestNetworkEnds(t *testing.T) {
	for _, gatherAt := range []int{-1, 0, 3} {
		for name, fail := range map[string]func(n *network){
			"source":          func(n *network) { n.clicks.failAt = 20 },
			"sink":            func(n *network) { n.push.failAt = 10 },
			"another sink":    func(n *network) { n.rows.failAt = 10 },
			"side sink":       func(n *network) { n.odd.failAt = 10 },
			"nothing arrives": func(n *network) { n.views.sizes["a"] = -1 },
		} {
			t.Run(fmt.Sprintf("%s/gather=%d", name, gatherAt), func(t *testing.T) {
				n := newNetwork(t, map[string]int{"a": 400, "b": 300}, map[string]int{"a": 200}, func(n *network) { fail(n); n.gatherAt = gatherAt })
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if name == "nothing arrives" {
					time.AfterFunc(20*time.Millisecond, func() { cancel(errBroken) })
				}
				_, err := n.plan.Segments[0].Run(ctx, pipeline.RunOptions{Workers: 2})
				n.pool.check(t)
				if !errors.Is(err, errBroken) {
					t.Errorf("got %v", err)
				}
			})
		}
		for _, stop := range []bool{false, true} {
			t.Run(fmt.Sprintf("stop=%v/gather=%d", stop, gatherAt), func(t *testing.T) {
				n := newNetwork(t, map[string]int{"a": 4000, "b": 3000}, map[string]int{"a": 2000}, func(n *network) { n.gatherAt = gatherAt })
				end := make(chan struct{})
				opts := pipeline.RunOptions{Drain: end}
				if stop {
					opts = pipeline.RunOptions{Stop: end}
				}
				n.rows.gate = make(chan struct{})
				go func() {
					for range 20 {
						n.rows.gate <- struct{}{}
					}
					close(end)
					close(n.rows.gate)
				}()
				stats, err := n.plan.Segments[0].Run(t.Context(), opts)
				n.pool.check(t)
				if err != nil || !stats.Drained {
					t.Fatalf("%+v, %v", stats, err)
				}
				if !stop && stats.Left != 0 {
					t.Errorf("a drained run leaves %d rows", stats.Left)
				}
				if stop && gatherAt < 0 { // what a split has queued for one branch may have been taken
					return
				}
				if d := cmp.Diff(n.push.ranges(), n.rows.ranges()); d != "" {
					t.Errorf("the branches differ (-push +rows):\n%s", d)
				}
			})
		}
	}
}

// TestSlowBranchBounds: while one branch takes nothing the others get what their queues hold, and no more.
func TestSlowBranchBounds(t *testing.T) {
	n := newNetwork(t, map[string]int{"a": 1000}, map[string]int{"a": 1000}, nil)
	n.rows.gate = make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := n.plan.Segments[0].Run(ctx, pipeline.RunOptions{})
		done <- err
	}()
	n.rows.gate <- struct{}{} // the second element waits here now
	time.Sleep(30 * time.Millisecond)
	n.push.mu.Lock()
	got := len(n.push.origins)
	n.push.mu.Unlock()
	cancel(errBroken)
	if err := <-done; !errors.Is(err, errBroken) {
		t.Error(err)
	}
	n.pool.check(t)
	if got > 2 {
		t.Errorf("a branch got %d elements while the other took one", got)
	}
}

// TestMergeOrder compares the deterministic order of a merge with a simulation, and resumes it anywhere on the way.
func TestMergeOrder(t *testing.T) {
	for _, tc := range []struct {
		weight, priority int
		want             string
	}{
		{1, 0, "a0 x0 b0 x1 a1 x2 b1 a2 a3"},
		{2, 0, "a0 x0 b0 a1 x1 b1 a2 x2 a3"},
		{1, 1, "a0 b0 a1 b1 a2 a3 x0 x1 x2"},
		{1, -1, "x0 x1 x2 a0 b0 a1 b1 a2 a3"},
	} {
		var order []string
		run := func(resume map[string]map[string]pipeline.Progress) (got []string) {
			p := &pool{}
			sink := &bySource{&fakeSink{}, resume}
			g := pipeline.New("order")
			clicks := pipeline.Read(g, "clicks", &fakeSource{pool: p, sizes: map[string]int{"a": 4, "b": 2}})
			views := pipeline.Read(g, "views", &fakeSource{pool: p, sizes: map[string]int{"x": 3}})
			pipeline.Into(pipeline.Prefetch(pipeline.Merge(g, "all", clicks.Weight(tc.weight).Priority(tc.priority), views), "q", 2), "sink", pipeline.Sink[*item](sink))
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Deterministic: true}); err != nil {
				t.Fatal(err)
			}
			p.check(t)
			for _, o := range sink.origins {
				got = append(got, fmt.Sprintf("%s%d", o.Split, o.From))
			}
			return got
		}
		order = run(nil)
		if got := strings.Join(order, " "); got != tc.want {
			t.Errorf("weight %d, priority %d: order %s, want %s", tc.weight, tc.priority, got, tc.want)
		}
		for at := range order {
			resume := map[string]map[string]pipeline.Progress{"clicks": {}, "views": {}}
			for _, o := range order[:at] {
				source := "clicks"
				if o[0] == 'x' {
					source = "views"
				}
				p := resume[source][o[:1]]
				resume[source][o[:1]] = pipeline.Progress{Position: p.Position + 1, Rows: p.Rows + 1, Batches: p.Batches + 1}
			}
			if diff := cmp.Diff(order[at:], run(resume)); diff != "" {
				t.Errorf("weight %d, priority %d, resumed after %d (-want +got):\n%s", tc.weight, tc.priority, at, diff)
			}
		}
	}
}

// bySource is a fakeSink whose positions are those of several sources.
type bySource struct {
	*fakeSink
	stored map[string]map[string]pipeline.Progress
}

func (s *bySource) Open(ctx context.Context, env *pipeline.Env) (pipeline.Writer[*item], error) {
	w, err := s.fakeSink.Open(ctx, env)
	return bySourceWriter{w.(*fakeWriter), s}, err
}

type bySourceWriter struct {
	*fakeWriter
	s *bySource
}

func (w bySourceWriter) Resume(_ context.Context, source string, _ []pipeline.Split) (map[string]pipeline.Progress, error) {
	return w.s.stored[source], nil
}

// TestMergeSharesByArrival: with everything ready, rows come in proportion to the weights, and a source that had nothing
// for a while does not catch up.
func TestMergeSharesByArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // in which everything is ready after any pause
		p := &pool{}
		sink := &fakeSink{gate: make(chan struct{})}
		g := pipeline.New("shares")
		late := &fakeSource{pool: p, sizes: map[string]int{"a": 400}, slow: make(chan struct{})}
		clicks := pipeline.Read(g, "clicks", &fakeSource{pool: p, sizes: map[string]int{"x": 400, "y": 400}})
		pipeline.Into(pipeline.Prefetch(pipeline.Merge(g, "all", clicks.Weight(3), pipeline.Read(g, "late", late)), "q", 8), "sink", sink)
		plan, err := g.Plan()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() {
			_, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{})
			done <- err
		}()
		for range 200 { // of clicks alone
			sink.gate <- struct{}{}
		}
		close(late.slow)
		for range 20 {
			sink.gate <- struct{}{}
			time.Sleep(time.Millisecond) // queues fill
		}
		sink.mu.Lock()
		from := len(sink.origins)
		sink.mu.Unlock()
		for range 100 {
			sink.gate <- struct{}{}
			time.Sleep(100 * time.Microsecond)
		}
		sink.mu.Lock()
		got := 0
		for _, o := range sink.origins[from:] {
			if o.Source == "late" {
				got++
			}
		}
		sink.mu.Unlock()
		close(sink.gate)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		p.check(t)
		if got < 15 || got > 35 { // a quarter of 100
			t.Errorf("%d of 100 rows are of the late source of weight 1 beside 3", got)
		}
	})
}

// TestGraphFaults looks for the fault of each graph that cannot be.
func TestGraphFaults(t *testing.T) {
	p := &pool{}
	src := func(name string) *fakeSource { return &fakeSource{pool: p, sizes: map[string]int{name: 1}} }
	pass := func() pipeline.Stage[*item, *item] { return &fakeStage{pool: p, join: 1} }
	for name, tc := range map[string]struct {
		build func(g *pipeline.Graph)
		want  string
	}{
		"nothing merged": {func(g *pipeline.Graph) { pipeline.Into(pipeline.Merge[*item](g, "m"), "sink", &fakeSink{}) }, "merges no streams"},
		"behind a queue": {func(g *pipeline.Graph) {
			a := pipeline.Prefetch(pipeline.Read(g, "a", src("a")), "q", 1)
			pipeline.Into(pipeline.Merge(g, "m", a, pipeline.Read(g, "b", src("b"))), "sink", &fakeSink{})
		}, `merge "m": stream of queue "q" has passed queue "q"`},
		"twice": {func(g *pipeline.Graph) {
			tee := pipeline.Tee(pipeline.Read(g, "a", src("a")), "t", 2)
			pipeline.Into(pipeline.Merge(g, "m", pipeline.Via(tee[0], "x", pass()), tee[1]), "sink", &fakeSink{})
		}, `source "a" comes by way of two of its streams`},
		"weight": {func(g *pipeline.Graph) {
			pipeline.Into(pipeline.Merge(g, "m", pipeline.Read(g, "a", src("a")).Weight(-1), pipeline.Read(g, "b", src("b"))), "sink", &fakeSink{})
		}, `weight -1 of source "a" is below 1`},
		"weight for nobody": {func(g *pipeline.Graph) {
			pipeline.Into(pipeline.Read(g, "a", src("a")).Weight(2), "sink", &fakeSink{})
		}, `which only a merge heeds`},
		"weights inside": {func(g *pipeline.Graph) {
			m := pipeline.Merge(g, "m", pipeline.Read(g, "a", src("a")).Weight(2), pipeline.Read(g, "b", src("b")))
			pipeline.Into(pipeline.Merge(g, "n", m, pipeline.Read(g, "c", src("c"))), "sink", &fakeSink{})
		}, `merge "m": has weights or priorities, and is merged again by "n"`},
		"another graph": {func(g *pipeline.Graph) {
			pipeline.Into(pipeline.Merge(g, "m", pipeline.Read(g, "a", src("a")), pipeline.Read(pipeline.New("other"), "b", src("b"))), "sink", &fakeSink{})
		}, `stream of source "b" is of another graph`},
		"one branch": {func(g *pipeline.Graph) {
			pipeline.Into(pipeline.Tee(pipeline.Read(g, "a", src("a")), "t", 1)[0], "sink", &fakeSink{})
		}, "has 1 branch(es)"},
		"a branch unread": {func(g *pipeline.Graph) {
			pipeline.Into(pipeline.Tee(pipeline.Read(g, "a", src("a")), "t", 2)[0], "sink", &fakeSink{})
		}, "nothing reads branch 1"},
		"a branch read twice": {func(g *pipeline.Graph) {
			tee := pipeline.Tee(pipeline.Read(g, "a", src("a")), "t", 2)
			pipeline.Into(tee[0], "sink", &fakeSink{})
			pipeline.Into(tee[1], "sink1", &fakeSink{})
			pipeline.Into(tee[1], "sink2", &fakeSink{})
		}, "branch 1 is read 2 times"},
		"no such side output": {func(g *pipeline.Graph) {
			s := pipeline.Via(pipeline.Read(g, "a", src("a")), "sieve", &sieve{pool: p})
			pipeline.Into(pipeline.Side[*item](s, "even"), "sink", &fakeSink{})
			pipeline.Into(s, "sink2", &fakeSink{})
		}, `side output "sieve.even": stage "sieve" has no side output "even", but ["odd"]`},
		"side output of a source": {func(g *pipeline.Graph) {
			s := pipeline.Read(g, "a", src("a"))
			pipeline.Into(pipeline.Side[*item](s, "odd"), "sink", &fakeSink{})
			pipeline.Into(s, "sink2", &fakeSink{})
		}, "has no side outputs, only stages do"},
		"lateness": {func(g *pipeline.Graph) {
			pipeline.Into(pipeline.ReadWith(g, "a", src("a"), pipeline.ReadOptions{Lateness: -1}), "sink", &fakeSink{})
		}, "is below 0"},
		"schemas": {func(g *pipeline.Graph) {
			pipeline.Into(pipeline.Merge(g, "m", pipeline.Read(g, "a", src("a")), pipeline.Read(g, "b", otherSource{src("b")})), "sink", &fakeSink{})
		}, `source "a" has columns x int64, source "b" has y utf8`},
	} {
		t.Run(name, func(t *testing.T) {
			g := pipeline.New("bad")
			tc.build(g)
			_, err := g.Plan()
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "branch_test.go:") {
				t.Errorf("got %v, want %q with its place", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "heeds") != (name == "weight for nobody") {
				t.Errorf("another fault: %v", err)
			}
		})
	}
}

// otherSource has other columns.
type otherSource struct{ *fakeSource }

func (otherSource) Schema() *arrow.Schema {
	return arrow.NewSchema([]arrow.Field{{Name: "y", Type: arrow.BinaryTypes.String}}, nil)
}

// TestSideOfAnotherType: what a stage emits must be what the graph reads.
func TestSideOfAnotherType(t *testing.T) {
	p := &pool{}
	g := pipeline.New("test")
	s := pipeline.Via(pipeline.Read(g, "a", &fakeSource{pool: p, sizes: map[string]int{"a": 1}}), "sieve", &sieve{pool: p})
	pipeline.Into(s, "sink", &fakeSink{})
	pipeline.Into(pipeline.Side[*pipeline.Batch](s, "odd"), "odd rows", batchSink{})
	plan, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	_, err = plan.Segments[0].Run(t.Context(), pipeline.RunOptions{})
	if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), `side output "odd" gives elements of type item, the graph reads Batch`) {
		t.Errorf("got %v", err)
	}
}

type batchSink struct{}

func (batchSink) String() string      { return "batches" }
func (batchSink) Fingerprint() string { return "batches" }
func (batchSink) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	return batchWriter{}, nil
}

type batchWriter struct{}

func (batchWriter) Write(_ context.Context, b *pipeline.Batch) error { b.Release(); return nil }
func (batchWriter) Flush(context.Context) error                      { return nil }
func (batchWriter) Close() error                                     { return nil }

// TestNetworkGolden draws the graph, and one of two segments.
func TestNetworkGolden(t *testing.T) {
	two := pipeline.New("two")
	p := &pool{}
	for _, name := range []string{"left", "right"} {
		pipeline.Into(pipeline.Read(two, name, &fakeSource{pool: p, sizes: map[string]int{"a": 1}}), name+" sink", &fakeSink{})
	}
	twoPlan, err := two.Plan()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "network", newNetwork(t, nil, nil, nil).plan)
	golden(t, "two", twoPlan)
}

func golden(t *testing.T, name string, p *pipeline.Plan) {
	t.Helper()
	for ext, got := range map[string]string{"plan": p.Text(), "dot": p.DOT(), "mmd": p.Mermaid(), "json": p.JSON()} {
		path := filepath.Join("testdata", name+"."+ext)
		if *rewrite {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s differs (-want +got); go test ./pipeline -rewrite updates it:\n%s", path, diff)
		}
	}
}

// TestHashFollowsTheShape: the same parts, joined in another way, are another plan.
func TestHashFollowsTheShape(t *testing.T) {
	p := &pool{}
	hashes := map[string]string{}
	for name, build := range map[string]func(tee []pipeline.Stream[*item], a, b pipeline.Stream[*item], g *pipeline.Graph) pipeline.Stream[*item]{
		"weights 1 and 1": func(_ []pipeline.Stream[*item], a, b pipeline.Stream[*item], g *pipeline.Graph) pipeline.Stream[*item] {
			return pipeline.Merge(g, "m", a, b)
		},
		"weights 2 and 1": func(_ []pipeline.Stream[*item], a, b pipeline.Stream[*item], g *pipeline.Graph) pipeline.Stream[*item] {
			return pipeline.Merge(g, "m", a.Weight(2), b)
		},
		"weights 1 and 2": func(_ []pipeline.Stream[*item], a, b pipeline.Stream[*item], g *pipeline.Graph) pipeline.Stream[*item] {
			return pipeline.Merge(g, "m", a, b.Weight(2))
		},
		"priority": func(_ []pipeline.Stream[*item], a, b pipeline.Stream[*item], g *pipeline.Graph) pipeline.Stream[*item] {
			return pipeline.Merge(g, "m", a.Priority(1), b)
		},
		"order": func(_ []pipeline.Stream[*item], a, b pipeline.Stream[*item], g *pipeline.Graph) pipeline.Stream[*item] {
			return pipeline.Merge(g, "m", b, a)
		},
	} {
		for late := range 2 {
			for swap := range 2 {
				g := pipeline.New("test")
				a := pipeline.ReadWith(g, "a", &fakeSource{pool: p}, pipeline.ReadOptions{Lateness: time.Duration(late)})
				b := pipeline.Read(g, "b", &fakeSource{pool: p})
				tee := pipeline.Tee(pipeline.Prefetch(build(nil, a, b, g), "q", 1), "t", 2)
				pipeline.Into(tee[swap], "one", &fakeSink{})
				pipeline.Into(pipeline.Via(tee[1-swap], "pass", &fakeStage{pool: p, join: 1}), "two", &fakeSink{})
				plan, err := g.Plan()
				if err != nil {
					t.Fatal(err)
				}
				key := fmt.Sprintf("%s, late %d, swapped %d", name, late, swap)
				if same, ok := hashes[plan.Hash()]; ok {
					t.Errorf("%q and %q have one hash", same, key)
				}
				hashes[plan.Hash()] = key
			}
		}
	}
}

// durable is a sink that survives kills: what it has stored counts, in steps of its own. Each row is stored with its split
// and position, so that one that comes twice, or is missing, shows.
type durable struct {
	mu     sync.Mutex
	every  int                                      // elements between two stores
	at     map[pipeline.SplitID]pipeline.Progress   // stored
	rows   map[pipeline.SplitID][]pipeline.Position // ends of the elements that were stored
	steps  []pipeline.Origin                        // in the order in which they came, across kills
	events []event                                  // those of the rows that were stored
}

func newDurable(every int) *durable {
	return &durable{every: every, at: map[pipeline.SplitID]pipeline.Progress{}, rows: map[pipeline.SplitID][]pipeline.Position{}}
}

func (s *durable) String() string      { return "durable" }
func (s *durable) Fingerprint() string { return "durable" }
func (s *durable) Open(context.Context, *pipeline.Env) (pipeline.Writer[*item], error) {
	return &durableWriter{s: s, at: map[pipeline.SplitID]pipeline.Position{}}, nil
}

// durableWriter holds what it got until it stores it.
type durableWriter struct {
	s      *durable
	held   []pipeline.Origin
	rows   []int
	events []event
	at     map[pipeline.SplitID]pipeline.Position // of what it got
}

var (
	_ pipeline.Resumer = (*durableWriter)(nil)
	_ pipeline.Storer  = (*durableWriter)(nil)
)

func (w *durableWriter) Resume(_ context.Context, source string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	out := map[string]pipeline.Progress{}
	for _, sp := range splits {
		w.at[sp.ID()] = sp.Start
		if p, ok := w.s.at[sp.ID()]; ok {
			out[sp.Name] = p
			w.at[sp.ID()] = p.Position
		}
	}
	return out, nil
}

func (w *durableWriter) Stored(id pipeline.SplitID) pipeline.Position {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	return w.s.at[id].Position
}

func (w *durableWriter) Write(_ context.Context, e *item) error {
	defer e.Release()
	id := e.origin.ID()
	if e.origin.From != w.at[id] {
		return fmt.Errorf("%s comes after position %d", e.origin, w.at[id])
	}
	w.at[id] = e.origin.To
	w.held, w.rows, w.events = append(w.held, e.origin), append(w.rows, e.rows), append(w.events, e.event)
	if len(w.held) >= w.s.every {
		w.store()
	}
	return nil
}

func (w *durableWriter) store() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for i, o := range w.held {
		p := w.s.at[o.ID()]
		p.Position = o.To
		p.Rows += int64(w.rows[i])
		p.Batches++
		w.s.at[o.ID()] = p
		if w.rows[i] > 0 {
			w.s.rows[o.ID()] = append(w.s.rows[o.ID()], o.To)
			w.s.events = append(w.s.events, w.events[i])
		}
		w.s.steps = append(w.s.steps, o)
	}
	w.held, w.rows, w.events = nil, nil, nil
}

func (w *durableWriter) Flush(context.Context) error { w.store(); return nil }
func (w *durableWriter) Close() error                { return nil } // what is held is lost

// TestExactWithSeveralSinks kills runs of the graph at random while its sinks store at different times: in the end each has
// every row once, what was left out counts once, and in deterministic order the main sink got the rows in the same order as without any kill.
func TestExactWithSeveralSinks(t *testing.T) {
	for seed := range uint64(seeds()) {
		rng := rand.New(rand.NewPCG(seed, 8))
		det := seed%2 == 0
		t.Run(fmt.Sprintf("seed=%d/deterministic=%v", seed, det), func(t *testing.T) {
			p := &pool{}
			sizes := map[string]int{"a": 60 + rng.IntN(60), "b": rng.IntN(80), "c": 1 + rng.IntN(9), "d": rng.IntN(30), "e": rng.IntN(5), "f": 20 + rng.IntN(20)}
			interleave := 1 + rng.IntN(7) // up to all
			views := map[string]int{"a": 20 + rng.IntN(60)}
			push := max(rng.IntN(6)-1, 1) // elements between two stores
			sinks := map[string]*durable{"push": newDurable(push), "rows": newDurable(1 + rng.IntN(40)), "odd": newDurable(1 + rng.IntN(25))}
			build := func(g *pipeline.Graph, queue int) {
				sieved := pipeline.Via(pipeline.Read(g, "clicks", &fakeSource{pool: p, sizes: sizes}), "sieve", &sieve{pool: p})
				s := pipeline.Merge(g, "all", sieved.Weight(2), pipeline.Read(g, "views", &fakeSource{pool: p, sizes: views}))
				join := pipeline.Stage[*item, *item](&cutStage{fakeStage{pool: p, join: 3}})
				if det { // what holds rows back has one split before it
					s = pipeline.Via(s, "join", join)
				}
				if queue >= 0 {
					s = pipeline.Prefetch(s, "q", queue)
				}
				both := pipeline.Tee(s, "both", 2)
				joined := both[0]
				if !det {
					joined = pipeline.Via(joined, "join", join)
				}
				pipeline.Into(pipeline.Prefetch(joined, "r", queue+1), "push", sinks["push"])
				pipeline.Into(both[1], "rows", sinks["rows"])
				pipeline.Into(pipeline.Side[*item](sieved, "odd"), "odd rows", sinks["odd"])
			}
			queue := rng.IntN(4) - 1
			kills, leftOut := 0, int64(0)
			for {
				g := pipeline.New("test")
				build(g, queue)
				plan, err := g.Plan()
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				left := int64(1 + rng.IntN(60))
				var mu sync.Mutex
				opts := pipeline.RunOptions{Workers: 1 + rng.IntN(3), Deterministic: det, Interleave: interleave, Reached: func(pipeline.SplitID, pipeline.Progress, int64) {
					mu.Lock()
					defer mu.Unlock()
					if left--; left == 0 {
						cancel(errBroken)
					}
				}}
				if det {
					opts.Workers = 1
				}
				stats, err := plan.Segments[0].Run(ctx, opts)
				leftOut += stats.LeftOut
				p.check(t)
				cancel(nil)
				if err == nil {
					break
				}
				if !errors.Is(err, errBroken) {
					t.Fatal(err)
				}
				if kills++; kills > 500 {
					t.Fatal("it does not end")
				}
			}
			odd := int64(0)
			for _, size := range sizes {
				odd += int64(size / 2)
			}
			if leftOut < odd || push == 1 && leftOut > odd { // what a killed run had not stored is written again, and left out again
				t.Errorf("%d elements were left out of the main stream, of %d (%d kills, %d elements between two stores)", leftOut, odd, kills, push)
			}
			for name, sink := range sinks {
				all := map[pipeline.SplitID]int{{Source: "views", Split: "a"}: views["a"]}
				for split, size := range sizes {
					all[pipeline.SplitID{Source: "clicks", Split: split}] = size
				}
				for id, size := range all {
					rows := int64(size)
					if id.Source == "clicks" {
						rows = int64((size + 1) / 2)
						if name == "odd" {
							rows = int64(size / 2)
						}
					} else if name == "odd" {
						rows, size = 0, 0
					}
					if got := sink.at[id]; int(got.Position) != size || got.Rows != rows {
						t.Errorf("%s: split %s is at %d with %d rows, want %d and %d (%d kills)", name, id, got.Position, got.Rows, size, rows, kills)
					}
					ends := sink.rows[id]
					if !slices.IsSorted(ends) || len(slices.Compact(slices.Clone(ends))) != len(ends) {
						t.Errorf("%s: split %s has elements ending at %v", name, id, ends)
					}
				}
			}
			if det {
				kept := sinks["push"].steps
				sinks["push"], sinks["rows"], sinks["odd"] = newDurable(1), newDurable(1), newDurable(1)
				g := pipeline.New("test")
				build(g, queue)
				plan, err := g.Plan()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Deterministic: true, Interleave: interleave}); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(order(sinks["push"].steps), order(kept)); diff != "" {
					t.Errorf("order of the main sink after %d kills (-want +got):\n%s", kills, diff)
				}
			}
		})
	}
}

// order lists every position of what a sink got, one by one: joined elements may be cut differently.
func order(origins []pipeline.Origin) (out []string) {
	for _, o := range origins {
		for at := o.From; at < o.To; at++ {
			out = append(out, fmt.Sprintf("%s %d", o.ID(), at))
		}
	}
	return out
}

// TestWithoutPositions: a sink that stores none gets all that is read, so again what it had.
func TestWithoutPositions(t *testing.T) {
	n := newNetwork(t, map[string]int{"a": 10}, map[string]int{"a": 4}, nil)
	n.push.resume = map[string]pipeline.Progress{"a": {Position: 4, Rows: 4}}
	n.odd.resume = map[string]pipeline.Progress{"a": {Position: 2, Rows: 1}}
	g := pipeline.New("test")
	both := pipeline.Tee(pipeline.Prefetch(pipeline.Read(g, "clicks", n.clicks), "q", 1), "both", 2)
	pipeline.Into(both[0], "push", n.push)
	three := pipeline.Tee(both[1], "more", 2)
	pipeline.Into(three[0], "plain", pipeline.Sink[*item](plain{n.rows}))
	pipeline.Into(three[1], "third", n.odd)
	plan, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	stats, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{MaxRows: 6})
	n.pool.check(t)
	if err != nil || stats.Rows != 2 || stats.Resumed != 4 || !stats.Full {
		t.Fatalf("%+v, %v", stats, err)
	}
	// The third sink catches up although the run has its rows, and stops where the first does.
	for name, s := range map[string]*fakeSink{"[4,5)[5,6)": n.push, "[2,3)[3,4)[4,5)[5,6)": n.rows} {
		if got := s.ranges()["clicks/a"]; got != name {
			t.Errorf("got %s, want %s", got, name)
		}
	}
	if got := n.odd.ranges()["clicks/a"]; got != "[2,3)[3,4)[4,5)[5,6)" {
		t.Errorf("third got %s", got)
	}
}

// TestEnough: a run that is told that others have taken the rows that are wanted takes no more for its main sink, and completes
// the sinks that were behind it, also while nothing arrives and other lanes have nothing to complete.
func TestEnough(t *testing.T) {
	for _, workers := range []int{1, 2} {
		for _, det := range []bool{false, true} {
			for _, when := range []string{"before", "while behind", "after"} {
				late := when == "after"
				t.Run(fmt.Sprintf("workers=%d/deterministic=%v/%s", workers, det, when), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						p := &pool{}
						src := &fakeSource{pool: p, sizes: map[string]int{"a": 30, "b": -1, "c": 0, "d": 3}, slow: make(chan struct{})}
						main, other := newDurable(1), newDurable(100)
						main.at[pipeline.SplitID{Source: "in", Split: "a"}] = pipeline.Progress{Position: 20, Rows: 20}
						g := pipeline.New("test")
						both := pipeline.Tee(pipeline.Prefetch(pipeline.Read(g, "in", src), "q", 1), "tee", 2)
						pipeline.Into(pipeline.Via(both[0], "hold", &fakeStage{pool: p, join: 7}), "main", main)
						pipeline.Into(both[1], "other", other)
						plan, err := g.Plan()
						if err != nil {
							t.Fatal(err)
						}
						enough := make(chan struct{})
						if when == "before" {
							close(enough)
						}
						type result struct {
							stats pipeline.RunStats
							err   error
						}
						done := make(chan result, 1)
						go func() {
							stats, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Workers: workers, Deterministic: det, Enough: enough})
							done <- result{stats, err}
						}()
						if when == "while behind" { // and another lane holds rows back
							synctest.Wait()
							close(enough)
						}
						want := pipeline.Position(20)
						give := func() {
							select {
							case src.slow <- struct{}{}:
							case <-time.After(time.Hour): // nobody reads any more
							}
						}
						for range 20 {
							give()
						}
						if late {
							if !det { // otherwise b, which gives nothing, is waited for
								give() // held back for the main sink, whole in the other
								want++
							}
							synctest.Wait()
							close(enough)
						}
						r := <-done
						p.check(t)
						if r.err != nil || !r.stats.Full || r.stats.Drained || r.stats.Rows != 0 {
							t.Fatalf("%+v, %v", r.stats, r.err)
						}
						if got := main.at[pipeline.SplitID{Source: "in", Split: "d"}]; got.Position != 0 {
							t.Errorf("what was held back was flushed up to %d", got.Position)
						}
						id := pipeline.SplitID{Source: "in", Split: "a"}
						if main.at[id].Position != 20 || other.at[id].Position != want {
							t.Errorf("the main sink is at %d, the other at %d; want 20 and %d", main.at[id].Position, other.at[id].Position, want)
						}
					})
				})
			}
		}
	}
}

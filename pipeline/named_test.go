package pipeline_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/pipeline"
)

// faulty is a source, a stage and a sink of a program's own, of which one call does what it should not.
type faulty struct {
	pool *pool
	at   string // which call: "splits", "next panics", ...
	open atomic.Int64
}

// fail is the fault of a call, if it is that one.
func (f *faulty) fail(call string) error {
	switch strings.TrimSuffix(f.at, " of a stage with a clock") {
	case call:
		return errBroken
	case call + " panics":
		panic("a bug")
	case call + " exits":
		runtime.Goexit() // as t.FailNow does
	}
	return nil
}

func (f *faulty) opened() *faultyPart {
	f.open.Add(1)
	return &faultyPart{faulty: f}
}

// faultyPart counts itself as open until it is closed, once.
type faultyPart struct {
	*faulty
	closed bool
}

func (p *faultyPart) close(call string) error {
	if !p.closed {
		p.closed = true
		p.open.Add(-1)
	}
	return p.fail(call)
}

type faultySource struct{ *faulty }

func (faultySource) Schema() *arrow.Schema { return itemSchema }
func (faultySource) Bounded() bool         { return true }
func (faultySource) String() string        { return "faulty" }
func (faultySource) Fingerprint() string   { return "faulty" }
func (s faultySource) Splits(context.Context) ([]pipeline.Split, error) {
	return []pipeline.Split{{Name: "a", End: 4}}, s.fail("splits")
}

func (s faultySource) Open(_ context.Context, env *pipeline.Env, sp pipeline.Split, from pipeline.Position) (pipeline.Reader[*item], error) {
	if err := s.fail("open"); err != nil || s.at == "open gives nothing" {
		return nil, err
	}
	return &faultyReader{s.opened(), env.Source, sp.Name, from}, nil
}

type faultyReader struct {
	*faultyPart
	source, split string
	at            pipeline.Position
}

func (r *faultyReader) Next(ctx context.Context) (*item, error) {
	if r.at >= 4 {
		return nil, io.EOF
	}
	if r.at == 2 && strings.HasPrefix(r.faulty.at, "tick") { // time passes until the stage has acted
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if r.at == 2 {
		switch r.faulty.at {
		case "gap":
			r.at++
		case "origin":
			r.source = "another"
		}
		if err := r.fail("next"); err != nil {
			return nil, err
		}
	}
	r.at++
	return r.pool.make(pipeline.Origin{Source: r.source, Split: r.split, From: r.at - 1, To: r.at}, 1), nil
}
func (r *faultyReader) Position() pipeline.Position { return r.at }
func (r *faultyReader) Close() error                { return r.close("close") }

type faultyStage struct{ *faulty }

func (faultyStage) Schema(in *arrow.Schema) (*arrow.Schema, error) { return in, nil }
func (faultyStage) String() string                                 { return "faulty" }
func (faultyStage) Fingerprint() string                            { return "faulty" }
func (s faultyStage) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	if err := s.fail("stage open"); err != nil || s.at == "stage gives nothing" {
		return nil, err
	}
	if strings.HasSuffix(s.at, " of a stage with a clock") {
		return &faultyClock{faultyProcessor{s.opened()}}, nil
	}
	return &faultyProcessor{s.opened()}, nil
}

type faultyProcessor struct{ *faultyPart }

func (p *faultyProcessor) Process(_ context.Context, in *item, emit func(*item) error) error {
	defer func() {
		if in != nil {
			in.Release()
		}
	}()
	if err := p.fail("process"); err != nil {
		return err
	}
	out := in
	in = nil
	return emit(out)
}

func (p *faultyProcessor) Flush(context.Context, func(*item) error) error {
	return p.fail("stage flush")
}

func (p *faultyProcessor) Close() error { return p.close("stage close") }

// faultyClock acts when time passes, so that the source is read on a goroutine of its own.
type faultyClock struct{ faultyProcessor }

func (*faultyClock) Due() time.Time { return time.Unix(1, 0) }
func (p *faultyClock) Tick(context.Context, time.Time, func(*item) error) error {
	return p.fail("tick")
}

type faultySink struct{ *faulty }

func (faultySink) String() string      { return "faulty" }
func (faultySink) Fingerprint() string { return "faulty" }
func (s faultySink) Open(context.Context, *pipeline.Env) (pipeline.Writer[*item], error) {
	if err := s.fail("sink open"); err != nil || s.at == "sink gives nothing" {
		return nil, err
	}
	return &faultyWriter{s.opened()}, nil
}

type faultyWriter struct{ *faultyPart }

func (w *faultyWriter) Write(_ context.Context, in *item) error {
	defer in.Release()
	return w.fail("write")
}
func (w *faultyWriter) Flush(context.Context) error { return w.fail("sink flush") }
func (w *faultyWriter) Close() error                { return w.close("sink close") }

// TestErrorsSayWhichPart: whatever a part of a program's own does wrong ends the run with an error that says which part, of a source also which
// split; a panic does not leave Run, nor does one that ends its goroutine leave it waiting or content; and every part is closed, every element released.
func TestErrorsSayWhichPart(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"splits": "numbers: broken", "splits panics": "numbers: panic: a bug",
		"open": "numbers/a: broken", "open panics": "numbers/a: panic: a bug", "open gives nothing": "numbers/a: Open returned no reader",
		"next": "numbers/a: broken", "next panics": "numbers/a: panic: a bug", "close": "numbers/a: broken", "close panics": "numbers/a: panic: a bug",
		"gap":     `numbers/a: the reader gave an element with the origin numbers/a[3,4) where the one before had ended at 2`,
		"origin":  `numbers/a: the reader gave an element with the origin another/a[2,3): its source must be Env.Source, "numbers"`,
		"process": "through: broken", "process panics": "through: panic: a bug", "stage gives nothing": "through: Open returned no processor",
		"stage flush": "through: broken", "stage flush panics": "through: panic: a bug", "stage close": "through: broken", "stage close panics": "through: panic: a bug",
		"sink open": "out: broken", "sink open panics": "out: panic: a bug", "sink gives nothing": "out: Open returned no writer",
		"write": "out: broken", "write panics": "out: panic: a bug", "sink flush": "out: broken", "sink flush panics": "out: panic: a bug",
		"sink close": "out: broken", "sink close panics": "out: panic: a bug",
		"splits exits": "numbers: runtime.Goexit", "open exits": "numbers/a: runtime.Goexit", "next exits": "numbers/a: runtime.Goexit",
		"close exits": "numbers/a: runtime.Goexit", "process exits": "through: runtime.Goexit", "stage flush exits": "through: runtime.Goexit",
		"stage open exits": "through: runtime.Goexit", "stage close exits": "through: runtime.Goexit", "sink open exits": "out: runtime.Goexit",
		"write exits": "out: runtime.Goexit", "sink flush exits": "out: runtime.Goexit", "sink close exits": "out: runtime.Goexit",
		"next of a stage with a clock": "numbers/a: broken", "next panics of a stage with a clock": "numbers/a: panic: a bug",
		"next exits of a stage with a clock": "numbers/a: runtime.Goexit", "tick of a stage with a clock": "through: broken",
		"tick exits of a stage with a clock": "through: runtime.Goexit",
		"stage open panics":                  "through: panic: a bug",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			f := &faulty{pool: &pool{}, at: at}
			g := pipeline.New("named")
			s := pipeline.Via(pipeline.Read(g, "numbers", pipeline.Source[*item](faultySource{f})), "through", pipeline.Stage[*item, *item](faultyStage{f}))
			pipeline.Into(pipeline.Prefetch(s, "queue", 2), "out", pipeline.Sink[*item](faultySink{f}))
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			_, err = plan.Segments[0].Run(t.Context(), pipeline.RunOptions{})
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			if strings.HasSuffix(want, ": broken") && !errors.Is(err, errBroken) {
				t.Errorf("%v is not the error that the part gave", err)
			}
			if n := f.open.Load(); n != 0 {
				t.Errorf("%d parts were not closed", n)
			}
			f.pool.check(t)
		})
	}
}

// TestErrorsOfWhoRuns: what the caller gives a run beside the graph may not end it in silence, or leave it waiting.
func TestErrorsOfWhoRuns(t *testing.T) {
	t.Parallel()
	fail := func(kind string) {
		if kind == "exits" {
			runtime.Goexit()
		}
		panic("a bug")
	}
	for _, kind := range []string{"exits", "panics"} {
		for where, options := range map[string]func(do func()) pipeline.RunOptions{
			"RunOptions.Env": func(do func()) pipeline.RunOptions {
				return pipeline.RunOptions{Env: func(int) *pipeline.Env { do(); return nil }}
			},
			"a hook or RunOptions.Reached": func(do func()) pipeline.RunOptions {
				return pipeline.RunOptions{Reached: func(_ pipeline.SplitID, at pipeline.Progress, _ int64) {
					if at.Position > 0 {
						do()
					}
				}}
			},
		} {
			t.Run(where+" "+kind, func(t *testing.T) {
				t.Parallel()
				p := &pool{}
				g := pipeline.New("test")
				pipeline.Into(pipeline.Read(g, "numbers", pipeline.Source[*item](&fakeSource{pool: p, sizes: map[string]int{"a": 4}})), "out", pipeline.Sink[*item](&fakeSink{}))
				plan, err := g.Plan()
				if err != nil {
					t.Fatal(err)
				}
				stats, err := plan.Segments[0].Run(t.Context(), options(func() { fail(kind) }))
				if err == nil || kind == "exits" && !strings.Contains(err.Error(), "runtime.Goexit") || where == "RunOptions.Env" && !strings.HasPrefix(err.Error(), where) {
					t.Errorf("%+v, %v", stats, err)
				}
				p.check(t)
			})
		}
	}
}

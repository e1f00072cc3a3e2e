package pipelinetest

import (
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// StageHarness is what [TestStage] needs to know of a stage.
type StageHarness[In, Out pipeline.Element] struct {
	// New makes the stage.
	New func(t *testing.T) pipeline.Stage[In, Out]
	// Schema is what goes in.
	Schema *arrow.Schema
	// Inputs makes the elements to process: one split, in order, at least two of them. Every call makes the same.
	Inputs func(t *testing.T, mem memory.Allocator) []In
}

// TestStage runs the conformance suite of stages: also of their side outputs ([pipeline.Sider]), which must cover the positions of
// the input as the main output does, and of their state ([pipeline.Stateful]): a processor that begins with what another has
// saved, after the last element that it emitted, emits what the other would have.
func TestStage[In, Out pipeline.Element](t *testing.T, h StageHarness[In, Out]) {
	run := func(t *testing.T, f func(p pipeline.Processor[In, Out], in []In)) {
		t.Helper()
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		defer mem.AssertSize(t, 0)
		p, err := h.New(t).Open(t.Context(), &pipeline.Env{Source: "test", Allocator: mem})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		in := h.Inputs(t, mem)
		if len(in) < 2 {
			t.Fatalf("the harness gives %d inputs, the suite needs two", len(in))
		}
		f(p, in)
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	t.Run("side outputs", func(t *testing.T) { h.testSides(t) })
	t.Run("state", func(t *testing.T) { h.testState(t) })
	out, err := h.New(t).Schema(h.Schema)
	if err != nil {
		t.Fatalf("Schema: %v", err)
	}
	t.Run("describes itself", func(t *testing.T) {
		if h.New(t).String() == "" {
			t.Error("String is empty")
		}
	})
	var first []string
	for _, name := range []string{"covers positions", "gives the same again"} {
		t.Run(name, func(t *testing.T) {
			var rows []string
			run(t, func(p pipeline.Processor[In, Out], in []In) {
				at, to := in[0].Origin().From, in[len(in)-1].Origin().To
				emit := func(e Out) error {
					defer e.Release()
					if o := e.Origin(); o.From != at || o.To < o.From {
						t.Errorf("emitted %v after position %d", o, at)
					}
					at = e.Origin().To
					if tab, ok := any(e).(tabular); ok && !sameFields(tab.Record().Schema(), out) {
						t.Errorf("element has schema %v, the stage says %v", tab.Record().Schema(), out)
					}
					rows = append(rows, rowsOf(t, e)...)
					return nil
				}
				for i, e := range in {
					if err := p.Process(t.Context(), e, emit); err != nil {
						releaseAll(in[i+1:])
						t.Fatalf("Process: %v", err)
					}
				}
				if err := p.Flush(t.Context(), emit); err != nil {
					t.Fatalf("Flush: %v", err)
				}
				if at != to {
					t.Errorf("the output ends at position %d, the input at %d", at, to)
				}
			})
			if first == nil {
				first = rows
			} else if diff := cmp.Diff(first, rows); diff != "" {
				t.Errorf("rows differ the second time:\n%s", diff)
			}
		})
	}
	t.Run("an emit error comes back", func(t *testing.T) {
		run(t, func(p pipeline.Processor[In, Out], in []In) {
			emit := func(e Out) error {
				e.Release()
				return errTest
			}
			for i, e := range in {
				if err := p.Process(t.Context(), e, emit); err != nil {
					if !errors.Is(err, errTest) {
						t.Errorf("Process: %v, want the emit error", err)
					}
					releaseAll(in[i+1:])
					return
				}
			}
			if err := p.Flush(t.Context(), emit); !errors.Is(err, errTest) {
				t.Errorf("Flush: %v, want the emit error", err)
			}
		})
	})
	t.Run("closing releases what is held", func(t *testing.T) {
		run(t, func(p pipeline.Processor[In, Out], in []In) {
			err := p.Process(t.Context(), in[0], func(e Out) error {
				e.Release()
				return nil
			})
			releaseAll(in[1:])
			if err != nil {
				t.Errorf("Process: %v", err)
			}
		})
	})
}

// testSides reads every side output of the stage, and opens it once without a reader.
func (h StageHarness[In, Out]) testSides(t *testing.T) {
	s, ok := any(h.New(t)).(pipeline.Sider)
	if !ok {
		t.Skip("the stage has no side outputs")
	}
	schemas, err := s.Sides(h.Schema)
	if err != nil || len(schemas) == 0 {
		t.Fatalf("Sides: %v, %v", schemas, err)
	}
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	env := &pipeline.Env{Source: "test", Allocator: mem}
	in := h.Inputs(t, mem)
	from, to := in[0].Origin().From, in[len(in)-1].Origin().To
	at := map[string]pipeline.Position{}
	for name, schema := range schemas {
		at[name] = from
		env = env.WithSide(name, func(e pipeline.Element) error {
			defer e.Release()
			if o := e.Origin(); o.From != at[name] || o.To < o.From {
				t.Errorf("side output %q emitted %v after position %d", name, o, at[name])
			}
			at[name] = e.Origin().To
			if tab, ok := e.(tabular); ok && !sameFields(tab.Record().Schema(), schema) {
				t.Errorf("side output %q has schema %v, the stage says %v", name, tab.Record().Schema(), schema)
			}
			return nil
		})
	}
	if err := process(t, h.New(t), env, in, func(Out) {}); err != nil {
		t.Fatal(err)
	}
	for name, end := range at {
		if end != to {
			t.Errorf("side output %q ends at position %d, the input at %d", name, end, to)
		}
	}
	if err := process(t, h.New(t), &pipeline.Env{Source: "test", Allocator: mem}, h.Inputs(t, mem), func(Out) {}); err != nil {
		t.Errorf("without a reader: %v", err)
	}
}

// testState has another processor continue after each element, with the state that was saved there.
func (h StageHarness[In, Out]) testState(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	env := &pipeline.Env{Source: "test", Allocator: mem}
	p, err := h.New(t).Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	_, ok := p.(pipeline.Stateful)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if !ok {
		t.Skip("the stage keeps no state")
	}
	var whole []string
	if err := process(t, h.New(t), env, h.Inputs(t, mem), func(e Out) { whole = append(whole, rowsOf(t, e)...) }); err != nil {
		t.Fatal(err)
	}
	counted := h.Inputs(t, mem)
	releaseAll(counted)
	for stop := range len(counted) {
		in := h.Inputs(t, mem)
		id, end := in[0].Origin().ID(), in[0].Origin().From
		first, err := h.New(t).Open(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		emit := func(e Out) error {
			rows, end = append(rows, rowsOf(t, e)...), e.Origin().To
			e.Release()
			return nil
		}
		for i := range stop {
			if err := first.Process(t.Context(), in[i], emit); err != nil {
				t.Fatal(err)
			}
		}
		state, err := first.(pipeline.Stateful).Save(id)
		if err := errors.Join(err, first.Close()); err != nil {
			t.Fatal(err)
		}
		releaseAll(in[stop:])
		again := h.Inputs(t, mem)
		skip := 0
		for skip < len(again) && again[skip].Origin().To <= end {
			skip++
		}
		releaseAll(again[:skip])
		if skip < len(again) && again[skip].Origin().From != end {
			releaseAll(again[skip:])
			continue // the stage joins inputs: a run would cut them here
		}
		second, err := h.New(t).Open(t.Context(), env)
		if err != nil {
			t.Fatal(err)
		}
		if len(state) > 0 {
			if err := second.(pipeline.Stateful).Restore(id, state); err != nil {
				t.Fatalf("Restore: %v", err)
			}
		}
		for _, e := range again[skip:] {
			if err := second.Process(t.Context(), e, emit); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(second.Flush(t.Context(), emit), second.Close()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(whole, rows); diff != "" {
			t.Errorf("with the state after %d elements (-want +got):\n%s", stop, diff)
		}
	}
}

// process sends all inputs through a new processor.
func process[In, Out pipeline.Element](t *testing.T, s pipeline.Stage[In, Out], env *pipeline.Env, in []In, got func(Out)) error {
	t.Helper()
	p, err := s.Open(t.Context(), env)
	if err != nil {
		releaseAll(in)
		return err
	}
	emit := func(e Out) error {
		got(e)
		e.Release()
		return nil
	}
	for i, e := range in {
		if err := p.Process(t.Context(), e, emit); err != nil {
			releaseAll(in[i+1:])
			return errors.Join(err, p.Close())
		}
	}
	return errors.Join(p.Flush(t.Context(), emit), p.Close())
}

// SinkHarness is what [TestSink] needs to know of a sink.
type SinkHarness[T pipeline.Element] struct {
	// New makes the sink.
	New func(t *testing.T) pipeline.Sink[T]
	// Inputs makes the elements to write.
	Inputs func(t *testing.T, mem memory.Allocator) []T
	// Check is called after Flush and Close with the number of rows written; nil: nothing is checked.
	Check func(t *testing.T, rows int)
}

// TestSink runs the conformance suite of sinks.
func TestSink[T pipeline.Element](t *testing.T, h SinkHarness[T]) {
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	sink := h.New(t)
	if sink.String() == "" {
		t.Error("String is empty")
	}
	w, err := sink.Open(t.Context(), &pipeline.Env{Source: "test", Allocator: mem})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	rows := 0
	in := h.Inputs(t, mem)
	for i, e := range in {
		n := e.NumRows()
		if err := w.Write(t.Context(), e); err != nil {
			releaseAll(in[i+1:])
			t.Fatalf("Write: %v", err)
		}
		rows += n
	}
	if err := errors.Join(w.Flush(t.Context()), w.Flush(t.Context())); err != nil {
		t.Errorf("Flush: %v", err)
	}
	if err := errors.Join(w.Close(), w.Close()); err != nil {
		t.Errorf("Close: %v", err)
	}
	if h.Check != nil {
		h.Check(t, rows)
	}
}

func releaseAll[T pipeline.Element](in []T) {
	for _, e := range in {
		e.Release()
	}
}

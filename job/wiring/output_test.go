package wiring

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/jsonlsink"
)

// told is notified of an output.
type told struct {
	lag                 int64
	stores, rows, bytes int64
}

func (h *told) OutputLag(_ string, rows int64) { h.lag = rows }

func (h *told) OutputStored(_ string, stores, rows, bytes int64) {
	h.stores, h.rows, h.bytes = h.stores+stores, h.rows+rows, h.bytes+bytes
}

// TestOutputLag: what is trained and was never given to an output is its lag, and what it has taken and not stored; what a
// writer leaves behind is the lag of nobody.
func TestOutputLag(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	sink, err := jsonlsink.New(filesink.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	all := &Outputs{Trained: func(context.Context, string) (map[string]pipeline.Progress, error) {
		return map[string]pipeline.Progress{"a": {Position: 15, Rows: 15}, "b": {Position: 5, Rows: 5}}, nil
	}}
	heard := &told{}
	open := func() pipeline.Writer[*pipeline.Batch] {
		w, err := outputSink{component.OutputOf(sink), "rows", all}.Open(t.Context(), &pipeline.Env{Hooks: pipeline.NewHooks(heard)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.(pipeline.Resumer).Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}, {Name: "b"}}); err != nil {
			t.Fatal(err)
		}
		return w
	}
	wants := func(lag, lacks int64) {
		t.Helper()
		if s := all.States(); heard.lag != lag || len(s) != 1 || s[0].Lacks != lacks || s[0].Name != "rows" || s[0].Waits != 0 {
			t.Errorf("lag %d, %+v; want a lag of %d, %d of them lacking", heard.lag, s, lag, lacks)
		}
	}
	write := func(w pipeline.Writer[*pipeline.Batch], from, to pipeline.Position) {
		t.Helper()
		if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", from, to)); err != nil {
			t.Fatal(err)
		}
	}
	w := open()
	wants(20, 20)
	write(w, 0, 10)
	wants(20, 10)
	write(w, 10, 20)
	wants(25, 5)
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(5, 5)
	write(w, 20, 30)
	wants(15, 5)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	wants(0, 0)
	w = open()
	wants(5, 5)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if heard.stores != 2 || heard.rows != 30 || heard.bytes == 0 { // what was taken is stored by Close too
		t.Errorf("stored %+v", heard)
	}
}

// TestOutputErrorsNameIt: errors of a writer name its output where the executor does not.
func TestOutputErrorsNameIt(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "rows")
	sink, err := jsonlsink.New(filesink.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	all := &Outputs{}
	w, err := outputSink{component.OutputOf(sink), "rows", all}.Open(t.Context(), &pipeline.Env{Worker: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, memory.NewGoAllocator(), "a", 0, 10)), os.RemoveAll(dir)); err != nil {
		t.Fatal(err)
	}
	before := all.Flush(t.Context(), 1)
	_, resume := w.(pipeline.Resumer).Resume(t.Context(), "test", nil)
	again := all.Flush(t.Context(), 1) // the first may have been logged alone
	for i, err := range []error{before, resume, again, w.(pipeline.Idler).Idle(t.Context())} {
		if err == nil || !strings.HasPrefix(err.Error(), "output rows: jsonlsink: ") {
			t.Errorf("error %d: %v", i, err)
		}
	}
	if err := w.Write(t.Context(), pipelinetest.Numbers(t, memory.NewGoAllocator(), "a", 10, 20)); err == nil || strings.Contains(err.Error(), "output rows") {
		t.Errorf("the executor's name comes twice: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{"flush": all.Flush(t.Context(), 1), "behind": all.Behind()} { // no snapshot may be taken of what was pushed
		if err == nil || !strings.HasPrefix(err.Error(), "output rows: jsonlsink: ") {
			t.Errorf("%s of an output that was closed without storing: %v", what, err)
		}
	}
	if _, err := (outputSink{component.OutputOf(sink), "rows", all}).Open(t.Context(), &pipeline.Env{Worker: 1}); err != nil || all.Behind() != nil {
		t.Errorf("opened again: %v, %v", err, all.Behind())
	}
}

// slow takes its time to open.
type slow struct {
	component.OutputSink
	opening, open chan struct{}
}

func (s slow) Open(context.Context, *pipeline.Env) (component.OutputWriter, error) {
	close(s.opening)
	<-s.open
	return nil, pipeline.ErrUnavailable
}

// TestOutputThatIsOpened: progress names an output that takes long to be opened, such as one whose brokers do not answer.
func TestOutputThatIsOpened(t *testing.T) {
	t.Parallel()
	all, s, done := &Outputs{}, slow{opening: make(chan struct{}), open: make(chan struct{})}, make(chan error)
	go func() {
		_, err := outputSink{s, "topic", all}.Open(t.Context(), &pipeline.Env{})
		done <- err
	}()
	<-s.opening
	for {
		if states := all.States(); len(states) == 1 && states[0].Name == "topic" && states[0].Waits > 0 {
			break
		}
	}
	close(s.open)
	if err := <-done; !errors.Is(err, pipeline.ErrUnavailable) || !strings.Contains(err.Error(), "output topic") {
		t.Error(err)
	}
	if states := all.States(); states[0].Waits != 0 {
		t.Errorf("%+v after it was opened", states)
	}
}

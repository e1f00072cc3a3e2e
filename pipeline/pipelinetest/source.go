// Package pipelinetest holds the conformance suites of the contract: a source, stage or sink is done when it passes
// [TestSource], [TestStage] or [TestSink] under the race detector. The suites use a checked allocator, so a forgotten or
// doubled release fails them.
package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// SourceHarness is what [TestSource] needs to know of a source.
type SourceHarness[T pipeline.Element] struct {
	// New makes the source; every call describes the same data.
	New func(t *testing.T) pipeline.Source[T]
	// Rows is the number of rows of each split by name. Reading of an unbounded source stops there.
	Rows map[string]int
	// Resumes bounds how many resume positions of a split are tried; 0: 40, spread evenly.
	Resumes int
	// Reorders says that positions count another order than that of the places where records begin ([pipeline.ColBegin]), as those of shuffles do.
	Reorders bool
	// Patience bounds one Next that should return at once; default 10 s.
	Patience time.Duration
}

// tabular is what blocks and batches have in common.
type tabular interface {
	pipeline.Element
	Record() arrow.RecordBatch
	Positions() []int64
	Begins() []int64
}

// TestSource runs the conformance suite of sources.
func TestSource[T pipeline.Element](t *testing.T, h SourceHarness[T]) {
	if h.Resumes == 0 {
		h.Resumes = 40
	}
	if h.Patience == 0 {
		h.Patience = 10 * time.Second
	}
	splits, err := h.New(t).Splits(t.Context())
	if err != nil {
		t.Fatalf("Splits: %v", err)
	}
	t.Run("describes itself", func(t *testing.T) {
		src := h.New(t)
		if src.Schema() == nil || src.String() == "" {
			t.Errorf("schema %v, string %q: neither may be empty", src.Schema(), src.String())
		}
		names := make([]string, len(splits))
		for i, s := range splits {
			names[i] = s.Name
			if s.Start < 0 || s.End != pipeline.NoPosition && s.End < s.Start {
				t.Errorf("split %q has start %d and end %d", s.Name, s.Start, s.End)
			}
		}
		if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
			t.Errorf("split names are not sorted and distinct: %q", names)
		}
		again, err := src.Splits(t.Context())
		if diff := cmp.Diff(splits, again); err != nil || diff != "" {
			t.Errorf("Splits differ the second time: %v\n%s", err, diff)
		}
		for _, s := range splits {
			if _, ok := h.Rows[s.Name]; !ok {
				t.Errorf("the harness does not know split %q", s.Name)
			}
		}
	})
	for _, split := range splits {
		t.Run("split "+split.Name, func(t *testing.T) { testSplit(t, h, split) })
	}
}

func testSplit[T pipeline.Element](t *testing.T, h SourceHarness[T], split pipeline.Split) {
	want := h.Rows[split.Name]
	all, ends := h.read(t, split, split.Start, want)
	if len(all) != want {
		t.Fatalf("%d rows, want %d", len(all), want)
	}
	t.Run("resumes anywhere", func(t *testing.T) {
		stride := max(1, len(ends)/h.Resumes)
		for i := 0; i < len(ends); i += stride {
			got, _ := h.read(t, split, ends[i].at, want-ends[i].rows)
			if diff := cmp.Diff(append([]string(nil), all[ends[i].rows:]...), got); diff != "" {
				t.Fatalf("rows from position %d (after %d rows) differ (-want +got):\n%s", ends[i].at, ends[i].rows, diff)
			}
		}
	})
	t.Run("cancel loses nothing", func(t *testing.T) {
		h.with(t, split, split.Start, func(r pipeline.Reader[T]) {
			var got []string
			for len(got) < want {
				ctx, cancel := context.WithCancelCause(t.Context())
				cancel(errTest)
				start := time.Now()
				e, err := r.Next(ctx)
				if err == nil {
					got = append(got, rowsOf(t, e)...)
					e.Release()
					continue
				}
				if !errors.Is(err, errTest) && !errors.Is(err, context.Canceled) && !errors.Is(err, io.EOF) {
					t.Fatalf("Next with a cancelled context: %v", err)
				}
				if took := time.Since(start); took > h.Patience {
					t.Fatalf("Next took %v to notice that its context was cancelled", took)
				}
				if e, err = r.Next(t.Context()); err != nil {
					t.Fatalf("Next after a cancelled one: %v", err)
				}
				got = append(got, rowsOf(t, e)...)
				e.Release()
			}
			if diff := cmp.Diff(all, got[:want]); diff != "" {
				t.Errorf("rows differ (-want +got):\n%s", diff)
			}
		})
	})
	t.Run("early stop and closing twice", func(t *testing.T) {
		h.with(t, split, split.Start, func(r pipeline.Reader[T]) {
			if want > 0 {
				e, err := r.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				e.Release()
			}
			if err := errors.Join(r.Close(), r.Close()); err != nil {
				t.Errorf("Close: %v", err)
			}
			if e, err := r.Next(t.Context()); !errors.Is(err, pipeline.ErrClosed) {
				if err == nil {
					e.Release()
				}
				t.Errorf("Next after Close: %v, want ErrClosed", err)
			}
		})
	})
}

var errTest = errors.New("cancelled by the test")

type end struct {
	at   pipeline.Position
	rows int // rows before at
}

// with opens a reader on a checked allocator and closes it.
func (h SourceHarness[T]) with(t *testing.T, split pipeline.Split, from pipeline.Position, f func(pipeline.Reader[T])) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	env := &pipeline.Env{Source: "test", Allocator: mem}
	r, err := h.New(t).Open(t.Context(), env, split, from)
	if err != nil {
		t.Fatalf("Open %s at %d: %v", split.Name, from, err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	f(r)
}

// read reads n rows from a position, checks the contract of every element on the way, and returns the rows and every
// position at which reading may continue.
func (h SourceHarness[T]) read(t *testing.T, split pipeline.Split, from pipeline.Position, n int) (rows []string, ends []end) {
	t.Helper()
	bounded := h.New(t).Bounded()
	want := h.New(t).Schema()
	h.with(t, split, from, func(r pipeline.Reader[T]) {
		if got := r.Position(); got != from {
			t.Errorf("Position before the first element is %d, want %d", got, from)
		}
		at := from
		ends = append(ends, end{at, 0})
		for bounded || len(rows) < n {
			e, err := r.Next(t.Context())
			if errors.Is(err, io.EOF) {
				if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
					t.Errorf("Next after EOF: %v, want EOF again", err)
				}
				break
			}
			if err != nil {
				t.Fatalf("Next at %d: %v", at, err)
			}
			o := e.Origin()
			if o.Source != "test" || o.Split != split.Name || o.From != at || o.To < o.From || e.NumRows() > 0 && o.To == o.From {
				t.Errorf("origin %v after position %d of %s", o, at, split.Name)
			}
			if r.Position() != o.To {
				t.Errorf("Position is %d after an element that ends at %d", r.Position(), o.To)
			}
			if tab, ok := any(e).(tabular); ok {
				if got := tab.Record().Schema(); !sameFields(got, want) {
					t.Errorf("element has schema %v, the source says %v", got, want)
				}
				pos := tab.Positions()
				if len(pos) != e.NumRows() {
					t.Errorf("%d positions for %d rows", len(pos), e.NumRows())
				}
				begins := tab.Begins()
				last := o.From
				for i, p := range pos {
					if begins != nil && !h.Reorders && (pipeline.Position(begins[i]) < last || begins[i] >= p) {
						t.Errorf("row %d begins at %d, not in [%d, %d)", i, begins[i], last, p)
					}
					if pipeline.Position(p) <= last || pipeline.Position(p) > o.To {
						t.Errorf("position %d of row %d lies outside (%d, %d]", p, i, last, o.To)
					}
					last = pipeline.Position(p)
					if i < len(pos)-1 {
						ends = append(ends, end{last, len(rows) + i + 1})
					}
				}
			}
			rows = append(rows, rowsOf(t, e)...)
			at = o.To
			ends = append(ends, end{at, len(rows)})
			e.Release()
		}
	})
	if !bounded { // what a last element held beyond the rows asked for
		rows = rows[:min(n, len(rows))]
		ends = slices.DeleteFunc(ends, func(e end) bool { return e.rows > n })
	}
	return rows, ends
}

func sameFields(a, b *arrow.Schema) bool {
	return slices.EqualFunc(a.Fields(), b.Fields(), func(x, y arrow.Field) bool {
		return x.Name == y.Name && arrow.TypeEqual(x.Type, y.Type)
	})
}

// rowsOf renders each row of an element without its position; an element of another kind by its String method, if any.
func rowsOf(t *testing.T, e pipeline.Element) []string {
	t.Helper()
	tab, ok := e.(tabular)
	if s, says := e.(fmt.Stringer); says && !ok {
		return []string{s.String()}
	}
	if !ok {
		return []string{fmt.Sprintf("%v: %d rows", e.Origin(), e.NumRows())}
	}
	rec := tab.Record()
	out := make([]string, rec.NumRows())
	for c, f := range rec.Schema().Fields() {
		if f.Name == pipeline.ColPosition {
			continue
		}
		for i := range out {
			col := rec.Column(c)
			out[i] += fmt.Sprintf("%s=%s;", f.Name, col.ValueStr(i))
		}
	}
	return out
}

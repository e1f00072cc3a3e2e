package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
)

// cutStage is a fakeStage that joins the elements of each split for itself and can be cut.
type cutStage struct{ fakeStage }

func (s *cutStage) Open(context.Context, *pipeline.Env) (pipeline.Processor[*item, *item], error) {
	s.opened.Add(1)
	return &cutProcessor{stage: &s.fakeStage, held: map[pipeline.SplitID]*fakeProcessor{}, boundaries: map[pipeline.SplitID][]pipeline.Position{}}, nil
}

type cutProcessor struct {
	stage      *fakeStage
	held       map[pipeline.SplitID]*fakeProcessor
	boundaries map[pipeline.SplitID][]pipeline.Position
}

var _ pipeline.Divider = (*cutProcessor)(nil)

func (p *cutProcessor) DivideAt(id pipeline.SplitID, positions []pipeline.Position) {
	if p.boundaries[id] != nil || p.held[id] != nil {
		panic("DivideAt is called twice, or too late")
	}
	p.boundaries[id] = positions
}

func (p *cutProcessor) Process(ctx context.Context, in *item, emit func(*item) error) error {
	o := in.origin
	f := p.held[o.ID()]
	if f == nil {
		f = &fakeProcessor{stage: p.stage}
		p.held[o.ID()] = f
	}
	if err := f.Process(ctx, in, emit); err != nil {
		return err
	}
	if slices.Contains(p.boundaries[o.ID()], o.To) {
		return f.Flush(ctx, emit)
	}
	return nil
}

func (p *cutProcessor) Flush(ctx context.Context, emit func(*item) error) error {
	var errs []error
	for _, f := range p.held {
		errs = append(errs, f.Flush(ctx, emit))
	}
	return errors.Join(errs...)
}

func (p *cutProcessor) Close() error {
	var errs []error
	for _, f := range p.held {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// TestBoundaries: the positions that a sink gives reach each Divider, wherever it is, and only for their split.
func TestBoundaries(t *testing.T) {
	for _, queues := range []int{0, 1, 2, 3} { // before the stage, or after it
		for _, workers := range []int{1, 2} {
			t.Run(fmt.Sprintf("queues=%d/workers=%d", queues, workers), func(t *testing.T) {
				f := &fixture{baseline: 1 << 20, sink: &fakeSink{}}
				f.src = &fakeSource{pool: &f.pool, sizes: map[string]int{"a": 12, "b": 10, "c": 7}}
				stage := &cutStage{fakeStage{pool: &f.pool, join: 4}}
				g := pipeline.New("test")
				s := pipeline.Read(g, "clicks", f.src)
				for q := range queues {
					s = pipeline.Prefetch(s, fmt.Sprintf("q%d", q), q)
				}
				s = pipeline.Via(s, "join", stage)
				if queues == 3 {
					s = pipeline.Prefetch(s, "behind", 2)
				}
				pipeline.Into(s, "sink", f.sink)
				var err error
				if f.plan, err = g.Plan(); err != nil {
					t.Fatal(err)
				}
				f.sink.resume = map[string]pipeline.Progress{
					"a": {Position: 2, Rows: 2, Batches: 1}, "b": {Position: pipeline.NoPosition},
				}
				f.sink.boundaries = map[string][]pipeline.Position{"a": {9, 3, 3, 2, 1, 100}, "b": {pipeline.NoPosition, 0, 5}}
				stats, err := f.run(t, pipeline.RunOptions{Workers: workers})
				if err != nil {
					t.Fatal(err)
				}
				want := map[string]string{"a": "[2,3)[3,7)[7,9)[9,12)", "b": "[0,4)[4,5)[5,9)[9,10)", "c": "[0,4)[4,7)"}
				if diff := cmp.Diff(want, f.splitsOf()); diff != "" {
					t.Errorf("splits (-want +got):\n%s", diff)
				}
				batches := int64(5)
				if queues > 0 { // they are counted where splits come together, as single rows here
					batches = 11
				}
				if diff := cmp.Diff(pipeline.Progress{Position: 12, Rows: 12, Batches: batches}, stats.Splits[split("a")]); diff != "" {
					t.Errorf("progress of a: %s", diff)
				}
			})
		}
	}
}

// TestBoundariesNeedADivider: a graph that cannot divide says so before it reads, and boundaries that are no matter need nothing.
func TestBoundariesNeedADivider(t *testing.T) {
	for _, depths := range [][]int{{}, {2, 1}} {
		f := newFixture(t, map[string]int{"a": 8}, 3, depths...)
		f.sink.resume = map[string]pipeline.Progress{"a": {Position: 3, Rows: 3}}
		f.sink.boundaries = map[string][]pipeline.Position{"a": {3, 5}}
		_, err := f.run(t, pipeline.RunOptions{})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), `"a"`) || !strings.Contains(err.Error(), "batch can") || f.src.opened.Load() > 0 {
			t.Errorf("depths %v: %v, want ErrConfig that names the split, before anything is read", depths, err)
		}
		f.sink.boundaries["a"] = []pipeline.Position{3, 1}
		if _, err := f.run(t, pipeline.RunOptions{}); err != nil {
			t.Errorf("depths %v, boundaries that are passed already: %v", depths, err)
		}
	}
}

// TestStraddling: a stage that joins again what was cut ends the run before the sink sees it.
func TestStraddling(t *testing.T) {
	f := &fixture{baseline: 1 << 20, sink: &fakeSink{}}
	f.src = &fakeSource{pool: &f.pool, sizes: map[string]int{"a": 12}}
	g := pipeline.New("test")
	s := pipeline.Via(pipeline.Read(g, "clicks", f.src), "join", &cutStage{fakeStage{pool: &f.pool, join: 2}})
	s = pipeline.Via(s, "again", &fakeStage{pool: &f.pool, join: 2})
	pipeline.Into(s, "sink", f.sink)
	var err error
	if f.plan, err = g.Plan(); err != nil {
		t.Fatal(err)
	}
	f.sink.resume = map[string]pipeline.Progress{"a": {}}
	f.sink.boundaries = map[string][]pipeline.Position{"a": {5}}
	// [0,2)[2,4)[4,5)[5,7) two by two.
	_, err = f.run(t, pipeline.RunOptions{})
	if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "clicks/a[4,7) straddles position 5") {
		t.Errorf("%v, want ErrConfig that names element and position", err)
	}
	f.sink.mu.Lock()
	defer f.sink.mu.Unlock()
	if diff := cmp.Diff(map[string]string{"a": "[0,4)"}, f.splitsOf()); diff != "" {
		t.Errorf("the sink (-want +got):\n%s", diff)
	}
}

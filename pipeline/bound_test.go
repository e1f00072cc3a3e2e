package pipeline_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/memsource"
)

// blockSink keeps the records and positions that it was given, and resumes at them.
type blockSink struct {
	mu      sync.Mutex
	splits  map[string]pipeline.Progress
	records map[string][]string
}

func (s *blockSink) String() string      { return "blocks" }
func (s *blockSink) Fingerprint() string { return "blocks" }
func (s *blockSink) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Block], error) {
	return s, nil
}

func (s *blockSink) Resume(context.Context, string, []pipeline.Split) (map[string]pipeline.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.splits), nil
}

func (s *blockSink) Write(_ context.Context, b *pipeline.Block) error {
	defer b.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	split, o := b.Origin().Split, b.Origin()
	at := s.splits[split]
	if o.From != at.Position {
		return fmt.Errorf("%s begins at %d, the sink is at %d", o, o.From, at.Position)
	}
	s.splits[split] = pipeline.Progress{Position: o.To, Rows: at.Rows + int64(b.NumRows()), Batches: at.Batches + 1}
	for i := range b.NumRows() {
		s.records[split] = append(s.records[split], string(b.Payload().Value(i)))
	}
	return nil
}
func (s *blockSink) Flush(context.Context) error { return nil }
func (s *blockSink) Close() error                { return nil }

func (s *blockSink) rows() (n int) {
	for _, r := range s.records {
		n += len(r)
	}
	return n
}

// TestMaxRowsIsExact: blocks of 16 rows are cut at the bound, whatever the number of workers, run after
// run, and where two runs share the count. Nothing is lost or taken twice.
func TestMaxRowsIsExact(t *testing.T) {
	t.Parallel()
	parts := map[string][][]byte{}
	want := map[string][]string{}
	for _, split := range []string{"a", "b", "c", "d"} {
		for i := range 100 {
			parts[split] = append(parts[split], fmt.Appendf(nil, "%s%d", split, i))
			want[split] = append(want[split], fmt.Sprintf("%s%d", split, i))
		}
	}
	for _, workers := range []int{1, 2, 4} {
		for _, det := range []bool{false, true} {
			for _, shared := range []bool{false, true} {
				sink := &blockSink{splits: map[string]pipeline.Progress{}, records: map[string][]string{}}
				g := pipeline.New("test")
				read := pipeline.Read(g, "rows", pipeline.Source[*pipeline.Block](memsource.Records(parts, memsource.Options{MaxRows: 16})))
				pipeline.Into(pipeline.Prefetch(read, "queue", 2), "sink", pipeline.Sink[*pipeline.Block](sink))
				plan, err := g.Plan()
				if err != nil {
					t.Fatal(err)
				}
				splits, err := plan.Splits(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				halves := [][]pipeline.Split{splits}
				if shared {
					halves = [][]pipeline.Split{splits[:2], splits[2:]}
				}
				bounds := []int64{1, 2, 7, 16, 17, 100, 101, 399, 0}
				if shared { // a run counts what it resumes when it begins, the other may be at work by then
					bounds = []int64{101, 0}
				}
				for _, most := range bounds {
					var taken atomic.Int64
					var wg sync.WaitGroup
					for _, own := range halves {
						wg.Go(func() {
							o := pipeline.RunOptions{Workers: workers, Deterministic: det, MaxRows: most, Splits: own}
							if shared {
								o.Taken = taken.Add
							}
							if stats, err := plan.Segments[0].Run(t.Context(), o); err != nil || !shared && stats.Full != (most > 0) {
								t.Errorf("%+v, %v", stats, err)
							}
						})
					}
					wg.Wait()
					if n := sink.rows(); most > 0 && int64(n) != most {
						t.Errorf("%d workers, deterministic %v, shared %v: %d rows, %d are wanted", workers, det, shared, n, most)
					}
				}
				if diff := cmp.Diff(want, sink.records); diff != "" {
					t.Errorf("%d workers, deterministic %v, shared %v (-want +got):\n%s", workers, det, shared, diff)
				}
			}
		}
	}
}

// TestMaxRowsOfAKilledRun: in deterministic order a run that was ended anywhere and begun again has
// the same rows of each split as one that was not.
func TestMaxRowsOfAKilledRun(t *testing.T) {
	t.Parallel()
	parts := map[string][][]byte{}
	for _, split := range []string{"a", "b", "c"} {
		for i := range 50 {
			parts[split] = append(parts[split], fmt.Appendf(nil, "%s%d", split, i))
		}
	}
	run := func(stops ...int) map[string][]string {
		sink := &blockSink{splits: map[string]pipeline.Progress{}, records: map[string][]string{}}
		for _, stop := range append(stops, -1) {
			g := pipeline.New("test")
			read := pipeline.Read(g, "rows", pipeline.Source[*pipeline.Block](memsource.Records(parts, memsource.Options{MaxRows: 16})))
			pipeline.Into(read, "sink", pipeline.Sink[*pipeline.Block](&dying{blockSink: sink, left: stop}))
			plan, err := g.Plan()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Deterministic: true, MaxRows: 70}); (err != nil) != (stop >= 0) {
				t.Fatal(err)
			}
		}
		return sink.records
	}
	want := run()
	if n := len(slices.Concat(want["a"], want["b"], want["c"])); n != 70 {
		t.Errorf("%d rows", n)
	}
	for kill := range 5 {
		if diff := cmp.Diff(want, run(kill, 0)); diff != "" {
			t.Errorf("killed after %d blocks (-whole +killed):\n%s", kill, diff)
		}
	}
}

// dying is a sink that fails after some blocks; below 0: never.
type dying struct {
	*blockSink
	left int
}

func (d *dying) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Block], error) {
	return d, nil
}

func (d *dying) Write(ctx context.Context, b *pipeline.Block) error {
	if d.left == 0 {
		b.Release()
		return fmt.Errorf("killed")
	}
	d.left--
	return d.blockSink.Write(ctx, b)
}

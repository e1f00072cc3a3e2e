package batch_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/sources/memsource"
	"github.com/monolith-go/monolith/transforms/batch"
)

// TestBoundaries divides random inputs at random places and compares the sizes with what a list of rows gives.
func TestBoundaries(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 7))
		opts := batch.Options{Rows: 1 + rng.IntN(6), Epochs: rng.IntN(2) == 0, DropRemainder: rng.IntN(4) == 0}
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		p, err := batch.New(opts).Open(t.Context(), &pipeline.Env{Allocator: mem})
		if err != nil {
			t.Fatal(err)
		}
		// Positions with gaps, where rows were dropped; boundaries at rows' ends, between them, and outside.
		splits := []string{"a", "b"}[:1+rng.IntN(2)]
		boundaries, borders, at, next := map[string][]pipeline.Position{}, map[string][]pipeline.Position{}, map[string][]pipeline.Position{}, map[string]pipeline.Position{}
		for _, split := range splits {
			for epoch := range 3 {
				n := 0
				for range rng.IntN(12) {
					n += 1 + rng.IntN(3)
					at[split] = append(at[split], position.AtEpoch(epoch, pipeline.Position(n)))
				}
				// What is left over at the end of an epoch is dropped whether or not a cut follows before the next epoch.
				within := n + 3
				if opts.Epochs && opts.DropRemainder {
					within = max(n, 1)
				}
				for range rng.IntN(5) {
					boundaries[split] = append(boundaries[split], position.AtEpoch(epoch, pipeline.Position(rng.IntN(within))))
				}
				if opts.Epochs {
					borders[split] = append(borders[split], position.AtEpoch(epoch+1, 0))
				}
			}
			slices.Sort(boundaries[split])
			boundaries[split] = slices.Compact(boundaries[split])
			if len(boundaries[split]) > 0 {
				p.(pipeline.Divider).DivideAt(pipeline.SplitID{Source: "s", Split: split}, slices.Clone(boundaries[split]))
			}
			borders[split] = append(borders[split], boundaries[split]...)
			slices.Sort(borders[split])
			next[split] = 0
		}
		type out struct {
			at    []pipeline.Position
			sizes []int
			to    pipeline.Position
		}
		got := map[string]*out{}
		for _, split := range splits {
			got[split] = &out{}
		}
		emit := func(b *pipeline.Batch) error {
			defer b.Release()
			o, g := b.Origin(), got[b.Origin().Split]
			if o.From != g.to {
				t.Errorf("seed %d: %s after position %d", seed, o, g.to)
			}
			for _, c := range boundaries[o.Split] {
				if o.From < c && c < o.To {
					t.Errorf("seed %d: %s straddles %d", seed, o, c)
				}
			}
			for _, pos := range b.Positions() {
				g.at = append(g.at, pipeline.Position(pos))
			}
			if b.NumRows() > 0 {
				g.sizes = append(g.sizes, b.NumRows())
			}
			g.to = o.To
			return nil
		}
		end := position.AtEpoch(3, 0)
		for len(next) > 0 {
			split := slices.Sorted(maps.Keys(next))[rng.IntN(len(next))]
			from := next[split]
			to := end
			if i := rng.IntN(6); i < len(at[split]) {
				left := slices.DeleteFunc(slices.Clone(at[split]), func(p pipeline.Position) bool { return p <= from })
				if i < len(left) {
					to = left[i]
				}
			}
			var rows []int64
			for _, pos := range at[split] {
				if from < pos && pos <= to {
					rows = append(rows, int64(pos))
				}
			}
			if err := p.Process(t.Context(), newBatch(t, mem, split, from, to, rows...), emit); err != nil {
				t.Fatal(err)
			}
			if next[split] = to; to == end {
				delete(next, split)
			}
		}
		if err := errors.Join(p.Flush(t.Context(), emit), p.Close()); err != nil {
			t.Fatal(err)
		}
		for _, split := range splits {
			want := slowSizes(at[split], borders[split], end, opts)
			if diff := cmp.Diff(want, got[split].sizes); diff != "" {
				t.Errorf("seed %d: sizes of %s with rows at %d cut at %d, %+v (-want +got):\n%s", seed, split, at[split], borders[split], opts, diff)
			}
			if !opts.DropRemainder && !slices.Equal(got[split].at, at[split]) {
				t.Errorf("seed %d: rows %d, want %d", seed, got[split].at, at[split])
			}
			if got[split].to != end {
				t.Errorf("seed %d: %s ends at %d", seed, split, got[split].to)
			}
		}
		mem.AssertSize(t, 0)
	}
}

// slowSizes says how many rows the batches have: between two borders as many full ones as there are, and a rest.
func slowSizes(at, borders []pipeline.Position, end pipeline.Position, opts batch.Options) (sizes []int) {
	from := pipeline.Position(0)
	for _, b := range append(slices.Clone(borders), end) {
		n := 0
		for _, pos := range at {
			if from < pos && pos <= b {
				n++
			}
		}
		for ; n >= opts.Rows; n -= opts.Rows {
			sizes = append(sizes, opts.Rows)
		}
		_, place := b.Epoch()
		if dropped := opts.DropRemainder && (b == end || opts.Epochs && place == 0); n > 0 && !dropped {
			sizes = append(sizes, n)
		}
		from = b
	}
	return sizes
}

// shards play a store whose parts are at different positions: each takes an element whole, or has it already.
type shards struct {
	mu    sync.Mutex
	at    []map[string]pipeline.Position // of each shard
	rows  []map[string][]int64           // what each has taken
	stops []int                          // elements after which a shard takes no more; 0: never
}

func (s *shards) String() string { return "shards" }

func (s *shards) Fingerprint() string { return "shards" }

func (s *shards) Open(context.Context, *pipeline.Env) (pipeline.Writer[*pipeline.Batch], error) {
	return shardsWriter{s}, nil
}

type shardsWriter struct{ *shards }

func (s shardsWriter) Flush(context.Context) error { return nil }
func (s shardsWriter) Close() error                { return nil }

func (s shardsWriter) Write(_ context.Context, b *pipeline.Batch) error {
	defer b.Release()
	s.mu.Lock()
	defer s.mu.Unlock()
	o := b.Origin()
	ids := b.Column("id").(*array.Int64).Int64Values()
	for i := range s.at {
		switch end, ok := s.at[i][o.Split]; {
		case s.stops[i] == 1:
			continue
		case !ok || o.From == end:
			s.at[i][o.Split] = o.To
			s.rows[i][o.Split] = append(s.rows[i][o.Split], ids...)
		case o.To <= end:
			continue
		default:
			return fmt.Errorf("shard %d stands at %d: %s: %w", i, end, o, pipeline.ErrSchema)
		}
		if s.stops[i] > 1 {
			s.stops[i]--
		}
	}
	return nil
}

func (s shardsWriter) Resume(_ context.Context, _ string, splits []pipeline.Split) (map[string]pipeline.Progress, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]pipeline.Progress{}
	for _, sp := range splits {
		out[sp.Name] = pipeline.Progress{Position: slices.Min(s.ends(sp.Name))}
	}
	return out, nil
}

func (s shardsWriter) Boundaries(_, split string) []pipeline.Position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ends(split)
}

func (s shardsWriter) ends(split string) (out []pipeline.Position) {
	for i := range s.at {
		pos, ok := s.at[i][split]
		if !ok {
			pos = pipeline.NoPosition
		}
		out = append(out, pos)
	}
	return out
}

// TestBoundariesInGraph stops shards at different places, and reads on from the smallest with batches of another size: each
// shard has every row once and in the order of the source, wherever in the graph the batches are made.
func TestBoundariesInGraph(t *testing.T) {
	t.Parallel()
	schema := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil)
	type stream = pipeline.Stream[*pipeline.Batch]
	for name, build := range map[string]func(s stream, rows int) stream{
		"no queue": func(s stream, rows int) stream { return made(s, rows) },
		"before queues": func(s stream, rows int) stream {
			return pipeline.Prefetch(pipeline.Prefetch(made(s, rows), "q", 2), "r", 0)
		},
		"behind a queue": func(s stream, rows int) stream {
			return made(pipeline.Prefetch(s, "q", 2), rows)
		},
		"behind two": func(s stream, rows int) stream {
			return made(pipeline.Prefetch(pipeline.Prefetch(s, "q", 1), "r", 2), rows)
		},
	} {
		for _, epochs := range []int{0, 3} {
			for _, workers := range []int{1, 2} {
				t.Run(fmt.Sprintf("%s/epochs=%d/workers=%d", name, epochs, workers), func(t *testing.T) {
					t.Parallel()
					mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
					defer mem.AssertSize(t, 0)
					data := map[string][]arrow.RecordBatch{}
					for split, n := range map[string]int64{"a": 40, "b": 57} {
						b := array.NewRecordBuilder(mem, schema)
						for i := range n {
							b.Field(0).(*array.Int64Builder).Append(i)
						}
						rec := b.NewRecordBatch()
						b.Release()
						defer rec.Release()
						data[split] = []arrow.RecordBatch{rec}
					}
					src, err := memsource.Batches(schema, data, memsource.Options{MaxRows: 9})
					if err != nil {
						t.Fatal(err)
					}
					defer src.Release()
					run := func(sink *shards, rows int) error {
						g := pipeline.New("test")
						var read stream
						if epochs == 0 {
							read = pipeline.Read(g, "rows", src)
						} else {
							e, err := epochsource.New(src, epochsource.Options{Epochs: epochs, ShuffleRows: 16, Seed: 5, BlockRows: 7})
							if err != nil {
								t.Fatal(err)
							}
							read = pipeline.Read(g, "rows", e)
						}
						pipeline.Into(build(read, rows), "shards", sink)
						plan, err := g.Plan()
						if err != nil {
							t.Fatal(err)
						}
						env := func(w int) *pipeline.Env { return &pipeline.Env{Worker: w, Allocator: mem} }
						_, err = plan.Segments[0].Run(t.Context(), pipeline.RunOptions{Workers: workers, Deterministic: workers == 1, Env: env})
						return err
					}
					fresh := func(stops ...int) *shards {
						s := &shards{stops: stops}
						for range stops {
							s.at = append(s.at, map[string]pipeline.Position{})
							s.rows = append(s.rows, map[string][]int64{})
						}
						return s
					}
					whole := fresh(0)
					if err := run(whole, 5); err != nil {
						t.Fatal(err)
					}
					s := fresh(1, 4, 0, 9, 7)
					if err := run(s, 5); err != nil {
						t.Fatal(err)
					}
					if len(s.at[0]) > 0 || cmp.Equal(s.at[1], s.at[3]) {
						t.Fatalf("shards stand at %v: the test tests nothing", s.at)
					}
					s.stops = []int{12, 0, 0, 6, 0}
					if err := run(s, 6); err != nil {
						t.Fatal(err)
					}
					s.stops = make([]int, 5)
					if err := run(s, 4); err != nil {
						t.Fatal(err)
					}
					for i := range s.rows {
						if diff := cmp.Diff(whole.rows[0], s.rows[i]); diff != "" {
							t.Errorf("shard %d (-want +got):\n%s", i, diff)
						}
					}
				})
			}
		}
	}
}

// made makes batches, which end with epochs if there are any.
func made(s pipeline.Stream[*pipeline.Batch], rows int) pipeline.Stream[*pipeline.Batch] {
	return pipeline.Via(s, "batch", batch.New(batch.Options{Rows: rows, Epochs: true}))
}

// Without boundaries nothing changes: DivideAt is never called, and an empty list is as none.
func TestNoBoundaries(t *testing.T) {
	t.Parallel()
	var got [2][]string
	for i := range got {
		p, err := batch.New(batch.Options{Rows: 3}).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			p.(pipeline.Divider).DivideAt(pipeline.SplitID{Source: "s", Split: "a"}, nil)
			p.(pipeline.Divider).DivideAt(pipeline.SplitID{Source: "s", Split: "other"}, []pipeline.Position{4})
		}
		emit := func(b *pipeline.Batch) error {
			defer b.Release()
			got[i] = append(got[i], b.Origin().String()+strings.Join(rows(t, b), ";"))
			return nil
		}
		for from := range pipeline.Position(10) {
			b := newBatch(t, memory.DefaultAllocator, "a", from*5, from*5+5, int64(from*5+1), int64(from*5+4))
			if err := p.Process(t.Context(), b, emit); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(p.Flush(t.Context(), emit), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(got[0], got[1]); diff != "" || len(got[0]) != 7 {
		t.Errorf("%d batches (-without +with):\n%s", len(got[0]), diff)
	}
}

package memsource

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/arrowx"
	"github.com/monolith-go/monolith/pipeline"
)

// Options are the choices of a [Source]; the zero value works.
type Options struct {
	// MaxRows cuts record batches into elements of at most so many rows; 0: as they are given.
	MaxRows int
	// Unbounded makes readers wait for their context after the last row, as those of a topic do, instead of ending.
	Unbounded bool
}

// Source hands out rows that it holds. Its methods may be called from several goroutines at once.
type Source[T pipeline.Element] struct {
	opts   Options
	schema *arrow.Schema
	splits []split
	wrap   func(arrow.RecordBatch, pipeline.Origin) (T, error)
}

var (
	_ pipeline.Source[*pipeline.Block] = (*Source[*pipeline.Block])(nil)
	_ pipeline.Source[*pipeline.Batch] = (*Source[*pipeline.Batch])(nil)
)

// split is a run of record batches with rows and with a position column.
type split struct {
	name string
	recs []arrow.RecordBatch
	end  int64
}

// Batches returns a source of batches: the rows of each split's record batches, in order. All must have the given schema.
// Where it lacks [pipeline.ColPosition], rows are numbered from 1. The source keeps references of its own until
// [Source.Release]. Errors: [pipeline.ErrSchema].
func Batches(schema *arrow.Schema, splits map[string][]arrow.RecordBatch, opts Options) (*Source[*pipeline.Batch], error) {
	return build(schema, splits, opts, pipeline.NewBatch)
}

// Blocks is [Batches] for record batches that have [pipeline.ColPayload].
func Blocks(schema *arrow.Schema, splits map[string][]arrow.RecordBatch, opts Options) (*Source[*pipeline.Block], error) {
	if err := pipeline.CheckColumns(schema, arrow.Field{Name: pipeline.ColPayload, Type: arrow.BinaryTypes.Binary}); err != nil {
		return nil, fmt.Errorf("memsource: %w", err)
	}
	return build(schema, splits, opts, pipeline.NewBlock)
}

// Records returns a source of blocks made of undecoded records, copied to the Go heap. Rows are numbered from 1.
func Records(splits map[string][][]byte, opts Options) *Source[*pipeline.Block] {
	s := &Source[*pipeline.Block]{opts: opts, schema: pipeline.BlockSchema(false, false), wrap: pipeline.NewBlock}
	for _, name := range slices.Sorted(maps.Keys(splits)) {
		records := splits[name]
		payloads := arrowx.NewPayloads(memory.DefaultAllocator)
		for i, r := range records {
			payloads.Append(r, int64(i+1))
		}
		sp := split{name: name, end: int64(len(records))}
		if len(records) > 0 {
			sp.recs = []arrow.RecordBatch{payloads.Batch(s.schema)}
		}
		s.splits = append(s.splits, sp)
	}
	return s
}

func build[T pipeline.Element](schema *arrow.Schema, splits map[string][]arrow.RecordBatch, opts Options, wrap func(arrow.RecordBatch, pipeline.Origin) (T, error)) (*Source[T], error) {
	s := &Source[T]{opts: opts, schema: schema, wrap: wrap}
	numbered := schema.HasField(pipeline.ColPosition)
	if !numbered {
		md := schema.Metadata()
		s.schema = arrow.NewSchema(append(slices.Clone(schema.Fields()), arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}), &md)
	}
	for _, name := range slices.Sorted(maps.Keys(splits)) {
		sp := split{name: name}
		err := sp.take(splits[name], schema, s.schema, numbered)
		s.splits = append(s.splits, sp) // also what there is of one that is refused, to be released
		if err != nil {
			s.Release()
			return nil, err
		}
	}
	return s, nil
}

// take appends record batches of the schema given, as such of the schema of the source.
func (sp *split) take(recs []arrow.RecordBatch, given, schema *arrow.Schema, numbered bool) error {
	for i, rec := range recs {
		if !rec.Schema().Equal(given) {
			return fmt.Errorf("memsource: record batch %d of %q has schema %v, not %v: %w", i, sp.name, rec.Schema(), given, pipeline.ErrSchema)
		}
		if rec.NumRows() == 0 {
			continue
		}
		if numbered {
			rec.Retain()
		} else {
			rec = number(rec, schema, sp.end)
		}
		sp.recs = append(sp.recs, rec)
		for j, p := range positions(rec) {
			if p <= sp.end {
				return fmt.Errorf("memsource: position %d of row %d of record batch %d of %q is not above %d: %w", p, j, i, sp.name, sp.end, pipeline.ErrSchema)
			}
			sp.end = p
		}
	}
	return nil
}

// number appends a position column that counts on from end.
func number(rec arrow.RecordBatch, schema *arrow.Schema, end int64) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	for i := range rec.NumRows() {
		b.Append(end + i + 1)
	}
	col := b.NewArray()
	defer col.Release()
	return array.NewRecordBatch(schema, append(slices.Clone(rec.Columns()), col), rec.NumRows())
}

// positions returns the position column, or nil when it is not int64.
func positions(rec arrow.RecordBatch) []int64 {
	for i, f := range rec.Schema().Fields() {
		if col, ok := rec.Column(i).(*array.Int64); ok && f.Name == pipeline.ColPosition {
			return col.Int64Values()
		}
	}
	return nil
}

// Schema implements [pipeline.Source].
func (s *Source[T]) Schema() *arrow.Schema { return s.schema }

// Bounded implements [pipeline.Source].
func (s *Source[T]) Bounded() bool { return !s.opts.Unbounded }

// String implements [pipeline.Source].
func (s *Source[T]) String() string { return fmt.Sprintf("memory of %d splits", len(s.splits)) }

// Fingerprint implements [pipeline.Source]: the schema, and the name and the end of each split; not the rows themselves,
// which nobody can describe in a few words.
func (s *Source[T]) Fingerprint() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s %q", pipeline.Fingerprint("memory", s.opts, "MaxRows"), s.schema)
	for _, sp := range s.splits {
		fmt.Fprintf(&out, " %q:%d", sp.name, sp.end)
	}
	return out.String()
}

// Splits implements [pipeline.Source].
func (s *Source[T]) Splits(context.Context) ([]pipeline.Split, error) {
	out := make([]pipeline.Split, len(s.splits))
	for i, sp := range s.splits {
		out[i] = pipeline.Split{Name: sp.name, End: pipeline.Position(sp.end)}
		if s.opts.Unbounded {
			out[i].End = pipeline.NoPosition
		}
	}
	return out, nil
}

// Open implements [pipeline.Source]. Errors: [pipeline.ErrConfig] for a split that does not exist, a
// [*pipeline.GapError] for a position after the last row.
func (s *Source[T]) Open(_ context.Context, env *pipeline.Env, sp pipeline.Split, from pipeline.Position) (pipeline.Reader[T], error) {
	i := slices.IndexFunc(s.splits, func(have split) bool { return have.name == sp.Name })
	if i < 0 {
		return nil, fmt.Errorf("memsource: no split %q: %w", sp.Name, pipeline.ErrConfig)
	}
	have := s.splits[i]
	if from < 0 || int64(from) > have.end {
		return nil, &pipeline.GapError{Source: env.Source, Split: sp.Name, Want: from, Last: pipeline.Position(have.end)}
	}
	return &Reader[T]{source: s, origin: pipeline.Origin{Source: env.Source, Split: sp.Name, To: from}, recs: have.recs}, nil
}

// Release gives back the record batches. Readers that are open and elements that were read stay valid for what they hold
// already, but no more may be read.
func (s *Source[T]) Release() {
	for _, sp := range s.splits {
		for _, r := range sp.recs {
			r.Release()
		}
	}
	s.splits = nil
}

package parse_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/transforms/parse"
)

// blockOf makes a block of records: record i lies at [from+10*i, from+10*(i+1)). A header goes into the metadata.
func blockOf(tb testing.TB, mem memory.Allocator, from int64, header string, records ...[]byte) *pipeline.Block {
	tb.Helper()
	schema := pipeline.BlockSchema(false, true)
	if header != "" {
		meta := arrow.NewMetadata([]string{pipeline.MetadataHeader}, []string{header})
		schema = arrow.NewSchema(schema.Fields(), &meta)
	}
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	to := from
	for _, r := range records {
		to += 10
		b.Field(0).(*array.BinaryBuilder).Append(r)
		b.Field(1).(*array.Int64Builder).Append(to)
		b.Field(2).(*array.Int64Builder).Append(to * 1000)
	}
	block, err := pipeline.NewBlock(b.NewRecordBatch(), pipeline.Origin{Source: "src", Split: "part-0", From: pipeline.Position(from), To: pipeline.Position(to)})
	if err != nil {
		tb.Fatal(err)
	}
	return block
}

func lines(text string) (out [][]byte) {
	for line := range strings.Lines(text) {
		out = append(out, []byte(strings.TrimSuffix(line, "\n")))
	}
	return out
}

// badRows is a policy that keeps what it gets.
type badRows struct{ lines []string }

func (b *badRows) BadRow(_ context.Context, err *pipeline.DataError, payload []byte) error {
	b.lines = append(b.lines, fmt.Sprintf("%v %q", err, payload))
	return nil
}

// result is what a stage made of its input.
type result struct {
	rows []string // `user=[1:7] age=30 __label__=1 __position__=10`
	bad  []string
}

// parseRecords runs one block through a stage, checks schema and memory, and renders the rows.
func parseRecords(t *testing.T, opts parse.Options, header string, records ...[]byte) result {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	stage := parse.New(opts)
	schema, err := stage.Schema(pipeline.BlockSchema(false, true))
	if err != nil {
		t.Fatal(err)
	}
	var bad badRows
	p, err := stage.Open(t.Context(), &pipeline.Env{Allocator: mem, BadRows: &bad})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	block := blockOf(t, mem, 0, header, records...)
	origin := block.Origin()
	var out result
	if err := p.Process(t.Context(), block, func(b *pipeline.Batch) error {
		defer b.Release()
		if b.Origin() != origin {
			t.Errorf("origin is %v, want %v", b.Origin(), origin)
		}
		out.rows = render(t, b, schema)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := p.Flush(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	out.bad = bad.lines
	return out
}

// render writes each row of a batch as text.
func render(tb testing.TB, b *pipeline.Batch, schema *arrow.Schema) (out []string) {
	tb.Helper()
	rec := b.Record()
	if !rec.Schema().Equal(schema) {
		tb.Fatalf("the batch has schema %v, the stage says %v", rec.Schema(), schema)
	}
	for r := range b.NumRows() {
		var cells []string
		for c, f := range schema.Fields() {
			if rec.Column(c).NullN() != 0 {
				tb.Fatalf("column %s has nulls", f.Name)
			}
			if f.Name == pipeline.ColTime {
				if got, pos := rec.Column(c).(*array.Int64).Value(r), b.Positions()[r]; got != pos*1000 {
					tb.Errorf("time %d of the row at %d", got, pos)
				}
				continue
			}
			cells = append(cells, f.Name+"="+cell(rec.Column(c), r))
		}
		out = append(out, strings.Join(cells, " "))
	}
	return out
}

func cell(col arrow.Array, r int) string {
	switch c := col.(type) {
	case *array.Int64:
		return fmt.Sprint(c.Value(r))
	case *array.Float32:
		return fmt.Sprint(c.Value(r))
	case *array.Boolean:
		return fmt.Sprint(c.Value(r))
	case *array.Binary:
		return fmt.Sprintf("%q", c.Value(r))
	case array.ListLike:
		from, to := c.ValueOffsets(r)
		var items []string
		for i := from; i < to; i++ {
			switch v := c.ListValues().(type) {
			case *array.Int64:
				items = append(items, fid.ID(v.Value(int(i))).String())
			case *array.Float32:
				items = append(items, fmt.Sprint(v.Value(int(i))))
			}
		}
		return "[" + strings.Join(items, " ") + "]"
	}
	return fmt.Sprintf("%T", col)
}

// sig is the signature of a text, for expectations.
func sig(s string) string { return fmt.Sprint(fid.HashString(s)) }

// checked is an allocator that must be empty when the test ends.
func checked(t *testing.T) *memory.CheckedAllocator {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	t.Cleanup(func() { mem.AssertSize(t, 0) })
	return mem
}

package parse_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/transforms/parse"
)

var plain = arrow.NewSchema([]arrow.Field{
	{Name: "user", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "small", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "vip", Type: arrow.FixedWidthTypes.Boolean, Nullable: true},
	{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "raw", Type: arrow.BinaryTypes.Binary, Nullable: true},
	{Name: "price", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	{Name: "tags", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
	{Name: "vec", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32), Nullable: true},
	{Name: "rating", Type: arrow.PrimitiveTypes.Float32, Nullable: true},
	{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
}, nil)

var plainOptions = parse.Options{
	Features: []parse.Feature{
		{Name: "user", Slot: 1},
		{Name: "small", Slot: 2, Hash: parse.HashInt},
		{Name: "vip", Kind: parse.Dense},
		{Name: "name", Slot: 3, Type: parse.String, Default: "nobody"},
		{Name: "number", Column: "raw", Slot: 4, Type: parse.Int, Regexp: `_(\d+)`},
		{Name: "price", Kind: parse.Dense, Default: "9"},
		{Name: "bucket", Column: "price", Slot: 5, Type: parse.Float},
		{Name: "tags", Slot: 6},
		{Name: "vec", Kind: parse.Dense, Dim: 2},
	},
	Labels: []parse.Label{{Column: "rating", Positive: ">= 4"}},
}

// plainBatch makes rows of JSON, the position of row i being from + 10*(i+1).
func plainBatch(t testing.TB, mem memory.Allocator, from int64, rows ...string) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, plain)
	defer b.Release()
	to := from
	for _, row := range rows {
		to += 10
		row = fmt.Sprintf(`{%s"__time__":%d,"__position__":%d}`, row, to*1000, to)
		if err := b.UnmarshalJSON([]byte(row)); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "files", Split: "a#0001", From: pipeline.Position(from), To: pipeline.Position(to)})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func TestColumns(t *testing.T) {
	t.Parallel()
	mem := checked(t)
	stage := parse.NewColumns(plainOptions)
	schema, err := stage.Schema(plain)
	if err != nil {
		t.Fatal(err)
	}
	var bad badRows
	p, err := stage.Open(t.Context(), &pipeline.Env{Allocator: mem, BadRows: &bad})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	emit := func(b *pipeline.Batch) error {
		defer b.Release()
		got = render(t, b, schema)
		return nil
	}
	full := `"user":7,"small":-3,"vip":true,"name":"Ann","raw":"eF80Mg==","price":2.5,"tags":["x","","y"],"vec":[1,2],"rating":4,` // raw is x_42
	wantFull := func(pos int) string {
		return fmt.Sprintf("user=[1:7] small=[2:%d] vip=1 name=[3:%s] number=[4:42] price=2.5 bucket=[5:1] tags=[6:%s 6:%s] vec=[1 2] __label__=1 __position__=%d",
			fid.HashInt(-3), sig("Ann"), sig("x"), sig("y"), pos)
	}
	empty := `"rating":3.5,"raw":"eA==","tags":[null],`
	wantEmpty := func(pos int) string {
		return fmt.Sprintf("user=[] small=[] vip=0 name=[3:%s] number=[] price=9 bucket=[] tags=[] vec=[0 0] __label__=0 __position__=%d", sig("nobody"), pos)
	}
	whole := plainBatch(t, mem, 0, full, empty, `"user":-1,"rating":1,`, `"user":1,`, `"rating":1,"price":1e300,`, full, empty)
	defer whole.Release()
	// A batch cut out of another has arrays with offsets.
	for _, cut := range [][2]int{{0, 7}, {1, 7}, {5, 7}, {2, 5}, {6, 7}, {3, 3}} {
		in, err := whole.Slice(cut[0], cut[1])
		if err != nil {
			t.Fatal(err)
		}
		bad.lines = nil
		if err := p.Process(t.Context(), in, emit); err != nil {
			t.Fatal(err)
		}
		rows := []string{wantFull(10), wantEmpty(20), "", "", "", wantFull(60), wantEmpty(70)}
		reasons := []string{
			"", "", `files/a#0001 position 20: id out of range: feature "user" is -1, and ids are 0 to 281474976710655; if it pads a list, set ignore: [-1] in the job or send no padding; if it is an id, set hash: hash ""`,
			`files/a#0001 position 30: no label: column "rating" ""`, `files/a#0001 position 40: not finite: feature "price" is +Inf ""`, "", "",
		}
		var want, wantBad []string
		for i := cut[0]; i < cut[1]; i++ {
			if rows[i] != "" {
				want = append(want, rows[i])
			} else {
				wantBad = append(wantBad, reasons[i])
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("rows %v (-want +got):\n%s", cut, diff)
		}
		if diff := cmp.Diff(wantBad, bad.lines); diff != "" {
			t.Errorf("bad rows of %v (-want +got):\n%s", cut, diff)
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestColumnFaults(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Features: []parse.Feature{
			{Name: "a", Column: "usr", Slot: 1},
			{Name: "b", Column: "price", Slot: 1, Type: parse.String},
			{Name: "c", Column: "name", Kind: parse.Dense},
			{Name: "d", Column: "name", Slot: 1, Type: parse.Int},
			{Name: "e", Column: "user", Slot: 1, Type: parse.String},
			{Name: "f", Column: "odd", Slot: 1},
			{Name: "g", Column: "vec", Kind: parse.Dense, Type: parse.Int, Dim: 2},
		},
	}
	in := arrow.NewSchema(append([]arrow.Field{{Name: "odd", Type: arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int64))}}, plain.Fields()[:9]...), nil)
	_, err := parse.NewColumns(opts).Schema(in)
	for _, want := range []string{
		`there is no column "usr", did you mean "user"?`, `column "price": feature "b" has floats, not text`, `column "name": feature "c" has text, not numbers`,
		`column "name": feature "d" has text, not integers`, `column "user": feature "e" has integers, not text`, `column "odd" is list<item: list<item: int64, nullable>, nullable>`,
		`column "vec": feature "g" has floats, not integers`, pipeline.ColPosition,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no error says %s in\n%v", want, err)
		}
	}
	if !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("error is %v", err)
	}
	opts.Format = parse.CSV
	if _, err := parse.NewColumns(opts).Schema(plain); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("columns with a format: %v", err)
	}
	if got := parse.NewColumns(plainOptions).String(); got != "parse columns" {
		t.Errorf("String is %q", got)
	}
}

func TestColumnsConformance(t *testing.T) {
	t.Parallel()
	pipelinetest.TestStage(t, pipelinetest.StageHarness[*pipeline.Batch, *pipeline.Batch]{
		New: func(*testing.T) pipeline.Stage[*pipeline.Batch, *pipeline.Batch] {
			return parse.NewColumns(plainOptions)
		},
		Schema: plain,
		Inputs: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
			return []*pipeline.Batch{
				plainBatch(t, mem, 0, `"user":1,"rating":1,`, `"user":2,"rating":5,"tags":["a"],`), plainBatch(t, mem, 20), plainBatch(t, mem, 20, `"rating":2,`),
			}
		},
	})
}

func TestConformance(t *testing.T) {
	t.Parallel()
	pipelinetest.TestStage(t, pipelinetest.StageHarness[*pipeline.Block, *pipeline.Batch]{
		New: func(*testing.T) pipeline.Stage[*pipeline.Block, *pipeline.Batch] {
			return parse.New(parse.Options{Format: parse.LibFM, Fields: []string{"user", "item"}})
		},
		Schema: pipeline.BlockSchema(false, true),
		Inputs: func(t *testing.T, mem memory.Allocator) []*pipeline.Block {
			return []*pipeline.Block{
				blockOf(t, mem, 0, "", lines("1 2:1 3:1\n-1 4:1 5:1")...), blockOf(t, mem, 20, ""), blockOf(t, mem, 20, "", []byte("1 8:1 9:1")),
			}
		},
	})
}

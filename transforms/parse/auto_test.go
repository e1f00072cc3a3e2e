package parse_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/transforms/parse"
)

// A value under type auto becomes the same fid whatever the format: history as csv and a stream of tf.Example or JSON
// train the same rows. Oracle: integers as JSON writes them are ids, other text is hashed.
func TestAutoMeansTheSameInEveryFormat(t *testing.T) {
	t.Parallel()
	const outOfRange = "bad"
	hashed := func(x int64) string { return fmt.Sprint(fid.HashInt(x)) }
	for _, tc := range []struct {
		text string
		// id is what hash none makes of it, hash what hash makes of it.
		id, hash string
		// integer: JSON and tf.Example can have it as a number too.
		integer any
	}{
		{"667", "667", hashed(667), int64(667)},
		{"0", "0", hashed(0), int64(0)},
		{"-5", outOfRange, hashed(-5), int64(-5)},
		{"281474976710655", "281474976710655", hashed(281474976710655), int64(281474976710655)},
		{"281474976710656", outOfRange, hashed(281474976710656), int64(281474976710656)},
		{"9223372036854775807", outOfRange, hashed(9223372036854775807), int64(9223372036854775807)},
		{"9223372036854775808", outOfRange, outOfRange, nil},
		{"true", "1", hashed(1), true},
		{"false", "0", hashed(0), false},
		{"007", sig("007"), sig("007"), nil},
		{"-0", sig("-0"), sig("-0"), nil},
		{"+1", sig("+1"), sig("+1"), nil},
		{"1.0", sig("1.0"), sig("1.0"), nil},
		{"1e3", sig("1e3"), sig("1e3"), nil},
		{"-", sig("-"), sig("-"), nil},
		{" 1", sig(" 1"), sig(" 1"), nil},
		{"True", sig("True"), sig("True"), nil},
		{"68fd1e64", sig("68fd1e64"), sig("68fd1e64"), nil},
	} {
		t.Run(tc.text, func(t *testing.T) {
			t.Parallel()
			for how, want := range map[parse.Hash]string{parse.HashNone: tc.id, parse.HashInt: tc.hash} {
				opts := parse.Options{Features: []parse.Feature{{Name: "user", Slot: 1, Hash: how}, {Name: "list", Column: "user", Slot: 2, Hash: how, Split: "|"}}}
				expect := func(format string, r result) {
					t.Helper()
					got := outOfRange
					if len(r.rows) == 1 {
						got = r.rows[0]
					}
					full := want
					if want != outOfRange {
						full = fmt.Sprintf("user=[1:%s] list=[2:%s] __position__=10", want, want)
					}
					if got != full {
						t.Errorf("%s, hash %q: %s, want %s (%s)", format, how, got, full, r.bad)
					}
					if want == outOfRange && (len(r.bad) != 1 || !strings.Contains(r.bad[0], "id out of range")) {
						t.Errorf("%s, hash %q: bad rows %q", format, how, r.bad)
					}
				}
				records := func(format parse.Format, record string) {
					t.Helper()
					o := opts
					if o.Format = format; format == parse.CSV || format == parse.TSV {
						o.Columns = []string{"user"}
					}
					expect(string(format), parseRecords(t, o, "", []byte(record)))
				}
				records(parse.CSV, tc.text)
				records(parse.TSV, tc.text)
				records(parse.JSONL, fmt.Sprintf(`{"user":%q}`, tc.text))
				var e example.Encoder
				e.Strings("user", tc.text)
				records(parse.TFExample, string(e.Append(nil)))
				expect("parquet text", parseColumn(t, opts, arrow.BinaryTypes.String, fmt.Sprintf("%q", tc.text)))
				if tc.integer == nil {
					continue
				}
				records(parse.JSONL, fmt.Sprintf(`{"user":%v}`, tc.integer))
				typ := arrow.DataType(arrow.FixedWidthTypes.Boolean)
				if x, ok := tc.integer.(int64); ok {
					e.Int64s("user", x)
					records(parse.TFExample, string(e.Append(nil)))
					typ = arrow.PrimitiveTypes.Int64
				}
				expect("parquet "+typ.Name(), parseColumn(t, opts, typ, fmt.Sprint(tc.integer)))
			}
		})
	}
}

// parseColumn runs a batch of one row with the column user through a stage.
func parseColumn(t *testing.T, opts parse.Options, typ arrow.DataType, value string) result {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	in := arrow.NewSchema([]arrow.Field{{Name: "user", Type: typ, Nullable: true}, {Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}}, nil)
	stage := parse.NewColumns(opts)
	schema, err := stage.Schema(in)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(mem, in)
	defer b.Release()
	if err := b.UnmarshalJSON([]byte(`{"user":` + value + `,"__position__":10}`)); err != nil {
		t.Fatal(err)
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "src", Split: "part-0", To: 10})
	if err != nil {
		t.Fatal(err)
	}
	var bad badRows
	p, err := stage.Open(t.Context(), &pipeline.Env{Allocator: mem, BadRows: &bad})
	if err != nil {
		t.Fatal(err)
	}
	out := result{}
	if err := p.Process(t.Context(), batch, func(b *pipeline.Batch) error {
		defer b.Release()
		out.rows = render(t, b, schema)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	out.bad = bad.lines
	return out
}

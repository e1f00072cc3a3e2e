package parse_test

import (
	"fmt"
	"math"
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
		{"9223372036854775808", outOfRange, hashed(math.MinInt64), uint64(1 << 63)},
		{"18446744073709551615", outOfRange, hashed(-1), uint64(math.MaxUint64)},
		{"18446744073709551616", outOfRange, outOfRange, nil},
		{"667.0", "667", hashed(667), 667.},
		{"0.0", "0", hashed(0), 0.},
		{"1.00", "1", hashed(1), 1.},
		{"-5.0", outOfRange, hashed(-5), -5.},
		{"281474976710656.0", outOfRange, hashed(281474976710656), nil},
		{"1.5", sig("1.5"), sig("1.5"), nil},
		{"007.0", sig("007.0"), sig("007.0"), nil},
		{"v1.0", sig("v1.0"), sig("v1.0"), nil},
		{"1.2.0", sig("1.2.0"), sig("1.2.0"), nil},
		{"nan", "", "", math.NaN()},
		{"NaN", "", "", nil},
		{"Nan", sig("Nan"), sig("Nan"), nil},
		{"true", "1", hashed(1), true},
		{"false", "0", hashed(0), false},
		{"007", sig("007"), sig("007"), nil},
		{"-0", sig("-0"), sig("-0"), nil},
		{"+1", sig("+1"), sig("+1"), nil},
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
					switch want {
					case outOfRange:
					case "":
						full = "user=[] list=[] __position__=10"
					default:
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
				if tc.text != "nan" {
					records(parse.JSONL, fmt.Sprintf(`{"user":%s}`, tc.text))
				}
				column := func(typ arrow.DataType) {
					t.Helper()
					value := fmt.Sprint(tc.integer)
					if value == "NaN" {
						value = `"NaN"`
					}
					o := opts
					o.Features = []parse.Feature{opts.Features[0], opts.Features[1]}
					o.Features[1].Split = "" // which is for text
					expect("parquet "+typ.Name(), parseColumn(t, o, typ, value))
				}
				opts.Features[1].Split = ""
				switch x := tc.integer.(type) {
				case int64:
					e.Int64s("user", x)
					records(parse.TFExample, string(e.Append(nil)))
					column(arrow.PrimitiveTypes.Int64)
				case bool:
					column(arrow.FixedWidthTypes.Boolean)
				case float64:
					column(arrow.PrimitiveTypes.Float64)
					column(arrow.PrimitiveTypes.Float32)
					e.Floats("user", float32(x))
					records(parse.TFExample, string(e.Append(nil)))
				}
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

// Floats that are no whole numbers, or may have lost digits, are bad rows with a reason that helps; so is what was trained as text before.
func TestFloatsThatAreNoIDs(t *testing.T) {
	t.Parallel()
	opts := parse.Options{Features: []parse.Feature{{Name: "user", Slot: 1}}}
	json := opts
	json.Format = parse.JSONL
	for what, tc := range map[string]struct {
		got  result
		want string
	}{
		"a part":        {parseRecords(t, json, "", []byte(`{"user":2.5}`)), `wrong type: feature "user" is 2.5, and ids are whole numbers or text; for a number set kind: dense, or buckets`},
		"an exponent":   {parseRecords(t, json, "", []byte(`{"user":1e3}`)), `wrong type: feature "user" is 1000 as a float, which may have lost digits; write ids as integers, without an exponent`},
		"digits lost":   {parseColumn(t, opts, arrow.PrimitiveTypes.Float32, "16777218"), `wrong type: feature "user" is 1.6777218e+07 as a float, which may have lost digits`},
		"a double":      {parseColumn(t, opts, arrow.PrimitiveTypes.Float64, "18014398509481984"), `wrong type: feature "user" is 1.8014399e+16 as a float, which may have lost digits`},
		"an infinity":   {parseColumn(t, opts, arrow.PrimitiveTypes.Float64, `"Infinity"`), `wrong type: feature "user" is +Inf, and ids are whole numbers or text`},
		"one in a list": {parseRecords(t, json, "", []byte(`{"user":[1,2.0,3.5]}`)), `wrong type: feature "user" is 3.5, and ids`},
	} {
		if len(tc.got.bad) != 1 || !strings.Contains(tc.got.bad[0], tc.want) {
			t.Errorf("%s: %q %q, want %q", what, tc.got.rows, tc.got.bad, tc.want)
		}
	}
	if r := parseColumn(t, opts, arrow.PrimitiveTypes.Float64, "9007199254740992"); len(r.bad) != 1 || !strings.Contains(r.bad[0], "9007199254740992, and ids are 0 to 281474976710655") {
		t.Errorf("a double above all ids: %q %q", r.rows, r.bad)
	}
	if r := parseColumn(t, opts, arrow.PrimitiveTypes.Float64, "281474976710655"); len(r.rows) != 1 || r.rows[0] != "user=[1:281474976710655] __position__=10" {
		t.Errorf("a double: %q %q", r.rows, r.bad)
	}
	old := parse.Options{Format: parse.CSV, Columns: []string{"user"}, Features: []parse.Feature{{Name: "user", Slot: 1, Literal: true}}}
	check(t, parseRecords(t, old, "", []byte("667.0"), []byte("nan"), []byte("667")),
		[]string{"user=[1:" + sig("667.0") + "] __position__=10", "user=[1:" + sig("nan") + "] __position__=20", "user=[1:667] __position__=30"}, nil)
}

package parse_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/transforms/parse"
)

func check(t *testing.T, got result, rows, bad []string) {
	t.Helper()
	if diff := cmp.Diff(rows, got.rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(bad, got.bad); diff != "" {
		t.Errorf("bad rows (-want +got):\n%s", diff)
	}
}

func TestTFExample(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.TFExample,
		Features: []parse.Feature{
			{Name: "user", Slot: 1},
			{Name: "genres", Slot: 7, Max: 2},
			{Name: "city", Slot: 3, Type: parse.Int, Hash: parse.HashInt},
			{Name: "tags", Slot: 4, Type: parse.String, Split: "|", Default: "none"},
			{Name: "price", Column: "cost", Slot: 5, Type: parse.Float},
			{Name: "cost", Kind: parse.Dense, Default: "-1"},
			{Name: "pos", Kind: parse.Dense, Dim: 2},
		},
		Labels: []parse.Label{{Column: "rating", Positive: ">= 4"}},
		Weight: parse.Weight{Column: "w"},
		LineID: []string{"user", "tags"},
	}
	var e example.Encoder
	var records [][]byte
	add := func(f func()) {
		f()
		records = append(records, e.Append(nil))
	}
	add(func() {
		e.Int64s("user", 7)
		e.Int64s("genres", 1, 2, 3)
		e.Int64s("city", -5)
		e.Strings("tags", "a|b", "", "c")
		e.Floats("cost", 2.5)
		e.Floats("pos", 1, 2)
		e.Floats("rating", 4)
		e.Floats("w", 0.5)
		e.Strings("unknown", "x")
	})
	add(func() { e.Int64s("rating", 3) }) // everything else missing
	add(func() { e.Int64s("user", 1) })   // no label
	add(func() { e.Strings("city", "u7"); e.Int64s("rating", 5) })
	add(func() { e.Floats("user", 7.5); e.Int64s("rating", 5) })
	add(func() { e.Int64s("user", -1); e.Int64s("rating", 5) })
	add(func() { e.Int64s("user", 1<<48); e.Int64s("rating", 5) })
	add(func() { e.Int64s("tags", 3); e.Int64s("rating", 5) })
	add(func() { e.Floats("pos", 1, 2, 3); e.Int64s("rating", 5) })
	add(func() { e.Strings("pos", "1", "2"); e.Int64s("rating", 5) })
	add(func() { e.Floats("cost", float32(math.NaN())); e.Int64s("rating", 5) })
	add(func() { e.Int64s("rating", 1, 2) })
	add(func() { e.Floats("rating", float32(math.Inf(1))) })
	add(func() { e.Int64s("rating", 4); e.Floats("w", -1) })
	records = append(records, []byte("\x0a\x05user"))
	add(func() { e.Int64s("rating", 4); e.Int64s("genres"); e.Int64s("user", 0); e.Int64s("cost", 3) })
	add(func() { e.Int64s("rating", 4); e.Strings("user", "u7") })

	check(t, parseRecords(t, opts, "", records...),
		[]string{
			fmt.Sprintf(`user=[1:7] genres=[7:1 7:2] city=[3:%d] tags=[4:%s 4:%s 4:%s] price=[5:1] cost=2.5 pos=[1 2] __label__=1 __weight__=0.5 __line_id__="7\ta|b" __position__=10`,
				fid.HashInt(-5), sig("a"), sig("b"), sig("c")),
			fmt.Sprintf(`user=[] genres=[] city=[] tags=[4:%s] price=[] cost=-1 pos=[0 0] __label__=0 __weight__=1 __line_id__="\t" __position__=20`, sig("none")),
			fmt.Sprintf(`user=[1:0] genres=[] city=[] tags=[4:%s] price=[5:2] cost=3 pos=[0 0] __label__=1 __weight__=1 __line_id__="0\t" __position__=160`, sig("none")),
			fmt.Sprintf(`user=[1:%s] genres=[] city=[] tags=[4:%s] price=[] cost=-1 pos=[0 0] __label__=1 __weight__=1 __line_id__="u7\t" __position__=170`, sig("u7"), sig("none")),
		},
		[]string{
			fmt.Sprintf(`src/part-0 position 20: no label: column "rating" %q`, records[2]),
			fmt.Sprintf(`src/part-0 position 30: wrong type: feature "city" has text, not integers %q`, records[3]),
			fmt.Sprintf(`src/part-0 position 40: wrong type: feature "user" is 7.5, and ids are whole numbers or text; for a number set kind: dense, or buckets %q`, records[4]),
			fmt.Sprintf(`src/part-0 position 50: id out of range: feature "user" is -1, and ids are 0 to 281474976710655; if it pads a list, set ignore: [-1] in the job or send no padding; if it is an id, set hash: hash %q`, records[5]),
			fmt.Sprintf(`src/part-0 position 60: id out of range: feature "user" is 281474976710656, and ids are 0 to 281474976710655; set hash: hash in the job %q`, records[6]),
			fmt.Sprintf(`src/part-0 position 70: wrong type: feature "tags" has integers, not text %q`, records[7]),
			fmt.Sprintf(`src/part-0 position 80: wrong length: feature "pos" has 3 values, not 2 %q`, records[8]),
			fmt.Sprintf(`src/part-0 position 90: wrong type: feature "pos" has text, not numbers %q`, records[9]),
			fmt.Sprintf(`src/part-0 position 100: not finite: feature "price" is NaN %q`, records[10]),
			fmt.Sprintf(`src/part-0 position 110: bad label: column "rating" has 2 values, not 1 %q`, records[11]),
			fmt.Sprintf(`src/part-0 position 120: bad label: column "rating" is +Inf %q`, records[12]),
			fmt.Sprintf(`src/part-0 position 130: bad weight: column "w" is -1 %q`, records[13]),
			`src/part-0 position 140: malformed example: bad features at byte 0 "\n\x05user"`,
		})
}

// A list that is malformed comes out as such only when it is taken apart, after other features have grown.
func TestTFExampleMalformedList(t *testing.T) {
	t.Parallel()
	opts := parse.Options{Format: parse.TFExample, Features: []parse.Feature{{Name: "a", Slot: 1}, {Name: "b", Slot: 2}}}
	var e example.Encoder
	e.Int64s("a", 1, 2)
	e.Int64s("b", 300)
	good := e.Append(nil)
	broken := slices.Clone(good)
	broken[len(broken)-1] |= 0x80 // the varint does not end
	check(t, parseRecords(t, opts, "", broken, good, broken, good),
		[]string{"a=[1:1 1:2] b=[2:300] __position__=20", "a=[1:1 1:2] b=[2:300] __position__=40"},
		[]string{
			fmt.Sprintf("src/part-0 position 0: malformed example: bad int64 value at byte 2 %q", broken),
			fmt.Sprintf("src/part-0 position 20: malformed example: bad int64 value at byte 2 %q", broken),
		})
}

func TestLibFM(t *testing.T) {
	t.Parallel()
	t.Run("fields", func(t *testing.T) {
		t.Parallel()
		opts := parse.Options{
			Format: parse.LibFM, Fields: []string{"user", "item", "age"},
			Features: []parse.Feature{{Name: "user", Slot: 5}, {Name: "item", Slot: 6, Hash: parse.HashInt}, {Name: "age", Kind: parse.Dense}, {Name: "age_id", Column: "age", Slot: 9, Values: "age_value"}},
			LineID:   []string{"item"},
		}
		check(t, parseRecords(t, opts, "", lines(`-1 403:1 3496:1 7:0.5
1 403:1 	3496:1 8:2 
0 1:1 2:1
1 1:1 2:1 3:1 4:1
1 1:1 2:0.5 3:1
2 1:1 2:1 3:1
x 1:1 2:1 3:1
1 1 2:1 3:1
1 -1:1 2:1 3:1
1 1:x 2:1 3:1
1 1:1 2:1 3:inf

1 281474976710656:1 2:1 3:1
`)...),
			[]string{
				fmt.Sprintf(`user=[5:403] item=[6:%d] age=0.5 age_id=[9:7] age_value=[0.5] __label__=0 __line_id__="3496" __position__=10`, fid.HashInt(3496)),
				fmt.Sprintf(`user=[5:403] item=[6:%d] age=2 age_id=[9:8] age_value=[2] __label__=1 __line_id__="3496" __position__=20`, fid.HashInt(3496)),
			},
			[]string{
				`src/part-0 position 20: wrong number of fields: 2 entries for 3 fields "0 1:1 2:1"`,
				`src/part-0 position 30: wrong number of fields: 4 entries for 3 fields "1 1:1 2:1 3:1 4:1"`,
				`src/part-0 position 40: value is not 1: feature "item", index 2 has the value 0.5 "1 1:1 2:0.5 3:1"`,
				`src/part-0 position 50: bad label: label 2 is not 1, 0 or -1; say from where it is positive "2 1:1 2:1 3:1"`,
				`src/part-0 position 60: malformed libfm: label "x" is not a number "x 1:1 2:1 3:1"`,
				`src/part-0 position 70: malformed libfm: entry "1" is not index:value; the entries have no value: write 3:1 for 3, with sed -E ':a; s/ ([0-9]+)( |$)/ \1:1\2/; ta' FILE for example "1 1 2:1 3:1"`,
				`src/part-0 position 80: malformed libfm: index of "-1:1" is not a number from 0 "1 -1:1 2:1 3:1"`,
				`src/part-0 position 90: malformed libfm: value of "1:x" is not a number "1 1:x 2:1 3:1"`,
				`src/part-0 position 100: malformed libfm: value of "3:inf" is not a number "1 1:1 2:1 3:inf"`,
				`src/part-0 position 110: malformed libfm: empty value, 0 bytes: label "" is not a number ""`,
				`src/part-0 position 120: id out of range: feature "user" is 281474976710656, and ids are 0 to 281474976710655; set hash: hash in the job "1 281474976710656:1 2:1 3:1"`,
			})
	})
	t.Run("fields without features", func(t *testing.T) {
		t.Parallel()
		check(t, parseRecords(t, parse.Options{Format: parse.LibFM, Fields: []string{"user", "item"}}, "", []byte("1 10:1 20:1")),
			[]string{"user=[1:10] item=[2:20] __label__=1 __position__=10"}, nil)
	})
	t.Run("all in one", func(t *testing.T) {
		t.Parallel()
		check(t, parseRecords(t, parse.Options{Format: parse.LibFM}, "", lines("1 10:1 20:1 30:1.0\n-1\n1 4:2")...),
			[]string{"features=[1:10 1:20 1:30] __label__=1 __position__=10", "features=[] __label__=0 __position__=20"},
			[]string{`src/part-0 position 20: value is not 1: feature "features", index 4 has the value 2 "1 4:2"`})
	})
	t.Run("values", func(t *testing.T) {
		t.Parallel()
		opts := parse.Options{
			Format:   parse.LibFM,
			Features: []parse.Feature{{Name: "x", Column: "features", Slot: 2, Values: "xv", Max: 2, Default: "9"}},
			Labels:   []parse.Label{{Positive: "> 2.5"}},
		}
		check(t, parseRecords(t, opts, "", lines("5 10:0.5 20:-2 30:3\n1.5\n3 4:2")...),
			[]string{
				"x=[2:10 2:20] xv=[0.5 -2] __label__=1 __position__=10", "x=[2:9] xv=[1] __label__=0 __position__=20", "x=[2:4] xv=[2] __label__=1 __position__=30",
			}, nil)
	})
}

func TestCSV(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.CSV,
		Features: []parse.Feature{
			{Name: "id", Slot: 1, Type: parse.Int},
			{Name: "name", Slot: 2},
			{Name: "fare", Kind: parse.Dense, Default: "0.5"},
			{Name: "at", Kind: parse.Dense, Dim: 2, Split: ";"},
			{Name: "year", Column: "name", Slot: 3, Type: parse.Int, Regexp: `\((\d{4})\)`},
			{Name: "log", Column: "fare", Slot: 4, Type: parse.Float},
		},
		Labels: []parse.Label{{Column: "y"}},
	}
	const header = "\ufeffy,skipped,id,name,fare,\"at\"" // with a byte order mark
	want := []string{
		fmt.Sprintf("id=[1:7] name=[2:%s] fare=12.45 at=[1 -2.5] year=[] log=[4:3] __label__=1 __position__=10", sig("Credit Card")),
		fmt.Sprintf("id=[1:8] name=[2:%s] fare=0.5 at=[0 0] year=[3:1995] log=[] __label__=0 __position__=20", sig(`Toy "Story", (1995)`)),
		fmt.Sprintf("id=[] name=[2:%s] fare=3 at=[0 0] year=[] log=[4:2] __label__=0.25 __position__=30", sig("two\nlines")),
		"id=[] name=[] fare=0.5 at=[0 0] year=[] log=[] __label__=0.5 __position__=40",
	}
	records := [][]byte{
		[]byte("1,x,7,Credit Card,12.45,1;-2.5"),
		[]byte(`0,x,8,"Toy ""Story"", (1995)",,`),
		[]byte("0.25,x,,\"two\nlines\",3,"),
		[]byte(`.5,,,"",,`),
		[]byte("1,x,7,a,1"),
		[]byte("1,x,7,a,1,,"),
		[]byte("1,x,7.5,a,1,"),
		[]byte("1,x,7,a,1e99,"),
		[]byte("1,x,7,a,nan,"),
		[]byte("1,x,7,a,1,1;2;3"),
		[]byte(`1,x,7,a"b,1,`),
		[]byte(`1,x,7,"a"b,1,`),
		[]byte(`1,x,7,"ab,1,`),
		[]byte("1,x,7,a\nb,1,"),
		[]byte(",x,7,a,1,"),
		[]byte("yes,x,7,a,1,"),
	}
	var bad []string
	for i, reason := range []string{
		"wrong number of fields: 5 instead of 6", "wrong number of fields: 7 instead of 6",
		`bad number: feature "id" is "7.5", not an integer of 64 bits`, `bad number: feature "fare" is 1e99, which does not fit a float of 32 bits (about ±3.4e38)`,
		`not finite: feature "fare" is NaN`, `wrong length: feature "at" has 3 values, not 2`,
		"malformed csv: field 4 has a quote or a line end outside of quotes", "malformed csv: field 4 continues after its closing quote",
		"malformed csv: field 4 has no closing quote", "malformed csv: field 4 has a quote or a line end outside of quotes",
		`no label: column "y"`, `bad label: column "y" is "yes", not a number, nor true or false; to compare text, say so: positive: "== yes"`,
	} {
		bad = append(bad, fmt.Sprintf("src/part-0 position %d: %s %q", 40+10*i, reason, records[4+i]))
	}
	t.Run("header", func(t *testing.T) {
		t.Parallel()
		check(t, parseRecords(t, opts, header, records...), want, bad)
	})
	t.Run("columns", func(t *testing.T) {
		t.Parallel()
		opts := opts
		opts.Columns = []string{"y", "", "id", "name", "fare", "at"}
		check(t, parseRecords(t, opts, "", records...), want, bad)
		check(t, parseRecords(t, opts, "other,header", records...), want, bad)
	})
	t.Run("semicolons", func(t *testing.T) {
		t.Parallel()
		opts := parse.Options{Format: parse.CSV, Delimiter: ";", Features: []parse.Feature{{Name: "a", Slot: 1}, {Name: "b", Kind: parse.Dense}}}
		check(t, parseRecords(t, opts, "b;a", []byte(`1.5;"x;,"`)), []string{fmt.Sprintf("a=[1:%s] b=1.5 __position__=10", sig("x;,"))}, nil)
	})
}

// A column that is named twice is no column that anyone could want; where nobody wants it, it does no harm.
func TestHeaderNamesAColumnTwice(t *testing.T) {
	t.Parallel()
	features := []parse.Feature{{Name: "a", Kind: parse.Dense}}
	check(t, parseRecords(t, parse.Options{Format: parse.CSV, Features: features}, "a,b,b", lines("1,2,3")...), []string{"a=1 __position__=10"}, nil)
	p, err := parse.New(parse.Options{Format: parse.CSV, Features: features}).Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Process(t.Context(), blockOf(t, memory.DefaultAllocator, 0, "a,b,a", lines("1,2,3")...), func(b *pipeline.Batch) error { b.Release(); return nil })
	if !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `names column "a" twice, fields 1 and 3`) {
		t.Errorf("got %v", err)
	}
}

// Text is hashed whatever hash says.
func TestHashOfText(t *testing.T) {
	t.Parallel()
	opts := parse.Options{Format: parse.CSV, Columns: []string{"a"}, Features: []parse.Feature{{Name: "a", Slot: 1, Type: parse.String, Hash: parse.HashInt}}}
	check(t, parseRecords(t, opts, "", lines("x\n667")...), []string{
		fmt.Sprintf("a=[1:%s] __position__=10", sig("x")), fmt.Sprintf("a=[1:%s] __position__=20", sig("667")),
	}, nil)
}

// TestHeaderOfAnotherFormat: a header that is one field of the format, or none, says of which it seems to be; one that only lacks a column does not.
func TestHeaderOfAnotherFormat(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		format       parse.Format
		header, want string
	}{
		{parse.CSV, "user\tclick", "the line looks like tsv"},
		{parse.CSV, `{"user": 1, "click": 1}`, "the line looks like jsonl"},
		{parse.TSV, `{"user": 1, "click": 1}`, "the line looks like jsonl"},
		{parse.TSV, "user,click", "the line looks like csv"},
		{parse.CSV, "user;click", "the line has semicolons"},
		{parse.CSV, "1 1:1 2:1", `no column "user"`},
		{parse.CSV, "users,click", `did you mean "users"?`},
	} {
		opts := parse.Options{Format: tt.format, Features: []parse.Feature{{Name: "user", Slot: 1}}}
		p, err := parse.New(opts).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		err = p.Process(t.Context(), blockOf(t, memory.DefaultAllocator, 0, tt.header, []byte("1")), func(b *pipeline.Batch) error {
			b.Release()
			return nil
		})
		if err == nil || !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(tt.want, "the line") && strings.Contains(err.Error(), "the line") {
			t.Errorf("%s, header %q: %v, want %q", tt.format, tt.header, err, tt.want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The header may change from file to file, and has to name what is wanted.
func TestHeaderChanges(t *testing.T) {
	t.Parallel()
	stage := parse.New(parse.Options{Format: parse.CSV, Features: []parse.Feature{{Name: "user", Kind: parse.Dense}, {Name: "item", Kind: parse.Dense}}})
	p, err := stage.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := stage.Schema(pipeline.BlockSchema(false, true))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	process := func(header string, records ...string) error {
		var rs [][]byte
		for _, r := range records {
			rs = append(rs, []byte(r))
		}
		got = nil
		return p.Process(t.Context(), blockOf(t, memory.DefaultAllocator, 0, header, rs...), func(b *pipeline.Batch) error {
			defer b.Release()
			got = render(t, b, schema)
			return nil
		})
	}
	if err := process("", "1,2"); err == nil || !strings.Contains(err.Error(), "header") {
		t.Errorf("without a header: %v", err)
	}
	if err := process("item,user", "1,2"); err != nil || got[0] != "user=2 item=1 __position__=10" {
		t.Errorf("first header: %q, %v", got, err)
	}
	if err := process("user,x,item", "1,2,3"); err != nil || got[0] != "user=1 item=3 __position__=10" {
		t.Errorf("second header: %q, %v", got, err)
	}
	if err := process("user,items", "1,2"); err == nil || !strings.Contains(err.Error(), `no column "item", did you mean "items"?`) {
		t.Errorf("header without a column: %v", err)
	}
}

func TestTSV(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.TSV, Columns: []string{"label", "I1", "C1", "genres"},
		Features: []parse.Feature{
			{Name: "I1", Slot: 1, Type: parse.Float},
			{Name: "C1", Slot: 2, Default: "?"},
			{Name: "genres", Slot: 3, Split: "|", Max: 2},
			{Name: "ids", Column: "genres", Slot: 4, Type: parse.Int, Hash: parse.HashInt, Regexp: `^\d+$`},
		},
		Labels: []parse.Label{{Column: "label", Positive: "== 1"}},
	}
	check(t, parseRecords(t, opts, "", lines("0\t-1\t68fd1e64\ta||b|c\n1\t\t\t12\n1\t0\t\"\t|\n2\t3000000000\tx\t\n\t1\tx\ty\n1\t1e39\tx\ty\n")...),
		[]string{
			fmt.Sprintf("I1=[1:1] C1=[2:%s] genres=[3:%s 3:%s] ids=[] __label__=0 __position__=10", sig("68fd1e64"), sig("a"), sig("b")),
			fmt.Sprintf("I1=[] C1=[2:%s] genres=[3:12] ids=[4:%d] __label__=1 __position__=20", sig("?"), fid.HashInt(12)),
			fmt.Sprintf("I1=[1:0] C1=[2:%s] genres=[] ids=[] __label__=1 __position__=30", sig(`"`)),
			fmt.Sprintf("I1=[1:31] C1=[2:%s] genres=[] ids=[] __label__=0 __position__=40", sig("x")),
		},
		[]string{
			`src/part-0 position 40: no label: column "label" "\t1\tx\ty"`,
			`src/part-0 position 50: bad number: feature "I1" is 1e39, which does not fit a float of 32 bits (about ±3.4e38) "1\t1e39\tx\ty"`,
		})
	double := parse.Options{Format: parse.TSV, Delimiter: "::", Columns: []string{"a", "b"}, Features: []parse.Feature{{Name: "a", Slot: 1, Type: parse.Int}, {Name: "b", Kind: parse.Dense}}}
	check(t, parseRecords(t, double, "", []byte("1::2\r\n"), []byte("1::2::")), []string{"a=[1:1] b=2 __position__=10"},
		[]string{`src/part-0 position 10: wrong number of fields: 3 instead of 2 "1::2::"`})
}

func TestJSONL(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.JSONL,
		Features: []parse.Feature{
			{Name: "user", Slot: 1},
			{Name: "tags", Slot: 2},
			{Name: "age", Kind: parse.Dense},
			{Name: "vec", Kind: parse.Dense, Dim: 3},
		},
		Labels: []parse.Label{{Column: "click"}},
	}
	records := lines(`{"user": 7, "tags": ["a", "b", ""], "age": 3.5, "vec": [1, 2.5, -3e1], "click": true, "more": {"x": [1, {"y": null}]}}
 {"click":false,"user":"seven","tags":"\u00e4\"","age":null,"vec":[]}
{"user":1,"click":1,"user":2}
{}
{"click":1,"user":1.5}
{"click":1,"tags":["a",1]}
{"click":1,"tags":[1,"a"]}
{"click":1,"tags":[["a"]]}
{"click":1,"age":{"a":1}}
{"click":1,"age":"3"}
{"click":1,"age":1e99}
{"click":1,"user":99999999999999999999}
{"click":1,}
{"click":01}
{"click":1} x
["click"]
{"click":1,"x":"` + "\x01" + `"}
{"click":1,"x":"\q"}
{"click":1
{"\u0063lick":1,"user":[true,false]}
`)
	want := []string{
		fmt.Sprintf("user=[1:7] tags=[2:%s 2:%s] age=3.5 vec=[1 2.5 -30] __label__=1 __position__=10", sig("a"), sig("b")),
		fmt.Sprintf("user=[1:%s] tags=[2:%s] age=0 vec=[0 0 0] __label__=0 __position__=20", sig("seven"), sig(`ä"`)),
		"user=[1:2] tags=[] age=0 vec=[0 0 0] __label__=1 __position__=30",
		"user=[1:1 1:0] tags=[] age=0 vec=[0 0 0] __label__=1 __position__=200",
	}
	var bad []string
	for i, reason := range []string{
		`no label: column "click"`,
		`wrong type: feature "user" is 1.5, and ids are whole numbers or text; for a number set kind: dense, or buckets`,
		`wrong type: column "tags": 1 among text`,
		`wrong type: column "tags": text among integers`,
		`wrong type: column "tags": an array within an array, or an object; a feature is a number, a text, or a list of one of these`,
		`wrong type: column "age": an array within an array, or an object; a feature is a number, a text, or a list of one of these`,
		`wrong type: feature "age" has text, not numbers`,
		`bad number: column "age": 1e99 does not fit a float of 32 bits, which ends at about ±3.4e38`,
		`bad number: column "user": 99999999999999999999 has more than 64 bits; write it as text, which type: string hashes`,
		`malformed json: '}' at byte 11 where a string should be`,
		`malformed json: '1' at byte 10 where a comma or the end of the object should be`,
		`malformed json: 'x' at byte 12 where nothing should be`,
		`malformed json: '[' at byte 0 where an object should be; the record is a JSON list: write one object a record`,
		`malformed json: control character 0x1 in a string at byte 16`,
		`malformed json: 'q' at byte 17 where an escape should be`,
		`malformed json: the record ends where a comma or the end of the object should be`,
	} {
		bad = append(bad, fmt.Sprintf("src/part-0 position %d: %s %q", 30+10*i, reason, records[3+i]))
	}
	check(t, parseRecords(t, opts, "", records...), want, bad)
}

// All rows bad: an empty batch still moves the position. And the policy that fails, fails.
func TestBadRowPolicies(t *testing.T) {
	t.Parallel()
	opts := parse.Options{Format: parse.LibFM}
	check(t, parseRecords(t, opts, "", []byte("x"), []byte("y")), nil, []string{
		`src/part-0 position 0: malformed libfm: label "x" is not a number "x"`, `src/part-0 position 10: malformed libfm: label "y" is not a number "y"`,
	})
	check(t, parseRecords(t, opts, ""), nil, nil)

	mem := checked(t)
	p, err := parse.New(opts).Open(t.Context(), &pipeline.Env{Allocator: mem})
	if err != nil {
		t.Fatal(err)
	}
	err = p.Process(t.Context(), blockOf(t, mem, 0, "", []byte("1 2:1"), []byte("x")), func(*pipeline.Batch) error {
		t.Error("a batch comes out")
		return nil
	})
	var data *pipeline.DataError
	if !errors.As(err, &data) || data.Position != 10 || data.Reason != "malformed libfm" {
		t.Errorf("error is %v", err)
	}
	// The next block begins without the rows of the one that failed.
	if err := p.Process(t.Context(), blockOf(t, mem, 20, "", []byte("1 3:1")), func(b *pipeline.Batch) error {
		defer b.Release()
		if b.NumRows() != 1 || b.Positions()[0] != 30 {
			t.Errorf("%d rows at %v", b.NumRows(), b.Positions())
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

package parse_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// anyNumber is what a squared loss accepts, fromZero what a Poisson loss does.
var (
	anyNumber = loss.Range{Min: -math.MaxFloat32, Max: math.MaxFloat32}
	fromZero  = loss.Range{Min: 0, Max: math.MaxFloat32}
)

// headLabels are those of a click, a price that only clicks have, a count and a point of two numbers.
func headLabels() []parse.Label {
	return []parse.Label{
		{Name: "click", Column: "rating", Positive: ">= 4"},
		{Name: "price", Column: "paid", Accepts: anyNumber, Optional: true},
		{Name: "times", Column: "count", Accepts: fromZero, Mask: "asked", MaskPositive: ">= 1"},
	}
}

// headRows are records by column; what is not there is missing.
var headRows = []map[string]string{
	{"user": "7", "rating": "5", "paid": "-12.5", "count": "3", "asked": "1"},
	{"user": "8", "rating": "1", "count": "2.5", "asked": "2"},
	{"user": "9", "rating": "4", "paid": "0", "count": "-3", "asked": "0"}, // masked: whatever there is
	{"user": "10", "rating": "4", "paid": "1"},                             // neither count nor mask
	{"rating": "3", "paid": "1", "asked": "1"},                             // asked for, and no count
	{"user": "1", "paid": "1", "asked": "1", "count": "1"},                 // no rating
	{"user": "2", "rating": "1", "asked": "1", "count": "-1"},              // no count may be that
	{"user": "3", "rating": "1", "paid": "2e9"},
}

var headWant = []string{
	"user=[1:7] __label_click__=1 __label_price__=-12.5 __mask_price__=true __label_times__=3 __mask_times__=true __key_user__=\"7\" __position__=10",
	"user=[1:8] __label_click__=0 __label_price__=0 __mask_price__=false __label_times__=2.5 __mask_times__=true __key_user__=\"8\" __position__=20",
	"user=[1:9] __label_click__=1 __label_price__=0 __mask_price__=true __label_times__=0 __mask_times__=false __key_user__=\"9\" __position__=30",
	"user=[1:10] __label_click__=1 __label_price__=1 __mask_price__=true __label_times__=0 __mask_times__=false __key_user__=\"10\" __position__=40",
	"user=[] __label_click__=0 __label_price__=1 __mask_price__=true __label_times__=0 __mask_times__=false __key_user__=\"\" __position__=50",
}

var headBad = []string{
	`no label: column "rating"`,
	`bad label: label "times": column "count" is -1; its loss takes from 0 up`,
	`bad label: label "price": column "paid" is 2e+09, a label is 1e+09 at most`,
}

// checkHeads compares rows and bad rows with what is wanted, whatever the payloads.
func checkHeads(t *testing.T, got result) {
	t.Helper()
	for i, line := range got.bad {
		reason, ok := strings.CutPrefix(line, fmt.Sprintf("src/part-0 position %d: ", 50+10*i))
		if i >= len(headBad) || !ok || !strings.HasPrefix(reason, headBad[i]) {
			t.Errorf("bad row %d: %s", i, line)
		}
	}
	if len(got.bad) != len(headBad) {
		t.Errorf("%d bad rows, want %d", len(got.bad), len(headBad))
	}
	if g, w := strings.Join(got.rows, "\n"), strings.Join(headWant, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// TestHeads parses the same rows in every format.
func TestHeads(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Features: []parse.Feature{{Name: "user", Slot: 1, Type: parse.Int}}, Labels: headLabels(), Keys: []parse.Key{{Name: "user"}},
	}
	columns := []string{"user", "rating", "paid", "count", "asked"}
	for _, text := range []parse.Format{parse.CSV, parse.TSV} {
		o := opts
		o.Format, o.Columns = text, columns
		delimiter := map[parse.Format]string{parse.CSV: ",", parse.TSV: "\t"}[text]
		var records [][]byte
		for _, row := range headRows {
			var fields []string
			for _, c := range columns {
				fields = append(fields, row[c])
			}
			records = append(records, []byte(strings.Join(fields, delimiter)))
		}
		t.Run(string(text), func(t *testing.T) { checkHeads(t, parseRecords(t, o, "", records...)) })
	}
	t.Run("jsonl", func(t *testing.T) {
		o := opts
		o.Format = parse.JSONL
		var records [][]byte
		for _, row := range headRows {
			var fields []string
			for _, c := range columns {
				if v := row[c]; v != "" {
					fields = append(fields, fmt.Sprintf("%q:%s", c, v))
				}
			}
			records = append(records, []byte("{"+strings.Join(fields, ",")+"}"))
		}
		checkHeads(t, parseRecords(t, o, "", records...))
	})
	number := func(text string) (v float32) {
		if _, err := fmt.Sscan(text, &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	t.Run("tf_example", func(t *testing.T) {
		o := opts
		o.Format = parse.TFExample
		var records [][]byte
		for _, row := range headRows {
			var e example.Encoder
			for _, c := range columns {
				if v := row[c]; v != "" && c == "user" {
					e.Int64s(c, int64(number(v)))
				} else if v != "" {
					e.Floats(c, number(v))
				}
			}
			records = append(records, e.Append(nil))
		}
		checkHeads(t, parseRecords(t, o, "", records...))
	})
	t.Run("columns", func(t *testing.T) {
		mem := checked(t)
		fields := []arrow.Field{{Name: "user", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}
		for _, c := range columns[1:] {
			fields = append(fields, arrow.Field{Name: c, Type: arrow.PrimitiveTypes.Float64, Nullable: true})
		}
		schema := arrow.NewSchema(append(fields, arrow.Field{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}), nil)
		b := array.NewRecordBuilder(mem, schema)
		defer b.Release()
		for i, row := range headRows {
			for k, c := range columns {
				v := row[c]
				switch {
				case v == "":
					b.Field(k).AppendNull()
				case k == 0:
					b.Field(k).(*array.Int64Builder).Append(int64(number(v)))
				default:
					b.Field(k).(*array.Float64Builder).Append(float64(number(v)))
				}
			}
			b.Field(len(columns)).(*array.Int64Builder).Append(int64(10 * (i + 1)))
		}
		in, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "src", Split: "part-0", To: 100})
		if err != nil {
			t.Fatal(err)
		}
		stage := parse.NewColumns(opts)
		want, err := stage.Schema(schema)
		if err != nil {
			t.Fatal(err)
		}
		var policy badRows
		p, err := stage.Open(t.Context(), &pipeline.Env{Allocator: mem, BadRows: &policy})
		if err != nil {
			t.Fatal(err)
		}
		var got result
		if err := p.Process(t.Context(), in, func(out *pipeline.Batch) error {
			defer out.Release()
			got.rows = render(t, out, want)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		got.bad = policy.lines
		checkHeads(t, got)
	})
}

// TestLibFMLabels: the record's own label for a click and for a value, and a field's value as another.
func TestLibFMLabels(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.LibFM, Fields: []string{"user", "paid"}, Features: []parse.Feature{{Name: "user", Slot: 1}},
		Labels: []parse.Label{{Name: "click"}, {Name: "paid", Column: "paid", Accepts: anyNumber}},
	}
	check(t, parseRecords(t, opts, "", lines("1 7:1 0:2.5\n-1 8:1 0:-3\n2 9:1 0:0")...),
		[]string{"user=[1:7] __label_click__=1 __label_paid__=2.5 __position__=10", "user=[1:8] __label_click__=0 __label_paid__=-3 __position__=20"},
		[]string{`src/part-0 position 20: bad label: label 2 is not 1, 0 or -1; say from where it is positive "2 9:1 0:0"`})
	opts.Labels = []parse.Label{{Accepts: anyNumber}}
	check(t, parseRecords(t, opts, "", lines("-1 7:1 0:1\n2.5 9:1 0:0")...),
		[]string{"user=[1:7] __label__=-1 __position__=10", "user=[1:9] __label__=2.5 __position__=20"}, nil)
}

// TestWideLabels: several numbers a row, in a list or in text.
func TestWideLabels(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.JSONL, Features: []parse.Feature{{Name: "user", Slot: 1}},
		Labels: []parse.Label{{Name: "at", Width: 2, Split: "|", Accepts: anyNumber, Optional: true}},
	}
	opts.Labels[0].Column = "at"
	check(t, parseRecords(t, opts, "", lines(`{"user":1,"at":[1,-2.5]}`+"\n"+`{"user":1,"at":"3|4"}`+"\n"+`{"user":1}`+"\n"+`{"user":1,"at":[1]}`+"\n"+`{"user":1,"at":"1|x"}`+"\n"+`{"user":1,"at":""}`)...),
		[]string{
			"user=[1:1] __label_at__=[1 -2.5] __mask_at__=true __position__=10", "user=[1:1] __label_at__=[3 4] __mask_at__=true __position__=20",
			"user=[1:1] __label_at__=[0 0] __mask_at__=false __position__=30", "user=[1:1] __label_at__=[0 0] __mask_at__=false __position__=60",
		},
		[]string{
			`src/part-0 position 30: bad label: column "at" has 1 values, not 2 "{\"user\":1,\"at\":[1]}"`,
			`src/part-0 position 40: bad label: column "at" is "x", not a number, nor true or false; to compare text, say so: positive: "== yes" "{\"user\":1,\"at\":\"1|x\"}"`,
		})
}

// TestWholeLabels are the ids of classes.
func TestWholeLabels(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.CSV, Columns: []string{"user", "class", "ok"}, Features: []parse.Feature{{Name: "user", Slot: 1}},
		Labels: []parse.Label{{Name: "class", Column: "class", Accepts: loss.Range{Min: 0, Max: 3, Whole: true}, Mask: "ok"}},
	}
	check(t, parseRecords(t, opts, "", lines("1,3,1\n1,1.5,1\n1,9,\n1,9,0\n1,1,no")...),
		[]string{"user=[1:1] __label_class__=3 __mask_class__=true __position__=10", "user=[1:1] __label_class__=0 __mask_class__=false __position__=30", "user=[1:1] __label_class__=0 __mask_class__=false __position__=40"},
		[]string{
			`src/part-0 position 10: bad label: label "class": column "class" is 1.5; its loss takes 0 to 3, whole "1,1.5,1"`,
			`src/part-0 position 40: bad mask: column "ok" is "no", not a number, nor true or false; to compare text, say so: positive: "== yes" "1,1,no"`,
		})
}

// TestTextLabels parses labels and masks that are words.
func TestTextLabels(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.CSV, Columns: []string{"user", "bought", "shown"}, Features: []parse.Feature{{Name: "user", Slot: 1}},
		Labels: []parse.Label{{Column: "bought"}},
	}
	words := lines("1,true,\n1,False,\n1,TRUE,\n1, 1,\n1,yes,\n1,,\n1,t,")
	check(t, parseRecords(t, opts, "", words...),
		[]string{"user=[1:1] __label__=1 __position__=10", "user=[1:1] __label__=0 __position__=20", "user=[1:1] __label__=1 __position__=30", "user=[1:1] __label__=1 __position__=40"},
		[]string{
			`src/part-0 position 40: bad label: column "bought" is "yes", not a number, nor true or false; to compare text, say so: positive: "== yes" "1,yes,"`,
			`src/part-0 position 50: no label: column "bought" "1,,"`,
			`src/part-0 position 60: bad label: column "bought" is "t", not a number, nor true or false; to compare text, say so: positive: "== yes" "1,t,"`,
		})
	opts.Labels = []parse.Label{{Column: "bought", Positive: "!= not yet", Mask: "shown", MaskPositive: "== top"}}
	check(t, parseRecords(t, opts, "", lines("1,not yet,top\n1, yes ,top\n1,430_1,top\n1,,top\n1,yes,below\n1,yes,")...),
		[]string{
			"user=[1:1] __label__=0 __mask__=true __position__=10", "user=[1:1] __label__=1 __mask__=true __position__=20", "user=[1:1] __label__=1 __mask__=true __position__=30",
			"user=[1:1] __label__=0 __mask__=false __position__=40", "user=[1:1] __label__=0 __mask__=false __position__=50", "user=[1:1] __label__=0 __mask__=false __position__=60",
		}, nil)
	opts.Format, opts.Columns = parse.JSONL, nil
	opts.Labels = []parse.Label{{Column: "bought", Positive: "== yes"}}
	check(t, parseRecords(t, opts, "", lines(`{"user": 1, "bought": "yes"}`+"\n"+`{"user": 1, "bought": 1}`)...),
		[]string{"user=[1:1] __label__=1 __position__=10"},
		[]string{`src/part-0 position 10: bad label: column "bought" has integers, and is compared with the text "yes" "{\"user\": 1, \"bought\": 1}"`})
	opts.Labels[0].Width, opts.Labels[0].Accepts = 2, anyNumber
	check(t, parseRecords(t, opts, "", lines(`{"user": 1, "bought": ["no", " yes "]}`)...), []string{"user=[1:1] __label__=[0 1] __position__=10"}, nil)
}

// TestTextLabelsOfColumns: a column of numbers is no label where a text is compared.
func TestTextLabelsOfColumns(t *testing.T) {
	t.Parallel()
	opts := parse.Options{Features: []parse.Feature{{Name: "user", Slot: 1}}, Labels: []parse.Label{{Column: "user", Positive: "== 7th"}}}
	if got := parseColumn(t, opts, arrow.BinaryTypes.String, `"7th"`); len(got.rows) != 1 || !strings.Contains(got.rows[0], "__label__=1") {
		t.Errorf("text: %q, %q", got.rows, got.bad)
	}
	if got := parseColumn(t, opts, arrow.PrimitiveTypes.Int64, "1"); len(got.rows) > 0 || len(got.bad) != 1 || !strings.Contains(got.bad[0], `has integers, and is compared with the text "7th"`) {
		t.Errorf("numbers: %q, %q", got.rows, got.bad)
	}
}

func TestLabelFaults(t *testing.T) {
	t.Parallel()
	base := func(l ...parse.Label) parse.Options {
		return parse.Options{Format: parse.CSV, Columns: []string{"user", "paid"}, Features: []parse.Feature{{Name: "user", Slot: 1}}, Labels: l}
	}
	key := base()
	key.Keys = []parse.Key{{Name: "usr"}, {Name: "user"}, {Name: "user"}, {}}
	for want, o := range map[string]parse.Options{
		`label "x": there is no column "pad", did you mean "paid"?`:       base(parse.Label{Name: "x", Column: "pad"}),
		`label "x" has no column`:                                         base(parse.Label{Name: "x"}),
		`label "x": mask: there is no column "usr", did you mean "user"?`: base(parse.Label{Name: "x", Column: "paid", Mask: "usr"}),
		`label "x": mask: positive: "ten" does not begin with one of`:     base(parse.Label{Name: "x", Column: "paid", Mask: "user", MaskPositive: "ten"}),
		`label "x": what a mask must be is "> 1", but there is no mask`:   base(parse.Label{Name: "x", Column: "paid", MaskPositive: "> 1"}),
		`label "x": width is 2, but without split text is one number`:     base(parse.Label{Name: "x", Column: "paid", Width: 2}),
		`label "x": split cuts several numbers, but the width is 1`:       base(parse.Label{Name: "x", Column: "paid", Split: "|"}),
		`label "x": width is -1`:                                          base(parse.Label{Name: "x", Column: "paid", Width: -1}),
		`label "x": nothing is between 2 and 1`:                           base(parse.Label{Name: "x", Column: "paid", Accepts: loss.Range{Min: 2, Max: 1}}),
		`label "x" occurs twice`:                                          base(parse.Label{Name: "x", Column: "paid"}, parse.Label{Name: "x", Column: "user"}),
		`key "usr": there is no column "usr", did you mean "user"?`:       key,
		`key "user" occurs twice`:                                         key,
		`a key has no name`:                                               key,
		`label "x": positive compares text, but libfm has numbers`:        {Format: parse.LibFM, Fields: []string{"user"}, Features: base().Features, Labels: []parse.Label{{Name: "x", Positive: "== yes"}}},
		`label: positive is "> 1", but there is no column`:                base(parse.Label{Positive: "> 1"}),
	} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

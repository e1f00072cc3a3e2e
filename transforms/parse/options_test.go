package parse_test

import (
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// Every fault is reported, and all at once.
func TestValidateReportsAll(t *testing.T) {
	t.Parallel()
	user := parse.Feature{Name: "user", Slot: 1}
	for _, tc := range []struct {
		name string
		opts parse.Options
		want []string
	}{
		{
			name: "features",
			opts: parse.Options{
				Format: parse.CSV, Columns: []string{"user", "price", "user", "y"},
				Features: []parse.Feature{
					user, user,
					{Name: "", Column: "price", Slot: 1},
					{Name: "__time__", Column: "price", Slot: 1},
					{Name: "a", Column: "prize", Slot: 1},
					{Name: "b", Column: "price", Slot: 0},
					{Name: "c", Column: "price", Slot: 32768},
					{Name: "d", Column: "price", Kind: "dens", Slot: 1},
					{Name: "e", Column: "price", Type: "integer", Slot: 1},
					{Name: "f", Column: "price", Hash: "md5", Slot: 1},
					{Name: "g", Column: "price", Regexp: "(", Slot: 1},
					{Name: "h", Column: "price", Regexp: "(a)(b)", Slot: 1},
					{Name: "i", Column: "price", Kind: parse.Dense, Slot: 3, Max: 2, Hash: parse.HashInt, Type: parse.String},
					{Name: "j", Column: "price", Kind: parse.Dense, Dim: 2},
					{Name: "k", Column: "price", Kind: parse.Dense, Dim: -2},
					{Name: "l", Column: "price", Kind: parse.Dense, Default: "none"},
					{Name: "m", Column: "price", Slot: 1, Dim: 2, Max: -1},
					{Name: "n", Column: "price", Slot: 1, Type: parse.Int, Default: "-1"},
					{Name: "p", Column: "price", Slot: 1, Values: "v"},
				},
				Labels: []parse.Label{{Column: "label", Positive: "=> 4"}},
				Weight: parse.Weight{Column: "weight"},
				LineID: []string{"id"},
			},
			want: []string{
				`column "user" occurs twice`, `feature "user" occurs twice`, `a feature has no name`, `feature "__time__" has a reserved name`,
				`feature "a": there is no column "prize", did you mean "price"?`, `feature "b": slot 0 is outside 1 to 32767`,
				`feature "c": slot 32768 is outside 1 to 32767`, `feature "d": kind "dens" is not known, did you mean "dense"?`,
				`feature "e": type "integer" is not known`, `feature "f": hash "md5" is not known`, `feature "g": regexp: `,
				`feature "h": regexp "(a)(b)" has 2 groups, not 0 or 1`, `feature "i": slot is for sparse features`, `feature "i": max is for sparse features`,
				`feature "i": hash is for sparse features`, `feature "i": type is string, but dense features are numbers`,
				`feature "j": dim is 2, but without split text is one number`, `feature "k": dim is -2`, `feature "l": default "none" is not a number`,
				`feature "m": dim is for dense features`, `feature "m": max is -1`, `feature "n": default: id out of range`,
				`feature "p": values are for sparse features of libfm`,
				`label: positive: "=> 4" does not begin with one of >= <= == != > <`, `label: there is no column "label"`,
				`weight: there is no column "weight"`, `line_id: there is no column "id"`,
			},
		},
		{
			name: "format",
			opts: parse.Options{Format: "tfexample", Columns: []string{"a"}, Fields: []string{"b"}, Delimiter: ","},
			want: []string{
				`format "tfexample" is not known, did you mean "tf_example"?`, `columns are for csv and tsv, not for "tfexample"`,
				`fields are for libfm, not for "tfexample"`, `a delimiter is for csv and tsv`, `there are no features`,
			},
		},
		{
			name: "tf_example",
			opts: parse.Options{
				Format: parse.TFExample, Features: []parse.Feature{{Name: "user", Slot: 1, Default: "7"}}, Labels: []parse.Label{{Positive: "> 0"}},
			},
			want: []string{`label: positive is "> 0", but there is no column`},
		},
		{
			name: "libfm",
			opts: parse.Options{
				Format: parse.LibFM, Fields: []string{"a", "label", "a"},
				Features: []parse.Feature{{Name: "a", Slot: 1, Type: parse.String}, {Name: "b", Column: "label", Slot: 2}, {Name: "c", Column: "x", Slot: 1}, {Name: "d", Column: "a", Kind: parse.Dense, Dim: 2}},
			},
			want: []string{
				`field "a" occurs twice`, `field "label" has the name of libfm's label`, `feature "a": type is string, but libfm has integers`,
				`feature "b" takes libfm's label`, `feature "c": there is no column "x"`, `feature "d": a dense feature of libfm is the value of one of the fields`,
			},
		},
		{
			name: "csv delimiter",
			opts: parse.Options{Format: parse.CSV, Delimiter: "::", Features: []parse.Feature{user}},
			want: []string{`delimiter "::" of csv is not one byte`},
		},
		{
			name: "joins",
			opts: parse.Options{
				Format: parse.TSV, Columns: []string{"user", "item"},
				Features: []parse.Feature{user, {Name: "agee", Slot: 2}, {Name: "vec", Column: "age", Kind: parse.Dense, Dim: 2}},
				Joins: []parse.Join{
					{Columns: []string{"user", "item", "age"}, Key: "user"},
					{File: "b", Columns: []string{"id", "age", "id"}, Key: "itm", KeyColumn: "key", Encoding: "latin9", MaxBytes: -1},
					{File: "c", Columns: []string{"id"}},
				},
			},
			want: []string{
				`join 1 has no file`, `join 1 (): the record has a column "item" too; use a prefix`, `join 2 (b): encoding "latin9" is not known, did you mean "latin1"?`,
				`join 2 (b): max_bytes is -1`, `join 2 (b): column "id" occurs twice`, `join 2 (b): key: there is no column "itm", did you mean "item"?`,
				`join 2 (b): there is no column "key"`, `join 2 (b): join 1 has a column "age" too; use a prefix`, `join 3 (c) has no key`,
				`feature "agee": there is no column "agee", did you mean "age"?`, `feature "vec": dim is 2, but without split text is one number`,
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := tc.opts.Validate()
			if !errors.Is(err, pipeline.ErrConfig) {
				t.Fatalf("error is %v", err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no error says %s in\n%v", want, err)
				}
			}
			if _, schemaErr := parse.New(tc.opts).Schema(pipeline.BlockSchema(false, false)); !errors.Is(schemaErr, pipeline.ErrConfig) {
				t.Errorf("Schema says %v", schemaErr)
			}
			if _, openErr := parse.New(tc.opts).Open(t.Context(), nil); !errors.Is(openErr, pipeline.ErrConfig) {
				t.Errorf("Open says %v", openErr)
			}
		})
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format:   parse.TFExample,
		Features: []parse.Feature{{Name: "user", Slot: 1}, {Name: "age", Kind: parse.Dense}, {Name: "vec", Kind: parse.Dense, Dim: 4}},
		Labels:   []parse.Label{{Column: "y"}}, Weight: parse.Weight{Column: "w"}, LineID: []string{"id"},
	}
	got, err := parse.New(opts).Schema(pipeline.BlockSchema(true, true))
	if err != nil {
		t.Fatal(err)
	}
	want := []arrow.Field{
		{Name: "user", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
		{Name: "age", Type: arrow.PrimitiveTypes.Float32},
		{Name: "vec", Type: arrow.FixedSizeListOfNonNullable(4, arrow.PrimitiveTypes.Float32)},
		{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
		{Name: pipeline.ColWeight, Type: arrow.PrimitiveTypes.Float32},
		{Name: pipeline.ColLineID, Type: arrow.BinaryTypes.Binary},
		{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
		{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
	}
	if !got.Equal(arrow.NewSchema(want, nil)) {
		t.Errorf("schema is %v", got)
	}
	got, err = parse.New(opts).Schema(pipeline.BlockSchema(false, false))
	if err != nil || got.HasField(pipeline.ColTime) || got.NumFields() != len(want)-1 {
		t.Errorf("without time the schema is %v, %v", got, err)
	}
	odd := arrow.NewSchema([]arrow.Field{{Name: pipeline.ColPayload, Type: arrow.BinaryTypes.String}, {Name: pipeline.ColTime, Type: arrow.BinaryTypes.String}}, nil)
	_, err = parse.New(opts).Schema(odd)
	for _, col := range []string{pipeline.ColPayload, pipeline.ColPosition, pipeline.ColTime} {
		if !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), col) {
			t.Errorf("column %s is not reported: %v", col, err)
		}
	}
	if got := parse.New(opts).String(); got != "parse tf_example" {
		t.Errorf("String is %q", got)
	}
	if _, err := parse.New(parse.Options{Features: opts.Features}).Schema(pipeline.BlockSchema(false, false)); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "no format") {
		t.Errorf("without a format: %v", err)
	}
}

func TestCondition(t *testing.T) {
	t.Parallel()
	in := []float32{-1, 0, 3.5, 4, 5}
	for _, tc := range []struct {
		s    string
		want []float32
	}{
		{"", in},
		{">= 4", []float32{0, 0, 0, 1, 1}},
		{">3.5", []float32{0, 0, 0, 1, 1}},
		{" <= 0 ", []float32{1, 1, 0, 0, 0}},
		{"< 0", []float32{1, 0, 0, 0, 0}},
		{"== 3.5", []float32{0, 0, 1, 0, 0}},
		{"!= -1e0", []float32{0, 1, 1, 1, 1}},
	} {
		got, err := parse.Condition(tc.s, in...)
		if err != nil || !cmp.Equal(tc.want, got) {
			t.Errorf("%q gives %v, %v", tc.s, got, err)
		}
	}
	for _, s := range []string{"4", "= 4", ">=", ">= x", "> nan", "< inf", "=> 4", "==", "== nan", "!= -inf", "yes"} {
		if _, err := parse.Condition(s); err == nil {
			t.Errorf("%q is accepted", s)
		}
	}
}

func TestNumbersAgainstStrconv(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"", "0", "-0", "+7", "-", "+", "12345678901234567", "123456789012345678", "-99999999999999999", "9223372036854775807", "-9223372036854775808",
		"9223372036854775808", "1_000", "0x10", " 1", "1 ", "1.0", "٣", "000000000000000000000007", "9999999", "16777217", "1e38", "3.4e38", "3.5e38",
		"-inf", "NaN", ".5", "5.", "1e-50", "99999999", "--1", "-5",
	} {
		i, ok := parse.ParseInt([]byte(s))
		want, err := strconv.ParseInt(s, 10, 64)
		if ok != (err == nil) || ok && i != want {
			t.Errorf("int %q is %d, %v", s, i, ok)
		}
		f, ok := parse.ParseFloat([]byte(s))
		wantF, err := strconv.ParseFloat(s, 32)
		if strings.ContainsAny(s, "_x") { // literals of Go, and text in data
			err = strconv.ErrSyntax
		}
		if ok != (err == nil) || ok && math.Float32bits(f) != math.Float32bits(float32(wantF)) {
			t.Errorf("float %q is %g, %v", s, f, ok)
		}
	}
}

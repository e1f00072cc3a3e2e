package parse_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/transforms/parse"
)

// fuzzOne parses one record and returns the batch's record, or the error that the policy got.
func fuzzOne(t *testing.T, stage *parse.Stage, payload []byte) (row arrow.RecordBatch, bad *pipeline.DataError) {
	t.Helper()
	p, err := stage.Open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	err = p.Process(t.Context(), blockOf(t, memory.DefaultAllocator, 0, "", payload), func(b *pipeline.Batch) error {
		row = b.Record()
		return nil
	})
	if err != nil && !errors.As(err, &bad) {
		t.Fatalf("%q gives %v", payload, err)
	}
	return row, bad
}

// Whatever the bytes, a record is a row or a bad row.
func FuzzStage(f *testing.F) {
	features := []parse.Feature{
		{Name: "a", Slot: 1, Type: parse.Int},
		{Name: "b", Slot: 2, Split: "|", Max: 3},
		{Name: "c", Kind: parse.Dense, Dim: 2, Split: ";"},
		{Name: "d", Slot: 3, Type: parse.Float, Regexp: "x(.*)"},
	}
	columns := []string{"a", "b", "c", "d", "y"}
	label := parse.Label{Column: "y", Positive: "> 0"}
	stages := []*parse.Stage{
		parse.New(parse.Options{Format: parse.TFExample, Features: features, Labels: []parse.Label{label}, LineID: []string{"b"}}),
		parse.New(parse.Options{Format: parse.JSONL, Features: features, Labels: []parse.Label{label}, LineID: []string{"b"}}),
		parse.New(parse.Options{Format: parse.CSV, Columns: columns, Features: features, Labels: []parse.Label{label}}),
		parse.New(parse.Options{Format: parse.TSV, Columns: columns, Features: features, Labels: []parse.Label{label}, Weight: parse.Weight{Column: "a"}}),
		parse.New(parse.Options{Format: parse.LibFM, Fields: []string{"a", "b"}, Features: []parse.Feature{{Name: "a", Slot: 1, Values: "v"}, {Name: "b", Kind: parse.Dense}}}),
		parse.New(parse.Options{Format: parse.LibFM}),
		parse.New(parse.Options{Format: parse.JSONL, Features: features[:1], Labels: headLabels(), Keys: []parse.Key{{Name: "a"}}}),
	}
	var e example.Encoder
	e.Int64s("a", 1, 2)
	e.Strings("b", "x|y", "z")
	e.Floats("c", 1, 2)
	e.Floats("y", 1)
	f.Add(uint8(0), e.Append(nil))
	f.Add(uint8(1), []byte(`{"a":[1,2],"b":"x|y","c":[1,2.5],"d":"x3","y":true,"z":{"a":[null]}}`))
	f.Add(uint8(2), []byte(`1,"x|y",1;2,x7,1`))
	f.Add(uint8(3), []byte("1\tx|y\t1;2\tx7\t1"))
	f.Add(uint8(4), []byte("1 3:0.5 4:2"))
	f.Add(uint8(5), []byte("-1 3:1 4:1"))
	f.Add(uint8(6), []byte(`{"a":7,"rating":5,"paid":2.5,"count":null,"asked":false}`))
	f.Fuzz(func(t *testing.T, which uint8, payload []byte) {
		row, bad := fuzzOne(t, stages[int(which)%len(stages)], payload)
		if (row == nil) == (bad == nil) {
			t.Fatalf("%q: row %v, bad %v", payload, row, bad)
		}
		if row != nil && row.NumRows() != 1 {
			t.Fatalf("%q: %d rows", payload, row.NumRows())
		}
	})
}

// A record of csv is what encoding/csv says it is.
func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b", `"a","b""c",`, `"a`, `a"b`, `"a"b`, ",", "\"a\nb\",c", "a\nb", " \"a\"", `""`, `"""",""`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// The standard library skips empty lines and rewrites line ends; here a record is one already.
		if s == "" || strings.Contains(s, "\r") || strings.HasPrefix(s, "\n") || strings.HasSuffix(s, "\n") {
			return
		}
		got, err := parse.SplitCSV([]byte(s))
		r := csv.NewReader(strings.NewReader(s))
		want, wantErr := r.Read()
		if wantErr == nil {
			if _, more := r.Read(); !errors.Is(more, io.EOF) {
				wantErr = errors.New("more than one record")
			}
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %q, %v; encoding/csv: %q, %v", s, got, err, want, wantErr)
		}
		if err == nil && !slices.Equal(got, want) {
			t.Fatalf("%q: %q; encoding/csv: %q", s, got, want)
		}
	})
}

// A record is malformed exactly when encoding/json says so or it is no object, and its text is what encoding/json reads.
func FuzzJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":"x"}`, `{"a":"\u00e4\ud83d\ude00\n"}`, `{"a":["x","y"],"a":"z"}`, `{"\u0061":"k"}`, ` {} `, `[]`, `{"a":1e5}`, `{"a":-0.0}`, `{"b":[[[{}]]]}`,
		`{"a":"\ud800"}`, `{"a"}`, `{"a":tru}`, `{"a":00}`, `{,}`, `{"a":"` + "\x7f" + `"}`, "{\"a\":\"\xff\"}", `null`, `{"a":null}`, `{"a":.5}`, `{"a":1.}`, `{"a":1e}`,
	} {
		f.Add([]byte(s))
	}
	stage := parse.New(parse.Options{Format: parse.JSONL, Features: []parse.Feature{{Name: "a", Slot: 1}}})
	f.Fuzz(func(t *testing.T, payload []byte) {
		row, bad := fuzzOne(t, stage, payload)
		var m map[string]any
		err := json.Unmarshal(payload, &m)
		isObject := err == nil && len(bytes.TrimLeft(payload, " \t\r\n")) > 0 && bytes.TrimLeft(payload, " \t\r\n")[0] == '{'
		if bad != nil && bad.Reason == "malformed json" {
			if isObject && !strings.Contains(bad.Error(), "nesting") {
				t.Fatalf("%q: %v", payload, bad)
			}
			return
		}
		if !isObject {
			t.Fatalf("%q is accepted (row %v, bad %v), encoding/json says %v", payload, row, bad, err)
		}
		text, ok := m["a"].(string)
		if !ok || text == "" || !utf8.Valid(payload) {
			return
		}
		if row == nil {
			t.Fatalf("%q: %v", payload, bad)
		}
		list := row.Column(0).(*array.List)
		from, to := list.ValueOffsets(0)
		if to != from+1 || fid.ID(list.ListValues().(*array.Int64).Value(int(from))).Signature() != fid.HashString(text) {
			t.Fatalf("%q: the text is %q, the row %v", payload, text, row)
		}
	})
}

// A libfm record is what splitting it at blanks and colons says.
func FuzzLibFM(f *testing.F) {
	for _, s := range []string{"1 3:1 4:0.5", "-1", "0\t7:1", " 1  2:1 ", "1 a:1", "1 2:", "1 :1", "1 2:1:1", "1 9223372036854775807:1", "2 1:1", "1 1:nan", "-0", "0 1:-0", "1 1:2e9"} {
		f.Add(s)
	}
	stage := parse.New(parse.Options{Format: parse.LibFM, Features: []parse.Feature{{Name: "features", Slot: 1, Values: "v"}}})
	f.Fuzz(func(t *testing.T, s string) {
		row, _ := fuzzOne(t, stage, []byte(s))
		want, ok := slowLibFM(s)
		if (row != nil) != ok {
			t.Fatalf("%q: row %v, the oracle says %v", s, row, ok)
		}
		if row == nil {
			return
		}
		got := fmt.Sprintf("%v %v %v", row.Column(2).(*array.Float32).Value(0), listOf(row.Column(0)), listOf(row.Column(1)))
		if got != want {
			t.Fatalf("%q: %s, the oracle says %s", s, got, want)
		}
	})
}

func listOf(col arrow.Array) any {
	items := col.(*array.List).ListValues()
	if c, ok := items.(*array.Int64); ok {
		out := []int64{}
		for _, v := range c.Int64Values() {
			out = append(out, int64(fid.ID(v).Signature()))
		}
		return out
	}
	return append([]float32{}, items.(*array.Float32).Float32Values()...)
}

// slowLibFM is the obvious reading of one record with any number of entries.
func slowLibFM(s string) (string, bool) {
	tokens := strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) })
	if len(tokens) == 0 {
		return "", false
	}
	label, ok := parse.ParseFloat([]byte(tokens[0]))
	if !ok || label != 0 && label != 1 && label != -1 {
		return "", false
	}
	index, values := []int64{}, []float32{}
	for _, token := range tokens[1:] {
		before, after, ok := strings.Cut(token, ":")
		if !ok {
			return "", false
		}
		i, okIndex := parse.ParseInt([]byte(before))
		v, okValue := parse.ParseFloat([]byte(after))
		if !okIndex || !okValue || i < 0 || i > fid.MaxSignature || v-v != 0 || v > 1e9 || v < -1e9 {
			return "", false
		}
		index, values = append(index, i), append(values, v)
	}
	if label <= 0 {
		label = 0
	}
	return fmt.Sprintf("%v %v %v", label, index, values), true
}

// A side table is refused as a whole, with the place, or gives each of its keys what its line says; a record that it has no
// key for has nothing.
func FuzzJoin(f *testing.F) {
	for _, s := range []string{"a\t1\nb\t2\n", "a\t1\na\t2\n", "a\n", "\ufeffa\t3", "a\t1\r\n\r\nb\t\n", "a\t\"x\"\n", "\t7\n", "a\t1e99\nb\t-1", "\xff\t1\n"} {
		f.Add([]byte(s), false)
		f.Add([]byte(strings.ReplaceAll(s, "\t", ",")), true)
	}
	path := filepath.Join(f.TempDir(), "side")
	f.Fuzz(func(t *testing.T, text []byte, comma bool) {
		if len(text) > 1<<10 {
			return
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		j := parse.Join{File: path, Columns: []string{"key", "x"}, Key: "key"}
		if comma {
			j.Delimiter = ","
		}
		stage := parse.New(parse.Options{
			Format: parse.TSV, Columns: []string{"key", "other"}, Joins: []parse.Join{j},
			Features: []parse.Feature{{Name: "x", Kind: parse.Dense, Indicator: "gone"}, {Name: "id", Column: "x", Slot: 1, Type: parse.String}},
		})
		if _, err := stage.Open(t.Context(), nil); err != nil {
			if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), path+":") {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		row, bad := fuzzOne(t, stage, []byte("no such key at all\t"))
		if row == nil || row.Column(1).(*array.Float32).Value(0) != 1 || row.Column(2).(*array.List).ListValues().Len() != 0 {
			t.Fatalf("%q: a key that is not there gives %v, %v", text, row, bad)
		}
		for line := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
			key, x, ok := strings.Cut(strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), "\t")
			if comma || !ok || key == "" || strings.Contains(key, "\r") {
				continue
			}
			v, number := parse.ParseFloat([]byte(x))
			good := x == "" || number && v >= -1e9 && v <= 1e9
			row, bad := fuzzOne(t, stage, []byte(key+"\t"))
			if good != (row != nil) {
				t.Fatalf("%q, key %q: row %v, bad %v", text, key, row, bad)
			}
			if row != nil && row.Column(0).(*array.Float32).Value(0) != v {
				t.Fatalf("%q, key %q: %v, want %v", text, key, row, v)
			}
		}
	})
}

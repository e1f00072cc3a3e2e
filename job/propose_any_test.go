package job_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/job"
)

// anyColumn makes values of one kind. Values are nil, bool, int64, uint64, float64, string, []any, or json.RawMessage.
type anyColumn struct {
	name  string
	value func(i int) any
}

// anyColumns draws columns of all kinds, clean and dirty.
func anyColumns(rng *rand.Rand) []anyColumn {
	sometimes := func(share float64, some, usual func(i int) any) func(int) any {
		return func(i int) any {
			if rng.Float64() < share {
				return some(i)
			}
			return usual(i)
		}
	}
	constant := func(v any) func(int) any { return func(int) any { return v } }
	integer := func(i int) any { return int64(i*7%23 + 1) }
	fraction := func(i int) any { return float64(i%17)*.37 + .1 }
	word := func(i int) any { return "w" + strconv.Itoa(i%11) }
	list := func(of func(i int) any) func(int) any {
		return func(i int) any {
			out := make([]any, rng.IntN(5))
			for k := range out {
				out[k] = of(i + k)
			}
			return out
		}
	}
	kinds := []func(int) any{
		integer, fraction, word, constant(nil), constant("same"),
		sometimes(.1, constant(nil), integer), sometimes(.1, constant(""), integer), sometimes(.1, constant(""), fraction),
		sometimes(.05, constant("NA"), fraction), sometimes(.3, constant("NA"), fraction), sometimes(.05, constant(math.NaN()), fraction),
		sometimes(.4, word, fraction), sometimes(.5, integer, fraction), sometimes(.5, word, integer), sometimes(.03, constant([]any{int64(1)}), fraction),
		func(i int) any { return float64(i % 19) },                                                          // 667.0
		sometimes(.3, func(i int) any { return float64(i % 19) }, func(i int) any { return int64(i % 19) }), // 667.0 and 667
		func(i int) any { return uint64(1<<63) + uint64(i%9) },
		func(i int) any { return int64(i%9) - 3 },
		func(i int) any { return int64(1)<<60 + int64(i%9) },
		func(i int) any { return 1e18 * (1 + float64(i%9)) },
		list(integer), list(fraction), list(word), list(sometimes(.2, constant(nil), integer)), list(sometimes(.2, constant(nil), word)),
		list(sometimes(.2, constant(""), word)), list(sometimes(.2, word, integer)),
		func(i int) any { return []any{integer(i), integer(i + 1), int64(0), int64(0)}[:2+i%3] },
		func(i int) any { return []any{fraction(i), fraction(i + 1)} },
		func(i int) any { return i%3 == 0 },
		func(i int) any { return "a" + strconv.Itoa(i%5) + "|b" + strconv.Itoa(i%3) },
		func(i int) any { return strconv.Itoa(i%5) + "|-" + strconv.Itoa(i%3+1) },
		func(i int) any { return "2026-10-0" + strconv.Itoa(i%9+1) },
		func(i int) any { return int64(1_700_000_000_000 + i) },
		func(i int) any { return "a text, with \"quotes\"\nand lines " + strconv.Itoa(i) },
		func(i int) any { return `{"a": ` + strconv.Itoa(i) + `}` },
		func(i int) any { return json.RawMessage(`{"a": [1, {"b": null}]}`) },
		func(i int) any { return json.RawMessage(`[[1], [2]]`) },
		func(i int) any { return json.RawMessage(`99999999999999999999`) },
		func(i int) any { return "é" + strconv.Itoa(i%4) },
		func(i int) any { return strconv.Itoa(i%4) + " " },
		func(i int) any { return strings.Repeat("9", 19+i%3) },
		func(i int) any { return math.Floor(math.Exp(float64(i*37%41) / 5)) },     // counts with a long tail
		func(i int) any { return int64(math.Exp(float64(i*37%41)/4)) - 2 },        // some of them below 0
		sometimes(.4, constant(nil), func(i int) any { return float64(2 + i%4) }), // 3.0, with gaps
		func(i int) any { return float64(i*31%97)/100 + .5 },                      // weights
		func(i int) any { return int64(i * 31 % 7 / 4) },                          // a copy of the label
		func(i int) any { return float64(i*31%7) + .5 },                           // what it was made of
		func(i int) any { return []any{nil, "bought"}[i*31%7/4] },                 // known afterwards
		func(i int) any { return "id" + strconv.Itoa(i*i+7*i) },                   // another in every record
		func(i int) any { return 1e-7 * float64(i%13) },                           // hardly different
		func(i int) any { return int64(i * 7919) },                                // a large number of its own
	}
	names := []string{"price", "item_id", "age", "2024", "a b", "x:y", `q"q`, "year", "tags", "__own__", "ts", "é", "on", "c1", "weight", "item", "user_missing", "price_missing", "sample_weight", "day", "#", "- a", "label2"}
	rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	out := []anyColumn{{"user", integer}, {"click", func(i int) any { return int64(i * 31 % 7 / 4) }}}
	for i := range 1 + rng.IntN(6) {
		out = append(out, anyColumn{names[i], kinds[rng.IntN(len(kinds))]})
	}
	rng.Shuffle(len(out), func(i, k int) { out[i], out[k] = out[k], out[i] })
	return out
}

// anyText writes a value as a field of csv or tsv does.
func anyText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case float64:
		if s := strconv.FormatFloat(v, 'f', -1, 64); strings.Contains(s, ".") || v != v {
			return s
		}
		return strconv.FormatFloat(v, 'f', 1, 64)
	case json.RawMessage:
		return string(v)
	case []any:
		var parts []string
		for _, x := range v {
			parts = append(parts, anyText(x))
		}
		return strings.Join(parts, "|")
	}
	return fmt.Sprint(v)
}

// anyJSON writes a value as Python does: with NaN, and whole floats with a fraction.
func anyJSON(v any) string {
	switch v := v.(type) {
	case float64:
		if v != v {
			return "NaN"
		}
		return anyText(v)
	case []any:
		var parts []string
		for _, x := range v {
			parts = append(parts, anyJSON(x))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	b, _ := json.Marshal(v)
	return string(b)
}

func anyExample(columns []anyColumn, i int) []byte {
	var e example.Encoder
	for _, c := range columns {
		v := c.value(i)
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		var ints []int64
		var floats []float32
		var texts [][]byte
		for _, x := range list {
			switch x := x.(type) {
			case int64:
				ints = append(ints, x)
			case uint64:
				ints = append(ints, int64(x))
			case bool:
				ints = append(ints, 1)
			case float64:
				floats = append(floats, float32(x))
			case string:
				texts = append(texts, []byte(x))
			}
		}
		switch {
		case texts != nil:
			e.Bytes(c.name, texts...)
		case floats != nil:
			e.Floats(c.name, floats...)
		default:
			e.Int64s(c.name, ints...)
		}
	}
	return e.Append(nil)
}

// anyParquet writes columns of the types that their first values have. Values of other types are null.
func anyParquet(path string, columns []anyColumn, rows int) error {
	group, kinds, lists := parquet.Group{}, map[string]any{}, map[string]bool{}
	values := make([]map[string]any, rows)
	for i := range values {
		values[i] = map[string]any{}
		for _, c := range columns {
			values[i][c.name] = c.value(i)
		}
	}
	for _, c := range columns {
		for i := range values {
			first, isList := values[i][c.name], false
			if list, ok := first.([]any); ok {
				isList = true
				if k := slices.IndexFunc(list, func(x any) bool { return x != nil }); k >= 0 {
					first = list[k]
				} else {
					continue
				}
			}
			var node parquet.Node
			switch first.(type) {
			case int64:
				node = parquet.Int(64)
			case uint64:
				node = parquet.Uint(64)
			case float64:
				node = parquet.Leaf(parquet.DoubleType)
			case bool:
				node = parquet.Leaf(parquet.BooleanType)
			case string:
				node = parquet.String()
			default:
				continue
			}
			kinds[c.name], lists[c.name] = first, isList
			if node = parquet.Optional(node); isList {
				node = parquet.List(node)
			}
			if group[c.name] = parquet.Optional(node); c.name == "user" || c.name == "click" { // of a map's zeros the writer makes nulls
				group[c.name] = parquet.Int(64)
			}
			break
		}
	}
	for _, row := range values {
		for name, v := range row {
			same := func(x any) bool { return fmt.Sprintf("%T", x) == fmt.Sprintf("%T", kinds[name]) }
			switch list, ok := v.([]any); {
			case group[name] == nil:
				delete(row, name)
			case ok != lists[name]:
				row[name] = nil
			case ok:
				out := []any{}
				for _, x := range list {
					if !same(x) {
						x = nil
					}
					out = append(out, x)
				}
				row[name] = out
			case !same(v):
				row[name] = nil
			}
		}
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[map[string]any](&b, parquet.NewSchema("rows", group))
	if _, err := w.Write(values); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o600)
}

// anyFile writes a file of one of the formats, with torn records where that is possible, and returns its name.
func anyFile(t *testing.T, rng *rand.Rand, dir string) string {
	t.Helper()
	columns := anyColumns(rng)
	rows := []int{3, 8, 40, 120, 400}[rng.IntN(5)]
	torn := 0.
	if rows > 8 {
		torn = []float64{0, 0, .02, .2}[rng.IntN(4)]
	}
	var text bytes.Buffer
	line := func(s string) {
		if rng.Float64() < torn {
			s = s[:rng.IntN(len(s))] + []string{"", "\x00", "garbage"}[rng.IntN(3)]
		}
		text.WriteString(s + "\n")
	}

	switch kind := rng.IntN(7); kind {
	case 0, 1: // csv and tsv
		name, sep := "any.csv", ","
		if kind == 1 {
			name, sep = "any.tsv", "\t"
		}
		field := func(s string) string {
			if kind == 1 {
				return strings.NewReplacer("\t", " ", "\n", " ").Replace(s)
			}
			if strings.ContainsAny(s, "\",\n") {
				return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
			}
			return s
		}
		join := func(of func(c anyColumn) string) string {
			var fields []string
			for _, c := range columns {
				fields = append(fields, field(of(c)))
			}
			return strings.Join(fields, sep)
		}
		blank := columns[rng.IntN(len(columns))].name
		if blank == "click" || blank == "user" || rng.IntN(3) > 0 {
			blank = "none"
		}
		text.WriteString(join(func(c anyColumn) string { return strings.Replace(c.name, blank, "", 1) }) + "\n")
		for i := range rows {
			line(join(func(c anyColumn) string { return anyText(c.value(i)) }))
		}
		return anyWritten(t, rng, dir, name, text.Bytes())
	case 2, 3: // JSON lines, and the same in TFRecord
		var records [][]byte
		for i := range rows {
			var members []string
			for _, c := range columns {
				if v := c.value(i); v != nil || rng.IntN(2) == 0 {
					members = append(members, fmt.Sprintf("%q: %s", c.name, anyJSON(v)))
				}
			}
			s := "{" + strings.Join(members, ", ") + "}"
			records = append(records, []byte(s))
			line(s)
		}
		if kind == 2 {
			return anyWritten(t, rng, dir, []string{"any.jsonl", "any.json", "any.log"}[rng.IntN(3)], text.Bytes())
		}
		return anyTFRecord(t, rng, dir, records, torn)
	case 4: // libfm
		for i := range rows {
			s := []string{"1", "0", "-1", "3.5"}[i%(2+rng.IntN(3))]
			for k := range rng.IntN(4) {
				s += fmt.Sprintf(" %d:%s", i*7%23+k*100, []string{"1", "0.5"}[rng.IntN(2)])
			}
			line(s + " 7:1")
		}
		return anyWritten(t, rng, dir, "any.libfm", text.Bytes())
	case 5: // tf.Example
		var records [][]byte
		for i := range rows {
			records = append(records, anyExample(columns, i))
		}
		return anyTFRecord(t, rng, dir, records, torn)
	}
	name := filepath.Join(dir, "any.parquet")
	if err := anyParquet(name, columns, rows); err != nil {
		t.Fatal(err)
	}
	return name
}

// anyWritten writes a file, sometimes in gzip.
func anyWritten(t *testing.T, rng *rand.Rand, dir, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if rng.IntN(4) == 0 {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, err := w.Write(data)
		if err = errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
		path, data = path+".gz", b.Bytes()
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func anyTFRecord(t *testing.T, rng *rand.Rand, dir string, records [][]byte, torn float64) string {
	t.Helper()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, nil)
	for _, r := range records {
		if rng.Float64() < torn {
			r = slices.Concat(r[:rng.IntN(len(r)+1)], []byte("\xff\xff"))
		}
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return anyWritten(t, rng, dir, "any.tfrecord", b.Bytes())
}

// TestProposedJobsTrain: the job that is proposed for a file passes check with a sample and trains on the file, whatever the file holds beside
// one column of ids and a label.
func TestProposedJobsTrain(t *testing.T) {
	t.Parallel()
	n := 200
	if testing.Short() {
		n = 60
	}
	for seed := range n {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(seed), 35))
			file := anyFile(t, rng, t.TempDir())
			fail := func(format string, args ...any) {
				t.Helper()
				data, _ := os.ReadFile(file)
				if z, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
					data, _ = io.ReadAll(z)
				}
				t.Fatalf("%s: %s\n%.500q", filepath.Base(file), fmt.Sprintf(format, args...), data)
			}
			p, err := job.Propose(t.Context(), file, job.ProposeOptions{})
			if err != nil {
				fail("no job: %v", err)
			}
			cfg, err := job.Decode([]byte(p.Job), "any.yaml", job.LoadOptions{Set: []string{"dir=" + t.TempDir()}})
			if err != nil {
				fail("%v\n%s", err, p.Job)
			}
			if findings, err := job.Check(t.Context(), cfg); err != nil || len(findings) > 0 {
				fail("check: %v, %v\n%s", findings, err, p.Job)
			}
			if _, err := job.Need(t.Context(), cfg, job.NeedOptions{Sample: 1000}); err != nil {
				fail("check --sample: %v\n%s", err, p.Job)
			}
			r, err := job.Run(t.Context(), cfg, job.RunOptions{})
			if err != nil || r.Examples == 0 {
				fail("%+v, %v\n%s", r, err, p.Job)
			}
		})
	}
}

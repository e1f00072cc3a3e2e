package tsvsink_test

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed/readers"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/tsvsink"
	"github.com/monolith-go/monolith/sources/textsource"
	"github.com/monolith-go/monolith/transforms/parse"
)

// values are texts and what may be hard to write.
var values = []string{"plain", "", "tab\there", "comma,here", `quote " here`, "line\nend", "carriage\rreturn", `"`, "umlaut ä", "pipe|", "\xff\xfe", " blank "}

// sampleOf is a batch with a row for each of the values, of which every third has no label.
func sampleOf(t *testing.T, mem memory.Allocator) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "word, \"quoted\"", Type: arrow.BinaryTypes.Binary},
		{Name: "fids", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
		{Name: "pair", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Float32)},
		{Name: "flag", Type: arrow.FixedWidthTypes.Boolean},
		{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32, Nullable: true},
		{Name: "prediction", Type: arrow.PrimitiveTypes.Float32},
	}, nil))
	defer b.Release()
	for i, v := range values {
		b.Field(0).(*array.Int64Builder).Append(math.MaxInt64 - int64(i))
		b.Field(1).(*array.BinaryBuilder).Append([]byte(v))
		fids := b.Field(2).(*array.ListBuilder)
		fids.Append(true)
		for k := range i % 3 {
			fids.ValueBuilder().(*array.Int64Builder).Append(int64(k) - 1)
		}
		pair := b.Field(3).(*array.FixedSizeListBuilder)
		pair.Append(true)
		pair.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{math.SmallestNonzeroFloat32, float32(i)}, nil)
		b.Field(4).(*array.BooleanBuilder).Append(i%2 == 0)
		if i%3 == 0 {
			b.Field(5).(*array.Float32Builder).AppendNull()
		} else {
			b.Field(5).(*array.Float32Builder).Append(1)
		}
		b.Field(6).(*array.Float32Builder).Append(float32(i) / 7)
	}
	out, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", From: 0, To: pipeline.Position(len(values))})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// wantLines is what a reader of csv is to find.
func wantLines() [][]string {
	out := [][]string{{"id", "word, \"quoted\"", "fids", "pair", "flag", "label", "prediction"}}
	for i, v := range values {
		label := "1"
		if i%3 == 0 {
			label = ""
		}
		// Go's reader makes \n of \r\n, and of nothing else.
		out = append(out, []string{
			fmt.Sprint(int64(math.MaxInt64) - int64(i)), v, []string{"", "-1", "-1|0"}[i%3], fmt.Sprintf("1e-45|%d", i), fmt.Sprint(i%2 == 0), label, fmt.Sprint(float32(i) / 7),
		})
	}
	return out
}

// written writes a sample and returns the file with its text.
func written(t *testing.T, o tsvsink.Options, rows func(mem memory.Allocator) *pipeline.Batch) (path, text string) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	o.Dir = t.TempDir()
	s, err := tsvsink.New(o)
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(t.Context(), rows(mem)), w.Flush(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(o.Dir, "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return names[0], string(got)
}

// TestOthersReadIt: Go's reader of csv finds every value, with any delimiter, with and without the line of names.
func TestOthersReadIt(t *testing.T) {
	t.Parallel()
	for _, delimiter := range []string{"\t", ",", ";", "\x01"} {
		for _, header := range []bool{true, false} {
			_, text := written(t, tsvsink.Options{Delimiter: delimiter, NoHeader: !header}, func(mem memory.Allocator) *pipeline.Batch { return sampleOf(t, mem) })
			r := csv.NewReader(strings.NewReader(text))
			r.Comma = rune(delimiter[0])
			got, err := r.ReadAll()
			want := wantLines()
			if !header {
				want = want[1:]
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("delimiter %q: %v\n%s", delimiter, err, diff)
			}
		}
	}
}

// TestOurSourceReadsIt: our own source and parser find the values of a file, which says the delimiter in its name.
func TestOurSourceReadsIt(t *testing.T) {
	t.Parallel()
	for delimiter, extension := range map[string]string{",": ".csv.gz", "\t": ".tsv.gz"} {
		path, _ := written(t, tsvsink.Options{Delimiter: delimiter}, func(mem memory.Allocator) *pipeline.Batch { return sampleOf(t, mem) })
		if !strings.HasSuffix(path, extension) {
			t.Errorf("%q: %s", delimiter, path)
		}
		src, err := textsource.New(textsource.Options{Files: []string{path}, Header: true, Quoted: true, Delimiter: delimiter[0]})
		if err != nil {
			t.Fatal(err)
		}
		stage := parse.New(parse.Options{
			Format: parse.CSV, Delimiter: delimiter, Features: []parse.Feature{{Name: "prediction", Kind: parse.Dense}, {Name: "pair", Kind: parse.Sparse, Slot: 1, Type: parse.String, Split: "|"}},
			Keys: []parse.Key{{Name: "word", Column: "word, \"quoted\""}, {Name: "fids"}},
		})
		p, err := stage.Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		pipelinetest.ReadAll(t, src, &pipeline.Env{}, func(_ pipeline.Split, b *pipeline.Block) {
			b.Retain()
			if err := p.Process(t.Context(), b, func(out *pipeline.Batch) error {
				defer out.Release()
				for i := range out.NumRows() {
					if got := string(out.Column(pipeline.KeyColumn("word")).(*array.Binary).Value(i)); got != values[n] {
						t.Errorf("%q: row %d is %q, want %q", delimiter, n, got, values[n])
					}
					if got := out.Column("prediction").(*array.Float32).Value(i); got != float32(n)/7 {
						t.Errorf("%q: row %d has %v", delimiter, n, got)
					}
					if from, to := out.Column("pair").(*array.List).ValueOffsets(i); to-from != 2 {
						t.Errorf("%q: row %d has %d of a pair", delimiter, n, to-from)
					}
					n++
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		})
		if n != len(values) {
			t.Errorf("%q: %d rows of %d", delimiter, n, len(values))
		}
	}
}

// TestPyarrowReadsIt: pyarrow finds every text, whatever is in it, with a tab and with a comma.
func TestPyarrowReadsIt(t *testing.T) {
	var want strings.Builder
	for i, v := range values {
		fmt.Fprintf(&want, "%d %x\n", int64(math.MaxInt64)-int64(i), v)
	}
	for _, delimiter := range []string{"\t", ","} {
		path, _ := written(t, tsvsink.Options{Delimiter: delimiter}, func(mem memory.Allocator) *pipeline.Batch { return sampleOf(t, mem) })
		out := readers.Run(t, `
import sys, pyarrow as pa, pyarrow.csv as csv
t = csv.read_csv(sys.argv[1], parse_options=csv.ParseOptions(delimiter=sys.argv[2], newlines_in_values=True),
    convert_options=csv.ConvertOptions(column_types={'word, "quoted"': pa.binary()}, strings_can_be_null=False))
for i, w in zip(t["id"].to_pylist(), t['word, "quoted"'].to_pylist()):
    print(i, w.hex())
`, path, delimiter)
		if diff := cmp.Diff(want.String(), string(out)); diff != "" {
			t.Errorf("delimiter %q\n%s", delimiter, diff)
		}
	}
}

// TestBlankLines: a row of one empty value is a line that readers do not pass over.
func TestBlankLines(t *testing.T) {
	t.Parallel()
	_, text := written(t, tsvsink.Options{NoHeader: true}, func(mem memory.Allocator) *pipeline.Batch {
		b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{{Name: "word", Type: arrow.BinaryTypes.String}}, nil))
		defer b.Release()
		b.Field(0).(*array.StringBuilder).AppendValues([]string{"", "a", ""}, nil)
		out, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", To: 3})
		if err != nil {
			t.Fatal(err)
		}
		return out
	})
	if want := "\"\"\na\n\"\"\n"; text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o    tsvsink.Options
		want string
	}{
		{tsvsink.Options{Delimiter: "::"}, `delimiter is "::"`},
		{tsvsink.Options{Delimiter: `"`}, "delimiter is"},
		{tsvsink.Options{Delimiter: "."}, "delimiter is"},
		{tsvsink.Options{Delimiter: "\n"}, "delimiter is"},
		{tsvsink.Options{ListDelimiter: "7"}, "list_delimiter is"},
		{tsvsink.Options{Delimiter: "|"}, "list_delimiter is \"|\", the delimiter of fields"},
	} {
		c.o.Dir = "rows"
		if _, err := tsvsink.New(c.o); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q and %q: %v", c.o.Delimiter, c.o.ListDelimiter, err)
		}
	}
	s, err := tsvsink.New(tsvsink.Options{Options: filesink.Options{Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema([]arrow.Field{{Name: "words", Type: arrow.ListOf(arrow.BinaryTypes.String)}}, nil))
	b.Field(0).(*array.ListBuilder).Append(true)
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", To: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), batch); !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `column "words"`) {
		t.Errorf("lists of text: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[tsvsink.Options]{
		Options: tsvsink.Options{
			Options:   filesink.Options{Dir: "rows", RowsPerFile: 1000, BytesPerFile: 1000, FileEvery: time.Second, Output: "a", Keys: "k."},
			Delimiter: ";", ListDelimiter: "/", NoHeader: true,
		},
		New: func(t *testing.T, o tsvsink.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := tsvsink.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Other: map[string]any{"Delimiter": "\t", "ListDelimiter": "|"},
		Free: map[string]string{
			"Options.RowsPerFile": "how rows are cut into files", "Options.BytesPerFile": "as RowsPerFile", "Options.FileEvery": "as RowsPerFile", "Options.Keys": "how errors are worded",
		},
	})
}

// FuzzText: whatever a text is, a reader of csv finds it again between its neighbours.
func FuzzText(f *testing.F) {
	for _, v := range values {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		_, text := written(t, tsvsink.Options{NoHeader: true}, func(mem memory.Allocator) *pipeline.Batch {
			b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.BinaryTypes.Binary}, {Name: "b", Type: arrow.PrimitiveTypes.Int64}}, nil))
			defer b.Release()
			for i := range int64(2) {
				b.Field(0).(*array.BinaryBuilder).Append([]byte(v))
				b.Field(1).(*array.Int64Builder).Append(i)
			}
			out, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", To: 2})
			if err != nil {
				t.Fatal(err)
			}
			return out
		})
		r := csv.NewReader(strings.NewReader(text))
		r.Comma = '\t'
		got, err := r.ReadAll()
		v = strings.ReplaceAll(v, "\r\n", "\n") // so does Go's reader
		if diff := cmp.Diff([][]string{{v, "0"}, {v, "1"}}, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", text, err, diff)
		}
	})
}

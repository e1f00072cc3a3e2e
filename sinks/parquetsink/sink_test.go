package parquetsink_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
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
	"github.com/monolith-go/monolith/sinks/parquetsink"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

func sink(t testing.TB, o parquetsink.Options) *filesink.Sink {
	t.Helper()
	s, err := parquetsink.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func writer(t testing.TB, o parquetsink.Options) *filesink.Writer {
	t.Helper()
	w, err := sink(t, o).Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
	return w.(*filesink.Writer)
}

// readAll reads all files of a folder in the order of their names.
func readAll(t testing.TB, dir string, columns *arrow.Schema, each func(*pipeline.Batch)) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	for _, name := range names {
		src, err := parquetsource.New(parquetsource.Options{Files: []string{name}, Columns: columns})
		if err != nil {
			t.Fatal(err)
		}
		pipelinetest.ReadAll(t, src, &pipeline.Env{}, func(_ pipeline.Split, b *pipeline.Batch) { each(b) })
	}
}

// every is a schema with all that can be written.
var every = arrow.NewSchema([]arrow.Field{
	{Name: "user", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
	{Name: "age", Type: arrow.PrimitiveTypes.Float32},
	{Name: "embedding", Type: arrow.FixedSizeListOfNonNullable(3, arrow.PrimitiveTypes.Float32)},
	{Name: "words", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
	{Name: "city", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "flag", Type: arrow.FixedWidthTypes.Boolean},
	{Name: "small", Type: arrow.PrimitiveTypes.Int32, Nullable: true},
	{Name: "price", Type: arrow.PrimitiveTypes.Float64},
	{Name: "label", Type: arrow.PrimitiveTypes.Int64}, // so __label__ keeps its underscores
	{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32},
	{Name: pipeline.ColWeight, Type: arrow.PrimitiveTypes.Float32},
	{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
	{Name: pipeline.ColLineID, Type: arrow.BinaryTypes.Binary},
	{Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64},
}, nil)

// random makes a batch of [every].
func random(t testing.TB, rng *rand.Rand, from, to pipeline.Position) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(memory.NewGoAllocator(), every)
	defer b.Release()
	for i := from; i < to; i++ {
		ids := b.Field(0).(*array.ListBuilder)
		ids.Append(true)
		for range max(0, rng.IntN(5)-1) {
			ids.ValueBuilder().(*array.Int64Builder).Append(int64(rng.Uint64() >> rng.IntN(64)))
		}
		b.Field(1).(*array.Float32Builder).Append(rng.Float32())
		vec := b.Field(2).(*array.FixedSizeListBuilder)
		vec.Append(true)
		for range 3 {
			vec.ValueBuilder().(*array.Float32Builder).Append(rng.Float32())
		}
		words := b.Field(3).(*array.ListBuilder)
		if rng.IntN(4) == 0 {
			words.AppendNull()
		} else {
			words.Append(true)
			for range rng.IntN(3) {
				if rng.IntN(4) == 0 {
					words.ValueBuilder().AppendNull()
				} else {
					words.ValueBuilder().(*array.StringBuilder).Append(strings.Repeat("wört ", rng.IntN(4)))
				}
			}
		}
		if rng.IntN(3) == 0 {
			b.Field(4).AppendNull()
			b.Field(6).AppendNull()
		} else {
			b.Field(4).(*array.StringBuilder).Append(fmt.Sprint("city ", rng.IntN(5)))
			b.Field(6).(*array.Int32Builder).Append(int32(rng.Uint32()))
		}
		b.Field(5).(*array.BooleanBuilder).Append(rng.IntN(2) == 0)
		b.Field(7).(*array.Float64Builder).Append(rng.NormFloat64())
		b.Field(8).(*array.Int64Builder).Append(rng.Int64())
		b.Field(9).(*array.Float32Builder).Append(float32(rng.IntN(2)))
		b.Field(10).(*array.Float32Builder).Append(rng.Float32())
		b.Field(11).(*array.Int64Builder).Append(1_700_000_000_000_000 + int64(i)*1_000_003)
		b.Field(12).(*array.BinaryBuilder).Append(fmt.Appendf(nil, "line %d", i))
		b.Field(13).(*array.Int64Builder).Append(int64(i) + 1)
	}
	rec := b.NewRecordBatch()
	if rng.IntN(2) == 0 { // a slice, whose offsets do not begin at 0
		whole := rec
		rec = whole.NewSlice(whole.NumRows()/3, whole.NumRows())
		from += pipeline.Position(whole.NumRows() / 3)
		whole.Release()
	}
	out, err := pipeline.NewBatch(rec, pipeline.Origin{Source: "kafka", Split: "clicks-00003", From: from, To: to})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// written writes random batches to a folder and returns their rows as text, column by column.
func written(t testing.TB, o parquetsink.Options, seed uint64) []string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 0))
	w := writer(t, o)
	var rows []string
	at := pipeline.NoPosition
	for range 20 {
		from := max(at, 0)
		b := random(t, rng, from, from+1+pipeline.Position(rng.IntN(300)))
		if b.Origin().From != at && at != pipeline.NoPosition { // a slice that leaves out rows
			b.Release()
			continue
		}
		at = b.Origin().To
		for i := range b.NumRows() {
			row := ""
			for c := range every.Fields() {
				row += every.Field(c).Name + "=" + b.Record().Column(c).ValueStr(i) + ";"
			}
			rows = append(rows, row)
		}
		if err := w.Write(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestReadBack: what our own source reads is what was written, under every compression and cut into groups and files.
func TestReadBack(t *testing.T) {
	t.Parallel()
	for i, codec := range parquetsink.Codecs() {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			want := written(t, parquetsink.Options{Options: filesink.Options{Dir: dir, RowsPerFile: 500}, Compression: codec, RowsPerGroup: 7 + int64(i)*50}, uint64(i))
			fields := make([]arrow.Field, 0, every.NumFields())
			for _, f := range every.Fields() {
				name := f.Name
				if pipeline.Reserved(name) && name != pipeline.ColLabel {
					name = strings.Trim(name, "_")
				}
				switch dt := f.Type.(type) { // what the source reads things as
				case *arrow.FixedSizeListType:
					f.Type = arrow.ListOf(dt.Elem())
				case *arrow.ListType:
					f.Type = arrow.ListOf(dt.Elem())
				case *arrow.Int32Type:
					f.Type = arrow.PrimitiveTypes.Int64
				}
				fields = append(fields, arrow.Field{Name: name, Type: f.Type, Nullable: true})
			}
			var got []string
			readAll(t, dir, arrow.NewSchema(fields, nil), func(b *pipeline.Batch) {
				for i := range b.NumRows() {
					row := ""
					for c, f := range fields {
						row += every.Field(c).Name + "=" + b.Column(f.Name).ValueStr(i) + ";"
					}
					got = append(got, row)
				}
			})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-written +read:\n%.2000s", diff)
			}
		})
	}
}

// pyarrowScript prints a line of JSON for the schema, one for the metadata of the first file and one for each row.
const pyarrowScript = `
import glob, json, sys
import pyarrow as pa, pyarrow.parquet as pq
files = sorted(glob.glob(sys.argv[1] + "/*.parquet"))
print(json.dumps([[f.name, str(f.type)] for f in pq.read_schema(files[0])]))
print(json.dumps({k.decode(): v.decode() for k, v in pq.read_schema(files[0]).metadata.items() if k.startswith(b"monolith")}, sort_keys=True))
n = 0
for f in files:
    t = pq.read_table(f)
    n += t.num_rows
    t.validate(full=True)
    print(json.dumps([sum(len(v) for v in t["user"].to_pylist()), sum(v is None for v in t["words"].to_pylist()), sum(v is None for v in t["city"].to_pylist()), t["line_id"][0].as_py().decode(), t["time"][0].value]))
print(n)
`

// TestPyarrow: the reference implementation reads the files, nested columns, nulls, times and metadata.
func TestPyarrow(t *testing.T) {
	t.Parallel()
	for i, codec := range parquetsink.Codecs() {
		dir := t.TempDir()
		want := written(t, parquetsink.Options{Options: filesink.Options{Dir: dir, RowsPerFile: 700}, Compression: codec, RowsPerGroup: 100}, uint64(i))
		out := readers.Run(t, pyarrowScript, dir)
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		const schema = `[["user", "list<element: int64 not null>"], ["age", "float"], ["embedding", "list<element: float not null>"], ["words", "list<element: string>"], ["city", "string"], ["flag", "bool"], ["small", "int32"], ["price", "double"], ["label", "int64"], ["__label__", "float"], ["weight", "float"], ["time", "timestamp[us, tz=UTC]"], ["line_id", "binary"], ["position", "int64"], ["split", "string"]]`
		if lines[0] != schema {
			t.Errorf("%s: schema\n%s, want\n%s", codec, lines[0], schema)
		}
		if !strings.Contains(lines[1], `"monolith.source": "kafka", "monolith.split": "clicks-00003"`) {
			t.Errorf("%s: metadata %s", codec, lines[1])
		}
		if last := lines[len(lines)-1]; last != fmt.Sprint(len(want)) {
			t.Errorf("%s: %s rows, want %d", codec, last, len(want))
		}
		nulls := 0
		for _, row := range want {
			if strings.Contains(row, "words=(null);") {
				nulls++
			}
		}
		for _, line := range lines[2 : len(lines)-1] {
			var ids, words int
			if _, err := fmt.Sscanf(line, "[%d, %d,", &ids, &words); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			nulls -= words
		}
		if nulls != 0 {
			t.Errorf("%s: %d nulls are missing", codec, nulls)
		}
	}
}

func TestColumnsThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	odd := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.FixedWidthTypes.Date32}, {Name: "a,b", Type: arrow.PrimitiveTypes.Int64}}, nil))
	odd.Field(0).AppendNull()
	odd.Field(1).AppendNull()
	batch, err := pipeline.NewBatch(odd.NewRecordBatch(), pipeline.Origin{Source: "test", Split: "a", From: 0, To: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = writer(t, parquetsink.Options{Options: filesink.Options{Dir: t.TempDir()}}).Write(t.Context(), batch)
	if !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `"x" is date32`) || !strings.Contains(err.Error(), `"a,b"`) {
		t.Errorf("%v", err)
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	_, err := parquetsink.New(parquetsink.Options{Options: filesink.Options{RowsPerFile: -1, FileEvery: 1}, RowsPerGroup: -2, Compression: "rar"})
	for _, want := range []string{"no Dir", "RowsPerFile is -1", "FileEvery", "RowsPerGroup is -2", `"rar"`} {
		if err == nil || !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in %v", want, err)
		}
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[parquetsink.Options]{
		Options: parquetsink.Options{Options: filesink.Options{Dir: "rows", RowsPerFile: 1000, BytesPerFile: 1000, FileEvery: time.Second, Output: "a", Keys: "k."}, RowsPerGroup: 100, Compression: "zstd"},
		New: func(t *testing.T, o parquetsink.Options) interface{ Fingerprint() string } {
			t.Helper()
			return sink(t, o)
		},
		Other: map[string]any{"Compression": "gzip"},
		Free: map[string]string{
			"Options.RowsPerFile": "how rows are cut into files", "Options.BytesPerFile": "as RowsPerFile", "Options.FileEvery": "as RowsPerFile", "Options.Keys": "how errors are worded",
			"RowsPerGroup": "as RowsPerFile", "Compression": "how pages are stored",
		},
	})
}

func BenchmarkWrite(b *testing.B) {
	const features, rows = 20, 512
	fields := []arrow.Field{{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32}, {Name: pipeline.ColPosition, Type: arrow.PrimitiveTypes.Int64}}
	for i := range features {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("f", i), Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.1, 1, 100_000)
	rb := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema(fields, nil))
	defer rb.Release()
	for i := range rows {
		rb.Field(0).(*array.Float32Builder).Append(float32(rng.IntN(2)))
		rb.Field(1).(*array.Int64Builder).Append(int64(i) + 1)
		for f := range features {
			l := rb.Field(2 + f).(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Int64Builder).Append(int64(f)<<48 | int64(zipf.Uint64()))
		}
	}
	rec := rb.NewRecordBatch()
	defer rec.Release()
	w := writer(b, parquetsink.Options{Options: filesink.Options{Dir: b.TempDir()}})
	b.ReportAllocs()
	at := pipeline.Position(0)
	for b.Loop() {
		rec.Retain()
		origin := pipeline.Origin{Source: "s", Split: "a", From: at, To: at + rows}
		batch, err := pipeline.NewBatch(withoutPositions(rec), origin)
		if err == nil {
			err = w.Write(b.Context(), batch)
		}
		if err != nil {
			b.Fatal(err)
		}
		rec.Release()
		at += rows
	}
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func withoutPositions(rec arrow.RecordBatch) arrow.RecordBatch {
	fields, cols := rec.Schema().Fields(), rec.Columns()
	return array.NewRecordBatch(arrow.NewSchema(append(slices.Clone(fields[:1]), fields[2:]...), nil), append(slices.Clone(cols[:1]), cols[2:]...), rec.NumRows())
}

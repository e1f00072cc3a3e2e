package arrowsink

import (
	"bytes"
	"errors"
	"maps"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/filesink"
)

var columns = arrow.NewSchema([]arrow.Field{
	{Name: "id", Type: arrow.PrimitiveTypes.Int64},
	{Name: "vec", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Float32)},
	{Name: "words", Type: arrow.ListOf(arrow.BinaryTypes.String), Nullable: true},
	{Name: pipeline.ColTime, Type: arrow.PrimitiveTypes.Int64},
}, nil)

// rows is a batch of columns, whose values are those of numbers [from, to).
func rows(t *testing.T, mem memory.Allocator, split string, from, to int64) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, columns)
	defer b.Release()
	for i := from; i < to; i++ {
		b.Field(0).(*array.Int64Builder).Append(i)
		b.Field(1).(*array.FixedSizeListBuilder).Append(true)
		b.Field(1).(*array.FixedSizeListBuilder).ValueBuilder().(*array.Float32Builder).AppendValues([]float32{math.Float32frombits(uint32(i)), -float32(i)}, nil)
		words := b.Field(2).(*array.ListBuilder)
		if i%3 == 0 {
			words.AppendNull()
		} else {
			words.Append(true)
			words.ValueBuilder().(*array.StringBuilder).Append(strings.Repeat("x", int(i%5)))
		}
		b.Field(3).(*array.Int64Builder).Append(i * 1_000_000)
	}
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: split, From: pipeline.Position(from), To: pipeline.Position(to)})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// TestRows: Arrow's own reader finds the rows of all batches with the split of each, also of slices, times as timestamps, and the metadata is
// read back from the file.
func TestRows(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	dir := t.TempDir()
	s, err := New(filesink.Options{Dir: dir, Output: "o"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	whole := rows(t, mem, "a", 0, 40)
	part := whole.Record().NewSlice(11, 40)
	whole.Release()
	slice, err := pipeline.NewBatch(part, pipeline.Origin{Source: "s", Split: "a", From: 11, To: 40})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Write(t.Context(), rows(t, mem, "a", 0, 11)), w.Write(t.Context(), slice), w.Flush(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.arrow"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	file, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	r, err := ipc.NewFileReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	n := int64(0)
	for k := range r.NumRecords() {
		rec, err := r.RecordBatch(k)
		if err != nil {
			t.Fatal(err)
		}
		want := rows(t, mem, "a", n, n+rec.NumRows())
		for c := range 3 {
			if got := rec.Column(c); !array.Equal(got, want.Record().Column(c)) {
				t.Errorf("column %d of record batch %d: %v", c, k, got)
			}
		}
		for i := range int(rec.NumRows()) {
			at, split := rec.Column(3).(*array.Timestamp).Value(i), rec.Column(4).(*array.String).Value(i)
			if at.ToTime(arrow.Microsecond).Unix() != n+int64(i) || split != "a" {
				t.Errorf("row %d is at %v of split %s", n+int64(i), at, split)
			}
		}
		want.Release()
		n += rec.NumRows()
	}
	if got := r.Schema().Field(3); n != 40 || got.Name != "time" {
		t.Errorf("%d rows, column %s", n, got)
	}
	meta, err := format{}.Metadata(bytes.NewReader(file), int64(len(file)))
	if err != nil || meta[filesink.MetaTo] != "40" || meta[filesink.MetaOutput] != "o" {
		t.Errorf("metadata %v, %v", meta, err)
	}
}

// encoded is a file with metadata.
func encoded(t testing.TB, metadata map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	e, err := format{}.Begin(&b, columns)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.End(metadata); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestMetadataOfAnyBytes: names that are no text are read back as they are, and a file that was cut anywhere is damaged.
func TestMetadataOfAnyBytes(t *testing.T) {
	t.Parallel()
	want := map[string]string{"a": "x\xff&=%\x00", "b": "", "c": strings.Repeat("d/", 10_000)}
	file := encoded(t, want)
	got, err := format{}.Metadata(bytes.NewReader(file), int64(len(file)))
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%.60q, %v", got, err)
	}
	for n := range file {
		if _, err := (format{}).Metadata(bytes.NewReader(file[:n]), int64(n)); !errors.Is(err, filesink.ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(file), err)
		}
	}
}

// TestColumnsOfOneName: two columns that would have one name are an error.
func TestColumnsOfOneName(t *testing.T) {
	t.Parallel()
	id := arrow.Field{Name: "id", Type: arrow.PrimitiveTypes.Int64}
	if _, err := (format{}).Begin(&bytes.Buffer{}, arrow.NewSchema([]arrow.Field{id, id}, nil)); !errors.Is(err, pipeline.ErrSchema) {
		t.Errorf("%v", err)
	}
}

// FuzzMetadata: whatever a file holds, reading its metadata ends with what it says or with an error.
func FuzzMetadata(f *testing.F) {
	f.Add(encoded(f, nil))
	f.Add(encoded(f, map[string]string{"monolith.from": "17", "monolith.split": "a/b"}))
	f.Fuzz(func(t *testing.T, file []byte) {
		if _, err := (format{}).Metadata(bytes.NewReader(file), int64(len(file))); err != nil && !errors.Is(err, filesink.ErrDamaged) {
			t.Fatal(err)
		}
	})
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[filesink.Options]{
		Options: filesink.Options{Dir: "rows", RowsPerFile: 1000, BytesPerFile: 1000, FileEvery: time.Second, Output: "a", Keys: "k."},
		New: func(t *testing.T, o filesink.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Free: map[string]string{"RowsPerFile": "how rows are cut into files", "BytesPerFile": "as RowsPerFile", "FileEvery": "as RowsPerFile", "Keys": "how errors are worded"},
	})
}

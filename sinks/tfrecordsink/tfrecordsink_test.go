package tfrecordsink_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/testbed/readers"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/tfrecordsink"
	"github.com/monolith-go/monolith/sources/tfrecordsource"
)

// rows is a batch whose values are those of numbers [from, to), cut out of a larger one where it does not begin at 0.
func rows(t *testing.T, mem memory.Allocator, from, to int64) *pipeline.Batch {
	t.Helper()
	b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "word", Type: arrow.BinaryTypes.Binary},
		{Name: "words", Type: arrow.ListOf(arrow.BinaryTypes.String)},
		{Name: "fids", Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)},
		{Name: "pair", Type: arrow.FixedSizeListOfNonNullable(2, arrow.PrimitiveTypes.Float32)},
		{Name: "flag", Type: arrow.FixedWidthTypes.Boolean},
		{Name: pipeline.ColLabel, Type: arrow.PrimitiveTypes.Float32, Nullable: true},
	}, nil))
	defer b.Release()
	for i := range to {
		b.Field(0).(*array.Int64Builder).Append(-i)
		b.Field(1).(*array.BinaryBuilder).Append([]byte(strings.Repeat("\xff", int(i%3))))
		words, fids, pair := b.Field(2).(*array.ListBuilder), b.Field(3).(*array.ListBuilder), b.Field(4).(*array.FixedSizeListBuilder)
		words.Append(true)
		fids.Append(true)
		for k := range i % 4 {
			words.ValueBuilder().(*array.StringBuilder).Append(fmt.Sprint(k))
			fids.ValueBuilder().(*array.Int64Builder).Append(i << 40)
		}
		pair.Append(true)
		pair.ValueBuilder().(*array.Float32Builder).AppendValues([]float32{float32(i) / 3, 1}, nil)
		b.Field(5).(*array.BooleanBuilder).Append(i%2 == 0)
		if i%3 == 0 {
			b.Field(6).(*array.Float32Builder).AppendNull()
		} else {
			b.Field(6).(*array.Float32Builder).Append(float32(i))
		}
	}
	whole := b.NewRecordBatch()
	defer whole.Release()
	out, err := pipeline.NewBatch(whole.NewSlice(from, to), pipeline.Origin{Source: "s", Split: "a", From: pipeline.Position(from), To: pipeline.Position(to)})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestOurSourceReadsIt: our own source, and the reader of tf.Example that is tested against protobuf, find every value, also of slices.
func TestOurSourceReadsIt(t *testing.T) {
	t.Parallel()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	dir := t.TempDir()
	s, err := tfrecordsink.New(filesink.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	if err := errors.Join(w.Write(t.Context(), rows(t, mem, 0, 11)), w.Write(t.Context(), rows(t, mem, 11, n)), w.Flush(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	src, err := tfrecordsource.New(tfrecordsource.Options{Files: []string{filepath.Join(dir, "*.tfrecord.gz")}})
	if err != nil {
		t.Fatal(err)
	}
	i := int64(0)
	pipelinetest.ReadAll(t, src, &pipeline.Env{}, func(_ pipeline.Split, b *pipeline.Block) {
		for k := range b.NumRows() {
			want := map[string]any{
				"id": []int64{-i}, "word": []string{strings.Repeat("\xff", int(i%3))}, "words": []string(nil), "fids": []int64(nil), "pair": []float32{float32(i) / 3, 1}, "flag": []int64{1 - i%2},
			}
			for k := range i % 4 {
				want["words"] = append(want["words"].([]string), fmt.Sprint(k))
				want["fids"] = append(want["fids"].([]int64), i<<40)
			}
			if i%3 > 0 {
				want["label"] = []float32{float32(i)}
			}
			if diff := cmp.Diff(want, features(t, b.Payload().Value(k))); diff != "" {
				t.Errorf("row %d (-want +read):\n%s", i, diff)
			}
			i++
		}
	})
	if i != n {
		t.Errorf("%d records of %d", i, n)
	}
}

// TestTensorFlowReadsIt: TensorFlow finds the records of both members' rows, and nothing else, with its own parser.
func TestTensorFlowReadsIt(t *testing.T) {
	dir := t.TempDir()
	s, err := tfrecordsink.New(filesink.Options{Dir: dir, RowsPerFile: 20})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	mem := memory.NewGoAllocator()
	if err := errors.Join(w.Write(t.Context(), rows(t, mem, 0, 25)), w.Write(t.Context(), rows(t, mem, 25, 40)), w.Flush(t.Context()), w.Close()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tfrecord.gz"))
	if err != nil || len(files) != 2 {
		t.Fatalf("%q, %v", files, err)
	}
	out := readers.Run(t, `
import sys, tensorflow as tf
for r in tf.data.TFRecordDataset(sorted(sys.argv[1:]), compression_type="GZIP"):
    f = tf.train.Example.FromString(r.numpy()).features.feature
    print(f["id"].int64_list.value[0], len(f["fids"].int64_list.value), "%.9g" % f["pair"].float_list.value[0], list(f["label"].float_list.value) if "label" in f else "null")
`, files...)
	var want strings.Builder
	for i := range 40 {
		label := "null"
		if i%3 > 0 {
			label = fmt.Sprintf("[%d.0]", i)
		}
		fmt.Fprintf(&want, "%d %d %.9g %s\n", -i, i%4, float32(i)/3, label)
	}
	if diff := cmp.Diff(want.String(), string(out)); diff != "" {
		t.Error(diff)
	}
}

// features are those of a tf.Example.
func features(t *testing.T, record []byte) map[string]any {
	t.Helper()
	all, err := example.All(record)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for name, v := range all {
		var err error
		switch v.Kind {
		case example.Int64:
			out[name], err = v.AppendInt64s(nil)
		case example.Float:
			out[name], err = v.AppendFloats(nil)
		default:
			var list [][]byte
			list, err = v.AppendBytes(nil)
			var texts []string
			for _, b := range list {
				texts = append(texts, string(b))
			}
			out[name] = texts
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestFaults(t *testing.T) {
	t.Parallel()
	s, err := tfrecordsink.New(filesink.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Float64}}, nil))
	b.Field(0).(*array.Float64Builder).Append(1)
	batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", To: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), batch); !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), `column "x"`) {
		t.Errorf("float64, which tf.Example has not: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[filesink.Options]{
		Options: filesink.Options{Dir: "rows", RowsPerFile: 1000, BytesPerFile: 1000, FileEvery: time.Second, Output: "a", Keys: "k."},
		New: func(t *testing.T, o filesink.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := tfrecordsink.New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Free: map[string]string{"RowsPerFile": "how rows are cut into files", "BytesPerFile": "as RowsPerFile", "FileEvery": "as RowsPerFile", "Keys": "how errors are worded"},
	})
}

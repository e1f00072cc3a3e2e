package parquetsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	arrowparquet "github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// readFrom reads the only row group of a file from a row on.
func readFrom(tb testing.TB, opts parquetsource.Options, from int) (out []string) {
	tb.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(tb, 0)
	src, err := parquetsource.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	splits, err := src.Splits(tb.Context())
	if err != nil || len(splits) != 1 {
		tb.Fatalf("%v, %v", splits, err)
	}
	r, err := src.Open(tb.Context(), &pipeline.Env{Allocator: mem}, splits[0], pipeline.Position(from))
	if err != nil {
		tb.Fatal(err)
	}
	defer r.Close() //nolint:errcheck // only read from
	for {
		b, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			tb.Fatalf("from %d: %v", from, err)
		}
		out = append(out, render(b.Record())...)
		b.Release()
	}
}

// lists of lists that arrow-go writes, with nulls and empty lists at every depth.
func nestedLists(rng *rand.Rand, rows int) (arrow.RecordBatch, []string) {
	deep := arrow.ListOf(arrow.ListOf(arrow.ListOf(arrow.PrimitiveTypes.Int64)))
	schema := arrow.NewSchema([]arrow.Field{{Name: "deep", Type: deep, Nullable: true}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	var grow func(b array.Builder)
	grow = func(b array.Builder) {
		if rng.IntN(8) == 0 {
			b.AppendNull()
			return
		}
		switch b := b.(type) {
		case *array.ListBuilder:
			b.Append(true)
			for range rng.IntN(4) {
				grow(b.ValueBuilder())
			}
		case *array.Int64Builder:
			b.Append(rng.Int64N(1000))
		}
	}
	for range rows {
		grow(b.Field(0))
	}
	rec := b.NewRecordBatch()
	var want []string
	for i := range rows {
		want = append(want, "deep="+one(rec.Column(0), i)+" ")
	}
	return rec, want
}

// TestNestedLists reads lists of lists of lists as arrow-go wrote them, from every row on.
func TestNestedLists(t *testing.T) {
	t.Parallel()
	rec, want := nestedLists(rand.New(rand.NewPCG(3, 4)), 300)
	defer rec.Release()
	for _, version := range []arrowparquet.DataPageVersion{arrowparquet.DataPageV1, arrowparquet.DataPageV2} {
		var b bytes.Buffer
		props := arrowparquet.NewWriterProperties(arrowparquet.WithDataPageVersion(version), arrowparquet.WithDataPageSize(256), arrowparquet.WithBatchSize(16))
		w, err := pqarrow.NewFileWriter(rec.Schema(), &b, props, pqarrow.DefaultWriterProps())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write(rec), w.Close()); err != nil {
			t.Fatal(err)
		}
		path := write(t, t.TempDir(), "nested.parquet", b.Bytes())
		opts := parquetsource.Options{Files: []string{path}, Columns: rec.Schema(), BatchRows: 70}
		for _, from := range []int{0, 1, 69, 70, 150, 299, 300} {
			if diff := cmp.Diff(strings.Join(want[from:], "\n"), strings.Join(readFrom(t, opts, from), "\n")); diff != "" {
				t.Errorf("pages %v from row %d (-want +got):\n%s", version, from, diff)
			}
		}
		flat := arrow.NewSchema([]arrow.Field{{Name: "deep", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)}}, nil)
		src, err := parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: flat})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "a list of a list of a list of INT64") {
			t.Errorf("as a plain list: %v", err)
		}
	}
}

// TestInt96 reads times as old Spark wrote them.
func TestInt96(t *testing.T) {
	t.Parallel()
	int96 := func(at time.Time) deprecated.Int96 {
		days := at.Unix() / 86400
		if at.Unix()%86400 < 0 {
			days--
		}
		nanos := uint64(at.Unix()-days*86400)*1e9 + uint64(at.Nanosecond())
		return deprecated.Int96{uint32(nanos), uint32(nanos >> 32), uint32(days + 2440588)}
	}
	type line struct {
		Plain deprecated.Int96 `parquet:"plain,plain"`
		Dict  deprecated.Int96 `parquet:"dict,dict"`
	}
	var rows []line
	var want []string
	for _, at := range []struct {
		time time.Time
		want int64
	}{
		{time.Unix(0, 0), 0},
		{time.Unix(0, -1), -1},
		{time.Date(2026, 3, 1, 12, 30, 15, 123456789, time.UTC), time.Date(2026, 3, 1, 12, 30, 15, 123456789, time.UTC).UnixNano()},
		{time.Date(1677, 9, 23, 0, 0, 0, 0, time.UTC), time.Date(1677, 9, 23, 0, 0, 0, 0, time.UTC).UnixNano()},
		{time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), math.MaxInt64},
		{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), math.MinInt64},
	} {
		rows = append(rows, line{int96(at.time), int96(at.time)})
		want = append(want, fmt.Sprintf("plain=%d dict=%d ", at.want, at.want))
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[line](&b)
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := write(t, t.TempDir(), "times.parquet", b.Bytes())
	schema, left, err := parquetsource.Describe(t.Context(), fsx.Local{}, path)
	if err != nil || left != nil {
		t.Fatalf("%v, %v", left, err)
	}
	got := readFrom(t, parquetsource.Options{Files: []string{path}, Columns: arrow.NewSchema([]arrow.Field{schema.Field(1), schema.Field(0)}, nil)}, 0)
	for i := range got {
		parts := strings.Fields(got[i])
		got[i] = strings.Join([]string{parts[0], parts[1], ""}, " ")
		if !strings.HasPrefix(got[i], "plain") {
			got[i] = parts[1] + " " + parts[0] + " "
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// countingFS counts the bytes that are read.
type countingFS struct {
	fsxtest.Mem
	bytes atomic.Int64
}

type countingFile struct {
	fsx.File
	fs *countingFS
}

func (c *countingFS) Open(ctx context.Context, name string) (fsx.File, error) {
	f, err := c.Mem.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	return countingFile{f, c}, nil
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.bytes.Add(int64(len(p)))
	return f.File.ReadAt(p, off)
}

// TestSeekReadsLittle: continuing at a row deep in a row group reads the pages that hold what comes, and not those before,
// with an index of pages and without one, and gives the same rows as reading from the beginning.
func TestSeekReadsLittle(t *testing.T) {
	t.Parallel()
	const rows = 4000
	all := random(rand.New(rand.NewPCG(5, 6)), rows)
	for name, tc := range map[string]struct {
		opts   []parquet.WriterOption
		atMost float64 // of the bytes of a whole pass, from the middle of the last tenth
		change func(file []byte) []byte
	}{
		"index, v2":    {opts: []parquet.WriterOption{parquet.DataPageVersion(2), parquet.PageBufferSize(512)}, atMost: .5},
		"index, v1":    {opts: []parquet.WriterOption{parquet.DataPageVersion(1), parquet.PageBufferSize(512)}, atMost: .5},
		"no index, v2": {opts: []parquet.WriterOption{parquet.DataPageVersion(2), parquet.PageBufferSize(512)}, atMost: 3, change: withoutIndex},
		"no index, v1": {opts: []parquet.WriterOption{parquet.DataPageVersion(1), parquet.PageBufferSize(512)}, atMost: 3, change: withoutIndex},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := encode(t, all, rows, tc.opts...)
			if tc.change != nil {
				file = tc.change(file)
			}
			files := &countingFS{}
			if err := fsx.WriteFile(t.Context(), files, "f.parquet", file); err != nil {
				t.Fatal(err)
			}
			schema, _, err := parquetsource.Describe(t.Context(), files, "f.parquet")
			if err != nil {
				t.Fatal(err)
			}
			opts := parquetsource.Options{Files: []string{"f.parquet"}, Columns: schema, FS: files, BatchRows: 333}
			before := files.bytes.Load()
			whole := readFrom(t, opts, 0)
			pass := files.bytes.Load() - before
			for _, from := range []int{1, 17, 1000, 2222, 3800, rows - 1, rows} {
				if diff := cmp.Diff(strings.Join(whole[from:], "\n"), strings.Join(readFrom(t, opts, from), "\n")); diff != "" {
					t.Fatalf("from row %d (-whole +got):\n%s", from, diff)
				}
			}
			before = files.bytes.Load()
			readFrom(t, opts, 3800)
			if tail := files.bytes.Load() - before; float64(tail) > tc.atMost*float64(pass) {
				t.Errorf("a whole pass reads %d bytes, one from row 3800 of %d reads %d", pass, rows, tail)
			}
		})
	}
}

// withoutIndex makes the footer forget where the indexes of pages lie, by naming their fields what nobody knows.
func withoutIndex(file []byte) []byte {
	// parquet-go writes the four fields of the indexes after the metadata of each chunk: an i64, an i32, an i64, an i32.
	out := bytes.Clone(file)
	changed := 0
	for i := len(out) / 2; i+1 < len(out); i++ {
		// The end of the metadata, then field 4 (i64), as deltas of ids.
		if out[i] != 0 || out[i+1] != 0x16 {
			continue
		}
		j := i + 2
		for n := 0; n < 4 && j < len(out); n++ {
			for j < len(out) && out[j] >= 0x80 {
				j++
			}
			j++
			want := []byte{0x15, 0x16, 0x15, 0}[n]
			if j >= len(out) || out[j] != want {
				break
			}
			if n == 3 {
				out[i+1] = 0x56 // field 8
				changed++
			}
			j++
		}
	}
	if changed == 0 {
		panic("no index was found")
	}
	return out
}

// TestSeekOfArrow reads what arrow-go wrote, with its index of pages, from rows in the middle.
func TestSeekOfArrow(t *testing.T) {
	t.Parallel()
	const rows = 5000
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64},
		{Name: "ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true},
		{Name: "name", Type: arrow.BinaryTypes.String, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	rng := rand.New(rand.NewPCG(8, 9))
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		ids := b.Field(1).(*array.ListBuilder)
		if rng.IntN(9) == 0 {
			ids.AppendNull()
		} else {
			ids.Append(true)
			for range rng.IntN(5) {
				ids.ValueBuilder().(*array.Int64Builder).Append(rng.Int64N(1 << 40))
			}
		}
		if rng.IntN(9) == 0 {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.StringBuilder).Append(fmt.Sprint("name", rng.IntN(50)))
		}
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	for _, index := range []bool{false, true} {
		var buf bytes.Buffer
		props := arrowparquet.NewWriterProperties(arrowparquet.WithPageIndexEnabled(index), arrowparquet.WithDataPageVersion(arrowparquet.DataPageV2), arrowparquet.WithDataPageSize(1024), arrowparquet.WithBatchSize(64))
		w, err := pqarrow.NewFileWriter(schema, &buf, props, pqarrow.DefaultWriterProps())
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(w.Write(rec), w.Close()); err != nil {
			t.Fatal(err)
		}
		path := write(t, t.TempDir(), filepath.Base("arrow.parquet"), buf.Bytes())
		opts := parquetsource.Options{Files: []string{path}, Columns: schema}
		whole := readFrom(t, opts, 0)
		for _, from := range []int{1, 63, 64, 65, 999, 2500, rows - 1} {
			if diff := cmp.Diff(whole[from:], readFrom(t, opts, from)); diff != "" {
				t.Fatalf("index %v, from row %d (-whole +got):\n%s", index, from, diff)
			}
		}
		for i, line := range whole {
			if !strings.HasPrefix(line, fmt.Sprintf("id=%d ids=%s name=", i, one(rec.Column(1), i))) {
				t.Fatalf("row %d: %s", i, line)
			}
		}
	}
}

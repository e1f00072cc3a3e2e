package arrowfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/arrowfile"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/testbed/readers"
)

// The types that can be read, and others that lie between them.
var (
	numbers = []arrow.DataType{
		arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Uint16,
		arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64,
	}
	lists = []arrow.DataType{
		arrow.ListOf(arrow.PrimitiveTypes.Float32), arrow.ListOf(arrow.PrimitiveTypes.Float64), arrow.LargeListOf(arrow.PrimitiveTypes.Float32), arrow.LargeListOf(arrow.PrimitiveTypes.Float64),
		arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32), arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Float64),
	}
	others = []arrow.DataType{
		arrow.Null, arrow.FixedWidthTypes.Boolean, arrow.BinaryTypes.String, arrow.BinaryTypes.LargeString, arrow.BinaryTypes.Binary, arrow.FixedWidthTypes.Timestamp_us,
		&arrow.Decimal128Type{Precision: 10, Scale: 2}, &arrow.FixedSizeBinaryType{ByteWidth: 3}, arrow.FixedWidthTypes.MonthInterval, arrow.PrimitiveTypes.Date32,
		arrow.ListOf(arrow.BinaryTypes.String), arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32),
		arrow.StructOf(arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Float32}, arrow.Field{Name: "b", Type: arrow.ListOf(arrow.PrimitiveTypes.Int16)}),
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
		arrow.BinaryTypes.StringView, arrow.BinaryTypes.BinaryView, arrow.ListOf(arrow.BinaryTypes.StringView),
	}
)

// fill appends a random value.
func fill(b array.Builder, rng *rand.Rand, nulls bool) {
	if nulls && rng.IntN(4) == 0 {
		b.AppendNull()
		return
	}
	switch b := b.(type) {
	case *array.Int8Builder:
		b.Append(int8(rng.Uint32()))
	case *array.Uint8Builder:
		b.Append(uint8(rng.Uint32()))
	case *array.Int16Builder:
		b.Append(int16(rng.Uint32()))
	case *array.Uint16Builder:
		b.Append(uint16(rng.Uint32()))
	case *array.Int32Builder:
		b.Append(int32(rng.Uint32()))
	case *array.Uint32Builder:
		b.Append(rng.Uint32())
	case *array.Int64Builder:
		b.Append(int64(rng.Uint64()))
	case *array.Uint64Builder:
		b.Append(rng.Uint64())
	case *array.Float32Builder:
		b.Append(rng.Float32())
	case *array.Float64Builder:
		b.Append(rng.Float64())
	case *array.StringViewBuilder:
		b.Append(strings.Repeat("text ", rng.IntN(9))) // those of more than 12 bytes lie in buffers of their own
	case array.ListLikeBuilder:
		n := rng.IntN(5)
		if of, ok := b.Type().(*arrow.FixedSizeListType); ok {
			n = int(of.Len())
		}
		if _, ok := b.(*array.MapBuilder); ok {
			n, nulls = 0, false
		}
		b.Append(true)
		for range n {
			fill(b.ValueBuilder(), rng, nulls)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			fill(b.FieldBuilder(i), rng, nulls)
		}
	case *array.BinaryDictionaryBuilder:
		if err := b.AppendString([]string{"x", "yy"}[rng.IntN(2)]); err != nil {
			panic(err)
		}
	default:
		b.AppendEmptyValue()
	}
}

// value is what a column is to be read as, in words.
func value(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return "null"
	}
	switch a := a.(type) {
	case *array.Int8:
		return fmt.Sprint(a.Value(i))
	case *array.Uint8:
		return fmt.Sprint(a.Value(i))
	case *array.Int16:
		return fmt.Sprint(a.Value(i))
	case *array.Uint16:
		return fmt.Sprint(a.Value(i))
	case *array.Int32:
		return fmt.Sprint(a.Value(i))
	case *array.Uint32:
		return fmt.Sprint(a.Value(i))
	case *array.Int64:
		return fmt.Sprint(a.Value(i))
	case *array.Uint64:
		return fmt.Sprint(int64(a.Value(i)))
	case *array.Float32:
		return fmt.Sprint(a.Value(i))
	case *array.Float64:
		return fmt.Sprint(float32(a.Value(i)))
	case array.ListLike:
		from, to := a.ValueOffsets(i)
		var out []string
		for k := from; k < to; k++ {
			out = append(out, value(a.ListValues(), int(k)))
		}
		return fmt.Sprint(out)
	}
	panic(fmt.Sprintf("no values of %T", a))
}

// written is a file of record batches.
func written(tb testing.TB, schema *arrow.Schema, recs []arrow.RecordBatch, opts ...ipc.Option) []byte {
	tb.Helper()
	var b bytes.Buffer
	w, err := ipc.NewFileWriter(&b, append([]ipc.Option{ipc.WithSchema(schema)}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	for _, rec := range recs {
		if err := w.Write(rec); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

// encodings are how buffers are written: as they are, compressed, and compressed where that makes them smaller.
var encodings = map[string][]ipc.Option{
	"plain": nil, "lz4": {ipc.WithLZ4()}, "zstd": {ipc.WithZstd()}, "zstd where it pays": {ipc.WithZstd(), ipc.WithMinSpaceSavings(.3)},
}

// random is a file with columns of all types in any order, what is wanted of it, and the values of that row by row.
func random(tb testing.TB, seed uint64, opts ...ipc.Option) (file []byte, want *arrow.Schema, rows []string) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	var fields []arrow.Field
	for i, t := range slices.Concat(numbers, lists, others) {
		fields = append(fields, arrow.Field{Name: fmt.Sprint("c", i), Type: t, Nullable: true})
	}
	rng.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	schema := arrow.NewSchema(fields, nil)
	wanted := []arrow.Field{{Name: fmt.Sprint("c", rng.IntN(len(numbers))), Type: arrow.PrimitiveTypes.Int64}}
	for _, i := range rng.Perm(len(lists))[:1+rng.IntN(len(lists))] {
		wanted = append(wanted, arrow.Field{Name: fmt.Sprint("c", len(numbers)+i), Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	builder := array.NewStringBuilder(memory.DefaultAllocator)
	builder.AppendValues([]string{"x", "yy"}, nil)
	texts := builder.NewStringArray()
	var recs []arrow.RecordBatch
	for range rng.IntN(4) {
		n := rng.IntN(40)
		for c := range fields {
			if d, ok := b.Field(c).(*array.BinaryDictionaryBuilder); ok { // a file has one dictionary for all batches
				if err := d.InsertStringDictValues(texts); err != nil {
					tb.Fatal(err)
				}
			}
			for range n {
				fill(b.Field(c), rng, seed%3 > 0)
			}
		}
		rec := b.NewRecordBatch()
		from := rng.Int64N(int64(n) + 1)
		rec = rec.NewSlice(from, from+rng.Int64N(int64(n)-from+1))
		recs = append(recs, rec)
		for i := range int(rec.NumRows()) {
			row := ""
			for _, w := range wanted {
				row += value(rec.Column(schema.FieldIndices(w.Name)[0]), i) + " "
			}
			rows = append(rows, row)
		}
	}
	return written(tb, schema, recs, opts...), arrow.NewSchema(wanted, nil), rows
}

// read reads all rows of a file, or returns the first error.
func read(src io.ReaderAt, size int64, want *arrow.Schema) (rows []string, err error) {
	c, err := arrowfile.OpenColumns(src, size, want)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for {
		rec, err := c.Next()
		if errors.Is(err, io.EOF) {
			return rows, nil
		}
		if err != nil {
			return rows, err
		}
		for i := range int(rec.NumRows()) {
			row := ""
			for k := range want.NumFields() {
				row += value(rec.Column(k), i) + " "
			}
			rows = append(rows, row)
		}
		rec.Release()
	}
}

// TestColumns: of columns of every type in any order, in batches and parts of batches, with nulls and without, compressed and not, those that are wanted have the
// values that were written.
func TestColumns(t *testing.T) {
	t.Parallel()
	for name, opts := range encodings {
		for seed := range uint64(25) {
			file, want, rows := random(t, seed, opts...)
			got, err := read(bytes.NewReader(file), int64(len(file)), want)
			if diff := cmp.Diff(rows, got); diff != "" || err != nil {
				t.Fatalf("%s, seed %d: %v, rows (-written +read):\n%s", name, seed, err, diff)
			}
		}
	}
}

// TestColumnsThatCannotBeRead are named, with what they are and what was probably meant.
func TestColumnsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	id := arrow.Field{Name: "fid", Type: arrow.PrimitiveTypes.Int64}
	vec := arrow.Field{Name: "vec", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)}
	want := arrow.NewSchema([]arrow.Field{id, vec}, nil)
	of := func(t arrow.DataType) arrow.Field { return arrow.Field{Name: "vec", Type: t, Nullable: true} }
	union := arrow.Field{Name: "some", Type: arrow.SparseUnionOf([]arrow.Field{{Name: "a", Type: id.Type}}, []arrow.UnionTypeCode{0})}
	for name, c := range map[string]struct {
		fields []arrow.Field
		want   string // "": it is read
	}{
		"both":           {[]arrow.Field{id, vec}, ""},
		"before a union": {[]arrow.Field{vec, id, union}, ""},
		"behind a union": {[]arrow.Field{id, union, vec}, `"vec" lies behind "some", which has unions; write it before that or leave that out`},
		"another name":   {[]arrow.Field{{Name: "FID", Type: id.Type}, vec}, `"fid" is not there, did you mean "FID"?`},
		"text":           {[]arrow.Field{id, of(arrow.BinaryTypes.String)}, `"vec" has text, which cannot be read as list<item: float32, nullable>`},
		"a number":       {[]arrow.Field{id, of(arrow.PrimitiveTypes.Float32)}, `"vec" has floating-point numbers of 32 bits`},
		"halves":         {[]arrow.Field{id, of(arrow.ListOf(arrow.FixedWidthTypes.Float16))}, `"vec" has lists of floating-point numbers of 16 bits`},
		"lists of lists": {[]arrow.Field{id, of(arrow.ListOf(vec.Type))}, `"vec" has lists of lists of floating-point numbers of 32 bits`},
		"twice":          {[]arrow.Field{id, vec, vec}, `there are two of the name "vec"`},
		"a dictionary":   {[]arrow.Field{{Name: "fid", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int64}}, vec}, `"fid" has values of a dictionary`},
		"real ids":       {[]arrow.Field{{Name: "fid", Type: arrow.PrimitiveTypes.Float64}, vec}, `"fid" has floating-point numbers of 64 bits, which cannot be read as int64`},
	} {
		schema := arrow.NewSchema(c.fields, nil)
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		for i := range c.fields {
			b.Field(i).AppendEmptyValue()
		}
		file := written(t, schema, []arrow.RecordBatch{b.NewRecordBatch()})
		b.Release()
		rows, err := read(bytes.NewReader(file), int64(len(file)), want)
		switch {
		case c.want == "" && (err != nil || len(rows) != 1):
			t.Errorf("%s: %q, %v", name, rows, err)
		case c.want != "" && (!errors.Is(err, arrowfile.ErrColumns) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want one about %s", name, err, c.want)
		}
	}
}

// TestFilesCutShort: what ends anywhere before its end is damaged.
func TestFilesCutShort(t *testing.T) {
	t.Parallel()
	file, want, _ := random(t, 4)
	for n := range file {
		if _, err := read(bytes.NewReader(file[:n]), int64(n), want); !errors.Is(err, arrowfile.ErrDamaged) {
			t.Fatalf("the first %d of %d bytes: %v", n, len(file), err)
		}
	}
}

// failing is a file whose disk fails at its n-th reading.
type failing struct {
	io.ReaderAt
	n *int
}

var errDisk = errors.New("disk")

func (f failing) ReadAt(p []byte, at int64) (int, error) {
	if *f.n--; *f.n == 0 {
		return 0, errDisk
	}
	return f.ReaderAt.ReadAt(p, at)
}

// TestReadingFails: whenever the disk fails, that is what is said, and nothing of damage.
func TestReadingFails(t *testing.T) {
	t.Parallel()
	for name, opts := range encodings {
		file, want, _ := random(t, 5, opts...)
		for n, done := 1, false; !done; n++ {
			left := n
			_, err := read(failing{bytes.NewReader(file), &left}, int64(len(file)), want)
			switch done = left > 0; {
			case done && err != nil:
				t.Errorf("%s: %v", name, err)
			case !done && (!errors.Is(err, errDisk) || errors.Is(err, arrowfile.ErrDamaged)):
				t.Errorf("%s: reading %d failed, and the error is %v", name, n, err)
			}
		}
	}
}

// allocated is how many bytes the program has asked for.
func allocated() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// FuzzColumns: whatever a file holds, reading it ends with rows or with an error, and takes no more memory than it has bytes for.
func FuzzColumns(f *testing.F) {
	var files [][]byte
	var wants []*arrow.Schema
	for _, opts := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
		file, want, _ := random(f, 4, opts...)
		files, wants = append(files, file), append(wants, want)
		f.Add(uint8(len(files)-1), []byte{})
		for _, part := range []int{2, 3, 5, 9} {
			at := len(file) - len(file)/part
			f.Add(uint8(len(files)-1), []byte{0, byte(at), byte(at >> 8), byte(at >> 16), file[at] ^ 0x10})
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		k := int(which) % len(files)
		b := testbed.Edit(files[k], edits)
		before := allocated()
		_, err := read(bytes.NewReader(b), int64(len(b)), wants[k])
		if err != nil && !errors.Is(err, arrowfile.ErrDamaged) && !errors.Is(err, arrowfile.ErrColumns) {
			t.Errorf("error %v is neither ErrDamaged nor ErrColumns", err)
		}
		most := uint64(8<<20) + 256*uint64(len(b))
		if k > 0 {
			most += 512 << 20 // windows of decompression
		}
		if got := allocated() - before; got > most {
			t.Errorf("%d bytes asked for by a file of %d", got, len(b))
		}
	})
}

// TestCompressedPastTheLimit: a buffer that says it has more than a gigabyte is refused before anything is made for it.
func TestCompressedPastTheLimit(t *testing.T) { // not parallel: it measures
	schema := arrow.NewSchema([]arrow.Field{{Name: "fid", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(make([]int64, 1000), nil)
	file := written(t, schema, []arrow.RecordBatch{b.NewRecordBatch()}, ipc.WithZstd())
	// The number of rows is in the batch and in its array, the length at the beginning of the buffer.
	claim := bytes.ReplaceAll(file, []byte{0xe8, 3, 0, 0, 0, 0, 0, 0}, []byte{0, 0, 0, 0x40, 0, 0, 0, 0})
	claim = bytes.ReplaceAll(claim, []byte{0x40, 0x1f, 0, 0, 0, 0, 0, 0}, []byte{0, 0, 0, 0, 2, 0, 0, 0})
	if bytes.Equal(file, claim) {
		t.Fatal("the file does not have its numbers where they are looked for")
	}
	before := allocated()
	_, err := read(bytes.NewReader(claim), int64(len(claim)), schema)
	if got := allocated() - before; !errors.Is(err, arrowfile.ErrDamaged) || !strings.Contains(err.Error(), "write smaller record batches") || got > 64<<20 {
		t.Errorf("%v, %d bytes asked for", err, got)
	}
}

// TestListsThatCannotBe: offsets that go back or beyond the numbers that there are, and fewer numbers than lists have, are damage.
func TestListsThatCannotBe(t *testing.T) {
	t.Parallel()
	id := arrow.Field{Name: "fid", Type: arrow.PrimitiveTypes.Int64}
	words := func(of ...int32) []byte { return slices.Clone(arrow.Int32Traits.CastToBytes(of)) }
	for _, c := range []struct {
		of       arrow.DataType
		from, to []byte
	}{
		{arrow.ListOf(arrow.PrimitiveTypes.Float32), words(0, 7, 9), words(0, 9, 7)},
		{arrow.ListOf(arrow.PrimitiveTypes.Float32), words(0, 7, 9), words(0, 7, 1<<20)},
		{arrow.ListOf(arrow.PrimitiveTypes.Float32), words(0, 7, 9), words(-1, 7, 9)},
		{arrow.ListOf(arrow.PrimitiveTypes.Float64), words(0, 7, 9), words(0, 7, 10)},
		{arrow.LargeListOf(arrow.PrimitiveTypes.Float32), words(0, 0, 7, 0, 9, 0), words(0, 0, 7, 0, 9, 1)},
		{arrow.LargeListOf(arrow.PrimitiveTypes.Float32), words(0, 0, 7, 0, 9, 0), words(0, 0, 7, 0, 9, -1)},
	} {
		schema := arrow.NewSchema([]arrow.Field{id, {Name: "vec", Type: c.of}}, nil)
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		list := b.Field(1).(array.ListLikeBuilder)
		for _, n := range []int{7, 2} {
			b.Field(0).AppendEmptyValue()
			list.Append(true)
			for range n {
				list.ValueBuilder().AppendEmptyValue()
			}
		}
		file := written(t, schema, []arrow.RecordBatch{b.NewRecordBatch()})
		b.Release()
		want := arrow.NewSchema([]arrow.Field{id, {Name: "vec", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)}}, nil)
		if rows, err := read(bytes.NewReader(file), int64(len(file)), want); err != nil || len(rows) != 2 {
			t.Fatalf("%v: %q, %v", c.of, rows, err)
		}
		if n := bytes.Count(file, c.from); n != 1 {
			t.Fatalf("%v: its offsets are there %d times", c.of, n)
		}
		spoiled := bytes.Replace(file, c.from, c.to, 1)
		if _, err := read(bytes.NewReader(spoiled), int64(len(spoiled)), want); !errors.Is(err, arrowfile.ErrDamaged) {
			t.Errorf("%v with %x in place of %x: %v", c.of, c.to, c.from, err)
		}
	}
}

const writeFeather = `
import sys
import pyarrow as pa
import pyarrow.feather as feather
n = 1000
t = pa.table({
    "kind": pa.array(["k%d" % (i % 7) for i in range(n)]).dictionary_encode(),
    "note": pa.array([None if i % 5 == 0 else "x" * (i % 19) for i in range(n)], pa.string_view()),
    "fid": pa.array([i * i - 500 for i in range(n)], pa.int64()),
    "vec": pa.array([[i / 4, -i] for i in range(n)], pa.list_(pa.float32(), 2)),
    "long": pa.array([None if i % 11 == 0 else [k / 8 for k in range(i % 4)] for i in range(n)], pa.large_list(pa.float64())),
})
for c in ("uncompressed", "lz4", "zstd"):
    feather.write_feather(t, sys.argv[1] + "/" + c, compression=c, chunksize=300)
`

// TestPyarrow reads what pyarrow writes.
func TestPyarrow(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	readers.Run(t, writeFeather, dir)
	var rows []string
	for i := range 1000 {
		long := "null"
		if i%11 > 0 {
			long = fmt.Sprint([]float32{0, .125, .25}[:i%4])
		}
		rows = append(rows, fmt.Sprintf("%d %v %s ", i*i-500, []float32{float32(i) / 4, float32(-i)}, long))
	}
	list := arrow.ListOf(arrow.PrimitiveTypes.Float32)
	want := arrow.NewSchema([]arrow.Field{{Name: "fid", Type: arrow.PrimitiveTypes.Int64}, {Name: "vec", Type: list}, {Name: "long", Type: list}}, nil)
	for _, name := range []string{"uncompressed", "lz4", "zstd"} {
		file, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(bytes.NewReader(file), int64(len(file)), want)
		if diff := cmp.Diff(rows, got); diff != "" || err != nil {
			t.Errorf("%s: %v, rows (-written +read):\n%.500s", name, err, diff)
		}
	}
}

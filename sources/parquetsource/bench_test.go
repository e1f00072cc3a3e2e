package parquetsource_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// numbers is a file of 30 int64 columns: a third 63-bit, a third below 2^20, a third below 1000, in row groups of 2^16.
func numbers(tb testing.TB, rows int, encoding func(parquet.Node) parquet.Node) ([]byte, *arrow.Schema) {
	tb.Helper()
	const cols = 30
	group := parquet.Group{}
	var fields []arrow.Field
	for c := range cols {
		name := fmt.Sprintf("c%02d", c)
		group[name] = encoding(parquet.Leaf(parquet.Int64Type))
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Int64})
	}
	var b bytes.Buffer
	w := parquet.NewWriter(&b, parquet.NewSchema("numbers", group))
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range rows {
		row := make(parquet.Row, cols)
		for c := range row {
			v := rng.Int64()
			switch c % 3 {
			case 1:
				v &= 1<<20 - 1
			case 2:
				v %= 1000
			}
			row[c] = parquet.Int64Value(v).Level(0, 0, c)
		}
		if _, err := w.WriteRows([]parquet.Row{row}); err != nil {
			tb.Fatal(err)
		}
		if i%(1<<16) == 1<<16-1 {
			if err := w.Flush(); err != nil {
				tb.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes(), arrow.NewSchema(fields, nil)
}

// drain reads all splits and returns the rows and bytes.
func drain(tb testing.TB, src *parquetsource.Source) (rows int) {
	tb.Helper()
	pipelinetest.ReadAll(tb, src, &pipeline.Env{}, func(_ pipeline.Split, b *pipeline.Batch) { rows += b.NumRows() })
	return rows
}

// mixed is what a training file has beside numbers.
type mixed struct {
	ID    int64    `parquet:"id"`
	Opt   *int64   `parquet:"opt,optional"`
	Text  string   `parquet:"text,dict"`
	Free  string   `parquet:"free"`
	Score float32  `parquet:"score"`
	List  []int64  `parquet:"list,list"`
	Words []string `parquet:"words,list,dict"`
}

// mixedFile is a file of such rows, with the schema to read it with.
func mixedFile(tb testing.TB, rows int) ([]byte, *arrow.Schema) {
	tb.Helper()
	rng := rand.New(rand.NewPCG(2, 2))
	all := make([]mixed, rows)
	for i := range all {
		r := &all[i]
		r.ID, r.Text, r.Free, r.Score = rng.Int64(), fmt.Sprint("category-", rng.IntN(1000)), fmt.Sprint(rng.Int64()), rng.Float32()
		if rng.IntN(4) > 0 {
			r.Opt = new(rng.Int64N(1000))
		}
		for range rng.IntN(10) {
			r.List = append(r.List, rng.Int64N(1<<20))
		}
		for range rng.IntN(3) {
			r.Words = append(r.Words, fmt.Sprint("word", rng.IntN(500)))
		}
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[mixed](&b, parquet.Compression(&parquet.Snappy))
	if _, err := w.Write(all); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	schema, left, err := parquetsource.Describe(tb.Context(), fsx.Local{}, write(tb, tb.TempDir(), "f.parquet", b.Bytes()))
	if err != nil || left != nil {
		tb.Fatal(left, err)
	}
	return b.Bytes(), schema
}

// benchRows is how many rows the readers make arrays of.
const benchRows = 4096

// BenchmarkToArrow reads the same files into Arrow arrays: with the source, with parquet-go, whose pages are put into
// arrays in the fastest way that it offers for each column, and with arrow-go. All read from a file on disk, and make arrays
// of 4096 rows. reader=ours-again is the control.
func BenchmarkToArrow(b *testing.B) {
	const rows = 1 << 17
	type made struct {
		file   []byte
		schema *arrow.Schema
	}
	coded := func(encoding func(parquet.Node) parquet.Node) func() made {
		return func() made {
			file, schema := numbers(b, rows, encoding)
			return made{file, schema}
		}
	}
	for _, bc := range []struct {
		name string
		make func() made
	}{
		{"plain-none", coded(func(n parquet.Node) parquet.Node {
			return parquet.Compressed(parquet.Encoded(n, &parquet.Plain), &parquet.Uncompressed)
		})},
		{"dict-snappy", coded(func(n parquet.Node) parquet.Node {
			return parquet.Compressed(parquet.Encoded(n, &parquet.RLEDictionary), &parquet.Snappy)
		})},
		{"delta-none", coded(func(n parquet.Node) parquet.Node {
			return parquet.Compressed(parquet.Encoded(n, &parquet.DeltaBinaryPacked), &parquet.Uncompressed)
		})},
		{"plain-zstd", coded(func(n parquet.Node) parquet.Node {
			return parquet.Compressed(parquet.Encoded(n, &parquet.Plain), &parquet.Zstd)
		})},
		{"mixed-snappy", func() made {
			file, schema := mixedFile(b, rows)
			return made{file, schema}
		}},
	} {
		b.Run("file="+bc.name, func(b *testing.B) {
			m := bc.make()
			path := write(b, b.TempDir(), "f.parquet", m.file)
			for _, reader := range []struct {
				name string
				open func(b *testing.B, path string, schema *arrow.Schema) (read func() int)
			}{{"ours", benchOurs}, {"ours-again", benchOurs}, {"parquet-go", benchParquetGo}, {"arrow-go", benchArrowGo}} {
				b.Run("reader="+reader.name, func(b *testing.B) {
					read := reader.open(b, path, m.schema)
					b.ReportAllocs()
					for b.Loop() {
						if n := read(); n != rows {
							b.Fatalf("%d rows", n)
						}
					}
					b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
				})
			}
		})
	}
}

func benchOurs(b *testing.B, path string, schema *arrow.Schema) func() int {
	src, err := parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: schema, BatchRows: benchRows})
	if err != nil {
		b.Fatal(err)
	}
	return func() int { return drain(b, src) }
}

func benchArrowGo(b *testing.B, path string, _ *arrow.Schema) func() int {
	return func() int { return drainArrowGo(b, path) }
}

func drainArrowGo(b *testing.B, path string) (rows int) {
	pf, err := file.OpenParquetFile(path, false)
	if err != nil {
		b.Fatal(err)
	}
	defer pf.Close() //nolint:errcheck // only read from
	r, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: benchRows}, memory.DefaultAllocator)
	if err != nil {
		b.Fatal(err)
	}
	rr, err := r.GetRecordReader(b.Context(), nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer rr.Release()
	for rr.Next() {
		rows += int(rr.RecordBatch().NumRows())
	}
	if err := rr.Err(); err != nil && !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
	return rows
}

func benchParquetGo(b *testing.B, path string, _ *arrow.Schema) func() int {
	return func() int { return drainParquetGo(b, path) }
}

// drainParquetGo makes batches of rows, all columns by turns as a source must; its buffers are pooled by the library, beyond
// one file.
func drainParquetGo(b *testing.B, path string) (rows int) {
	f, err := os.Open(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil {
		b.Fatal(err)
	}
	pf, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		b.Fatal(err)
	}
	for _, g := range pf.RowGroups() {
		var cols []*pgColumn
		for i, c := range g.ColumnChunks() {
			cols = append(cols, &pgColumn{leaf: leafOf(pf.Root(), i), pages: c.Pages(), buf: make([]parquet.Value, 1024)})
		}
		for left := int(g.NumRows()); left > 0; left -= benchRows {
			n := min(left, benchRows)
			for _, c := range cols {
				c.batch(b, n).Release()
			}
			rows += n
		}
		for _, c := range cols {
			if c.page != nil {
				parquet.Release(c.page)
			}
			_ = c.pages.Close()
		}
	}
	return rows
}

func leafOf(c *parquet.Column, index int) *parquet.Column {
	if c.Leaf() {
		if c.Index() == index {
			return c
		}
		return nil
	}
	for _, k := range c.Columns() {
		if leaf := leafOf(k, index); leaf != nil {
			return leaf
		}
	}
	return nil
}

// pgColumn is a column that is read with parquet-go.
type pgColumn struct {
	leaf  *parquet.Column
	pages parquet.Pages
	page  parquet.Page
	ints  parquet.Int64Reader // of the page, where it has this way
	vals  parquet.ValueReader
	left  int64 // values of the page
	buf   []parquet.Value
	have  []parquet.Value // of buf, not used yet
}

// next goes to the next page; false at the end.
func (c *pgColumn) next(b *testing.B) bool {
	if c.page != nil {
		parquet.Release(c.page)
		c.page = nil
	}
	p, err := c.pages.ReadPage()
	if errors.Is(err, io.EOF) {
		return false
	}
	if err != nil {
		b.Fatal(err)
	}
	c.page, c.vals, c.left = p, p.Values(), p.NumValues()
	c.ints, _ = c.vals.(parquet.Int64Reader)
	return true
}

// more fills have; false at the end.
func (c *pgColumn) more(b *testing.B) bool {
	for c.page == nil || c.left == 0 {
		if !c.next(b) {
			return false
		}
	}
	n, err := c.vals.ReadValues(c.buf)
	if err != nil && !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
	c.have = c.buf[:n]
	c.left -= int64(n)
	return true
}

// batch returns the next rows.
func (c *pgColumn) batch(b *testing.B, rows int) arrow.Array {
	mem := memory.DefaultAllocator
	if c.page == nil {
		c.next(b)
	}
	if c.ints != nil {
		buf := memory.NewResizableBuffer(mem)
		defer buf.Release()
		buf.Resize(rows * 8)
		out := arrow.Int64Traits.CastFromBytes(buf.Bytes())
		for n := 0; n < rows; {
			if c.left == 0 && !c.next(b) {
				b.Fatal("too few rows")
			}
			m, err := c.ints.ReadInt64s(out[n:])
			if err != nil && !errors.Is(err, io.EOF) {
				b.Fatal(err)
			}
			n += m
			c.left -= int64(m)
		}
		data := array.NewData(arrow.PrimitiveTypes.Int64, rows, []*memory.Buffer{nil, buf}, nil, 0, 0)
		defer data.Release()
		return array.NewInt64Data(data)
	}
	var elems array.Builder
	switch c.leaf.Type().Kind() {
	case parquet.Int64:
		elems = array.NewInt64Builder(mem)
	case parquet.Float:
		elems = array.NewFloat32Builder(mem)
	default:
		elems = array.NewBinaryBuilder(mem, arrow.BinaryTypes.Binary)
	}
	defer elems.Release()
	var lists *array.ListBuilder
	if c.leaf.MaxRepetitionLevel() > 0 {
		lists = array.NewListBuilder(mem, elems.Type())
		defer lists.Release()
		elems = lists.ValueBuilder()
	}
	elems.Reserve(rows)
	most := c.leaf.MaxDefinitionLevel()
	for n := 0; ; {
		if len(c.have) == 0 && !c.more(b) {
			break
		}
		used := 0
		for _, v := range c.have {
			if v.RepetitionLevel() == 0 {
				if n == rows {
					break
				}
				n++
				if lists != nil {
					lists.Append(true)
				}
			}
			used++
			if v.DefinitionLevel() < most {
				if lists == nil {
					elems.AppendNull()
				}
				continue
			}
			switch e := elems.(type) {
			case *array.Int64Builder:
				e.Append(v.Int64())
			case *array.Float32Builder:
				e.Append(v.Float())
			case *array.BinaryBuilder:
				e.Append(v.ByteArray())
			}
		}
		if c.have = c.have[used:]; len(c.have) > 0 {
			break
		}
	}
	if lists != nil {
		return lists.NewArray()
	}
	return elems.NewArray()
}

// BenchmarkReadMixed reads scalars, strings, nulls and lists.
func BenchmarkReadMixed(b *testing.B) {
	const rows = 1 << 14
	file := encode(b, random(rand.New(rand.NewPCG(9, 9)), rows), rows)
	path := write(b, b.TempDir(), "f.parquet", file)
	src, err := parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: everything(b, path)})
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if n := drain(b, src); n != rows {
			b.Fatalf("%d rows", n)
		}
	}
	b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
}

package parquetsource_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/pipeline"
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
	splits, err := src.Splits(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	for _, s := range splits {
		r, err := src.Open(tb.Context(), &pipeline.Env{}, s, s.Start)
		if err != nil {
			tb.Fatal(err)
		}
		for {
			b, err := r.Next(tb.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				tb.Fatal(err)
			}
			rows += b.NumRows()
			b.Release()
		}
		_ = r.Close()
	}
	return rows
}

// BenchmarkRead compares the source with parquet-go's fastest way, which reads the same values page by page into a slice
// and makes no batches of them.
func BenchmarkRead(b *testing.B) {
	const rows = 1 << 18
	for _, bc := range []struct {
		name     string
		encoding func(parquet.Node) parquet.Node
	}{
		{"plain-none", func(n parquet.Node) parquet.Node {
			return parquet.Compressed(parquet.Encoded(n, &parquet.Plain), &parquet.Uncompressed)
		}},
		{"dict-snappy", func(n parquet.Node) parquet.Node {
			return parquet.Compressed(parquet.Encoded(n, &parquet.RLEDictionary), &parquet.Snappy)
		}},
		{"plain-zstd", func(n parquet.Node) parquet.Node {
			return parquet.Compressed(parquet.Encoded(n, &parquet.Plain), &parquet.Zstd)
		}},
	} {
		file, schema := numbers(b, rows, bc.encoding)
		path := write(b, b.TempDir(), "f.parquet", file)
		b.Run("file="+bc.name+"/reader=source", func(b *testing.B) {
			src, err := parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: schema, BatchRows: 4096})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(rows * 30 * 8)
			b.ReportAllocs()
			for b.Loop() {
				if n := drain(b, src); n != rows {
					b.Fatalf("%d rows", n)
				}
			}
			b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
		})
		b.Run("file="+bc.name+"/reader=parquet-go", func(b *testing.B) {
			buf := make([]int64, 1<<14)
			b.SetBytes(rows * 30 * 8)
			b.ReportAllocs()
			for b.Loop() {
				f, err := parquet.OpenFile(bytes.NewReader(file), int64(len(file)))
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				for _, g := range f.RowGroups() {
					for _, c := range g.ColumnChunks() {
						pages := c.Pages()
						for {
							p, err := pages.ReadPage()
							if errors.Is(err, io.EOF) {
								break
							}
							if err != nil {
								b.Fatal(err)
							}
							if v, ok := p.Values().(parquet.Int64Reader); ok {
								for {
									m, err := v.ReadInt64s(buf)
									n += m
									if err != nil {
										break
									}
								}
							} else {
								vals := make([]parquet.Value, 1024)
								v := p.Values()
								for {
									m, err := v.ReadValues(vals)
									n += m
									if err != nil {
										break
									}
								}
							}
							parquet.Release(p)
						}
						_ = pages.Close()
					}
				}
				if n != rows*30 {
					b.Fatalf("%d values", n)
				}
			}
			b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
		})
	}
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

package parquetsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// row has a column for every physical type, encoding and kind of nesting that the source promises to read.
type row struct {
	Plain    int64    `parquet:"plain,plain"`
	Delta    int64    `parquet:"delta,delta"`
	Dict     int64    `parquet:"dict,dict"`
	Int32    int32    `parquet:"int32"`
	Delta32  int32    `parquet:"delta32,delta"`
	Unsigned uint32   `parquet:"unsigned"`
	Float    float32  `parquet:"float"`
	Double   float64  `parquet:"double,split"`
	Split    float32  `parquet:"split,split"`
	Bool     bool     `parquet:"bool"`
	Text     string   `parquet:"text"`
	DeltaLen []byte   `parquet:"delta_len,delta"`
	DeltaStr string   `parquet:"delta_str,delta"`
	DictStr  string   `parquet:"dict_str,dict"`
	Fixed    [5]byte  `parquet:"fixed"`
	Opt      *int64   `parquet:"opt,optional"`
	OptDict  *string  `parquet:"opt_dict,optional,dict"`
	OptBool  *bool    `parquet:"opt_bool,optional"`
	List     []int64  `parquet:"list,list"`
	Words    []string `parquet:"words,list,dict"`
	Repeated []int32  `parquet:"repeated"`
	Floats   []float32
	Nested   struct {
		Inner *int64  `parquet:"inner,optional"`
		Ids   []int64 `parquet:"ids"`
	} `parquet:"nested"`
}

func random(rng *rand.Rand, n int) []row {
	text := func() string {
		return strings.Repeat("ab", rng.IntN(3)) + fmt.Sprint(rng.IntN(1<<rng.IntN(20)))
	}
	rows := make([]row, n)
	for i := range rows {
		r := &rows[i]
		r.Plain, r.Delta, r.Dict = int64(rng.Uint64()), rng.Int64N(1<<rng.IntN(62)), rng.Int64N(7)
		r.Int32, r.Delta32, r.Unsigned = int32(rng.Uint32()), int32(rng.Uint32()), rng.Uint32()>>1
		r.Float, r.Double, r.Split, r.Bool = rng.Float32(), rng.NormFloat64(), rng.Float32(), rng.IntN(3) == 0
		r.Text, r.DeltaLen, r.DeltaStr, r.DictStr = text(), []byte(text()), text(), fmt.Sprint(rng.IntN(5))
		copy(r.Fixed[:], text())
		if rng.IntN(3) > 0 {
			r.Opt = new(rng.Int64())
			r.OptDict = new(fmt.Sprint(rng.IntN(4)))
			r.Nested.Inner = new(rng.Int64N(99))
		}
		if rng.IntN(2) > 0 {
			r.OptBool = new(rng.IntN(2) == 0)
		}
		for range max(0, rng.IntN(6)-1) {
			r.List = append(r.List, rng.Int64N(1000))
			r.Words = append(r.Words, text())
			r.Floats = append(r.Floats, rng.Float32())
		}
		for range rng.IntN(3) {
			r.Repeated = append(r.Repeated, int32(rng.IntN(99)))
			r.Nested.Ids = append(r.Nested.Ids, rng.Int64N(99))
		}
	}
	return rows
}

// encode writes rows in row groups of the given size.
func encode(tb testing.TB, rows []row, group int, opts ...parquet.WriterOption) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[row](&b, opts...)
	for len(rows) > 0 {
		n := min(group, len(rows))
		if _, err := w.Write(rows[:n]); err != nil {
			tb.Fatal(err)
		}
		if err := w.Flush(); err != nil {
			tb.Fatal(err)
		}
		rows = rows[n:]
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func write(tb testing.TB, dir, name string, content []byte) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		tb.Fatal(err)
	}
	return filepath.ToSlash(path)
}

// everything is the schema that Describe proposes.
func everything(tb testing.TB, path string) *arrow.Schema {
	tb.Helper()
	schema, _, err := parquetsource.Describe(tb.Context(), fsx.Local{}, path)
	if err != nil {
		tb.Fatal(err)
	}
	return schema
}

// readAll reads all splits on a checked allocator and returns the rows by split.
func readAll(tb testing.TB, opts parquetsource.Options, env *pipeline.Env) ([][]string, error) {
	tb.Helper()
	src, err := parquetsource.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	splits, err := src.Splits(tb.Context())
	if err != nil {
		return nil, err
	}
	var groups [][]string
	for _, s := range splits {
		r, err := src.Open(tb.Context(), env, s, s.Start)
		if err != nil {
			return groups, err
		}
		var rows []string
		for {
			b, err := r.Next(tb.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return groups, errors.Join(err, r.Close())
			}
			rows = append(rows, render(b.Record())...)
			b.Release()
		}
		if err := r.Close(); err != nil {
			tb.Error(err)
		}
		groups = append(groups, rows)
	}
	return groups, nil
}

// TestAgainstParquetGo writes and reads with parquet-go and compares, over codecs, page versions and page sizes.
func TestAgainstParquetGo(t *testing.T) {
	t.Parallel()
	codecs := map[string]compress.Codec{
		"none": &parquet.Uncompressed, "snappy": &parquet.Snappy, "gzip": &parquet.Gzip, "brotli": &parquet.Brotli,
		"zstd": &parquet.Zstd, "lz4": &parquet.Lz4Raw,
	}
	for name, codec := range codecs {
		for _, version := range []int{1, 2} {
			for _, page := range []int{200, 1 << 20} {
				t.Run(fmt.Sprintf("%s/v%d/page=%d", name, version, page), func(t *testing.T) {
					t.Parallel()
					rows := random(rand.New(rand.NewPCG(1, uint64(version))), 321)
					file := encode(t, rows, 200, parquet.Compression(codec), parquet.DataPageVersion(version), parquet.PageBufferSize(page))
					path := write(t, t.TempDir(), "f.parquet", file)
					schema := everything(t, path)
					mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
					defer mem.AssertSize(t, 0)
					got, err := readAll(t, parquetsource.Options{Files: []string{path}, Columns: schema, BatchRows: 33}, &pipeline.Env{Allocator: mem})
					// parquet-go reads LZ4 pages wrongly (v0.32), so it is asked about the same rows uncompressed.
					want := oracle(t, encode(t, rows, 200, parquet.DataPageVersion(version)), schema)
					if diff := cmp.Diff(want, got); err != nil || diff != "" {
						t.Errorf("%v\n%s", err, diff)
					}
				})
			}
		}
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(2, 2))
	a := write(t, dir, "a.parquet", encode(t, random(rng, 130), 50, parquet.PageBufferSize(300)))
	_ = write(t, dir, "b.parquet", encode(t, random(rng, 1), 50, parquet.DataPageVersion(1)))
	write(t, dir, "c.parquet", encode(t, nil, 50))
	pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Batch]{
		New: func(t *testing.T) pipeline.Source[*pipeline.Batch] {
			src, err := parquetsource.New(parquetsource.Options{Files: []string{dir + "/*.parquet"}, Columns: everything(t, a), BatchRows: 16})
			if err != nil {
				t.Fatal(err)
			}
			return src
		},
		Rows: map[string]int{"a.parquet#0000": 50, "a.parquet#0001": 50, "a.parquet#0002": 30, "b.parquet#0000": 1, "c.parquet#0000": 0},
	})
}

func TestConversions(t *testing.T) {
	t.Parallel()
	rows := random(rand.New(rand.NewPCG(3, 3)), 40)
	rows[0].Unsigned = 4_000_000_000
	path := write(t, t.TempDir(), "f.parquet", encode(t, rows, 40))
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "unsigned", Type: arrow.PrimitiveTypes.Int64},
		{Name: "int32", Type: arrow.PrimitiveTypes.Float32},
		{Name: "delta", Type: arrow.PrimitiveTypes.Float64},
		{Name: "double", Type: arrow.PrimitiveTypes.Float32},
		{Name: "float", Type: arrow.PrimitiveTypes.Float64},
		{Name: "bool", Type: arrow.PrimitiveTypes.Float32},
		{Name: "opt_bool", Type: arrow.PrimitiveTypes.Int64},
		{Name: "text", Type: arrow.BinaryTypes.String},
		{Name: "repeated", Type: arrow.ListOf(arrow.PrimitiveTypes.Float32)},
		{Name: "nested.inner", Type: arrow.PrimitiveTypes.Int64},
		{Name: "nested.ids", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
	}, nil)
	got, err := readAll(t, parquetsource.Options{Files: []string{path}, Columns: schema}, &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, r := range rows {
		flag, inner := 0, "null"
		if r.Bool {
			flag = 1
		}
		optBool := "null"
		if r.OptBool != nil {
			optBool = "0"
			if *r.OptBool {
				optBool = "1"
			}
		}
		if r.Nested.Inner != nil {
			inner = fmt.Sprint(*r.Nested.Inner)
		}
		var rep []float32
		for _, v := range r.Repeated {
			rep = append(rep, float32(v))
		}
		want = append(want, fmt.Sprintf("unsigned=%d int32=%v delta=%v double=%v float=%v bool=%d opt_bool=%s text=%x repeated=%v nested.inner=%s nested.ids=%v ",
			r.Unsigned, float32(r.Int32), float64(r.Delta), float32(r.Double), float64(r.Float), flag, optBool, r.Text, rep, inner, r.Nested.Ids))
	}
	if diff := cmp.Diff([][]string{want}, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestSingleValuesAsLists reads columns of single values as lists of one, null where the value is.
func TestSingleValuesAsLists(t *testing.T) {
	t.Parallel()
	rows := random(rand.New(rand.NewPCG(5, 5)), 200)
	path := write(t, t.TempDir(), "f.parquet", encode(t, rows, 70))
	got, err := readAll(t, parquetsource.Options{Files: []string{path}, BatchRows: 33, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "plain", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
		{Name: "opt", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
	}, nil)}, &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll(t, parquetsource.Options{Files: []string{path}, BatchRows: 33, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "plain", Type: arrow.PrimitiveTypes.Int64},
		{Name: "opt", Type: arrow.PrimitiveTypes.Int64},
	}, nil)}, &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	value := regexp.MustCompile(`=(-?\d+) `)
	nulls := 0
	for g := range want {
		for i, row := range want[g] {
			want[g][i] = value.ReplaceAllString(row, "=[$1] ")
			nulls += strings.Count(row, "null")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" || nulls == 0 {
		t.Errorf("%d nulls; rows (-want +got):\n%s", nulls, diff)
	}
}

// TestIDs asks for columns without knowing whether they hold numbers or text.
func TestIDs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rows := random(rand.New(rand.NewPCG(5, 6)), 200)
	path := write(t, dir, "f.parquet", encode(t, rows, 70))
	names := []string{"plain", "opt", "int32", "bool", "text", "opt_dict", "words", "list", "float", "double"}
	read := func(typ ...arrow.DataType) [][]string {
		var fields []arrow.Field
		for i, name := range names {
			fields = append(fields, arrow.Field{Name: name, Type: typ[i%len(typ)]})
		}
		got, err := readAll(t, parquetsource.Options{Files: []string{path}, BatchRows: 33, Columns: arrow.NewSchema(fields, nil)}, &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	numbers, text := arrow.ListOf(arrow.PrimitiveTypes.Int64), arrow.ListOf(arrow.BinaryTypes.Binary)
	float, double := arrow.ListOf(arrow.PrimitiveTypes.Float32), arrow.ListOf(arrow.PrimitiveTypes.Float64)
	if diff := cmp.Diff(read(numbers, numbers, numbers, numbers, text, text, text, numbers, float, double), read(parquetsource.IDs())); diff != "" {
		t.Errorf("rows (-typed +ids):\n%s", diff)
	}
	type other struct {
		Plain string `parquet:"plain"`
		Text  string `parquet:"text"`
	}
	if err := parquet.WriteFile(filepath.Join(dir, "g.parquet"), []other{{"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	for column, want := range map[string]string{
		"plain": `column "plain" is list<element: int64, nullable> in ` + path + ` and list<element: binary, nullable> in `, "nested": `column "nested" is a group of ["inner" "ids"], which cannot be read as integers, floats or text`,
	} {
		_, err := readAll(t, parquetsource.Options{Files: []string{dir + "/*"}, Columns: arrow.NewSchema([]arrow.Field{{Name: column, Type: parquetsource.IDs()}}, nil)}, &pipeline.Env{})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(strings.ReplaceAll(err.Error(), "item", "element"), want) {
			t.Errorf("%s: %v", column, err)
		}
	}
}

// TestFileWithoutRowGroups: a file without rows is read to its end at once.
func TestFileWithoutRowGroups(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "f.parquet", encode(t, nil, 1))
	opts := parquetsource.Options{Files: []string{path}, Columns: arrow.NewSchema([]arrow.Field{{Name: "plain", Type: arrow.PrimitiveTypes.Int64}}, nil)}
	got, err := readAll(t, opts, &pipeline.Env{})
	if err != nil || len(got) != 1 || len(got[0]) != 0 {
		t.Errorf("rows %v, %v", got, err)
	}
	src, err := parquetsource.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	var gap *pipeline.GapError
	if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "f.parquet#0000"}, 7); !errors.As(err, &gap) {
		t.Errorf("from row 7: %v", err)
	}
}

// TestLargePages: a page above the bound is not called malformed, and the error says what to raise.
func TestLargePages(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "f.parquet", encode(t, random(rand.New(rand.NewPCG(4, 4)), 3000), 3000, parquet.PageBufferSize(1<<20)))
	opts := parquetsource.Options{Files: []string{path}, MaxPageBytes: 1 << 12, Columns: arrow.NewSchema([]arrow.Field{{Name: "plain", Type: arrow.PrimitiveTypes.Int64}}, nil)}
	_, err := readAll(t, opts, &pipeline.Env{})
	var bad *pipeline.DataError
	if !errors.As(err, &bad) || bad.Reason != "too large" || !strings.Contains(err.Error(), "raise max_page_bytes") {
		t.Errorf("got %v", err)
	}
	opts.MaxPageBytes = 0
	if _, err := readAll(t, opts, &pipeline.Env{}); err != nil {
		t.Error(err)
	}
}

func TestColumnErrors(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "f.parquet", encode(t, random(rand.New(rand.NewPCG(4, 4)), 3), 10))
	src, err := parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "plan", Type: arrow.PrimitiveTypes.Int64},
		{Name: "text", Type: arrow.PrimitiveTypes.Int64},
		{Name: "list", Type: arrow.PrimitiveTypes.Int64},
		{Name: "float", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64)},
		{Name: "nested", Type: arrow.PrimitiveTypes.Int64},
		{Name: "double", Type: arrow.PrimitiveTypes.Int64},
	}, nil)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = src.Splits(t.Context())
	for _, want := range []string{
		path, `column "plan" is not there, did you mean "plain"?`, `column "text" is BYTE_ARRAY (STRING), which cannot be read as int64`,
		`column "list" is a list of INT64`, `column "float" is FLOAT, which cannot be read as list<`, `column "nested" is a group of ["inner" "ids"]`,
		`column "double" is DOUBLE, which cannot be read as int64`,
	} {
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q:\n%v", want, err)
		}
	}
	if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "f.parquet#0000"}, 0); !errors.Is(err, pipeline.ErrConfig) {
		t.Errorf("Open: %v", err)
	}
}

func TestOptionErrors(t *testing.T) {
	t.Parallel()
	_, err := parquetsource.New(parquetsource.Options{BatchRows: -1, MaxPageBytes: -1, MaxBatchBytes: -1})
	for _, want := range []string{"no files", "no columns", "batch_rows -1", "max_page_bytes -1", "max_batch_bytes -1"} {
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	_, err = parquetsource.New(parquetsource.Options{Files: []string{"x"}, Columns: arrow.NewSchema([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int32}, {Name: "b", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.PrimitiveTypes.Int64},
	}, nil)})
	for _, want := range []string{`column "a" is wanted as int32`, `column "b" is declared twice`} {
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: "plain", Type: arrow.PrimitiveTypes.Int64}}, nil)
	path := write(t, t.TempDir(), "f.parquet", encode(t, random(rand.New(rand.NewPCG(5, 5)), 3), 10))
	src, err := parquetsource.New(parquetsource.Options{Files: []string{path + "x"}, Columns: schema})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "f.parquet\"") {
		t.Errorf("a pattern without a match: %v", err)
	}
	if src, err = parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: schema}); err != nil {
		t.Fatal(err)
	}
	for split, want := range map[string]error{"f.parquet": pipeline.ErrConfig, "f.parquet#x": pipeline.ErrConfig, "f.parquet#0001": pipeline.ErrConfig, "f.parquetx#0000": pipeline.ErrUnavailable} {
		if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: split}, 0); !errors.Is(err, want) {
			t.Errorf("split %s: %v, want %v", split, err, want)
		}
	}
	var gap *pipeline.GapError
	if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: "f.parquet#0000"}, 4); !errors.As(err, &gap) || gap.Last != 3 {
		t.Errorf("behind the end: %v", err)
	}
}

// TestCorruption damages pages and footers under both policies.
func TestCorruption(t *testing.T) {
	t.Parallel()
	type narrow struct {
		A int64 `parquet:"a,plain"`
		B int64 `parquet:"b,plain"`
	}
	var rows []narrow
	for i := range 100 {
		rows = append(rows, narrow{int64(i), -int64(i)})
	}
	var b bytes.Buffer
	w := parquet.NewGenericWriter[narrow](&b, parquet.PageBufferSize(160), parquet.DataPageStatistics(true))
	for range 2 {
		for i := range rows {
			if _, err := w.Write(rows[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	whole := b.Bytes()
	// The values of row 50 of b in row group 0; the page's checksum covers them.
	at := bytes.Index(whole, []byte{0xce, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xcd, 0xff})
	if at < 0 {
		t.Fatal("row 50 of column b is not where it was expected")
	}
	page := bytes.Clone(whole)
	page[at] ^= 1
	footer := bytes.Clone(whole)
	footer[len(footer)-40] ^= 0xff
	for _, tc := range []struct {
		name string
		file []byte
		want []int // rows by split, with skip
	}{
		{"page", page, []int{50, 100}},
		{"no footer", whole[:len(whole)-1], []int{0}},
		{"footer", append(whole[:len(whole)-8:len(whole)-8], 0xff, 0xff, 0xff, 0x7f, 'P', 'A', 'R', '1'), []int{0}},
		{"text", []byte("user,item\n1,2\n"), []int{0}},
		{"empty", nil, []int{0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, t.TempDir(), "f.parquet", tc.file)
			opts := parquetsource.Options{Files: []string{path}, Complete: true, BatchRows: 10, Columns: arrow.NewSchema([]arrow.Field{
				{Name: "a", Type: arrow.PrimitiveTypes.Int64}, {Name: "b", Type: arrow.PrimitiveTypes.Int64},
			}, nil)}
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			skip := &pipeline.SkipBadRows{}
			groups, err := readAll(t, opts, &pipeline.Env{Allocator: mem, BadRows: skip})
			var got []int
			for _, g := range groups {
				got = append(got, len(g))
			}
			dropped := int64(1)
			if len(got) > 0 && tc.name == "page" { // the rest of the row group
				dropped = 100 - int64(got[0])
			}
			if len(got) > 0 && tc.name == "page" && (got[0]%10 != 0 || got[0] > 50 || got[0] == 0) {
				t.Errorf("%d rows of the damaged row group", got[0])
			} else if len(got) > 0 {
				got[0] = tc.want[0]
			}
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("with skip: %v\n%s", err, diff)
			}
			if diff := cmp.Diff(map[string]int64{"malformed file": dropped}, skip.Counts()); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			var bad *pipeline.DataError
			if _, err := readAll(t, opts, &pipeline.Env{Source: "s", Allocator: mem}); !errors.As(err, &bad) || bad.Split != filepath.Base(path)+"#0000" || bad.Source != "s" {
				t.Errorf("with fail: %v", err)
			}
		})
	}
}

// TestRealFiles reads Apache's test files and GroupLens' ratings, and compares with parquet-go where that can read them.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	data := testbed.Data(t, ".")
	var files []string
	for _, pattern := range []string{"formats/apache_parquet-testing/data/*.parquet", "datasets/ml-100k/users.parquet", "datasets/ml-100k/movies.parquet"} {
		found, err := filepath.Glob(filepath.Join(data, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: no files, %v", pattern, err)
		}
		files = append(files, found...)
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			schema, left, err := parquetsource.Describe(t.Context(), fsx.Local{}, path)
			if err != nil {
				t.Fatal(err)
			}
			if len(left) > 0 {
				t.Logf("columns that cannot be read: %q", left)
			}
			if schema.NumFields() == 0 {
				t.Skip("no column can be read")
			}
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			got, err := readAll(t, parquetsource.Options{Files: []string{path}, Columns: schema, BatchRows: 100}, &pipeline.Env{Allocator: mem})
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(filepath.Base(path), "lz4_raw_compressed_larger") { // parquet-go reads it wrongly
				if want := fmt.Sprintf("a=%x ", "c7ce6bef-d5b0-4863-b199-8ea8c7fb117b"); len(got[0]) != 10000 || got[0][0] != want {
					t.Errorf("%d rows that begin with %s", len(got[0]), got[0][0])
				}
				return
			}
			if f, err := parquet.OpenFile(bytes.NewReader(content), int64(len(content))); err != nil || f == nil {
				t.Skipf("parquet-go cannot read it: %v", err)
			}
			if diff := cmp.Diff(oracle(t, content, schema), got); diff != "" {
				t.Errorf("rows (-parquet-go +got):\n%s", diff)
			}
		})
	}
}

func Example() {
	type rating struct {
		User   int64    `parquet:"user"`
		Genres []string `parquet:"genres,list"`
	}
	dir, err := os.MkdirTemp("", "parquet")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	err = parquet.WriteFile(filepath.Join(dir, "ratings.parquet"), []rating{{7, []string{"Drama", "Crime"}}, {8, nil}})
	if err != nil {
		panic(err)
	}
	src, err := parquetsource.New(parquetsource.Options{
		Files: []string{filepath.Join(dir, "*.parquet")},
		Columns: arrow.NewSchema([]arrow.Field{
			{Name: "user", Type: arrow.PrimitiveTypes.Int64},
			{Name: "genres", Type: arrow.ListOf(arrow.BinaryTypes.String)},
		}, nil),
	})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	splits, err := src.Splits(ctx)
	if err != nil {
		panic(err)
	}
	r, err := src.Open(ctx, &pipeline.Env{Source: "ratings"}, splits[0], splits[0].Start)
	if err != nil {
		panic(err)
	}
	defer func() { _ = r.Close() }()
	batch, err := r.Next(ctx)
	if err != nil {
		panic(err)
	}
	defer batch.Release()
	fmt.Println(batch.Column("user"))
	fmt.Println(batch.Column("genres"))
	// Output:
	// [7 8]
	// [["Drama" "Crime"] []]
}

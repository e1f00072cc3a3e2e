package textsource_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/textsource"
)

func write(tb testing.TB, dir, name string, zip bool, text string) string {
	tb.Helper()
	if zip {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := io.WriteString(w, text); err != nil {
			tb.Fatal(err)
		}
		if err := w.Close(); err != nil {
			tb.Fatal(err)
		}
		text = b.String()
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	return filepath.ToSlash(path)
}

func lines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d%s\n", i, strings.Repeat("\r\n", i%3))
	}
	return b.String()
}

func open(tb testing.TB, env *pipeline.Env, opts textsource.Options, from pipeline.Position) pipeline.Reader[*pipeline.Block] {
	tb.Helper()
	src, err := textsource.New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	splits, err := src.Splits(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	r, err := src.Open(tb.Context(), env, splits[0], from)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// drain reads to the end and returns the lines, the headers of the blocks and the positions of rows and blocks.
func drain(tb testing.TB, r pipeline.Reader[*pipeline.Block]) (got, headers []string, ends []pipeline.Position, err error) {
	tb.Helper()
	for {
		b, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) {
			return got, headers, ends, nil
		}
		if err != nil {
			return got, headers, ends, err
		}
		for i, at := range b.Positions() {
			got = append(got, b.Payload().ValueString(i))
			ends = append(ends, pipeline.Position(at))
		}
		md := b.Record().Schema().Metadata()
		if h, ok := md.GetValue(pipeline.MetadataHeader); ok {
			headers = append(headers, h)
		}
		ends = append(ends, b.Origin().To)
		b.Release()
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, header := range []bool{false, true} {
		for _, zip := range []bool{false, true} {
			t.Run(fmt.Sprintf("gzip=%v/header=%v", zip, header), func(t *testing.T) {
				t.Parallel()
				dir, head := t.TempDir(), ""
				if header {
					head = "\xef\xbb\xbfa,b\r\n"
				}
				rows := map[string]int{
					filepath.Base(write(t, dir, "a", zip, head+lines(57))):                        57,
					filepath.Base(write(t, dir, "b", zip, head)):                                  0,
					filepath.Base(write(t, dir, "c", zip, head+"only")):                           1,
					filepath.Base(write(t, dir, "d", zip, head+lines(300))):                       300,
					filepath.Base(write(t, dir, "e", zip, head+"\"x\ny\",1\n\n\"\n\n\",2\nlast")): 3,
				}
				pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Block]{
					New: func(t *testing.T) pipeline.Source[*pipeline.Block] {
						src, err := textsource.New(textsource.Options{
							Files: []string{dir + "/*"}, BlockRows: 16, BlockBytes: 120, Header: header, Quoted: true, Complete: true,
						})
						if err != nil {
							t.Fatal(err)
						}
						return src
					},
					Rows: rows,
				})
			})
		}
	}
}

func TestHeader(t *testing.T) {
	t.Parallel()
	for _, zip := range []bool{false, true} {
		path := write(t, t.TempDir(), "f", zip, "\xef\xbb\xbfuser,\"item\nid\"\r\n1,2\n3,4\n5,6\n")
		opts := textsource.Options{Files: []string{path}, Header: true, Quoted: true, BlockRows: 2}
		r := open(t, &pipeline.Env{}, opts, 0)
		got, headers, ends, err := drain(t, r)
		const header = "user,\"item\nid\""
		if diff := cmp.Diff([]string{"1,2", "3,4", "5,6"}, got); err != nil || diff != "" {
			t.Errorf("gzip=%v: %v\n%s", zip, err, diff)
		}
		if diff := cmp.Diff([]string{header, header}, headers); diff != "" {
			t.Errorf("gzip=%v: headers (-want +got):\n%s", zip, diff)
		}
		_ = r.Close()
		r = open(t, &pipeline.Env{}, opts, ends[0])
		if _, headers, _, _ = drain(t, r); len(headers) != 1 || headers[0] != header {
			t.Errorf("gzip=%v: resumed at %d: headers %q", zip, ends[0], headers)
		}
		_ = r.Close()
	}
}

func TestBadRows(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	zipped := write(t, dir, "z", true, lines(2000))
	content, err := os.ReadFile(zipped)
	if err != nil {
		t.Fatal(err)
	}
	cut := write(t, dir, "cut", false, string(content[:len(content)/2]))
	long := "a\n" + strings.Repeat("x", 50) + "\nb\n"
	for _, tc := range []struct {
		name   string
		path   string
		opts   textsource.Options
		want   []string // with skip; nil: the beginning of lines(2000)
		reason string
		at     pipeline.Position // -1: any
	}{
		{"too long", write(t, dir, "long", false, long), textsource.Options{MaxLineBytes: 40}, []string{"a", "b"}, "line too long", 2},
		{"too long, gzip", write(t, dir, "longz", true, long), textsource.Options{MaxLineBytes: 40}, []string{"a", "b"}, "line too long", 1},
		{"unterminated quote", write(t, dir, "quote", false, "a\n\"b\nc\n"), textsource.Options{Quoted: true, Complete: true}, []string{"a", "c"}, "unterminated quote", 2},
		{"behind a header", write(t, dir, "head", false, long), textsource.Options{MaxLineBytes: 1, Header: true}, []string{"b"}, "line too long", 2},
		{"truncated gzip", cut, textsource.Options{Complete: true}, nil, "truncated", -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.opts.Files = []string{tc.path}
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			skip := &pipeline.SkipBadRows{}
			r := open(t, &pipeline.Env{Allocator: mem, BadRows: skip}, tc.opts, 0)
			got, _, ends, err := drain(t, r)
			if err != nil {
				t.Fatal(err)
			}
			if tc.want != nil && strings.Join(got, "|") != strings.Join(tc.want, "|") {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if diff := cmp.Diff(map[string]int64{tc.reason: 1}, skip.Counts()); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			if tc.want == nil {
				for i, line := range got {
					if line != fmt.Sprint("line ", i) {
						t.Fatalf("line %d is %q", i, line)
					}
				}
			}
			if len(ends) == 0 || ends[len(ends)-1] != r.Position() {
				t.Errorf("ends at %v, the position is %d", ends, r.Position())
			}
			again := open(t, &pipeline.Env{Allocator: mem}, tc.opts, r.Position())
			if rest, _, _, err := drain(t, again); err != nil || len(rest) > 0 {
				t.Errorf("from the end: %q, %v", rest, err)
			}
			if err := errors.Join(r.Close(), again.Close()); err != nil {
				t.Error(err)
			}
			r = open(t, &pipeline.Env{Source: "s", Allocator: mem}, tc.opts, 0)
			var bad *pipeline.DataError
			if _, _, _, err = drain(t, r); !errors.As(err, &bad) || bad.Reason != tc.reason || bad.Split != filepath.Base(tc.path) || tc.at >= 0 && bad.Position != tc.at ||
				tc.reason == "line too long" && !strings.Contains(err.Error(), "raise max_line_bytes") {
				t.Errorf("with fail: %v", err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHeaderThatCannotBeRead: without names no line means anything, so it is an error of the run and not one bad row.
func TestHeaderThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for reason, tc := range map[string]struct {
		text string
		opts textsource.Options
	}{
		"line too long":      {strings.Repeat("x", 50) + "\nb\n", textsource.Options{MaxLineBytes: 40}},
		"unterminated quote": {"a,\"b\n1,2\n3,4\n", textsource.Options{Quoted: true, Complete: true}},
	} {
		for _, zip := range []bool{false, true} {
			tc.opts.Files, tc.opts.Header = []string{write(t, t.TempDir(), "f", zip, tc.text)}, true
			r := open(t, &pipeline.Env{Source: "s", BadRows: &pipeline.SkipBadRows{}}, tc.opts, 0)
			for range 2 {
				_, err := r.Next(t.Context())
				var bad *pipeline.DataError
				if !errors.As(err, &bad) || bad.Reason != reason || !strings.Contains(err.Error(), "header") {
					t.Errorf("%s, gzip=%v: %v", reason, zip, err)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestFilesWithoutLines: a file that holds no lines of UTF-8 is an error that says what it is and what to do, whatever the policy. What only looks like one in its first bytes is read.
func TestFilesWithoutLines(t *testing.T) {
	t.Parallel()
	const text = "user,item\n1,2\n3,4\n"
	units := utf16.Encode([]rune("\ufeff" + text))
	wide := func(order binary.AppendByteOrder) string {
		var b []byte
		for _, u := range units {
			b = order.AppendUint16(b, u)
		}
		return string(b)
	}
	wider := func(order binary.AppendByteOrder) string {
		var b []byte
		for _, u := range units {
			b = order.AppendUint32(b, uint32(u))
		}
		return string(b)
	}
	archive := func(make func(w io.Writer) error) string {
		var b bytes.Buffer
		if err := make(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	tarred := archive(func(w io.Writer) error {
		a := tar.NewWriter(w)
		err := a.WriteHeader(&tar.Header{Name: "a.csv", Mode: 0o600, Size: int64(len(text))})
		_, werr := a.Write([]byte(text))
		return errors.Join(err, werr, a.Close())
	})
	zipped := archive(func(w io.Writer) error {
		a := zip.NewWriter(w)
		f, err := a.Create("a.csv")
		if err != nil {
			return err
		}
		_, err = f.Write([]byte(text))
		return errors.Join(err, a.Close())
	})
	zstandard := archive(func(w io.Writer) error {
		z, err := zstd.NewWriter(w)
		if err != nil {
			return err
		}
		_, err = z.Write([]byte(text))
		return errors.Join(err, z.Close())
	})
	const utf16Text, utf32Text = "text in UTF-16, and UTF-8 is read; convert it: iconv -f UTF-16 -t UTF-8", "text in UTF-32, and UTF-8 is read; convert it: iconv -f UTF-32 -t UTF-8"
	for content, want := range map[string]string{
		wide(binary.LittleEndian): utf16Text, wide(binary.BigEndian): utf16Text, wider(binary.LittleEndian): utf32Text, wider(binary.BigEndian): utf32Text, "\xff\xfe": utf16Text,
		tarred: "a tar archive", zipped: "a zip archive", zstandard: "compressed by zstd",
		"BZh91AY&SY" + text: "compressed by bzip2", "\xfd7zXZ\x00" + text: "compressed by xz", "\x04\x22\x4d\x18" + text: "compressed by lz4", "\xff\x06\x00\x00sNaPpY" + text: "compressed by snappy",
		"PAR1\x15" + text:       "in Parquet, which source.parquet reads",
		"ARROW1\x00\x00" + text: "in Arrow's format", "Obj\x01" + text: "in Avro", "SQLite format 3\x00": "a database of SQLite",
		"\xff" + text: "", "\xfe\xfe" + text: "", "\x00\x00" + text: "", "\xff": "", "BZh" + text: "", "BZh": "", "PAR1," + text: "", "PK," + text: "", "": "",
		strings.Repeat("u", 250) + ",ustar\n1,2\n": "",
	} {
		for _, gz := range []bool{false, true} {
			for _, header := range []bool{false, true} {
				opts := textsource.Options{Files: []string{write(t, t.TempDir(), "f", gz, content)}, Header: header}
				r := open(t, &pipeline.Env{BadRows: &pipeline.SkipBadRows{}}, opts, 0)
				_, _, _, err := drain(t, r)
				switch {
				case want == "" && err != nil:
					t.Errorf("%.20q: %v", content, err)
				case want != "" && (!errors.Is(err, pipeline.ErrBadData) || !strings.Contains(err.Error(), "position 0: no lines of text: the file is "+want)):
					t.Errorf("%.20q, gzip %v, header %v: %v, want %q", content, gz, header, err, want)
				}
				_ = r.Close()
			}
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	_, err := textsource.New(textsource.Options{Compression: "zip", Delimiter: '"', MaxLineBytes: -1, BlockRows: -1, BlockBytes: 1 << 31})
	for _, want := range []string{"no files", `"zip"`, "delimiter '\"'", "max_line_bytes -1", "block_rows -1", "block_bytes 2147483648"} {
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	dir := t.TempDir()
	path := write(t, dir, "train.csv", false, "a\n")
	src, err := textsource.New(textsource.Options{Files: []string{dir + "/trian.csv"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = src.Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "train.csv") {
		t.Errorf("a pattern without a match: %v", err)
	}
	r := open(t, &pipeline.Env{}, textsource.Options{Files: []string{path}}, 50)
	var gap *pipeline.GapError
	if _, err := r.Next(t.Context()); !errors.As(err, &gap) || gap.Last != 2 {
		t.Errorf("behind the end: %v", err)
	}
	_ = r.Close()
}

// TestRealFiles counts the lines of data sets whose sizes are known.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	data := testbed.Data(t, ".")
	for _, tc := range []struct {
		file   string
		opts   textsource.Options
		rows   int
		header string // how it begins
	}{
		{"frappe/frappe.train.rebuilt.libfm.gz", textsource.Options{}, 202_027, ""},
		{"criteo8k/train.tsv.gz", textsource.Options{}, 7_200, ""},
		{"chicago_taxi/data.csv.gz", textsource.Options{Header: true, Quoted: true}, 15_002, "pickup_community_area,fare"},
	} {
		tc.opts.Files = []string{filepath.Join(data, "datasets", tc.file)}
		r := open(t, &pipeline.Env{}, tc.opts, 0)
		got, headers, _, err := drain(t, r)
		if err != nil || len(got) != tc.rows {
			t.Errorf("%s: %d rows, want %d; %v", tc.file, len(got), tc.rows, err)
		}
		if tc.header != "" && (len(headers) == 0 || !strings.HasPrefix(headers[0], tc.header)) {
			t.Errorf("%s: headers %.1q", tc.file, headers)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "text")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "clicks.csv"), []byte("user,item\n7,42\n8,43\n"), 0o644); err != nil {
		panic(err)
	}
	src, err := textsource.New(textsource.Options{Files: []string{filepath.Join(dir, "*.csv")}, Header: true})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	splits, err := src.Splits(ctx)
	if err != nil {
		panic(err)
	}
	r, err := src.Open(ctx, &pipeline.Env{Source: "clicks"}, splits[0], splits[0].Start)
	if err != nil {
		panic(err)
	}
	defer func() { _ = r.Close() }()
	block, err := r.Next(ctx)
	if err != nil {
		panic(err)
	}
	defer block.Release()
	fmt.Println(block.Record().Schema().Metadata())
	for i, at := range block.Positions() {
		fmt.Println(block.Payload().ValueString(i), "ends at byte", at)
	}
	// Output:
	// ["header": "user,item"]
	// 7,42 ends at byte 15
	// 8,43 ends at byte 20
}

func BenchmarkRead(b *testing.B) {
	line := strings.Repeat("1.5,abc,", 35)[:273] + "\n"
	for _, zip := range []bool{false, true} {
		b.Run(fmt.Sprintf("gzip=%v", zip), func(b *testing.B) {
			const rows = 1 << 16
			path := write(b, b.TempDir(), "f", zip, strings.Repeat(line, rows))
			b.SetBytes(int64(rows * len(line)))
			b.ReportAllocs()
			for b.Loop() {
				r := open(b, &pipeline.Env{}, textsource.Options{Files: []string{path}}, 0)
				n := 0
				for {
					blk, err := r.Next(b.Context())
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					n += blk.NumRows()
					blk.Release()
				}
				if n != rows {
					b.Fatalf("%d rows, want %d", n, rows)
				}
				_ = r.Close()
			}
			b.ReportMetric(float64(b.N)*rows/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

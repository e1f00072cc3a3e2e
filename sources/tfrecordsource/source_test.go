package tfrecordsource_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sources/tfrecordsource"
)

// encode returns a file of n records; record i is `record i` with a tail of varying length.
func encode(tb testing.TB, gzip bool, n int) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, &tfrecord.WriterOptions{Gzip: gzip})
	for i := range n {
		if err := w.Write(record(i)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func record(i int) []byte { return fmt.Appendf(nil, "record %d%s", i, strings.Repeat(".", i%7)) }

func write(tb testing.TB, dir, name string, content []byte) string {
	tb.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, content, 0o644); err != nil {
		tb.Fatal(err)
	}
	return filepath.ToSlash(path)
}

func open(tb testing.TB, env *pipeline.Env, opts tfrecordsource.Options, from pipeline.Position) pipeline.Reader[*pipeline.Block] {
	tb.Helper()
	src, err := tfrecordsource.New(opts)
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

// drain reads to the end and returns the records, the position after each block and the error that ended it.
func drain(tb testing.TB, r pipeline.Reader[*pipeline.Block]) (records []string, ends []pipeline.Position, err error) {
	tb.Helper()
	for {
		b, err := r.Next(tb.Context())
		if errors.Is(err, io.EOF) {
			return records, ends, nil
		}
		if err != nil {
			return records, ends, err
		}
		for i := range b.NumRows() {
			records = append(records, b.Payload().ValueString(i))
		}
		ends = append(ends, b.Origin().To)
		b.Release()
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for _, gzip := range []bool{false, true} {
		t.Run(fmt.Sprintf("gzip=%v", gzip), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			rows := map[string]int{
				filepath.Base(write(t, dir, "a", encode(t, gzip, 57))):  57,
				filepath.Base(write(t, dir, "b", encode(t, gzip, 0))):   0,
				filepath.Base(write(t, dir, "c", encode(t, gzip, 1))):   1,
				filepath.Base(write(t, dir, "d", encode(t, gzip, 300))): 300,
			}
			pipelinetest.TestSource(t, pipelinetest.SourceHarness[*pipeline.Block]{
				New: func(t *testing.T) pipeline.Source[*pipeline.Block] {
					src, err := tfrecordsource.New(tfrecordsource.Options{Files: []string{dir + "/*"}, BlockRows: 16, BlockBytes: 180})
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

func TestBlockBounds(t *testing.T) {
	t.Parallel()
	path := write(t, t.TempDir(), "f", encode(t, false, 100))
	for _, tc := range []struct {
		name        string
		rows, bytes int
		want        []int
	}{
		{"rows", 40, 1 << 20, []int{40, 40, 20}},
		{"bytes", 1000, 10, []int{2}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := open(t, &pipeline.Env{}, tfrecordsource.Options{Files: []string{path}, BlockRows: tc.rows, BlockBytes: tc.bytes}, 0)
			defer func() { _ = r.Close() }()
			var got []int
			for range tc.want {
				b, err := r.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, b.NumRows())
				b.Release()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rows of the first blocks (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCorruption damages a file of six records and reads it under both policies.
func TestCorruption(t *testing.T) {
	t.Parallel()
	var all []string
	offsets := []int64{0}
	for i := range 6 {
		all = append(all, string(record(i)))
		offsets = append(offsets, offsets[i]+16+int64(len(record(i))))
	}
	plain, gz := encode(t, false, 6), encode(t, true, 6)
	flip := func(at int64) []byte {
		out := bytes.Clone(plain)
		out[at] ^= 1
		return out
	}
	for _, tc := range []struct {
		name   string
		file   []byte
		max    int64
		want   []string          // with skip
		reason string            // of the first bad record
		at     pipeline.Position // of the first bad record
		bad    int64             // how many
		end    pipeline.Position
	}{
		{"data", flip(offsets[2] + 12), 0, append(append([]string{}, all[:2]...), all[3:]...), "crc mismatch", pipeline.Position(offsets[2]), 1, pipeline.Position(offsets[6])},
		{"last record", flip(offsets[5] + 12), 0, all[:5], "crc mismatch", pipeline.Position(offsets[5]), 1, pipeline.Position(offsets[6])},
		{"length", flip(offsets[2]), 0, all[:2], "length crc mismatch", pipeline.Position(offsets[2]), 1, pipeline.Position(offsets[6])},
		{"first length", flip(0), 0, nil, "length crc mismatch", 0, 1, pipeline.Position(offsets[6])},
		{"truncated", plain[:offsets[6]-3], 0, all[:5], "truncated", pipeline.Position(offsets[5]), 1, pipeline.Position(offsets[6] - 3)},
		{"too large", plain, 9, all[:2], "record too large", pipeline.Position(offsets[2]), 4, pipeline.Position(offsets[6])},
		{"truncated gzip", gz[:len(gz)-9], 0, nil, "truncated", -1, 1, -1},
		{"altered gzip", append(bytes.Clone(gz[:len(gz)-5]), 9, 9, 9, 9, 9), 0, all, "damaged gzip stream", 6, 1, 7},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := write(t, t.TempDir(), "f", tc.file)
			opts := tfrecordsource.Options{Files: []string{path}, MaxRecordBytes: tc.max, BlockRows: 4, Complete: true}
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)

			skip := &pipeline.SkipBadRows{}
			r := open(t, &pipeline.Env{Source: "s", Allocator: mem, BadRows: skip}, opts, 0)
			got, ends, err := drain(t, r)
			if err != nil {
				t.Fatal(err)
			}
			if tc.at >= 0 {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("records with skip (-want +got):\n%s", diff)
				}
				if r.Position() != tc.end {
					t.Errorf("ends at %d, want %d", r.Position(), tc.end)
				}
			}
			if diff := cmp.Diff(map[string]int64{tc.reason: tc.bad}, skip.Counts()); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
			for _, from := range ends { // nothing is reported or read twice after a resume
				again := &pipeline.SkipBadRows{}
				rest := open(t, &pipeline.Env{Source: "s", Allocator: mem, BadRows: again}, opts, from)
				if _, _, err := drain(t, rest); err != nil {
					t.Errorf("from %d: %v", from, err)
				}
				if from == r.Position() && len(again.Counts()) != 0 {
					t.Errorf("from the end at %d: %v", from, again.Counts())
				}
				if err := rest.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}

			r = open(t, &pipeline.Env{Source: "s", Allocator: mem}, opts, 0)
			var bad *pipeline.DataError
			for range 2 { // the error stays
				_, _, err = drain(t, r)
				if !errors.As(err, &bad) || bad.Source != "s" || bad.Split != filepath.Base(path) || bad.Reason != tc.reason || tc.at >= 0 && bad.Position != tc.at ||
					tc.reason == "record too large" && !strings.Contains(err.Error(), "raise max_record_bytes") {
					t.Errorf("with fail: %v", err)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// undecided is a policy that cannot answer the first time, such as a dead letter sink whose context was cancelled.
type undecided struct {
	asked    int
	payloads []string
}

func (u *undecided) BadRow(ctx context.Context, _ *pipeline.DataError, payload []byte) error {
	u.asked++
	u.payloads = append(u.payloads, string(payload))
	if u.asked == 1 {
		return context.Canceled
	}
	return nil
}

func TestBadRowIsReportedAgain(t *testing.T) {
	t.Parallel()
	file := encode(t, false, 3)
	file[16+len(record(0))+12] ^= 1
	policy := &undecided{}
	r := open(t, &pipeline.Env{BadRows: policy}, tfrecordsource.Options{Files: []string{write(t, t.TempDir(), "f", file)}}, 0)
	defer func() { _ = r.Close() }()
	if _, err := r.Next(t.Context()); !errors.Is(err, context.Canceled) {
		t.Fatalf("Next: %v", err)
	}
	got, _, err := drain(t, r)
	if diff := cmp.Diff([]string{string(record(0)), string(record(2))}, got); err != nil || diff != "" {
		t.Errorf("after the policy has decided: %v\n%s", err, diff)
	}
	damaged := "s" + string(record(1))[1:] // 'r' ^ 1
	if diff := cmp.Diff([]string{damaged, damaged}, policy.payloads); diff != "" {
		t.Errorf("payloads (-want +got):\n%s", diff)
	}
}

func TestPastTheEnd(t *testing.T) {
	t.Parallel()
	for _, gzip := range []bool{false, true} {
		path := write(t, t.TempDir(), "f", encode(t, gzip, 3))
		r := open(t, &pipeline.Env{}, tfrecordsource.Options{Files: []string{path}}, 100_000)
		var gap *pipeline.GapError
		if _, err := r.Next(t.Context()); !errors.As(err, &gap) || gap.Want != 100_000 {
			t.Errorf("gzip=%v: %v", gzip, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	_, err := tfrecordsource.New(tfrecordsource.Options{Compression: "zip", MaxRecordBytes: -1, BlockRows: -1, BlockBytes: 1 << 31})
	for _, want := range []string{"no files", `"zip"`, "max_record_bytes -1", "block_rows -1", "block_bytes 2147483648"} {
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error lacks %q: %v", want, err)
		}
	}
	dir := t.TempDir()
	write(t, dir, "train.tfrecord", nil)
	src, err := tfrecordsource.New(tfrecordsource.Options{Files: []string{dir + "/trian.tfrecord"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = src.Splits(t.Context()); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "train.tfrecord") {
		t.Errorf("a pattern without a match: %v", err)
	}
	if _, err := src.Open(t.Context(), &pipeline.Env{}, pipeline.Split{Name: dir + "/gone"}, 0); !errors.Is(err, pipeline.ErrUnavailable) {
		t.Errorf("a file that is gone: %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	src, err = tfrecordsource.New(tfrecordsource.Options{Files: []string{dir + "/train.tfrecord"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Splits(ctx); !errors.Is(err, context.Cause(ctx)) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestRealFiles reads files that TensorFlow wrote.
func TestRealFiles(t *testing.T) {
	t.Parallel()
	data := testbed.Data(t, ".")
	for pattern, want := range map[string]int{
		"formats/shenweichen_DeepCTR/criteo_sample.tr.tfrecords":                                            160,
		"formats/tensorflow_tfx/components/testdata/csv_example_gen/unlabelled/data_tfrecord-*-of-00012.gz": 1230,
	} {
		src, err := tfrecordsource.New(tfrecordsource.Options{Files: []string{filepath.Join(data, pattern)}})
		if err != nil {
			t.Fatal(err)
		}
		splits, err := src.Splits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var rows int
		for _, s := range splits {
			r, err := src.Open(t.Context(), &pipeline.Env{}, s, s.Start)
			if err != nil {
				t.Fatal(err)
			}
			recs, _, err := drain(t, r)
			if err != nil {
				t.Errorf("%s: %v", s.Name, err)
			}
			rows += len(recs)
			_ = r.Close()
		}
		if rows != want {
			t.Errorf("%s: %d records, want %d", pattern, rows, want)
		}
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "tfrecord")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	f, err := os.Create(filepath.Join(dir, "clicks.tfrecord"))
	if err != nil {
		panic(err)
	}
	w := tfrecord.NewWriter(f, nil)
	for _, s := range []string{"one", "two", "three"} {
		if err := w.Write([]byte(s)); err != nil {
			panic(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		panic(err)
	}

	src, err := tfrecordsource.New(tfrecordsource.Options{Files: []string{filepath.Join(dir, "*.tfrecord")}})
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
	for i, at := range block.Positions() {
		fmt.Println(block.Payload().ValueString(i), "ends at byte", at)
	}
	// Output:
	// one ends at byte 19
	// two ends at byte 38
	// three ends at byte 59
}

func BenchmarkRead(b *testing.B) {
	for _, gzip := range []bool{false, true} {
		for _, size := range []int{200, 1200} {
			b.Run(fmt.Sprintf("gzip=%v/record=%d", gzip, size), func(b *testing.B) {
				var buf bytes.Buffer
				w := tfrecord.NewWriter(&buf, &tfrecord.WriterOptions{Gzip: gzip})
				rec := bytes.Repeat([]byte("Monolith "), size/9+1)[:size]
				rows := 16 << 20 / size
				for i := range rows {
					rec[i%size]++
					if err := w.Write(rec); err != nil {
						b.Fatal(err)
					}
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
				path := write(b, b.TempDir(), "f", buf.Bytes())
				b.SetBytes(w.Offset())
				b.ReportAllocs()
				for b.Loop() {
					r := open(b, &pipeline.Env{}, tfrecordsource.Options{Files: []string{path}}, 0)
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
				b.ReportMetric(float64(b.N)*float64(rows)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

package filesink_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/arrowsink"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sinks/jsonlsink"
	"github.com/monolith-go/monolith/sinks/parquetsink"
	"github.com/monolith-go/monolith/sinks/tfrecordsink"
	"github.com/monolith-go/monolith/sinks/tsvsink"
)

// format is a format of files: how a sink is made, and how others read a file, row by row.
type format struct {
	extension string
	new       func(o filesink.Options) (*filesink.Sink, error)
	read      func(path string, row func(split string, value int64)) error
}

var formats = map[string]format{
	"parquet": {
		".parquet",
		func(o filesink.Options) (*filesink.Sink, error) {
			return parquetsink.New(parquetsink.Options{Options: o, RowsPerGroup: 16})
		},
		func(path string, row func(string, int64)) error {
			rows, err := parquet.ReadFile[struct {
				Value int64  `parquet:"value"`
				Split string `parquet:"split"`
			}](path)
			for _, r := range rows {
				row(r.Split, r.Value)
			}
			return err
		},
	},
	"arrow": {".arrow", arrowsink.New, func(path string, row func(string, int64)) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		r, err := ipc.NewFileReader(f)
		if err != nil {
			return err
		}
		defer func() { _ = r.Close() }()
		for i := range r.NumRecords() {
			rec, err := r.RecordBatch(i)
			if err != nil {
				return err
			}
			for k := range int(rec.NumRows()) {
				row(rec.Column(rec.Schema().FieldIndices("split")[0]).(*array.String).Value(k), rec.Column(rec.Schema().FieldIndices("value")[0]).(*array.Int64).Value(k))
			}
		}
		return nil
	}},
	"jsonl": {".jsonl.gz", jsonlsink.New, func(path string, row func(string, int64)) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		z, err := gzip.NewReader(bufio.NewReader(f))
		if err != nil {
			return err
		}
		for d := json.NewDecoder(z); ; {
			var r struct {
				Value int64
				Split string
			}
			if err := d.Decode(&r); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
			row(r.Split, r.Value)
		}
	}},
	"tsv": {
		".csv.gz",
		func(o filesink.Options) (*filesink.Sink, error) {
			return tsvsink.New(tsvsink.Options{Options: o, Delimiter: ","})
		},
		func(path string, row func(string, int64)) error {
			b, err := unzipped(path)
			if err != nil {
				return err
			}
			lines, err := csv.NewReader(bytes.NewReader(b)).ReadAll()
			if err != nil || len(lines) == 0 || lines[0][0] != "value" {
				return fmt.Errorf("%.1q: %w", lines, err)
			}
			for _, line := range lines[1:] {
				value, err := strconv.ParseInt(line[0], 10, 64)
				if err != nil {
					return err
				}
				row(splitOf(path), value)
			}
			return nil
		},
	},
	"tfrecord": {".tfrecord.gz", tfrecordsink.New, func(path string, row func(string, int64)) error {
		b, err := unzipped(path)
		if err != nil {
			return err
		}
		for r := tfrecord.NewReader(bytes.NewReader(b), nil); ; {
			record, err := r.Next()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			features, err := example.All(record)
			if err != nil {
				return err
			}
			values, err := features["value"].AppendInt64s(nil)
			if err != nil || len(values) != 1 {
				return fmt.Errorf("%v: %w", values, err)
			}
			row(splitOf(path), values[0])
		}
	}},
}

// unzipped is what a gzip file holds.
func unzipped(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// splitOf is the split that a file of the tests is of, by its name, for the formats that have no column of it.
func splitOf(path string) string {
	split, err := url.PathUnescape(strings.Split(filepath.Base(path), "~")[1])
	if err != nil {
		return err.Error()
	}
	return split
}

// each runs a test for each format.
func each(t *testing.T, test func(t *testing.T, f format)) {
	t.Parallel()
	for name, f := range formats {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, f)
		})
	}
}

func (f format) sink(t testing.TB, o filesink.Options) *filesink.Sink {
	t.Helper()
	s, err := f.new(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f format) writer(t testing.TB, o filesink.Options) *filesink.Writer {
	t.Helper()
	w, err := f.sink(t, o).Open(t.Context(), &pipeline.Env{})
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

// files are the visible files of a folder, sorted.
func (f format) files(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"+f.extension))
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return filepath.Base(name)[0] == '.' })
	slices.Sort(names)
	return names
}

// stored reads the column value of all files of a folder by the column split.
func (f format) stored(t testing.TB, dir string) map[string][]int64 {
	t.Helper()
	out := map[string][]int64{}
	for _, path := range f.files(t, dir) {
		if err := f.read(path, func(split string, value int64) { out[split] = append(out[split], value) }); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	return out
}

func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		dir := t.TempDir()
		pipelinetest.TestSink(t, pipelinetest.SinkHarness[*pipeline.Batch]{
			New: func(t *testing.T) pipeline.Sink[*pipeline.Batch] { return f.sink(t, filesink.Options{Dir: dir}) },
			Inputs: func(t *testing.T, mem memory.Allocator) []*pipeline.Batch {
				return []*pipeline.Batch{pipelinetest.Numbers(t, mem, "a", 5, 9), pipelinetest.Numbers(t, mem, "b", 0, 1), pipelinetest.Numbers(t, mem, "a", 9, 9), pipelinetest.Numbers(t, mem, "a", 9, 30)}
			},
			Check: func(t *testing.T, rows int) {
				got := f.stored(t, dir)
				if n := len(got["a"]) + len(got["b"]); n != rows {
					t.Errorf("%d rows of %d are there", n, rows)
				}
			},
		})
	})
}

func TestResumer(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		seeds := uint64(8)
		if testing.Short() {
			seeds = 2
		}
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "deep", "rows")
				pipelinetest.TestResumer(t, pipelinetest.ResumerHarness[*pipeline.Batch]{
					New: func(t *testing.T) pipeline.Sink[*pipeline.Batch] {
						return f.sink(t, filesink.Options{Dir: dir, RowsPerFile: 20 + int64(seed)*10, FileEvery: time.Duration(1+seed) * time.Millisecond})
					},
					Make: func(t *testing.T, mem memory.Allocator, split string, from, to pipeline.Position) *pipeline.Batch {
						return pipelinetest.Numbers(t, mem, split, from, to)
					},
					Stored: func(t *testing.T) map[string][]int64 { return f.stored(t, dir) },
					Seed:   seed,
				})
			})
		}
	})
}

// TestFencing: a file that was begun before another process resumed does not become visible, and of two owners who both continue
// from one position one does.
func TestFencing(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		mem := memory.NewGoAllocator()
		o := filesink.Options{Dir: t.TempDir()}
		resume := func(w *filesink.Writer) pipeline.Position {
			t.Helper()
			p, err := w.Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}})
			if err != nil {
				t.Fatal(err)
			}
			return p["a"].Position
		}
		old, young := f.writer(t, o), f.writer(t, o)
		resume(old)
		if err := old.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 0, 10)); err != nil {
			t.Fatal(err)
		}
		resume(young)
		if err := old.Flush(t.Context()); !errors.Is(err, pipeline.ErrFenced) {
			t.Fatalf("the old owner's file: %v", err)
		}
		for _, w := range []*filesink.Writer{young, old} { // the old one continues despite the error
			if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 0, 10)); (w == young) != (err == nil) {
				t.Fatal(err) // the old one has taken 10 rows already
			}
		}
		third := f.writer(t, o)
		if at := resume(third); at != 0 {
			t.Fatalf("nothing is visible, and yet writing continues at %d", at)
		}
		fourth := f.writer(t, o)
		resume(fourth)
		for _, w := range []*filesink.Writer{third, fourth} { // both begin their files now
			if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 0, 10)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(third.Flush(t.Context())); err != nil {
			t.Fatal(err)
		}
		if err := fourth.Flush(t.Context()); !errors.Is(err, pipeline.ErrFenced) {
			t.Fatalf("the second with the same rows: %v", err)
		}
		if at := resume(fourth); at != 10 {
			t.Fatalf("it continues at %d", at)
		}
		if got := f.stored(t, o.Dir)["a"]; len(got) != 10 {
			t.Fatalf("%d rows", len(got))
		}
	})
}

// TestFencingBehindRangeWithoutRows: the next file of a split has one name, wherever the first of its rows is. Of two owners who continue from one position one
// makes its rows visible, also where their batches end in other places, so that for one of them a range without rows comes first.
func TestFencingBehindRangeWithoutRows(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		mem := memory.NewGoAllocator()
		o := filesink.Options{Dir: t.TempDir()}
		first, second := f.writer(t, o), f.writer(t, o)
		for _, w := range []*filesink.Writer{first, second} {
			if _, err := w.Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		// The rows of the split are those from 5 on.
		rows := func(from, to, first pipeline.Position) *pipeline.Batch {
			b := pipelinetest.Numbers(t, mem, "a", from, to)
			defer b.Release()
			part, err := pipeline.NewBatch(pipelinetest.Numbers(t, mem, "a", first, to).Record(), b.Origin())
			if err != nil {
				t.Fatal(err)
			}
			return part
		}
		if err := errors.Join(first.Write(t.Context(), rows(0, 10, 5)), second.Write(t.Context(), rows(0, 5, 5)), second.Write(t.Context(), rows(5, 10, 5))); err != nil {
			t.Fatal(err)
		}
		if err := first.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := second.Flush(t.Context()); !errors.Is(err, pipeline.ErrFenced) {
			t.Errorf("the second with the same rows: %v", err)
		}
		if diff := cmp.Diff(map[string][]int64{"a": {5, 6, 7, 8, 9}}, f.stored(t, o.Dir)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestShownIf: a file is visible only when who is asked about its split has agreed, before it is full and at the end.
func TestShownIf(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		o := filesink.Options{Dir: t.TempDir(), RowsPerFile: 10}
		s, err := f.new(o)
		if err != nil {
			t.Fatal(err)
		}
		bad := errors.New("b is not to be seen")
		w, err := s.ShownIf(func(_ context.Context, split string) error {
			if split == "b" {
				return bad
			}
			return nil
		}).Open(t.Context(), &pipeline.Env{})
		if err != nil {
			t.Fatal(err)
		}
		for _, split := range []string{"a", "b", "c"} {
			for from := pipeline.Position(0); from < 15; from += 5 {
				if err := w.Write(t.Context(), pipelinetest.Numbers(t, memory.NewGoAllocator(), split, from, from+5)); split != "b" && err != nil || split == "b" && (from < 5) != (err == nil) {
					t.Errorf("%s from %d: %v", split, from, err)
				}
			}
		}
		if err := w.Flush(t.Context()); !errors.Is(err, bad) {
			t.Error(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		files := f.files(t, o.Dir)
		if len(files) != 4 || slices.ContainsFunc(files, func(name string) bool { return strings.Contains(name, "~b~") }) {
			t.Errorf("%q are visible", files)
		}
	})
}

func TestRolls(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		mem := memory.NewGoAllocator()
		t.Run("rows", func(t *testing.T) {
			t.Parallel()
			o := filesink.Options{Dir: t.TempDir(), RowsPerFile: 10}
			w := f.writer(t, o)
			for i := range pipeline.Position(5) {
				if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", i*5, i*5+5)); err != nil {
					t.Fatal(err)
				}
			}
			if n := len(f.files(t, o.Dir)); n != 2 {
				t.Errorf("%d files are visible, want 2", n)
			}
		})
		t.Run("bytes", func(t *testing.T) {
			t.Parallel()
			o := filesink.Options{Dir: t.TempDir(), BytesPerFile: 50_000}
			w := f.writer(t, o)
			rng := rand.New(rand.NewPCG(1, 1))
			for from := pipeline.Position(0); from < 30_000; from += 1000 {
				b := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Float32}}, nil))
				for range 1000 {
					b.Field(0).(*array.Float32Builder).Append(rng.Float32())
				}
				batch, err := pipeline.NewBatch(b.NewRecordBatch(), pipeline.Origin{Source: "s", Split: "a", From: from, To: from + 1000})
				b.Release()
				if err == nil {
					err = w.Write(t.Context(), batch)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if n := len(f.files(t, o.Dir)); n < 2 || n > 15 {
				t.Errorf("%d files of 30,000 random numbers, each to have about 50,000 bytes", n)
			}
		})
		t.Run("time", func(t *testing.T) {
			t.Parallel()
			o := filesink.Options{Dir: t.TempDir(), FileEvery: 50 * time.Millisecond}
			w := f.writer(t, o)
			if err := w.Write(t.Context(), pipelinetest.Numbers(t, mem, "a", 0, 5)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(60 * time.Millisecond)
			if err := w.Idle(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := len(f.files(t, o.Dir)); n != 1 {
				t.Errorf("%d files are visible, want 1", n)
			}
		})
	})
}

func TestFaults(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		mem := memory.NewGoAllocator()
		o := filesink.Options{Dir: t.TempDir(), Output: "a"}
		w := f.writer(t, o)
		ctx := t.Context()
		if err := errors.Join(w.Write(ctx, pipelinetest.Numbers(t, mem, "a", 0, 5)), w.Flush(ctx)); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(ctx, pipelinetest.Numbers(t, mem, "a", 7, 9)); !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "does not begin at position 5") {
			t.Errorf("a gap: %v", err)
		}
		other := array.NewRecordBuilder(mem, arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Float32}}, nil))
		other.Field(0).(*array.Float32Builder).Append(1)
		batch, err := pipeline.NewBatch(other.NewRecordBatch(), pipeline.Origin{Source: "test", Split: "a", From: 5, To: 6})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(ctx, batch); !errors.Is(err, pipeline.ErrSchema) {
			t.Errorf("other columns: %v", err)
		}
		names := f.files(t, o.Dir)
		if len(names) != 1 || filepath.Base(names[0]) != "test~a~00000000000000000000"+f.extension {
			t.Fatalf("%q", names)
		}
		content, err := os.ReadFile(names[0])
		if err != nil {
			t.Fatal(err)
		}
		for name, damaged := range map[string][]byte{"cut": content[:len(content)-1], "empty": {}, "another's": []byte(strings.ReplaceAll(string(content), "monolith.from", "monolith.farm"))} {
			if err := os.WriteFile(names[0], damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := f.writer(t, o).Resume(ctx, "test", []pipeline.Split{{Name: "a"}})
			if !errors.Is(err, pipeline.ErrBadData) || !strings.Contains(err.Error(), names[0]) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := os.WriteFile(names[0], content, 0o600); err != nil {
			t.Fatal(err)
		}
		another := o
		another.Output, another.Keys = "b", "to."
		_, err = f.writer(t, another).Resume(ctx, "test", []pipeline.Split{{Name: "a"}})
		if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), names[0]+` has rows of output "a", and those of "b"`) || !strings.Contains(err.Error(), "to.dir") {
			t.Errorf("another's: %v", err)
		}
		if err := errors.Join(w.Close(), w.Close()); err != nil {
			t.Error(err)
		}
		_, err = w.Resume(ctx, "test", nil)
		for _, err := range []error{err, w.Write(ctx, pipelinetest.Numbers(t, mem, "a", 5, 6)), w.Flush(ctx), w.Idle(ctx)} {
			if !errors.Is(err, pipeline.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
		left, err := os.ReadDir(o.Dir)
		if err != nil || len(left) != 1 {
			t.Errorf("%v, %v: something is left", left, err)
		}
	})
}

// TestFolderGoesAway: what cannot be written is an ErrUnavailable that says what to do.
func TestFolderGoesAway(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		dir := filepath.Join(t.TempDir(), "rows")
		w := f.writer(t, filesink.Options{Dir: dir, Keys: "to."})
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := w.Write(t.Context(), pipelinetest.Numbers(t, memory.NewGoAllocator(), "a", 0, 5)); !errors.Is(err, pipeline.ErrUnavailable) ||
			!strings.Contains(err.Error(), "folder "+dir) || !strings.Contains(err.Error(), "name another folder in to.dir") {
			t.Error(err)
		}
	})
}

// TestRangeWithoutRows: what has no rows is remembered once it is flushed, at the beginning, in the midst and at the end of a split, by a file that readers find
// empty, and by none where there is a file around it; before that it is forgotten with what was not flushed.
func TestRangeWithoutRows(t *testing.T) {
	each(t, func(t *testing.T, f format) {
		mem := memory.NewGoAllocator()
		o := filesink.Options{Dir: t.TempDir()}
		resume := func(want pipeline.Progress) *filesink.Writer {
			t.Helper()
			w := f.writer(t, o)
			p, err := w.Resume(t.Context(), "test", []pipeline.Split{{Name: "a"}, {Name: "b"}})
			if err != nil || p["a"] != want || len(p) > 1 {
				t.Fatalf("%v, %v; want %v", p, err, want)
			}
			return w
		}
		write := func(w *filesink.Writer, from, to pipeline.Position, rows bool) {
			t.Helper()
			b := pipelinetest.Numbers(t, mem, "a", from, to)
			if !rows {
				origin := b.Origin()
				b.Release()
				var err error
				if b, err = pipeline.NewBatch(pipelinetest.Numbers(t, mem, "a", from, from).Record(), origin); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Write(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		flush := func(w *filesink.Writer, files int) {
			t.Helper()
			for range 2 { // the second has nothing to do
				if err := w.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if got := len(f.files(t, o.Dir)); got != files {
				t.Fatalf("%d files, want %d", got, files)
			}
		}
		w := resume(pipeline.Progress{})
		write(w, 3, 8, false)
		if err := errors.Join(w.Idle(t.Context()), w.Close()); err != nil || len(f.files(t, o.Dir)) > 0 {
			t.Fatal("what was not flushed is there", err)
		}
		w = resume(pipeline.Progress{})
		write(w, 3, 8, false)
		write(w, 8, 12, false)
		flush(w, 1)
		write(w, 12, 15, true) // after the flush of a snapshot, say
		write(w, 15, 20, false)
		flush(w, 2)
		w = resume(pipeline.Progress{Position: 20, Rows: 3, Batches: 1})
		write(w, 20, 25, false)
		write(w, 25, 30, true)
		flush(w, 3)
		write(w, 30, 31, false)
		flush(w, 4)
		resume(pipeline.Progress{Position: 31, Rows: 8, Batches: 2})
		if diff := cmp.Diff(map[string][]int64{"a": {12, 13, 14, 25, 26, 27, 28, 29}}, f.stored(t, o.Dir)); diff != "" {
			t.Error(diff)
		}
	})
}

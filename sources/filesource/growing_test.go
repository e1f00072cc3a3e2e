package filesource_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/internal/tfrecord"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/epochsource"
	"github.com/monolith-go/monolith/sources/filesource"
	"github.com/monolith-go/monolith/sources/textsource"
	"github.com/monolith-go/monolith/sources/tfrecordsource"
)

// zipped is text in gzip, a member for each piece.
func zipped(t *testing.T, pieces ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, p := range pieces {
		w := gzip.NewWriter(&out)
		_, err := w.Write(p)
		if err := errors.Join(err, w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

// TestCutAtEveryByte reads a file that is cut at each of its bytes, and again when it is whole: together that is what the whole file holds, and no row is
// bad, whatever the format, the compression, the policy and the epochs.
func TestCutAtEveryByte(t *testing.T) {
	t.Parallel()
	var records bytes.Buffer
	w := tfrecord.NewWriter(&records, nil)
	for i := range 8 {
		if err := w.Write(fmt.Appendf(nil, "record %d%s", i, strings.Repeat(".", i*3))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	csv := []byte("\xef\xbb\xbfuser,text,click\r\n1,a,1\r\n\r\n2,\"b\nc\",0\r\n3,\"d\"\"\n\n\",10\n\n4,,0\n")
	json := []byte("{\"a\":1}\n\n{\"a\":{\"b\":\"}\"}}\r\n {\"a\":[{}]}\n{\"a\":2}\n")
	text := func(o textsource.Options) func(filesource.Options) (*filesource.Source, error) {
		return func(f filesource.Options) (*filesource.Source, error) {
			o := o
			o.Files, o.Known, o.Seen, o.FS, o.BlockRows = f.Files, f.Known, f.Seen, f.FS, f.BlockRows
			return textsource.New(o)
		}
	}
	record := func(f filesource.Options) (*filesource.Source, error) {
		return tfrecordsource.New(tfrecordsource.Options{Files: f.Files, Known: f.Known, Seen: f.Seen, FS: f.FS, BlockRows: f.BlockRows})
	}
	for _, c := range []struct {
		name string
		file []byte
		open func(filesource.Options) (*filesource.Source, error)
		rows int
	}{
		{"tfrecord", records.Bytes(), record, 8},
		{"tfrecord, gzip", zipped(t, records.Bytes()), record, 8},
		{"tfrecord, gzip, three members", zipped(t, records.Bytes()[:50], records.Bytes()[50:110], records.Bytes()[110:]), record, 8},
		{"csv", csv, text(textsource.Options{Quoted: true, Header: true}), 4},
		{"csv, gzip", zipped(t, csv), text(textsource.Options{Quoted: true, Header: true}), 4},
		{"csv, gzip, three members", zipped(t, csv[:10], csv[10:45], csv[45:]), text(textsource.Options{Quoted: true, Header: true}), 4},
		{"no header", []byte("1 2:3\n0 4:5\n\n1 6:777\n"), text(textsource.Options{}), 3},
		{"jsonl", json, text(textsource.Options{JSON: true}), 4},
		{"jsonl, gzip, two members", zipped(t, json[:12], json[12:]), text(textsource.Options{JSON: true}), 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			whole := (&growing{open: c.open, files: new(fsxtest.Mem), known: map[string]string{}, seen: map[string]string{}, env: &pipeline.Env{}}).read(t, c.file)
			if len(whole) != c.rows {
				t.Fatalf("%d rows of the whole file, want %d", len(whole), c.rows)
			}
			for cut := range len(c.file) + 1 {
				for epochs := 0; epochs <= 2; epochs++ {
					for _, skip := range []*pipeline.SkipBadRows{nil, {}} {
						g := &growing{open: c.open, files: new(fsxtest.Mem), epochs: epochs, known: map[string]string{}, seen: map[string]string{}, env: &pipeline.Env{}}
						if skip != nil {
							g.env.BadRows = skip
						}
						first := g.read(t, c.file[:cut])
						rest := g.read(t, c.file)
						n := len(first) / max(1, epochs)
						var want []string // a row that came later has no part in epochs that were over
						for range max(1, epochs) {
							want = append(want, whole[:n]...)
						}
						want = append(want, whole[n:]...)
						if diff := cmp.Diff(want, append(first, rest...)); diff != "" {
							t.Errorf("cut at %d of %d, %d epochs, %v (-want +got):\n%s", cut, len(c.file), epochs, g.env.BadRows, diff)
						}
						if skip != nil && len(skip.Counts()) > 0 {
							t.Errorf("cut at %d, %d epochs: bad rows %v", cut, epochs, skip.Counts())
						}
					}
				}
			}
		})
	}
}

// growing is a source of one file, read in runs.
type growing struct {
	open        func(filesource.Options) (*filesource.Source, error)
	files       *fsxtest.Mem
	epochs      int // 0: the source as it is
	known, seen map[string]string
	at          pipeline.Position
	env         *pipeline.Env
}

// read is a run on what the file holds by now.
func (g *growing) read(t *testing.T, file []byte) (rows []string) {
	t.Helper()
	if err := fsx.WriteFile(t.Context(), g.files, "f", file); err != nil {
		t.Fatal(err)
	}
	opts := filesource.Options{Files: []string{"f"}, Known: g.known, Seen: g.seen, FS: g.files, BlockRows: 2}
	list := func() (pipeline.Source[*pipeline.Block], pipeline.Split) {
		inner, err := g.open(opts)
		if err != nil {
			t.Fatal(err)
		}
		src := pipeline.Source[*pipeline.Block](inner)
		if g.epochs > 0 {
			if src, err = epochsource.New(src, epochsource.Options{Epochs: g.epochs}); err != nil {
				t.Fatal(err)
			}
		}
		splits, err := src.Splits(t.Context())
		if err != nil || len(splits) != 1 {
			t.Fatal(splits, err)
		}
		return src, splits[0]
	}
	_, split := list()
	g.known[split.Name] = split.Identity
	if split.Seen != "" {
		g.seen[split.Name] = split.Seen
	}
	src, split := list()
	r, err := src.Open(t.Context(), g.env, split, g.at)
	if err != nil {
		t.Fatal(err)
	}
	for {
		b, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%d bytes from %d: %v", len(file), g.at, err)
		}
		for i := range b.NumRows() {
			rows = append(rows, b.Payload().ValueString(i))
		}
		b.Release()
	}
	g.at = r.Position()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// TestUnfinished: a warning names the file, the byte and what to do, once for each place, and a source of complete files reads what there is.
func TestUnfinished(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text, want string
		rows       int
		complete   int // rows, if nothing is appended any more
	}{
		{"1,2\n3,4", "level=WARN msg=\"a file ends within a record, which waits for its rest and is not read yet\" file=f why=\"the last line has no line feed\" line=2 byte=4 bytes=3 advice=\"complete the record, a last line by a line feed; if nothing is appended to the file any more, set complete: true in the source\"\n", 1, 2},
		{"1,2\n3,\"4\n", "why=\"no quote closes the field that begins in this line\" line=2 byte=4 bytes=5", 1, 1},
		{"1,2\n3,4\n\n", "", 2, 2},
		{string(zipped(t, []byte("1,2\n3,4"))), "why=\"the last line has no line feed\" line=2 after_records=1", 1, 2},
		{string(zipped(t, []byte("1,2\n"), []byte("3,4\n"))[:30]), "why=\"the file ends within the gzip member that begins at byte 29, after 1 whole ones: unexpected EOF\" line=2 after_records=1", 1, 1},
	} {
		files := new(fsxtest.Mem)
		if err := fsx.WriteFile(t.Context(), files, "f", []byte(c.text)); err != nil {
			t.Fatal(err)
		}
		for _, complete := range []bool{false, true} {
			src, err := textsource.New(textsource.Options{Files: []string{"f"}, FS: files, Quoted: true, Complete: complete})
			if err != nil {
				t.Fatal(err)
			}
			splits, err := src.Splits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var log bytes.Buffer
			plain := func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}
			env := &pipeline.Env{BadRows: &pipeline.SkipBadRows{}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: plain}))}
			for range 2 {
				r, err := src.Open(t.Context(), env, splits[0], 0)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for {
					b, err := r.Next(t.Context())
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					n += b.NumRows()
					b.Release()
				}
				if want := map[bool]int{false: c.rows, true: c.complete}[complete]; n != want {
					t.Errorf("%q, complete %v: %d rows, want %d", c.text, complete, n, want)
				}
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
			if lines := strings.Count(log.String(), "\n"); complete && log.Len() > 0 || !complete && (!strings.Contains(log.String(), c.want) || (c.want == "") != (lines == 0) || lines > 1) {
				t.Errorf("%q, complete %v: logged %s, want %s", c.text, complete, log.String(), c.want)
			}
		}
	}
}

package jsonlsink

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/gzip"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/pipelinetest"
	"github.com/monolith-go/monolith/sinks/filesink"
	"github.com/monolith-go/monolith/sources/textsource"
)

// TestLines: a file holds the rows in order, for any reader, with the split of each; its metadata is none of them.
func TestLines(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := New(filesink.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Open(t.Context(), &pipeline.Env{})
	if err != nil {
		t.Fatal(err)
	}
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	split := "a \"\xff\"" // as files may be called
	err = errors.Join(w.Write(t.Context(), pipelinetest.Numbers(t, mem, split, 0, 2)), w.Write(t.Context(), pipelinetest.Numbers(t, mem, split, 2, 3)), w.Flush(t.Context()), w.Close())
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%q, %v", names, err)
	}
	f, err := os.Open(names[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(z)
	want := `{"value":0,"position":1,"split":{"base64":"YSAi/yI="}}
{"value":1,"position":2,"split":{"base64":"YSAi/yI="}}
{"value":2,"position":3,"split":{"base64":"YSAi/yI="}}
`
	if err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, got)
	}
	src, err := textsource.New(textsource.Options{Files: names})
	if err != nil {
		t.Fatal(err)
	}
	splits, err := src.Splits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r, err := src.Open(t.Context(), &pipeline.Env{}, splits[0], splits[0].Start)
	if err != nil {
		t.Fatal(err)
	}
	blk, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer blk.Release()
	lines := ""
	for i := range blk.NumRows() {
		lines += string(blk.Payload().Value(i)) + "\n"
	}
	if _, err := r.Next(t.Context()); lines != want || !errors.Is(err, io.EOF) {
		t.Errorf("our own source reads, and then %v:\n%s", err, lines)
	}
	if _, err := s.Open(t.Context(), &pipeline.Env{}); err != nil {
		t.Fatal(err)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	pipelinetest.TestFingerprint(t, pipelinetest.FingerprintHarness[filesink.Options]{
		Options: filesink.Options{Dir: "rows", RowsPerFile: 1000, BytesPerFile: 1000, FileEvery: time.Second, Output: "a", Keys: "k."},
		New: func(t *testing.T, o filesink.Options) interface{ Fingerprint() string } {
			t.Helper()
			s, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
		Free: map[string]string{"RowsPerFile": "how rows are cut into files", "BytesPerFile": "as RowsPerFile", "FileEvery": "as RowsPerFile", "Keys": "how errors are worded"},
	})
}

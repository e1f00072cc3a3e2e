package parquetsource_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// hostile reads a file that may be anything. What comes is rows, a bad row, or a refusal of its columns; nothing else, and
// no memory is left.
func hostile(tb testing.TB, dir string, file []byte, schema *arrow.Schema) {
	tb.Helper()
	path := filepath.Join(dir, "f.parquet")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		tb.Fatal(err)
	}
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(tb, 0)
	_, err := readAll(tb, parquetsource.Options{
		Complete: true,
		Files:    []string{path}, Columns: schema, MaxPageBytes: 1 << 16, MaxBatchBytes: 1 << 16, BatchRows: 64,
	}, &pipeline.Env{Allocator: mem, BadRows: &pipeline.SkipBadRows{}})
	if err != nil && !errors.Is(err, pipeline.ErrConfig) {
		tb.Errorf("%v", err)
	}
}

func small(tb testing.TB, opts ...parquet.WriterOption) []byte {
	return encode(tb, random(rand.New(rand.NewPCG(6, 6)), 12), 12, opts...)
}

// TestEveryByte damages every byte of a small file in turn.
func TestEveryByte(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]parquet.WriterOption{
		"v1": {parquet.DataPageVersion(1), parquet.DataPageStatistics(false)},
		"v2": {parquet.DataPageVersion(2), parquet.Compression(&parquet.Zstd)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := small(t, opts...)
			dir := t.TempDir()
			schema := everything(t, write(t, dir, "whole.parquet", file))
			stride := 5
			if testing.Short() {
				stride = 17
			}
			for i := 0; i < len(file); i += stride {
				bad := append([]byte(nil), file...)
				bad[i] ^= byte(1 << (i % 8))
				hostile(t, dir, bad, schema)
				if i%16 == 0 {
					hostile(t, dir, file[:i], schema)
				}
			}
		})
	}
}

// TestBomb reads a small file that stands for 4 GiB: a page of one long string that a dictionary repeats.
func TestBomb(t *testing.T) {
	type line struct {
		S string `parquet:"s,dict"`
	}
	long := string(make([]byte, 1<<18)) // the header of a page holds two of them
	rows := make([]line, 1<<14)
	for i := range rows {
		rows[i].S = long
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "bomb.parquet")
	if err := parquet.WriteFile(path, rows, parquet.Compression(&parquet.Zstd)); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	skip := &pipeline.SkipBadRows{}
	_, err := readAll(t, parquetsource.Options{
		Complete: true,
		Files:    []string{path}, Columns: everything(t, path), BatchRows: 1 << 14, MaxBatchBytes: 16 << 20,
	}, &pipeline.Env{BadRows: skip})
	runtime.ReadMemStats(&after)
	if err != nil || skip.Counts()["too large"] != int64(len(rows)) {
		t.Errorf("%v, dropped %v", err, skip.Counts())
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
		t.Errorf("%d bytes were allocated", used)
	}
}

// FuzzRead edits small files. Columns are all that the whole file has.
func FuzzRead(f *testing.F) {
	files := [][]byte{small(f, parquet.DataPageStatistics(false)), small(f, parquet.DataPageVersion(1), parquet.Compression(&parquet.Snappy))}
	schema := everything(f, write(f, f.TempDir(), "whole.parquet", files[0]))
	f.Add(uint8(0), []byte{})
	f.Add(uint8(1), []byte{})
	f.Add(uint8(0), []byte{3, byte(len(files[0]) / 2), byte(len(files[0]) / 2 >> 8), 0, 0})
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		hostile(t, t.TempDir(), testbed.Edit(files[int(which)%2], edits), schema)
	})
}

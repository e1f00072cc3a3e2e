package main_test

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/testbed"
)

// TestMemoryIsFlat trains on 1 GB and on 8 GB of Parquet with the same ids, in row groups of 16 MB: the process needs as much memory for the one as
// for the other.
func TestMemoryIsFlat(t *testing.T) {
	if !testbed.Required("memory") {
		t.Skip("takes minutes and 9 GB of disk; make memory runs it")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	const files, rows = 8, 3_400_000
	total := int64(0)
	for i := range files {
		file := filepath.Join(folder, fmt.Sprintf("part-%d.parquet", i))
		writeWide(t, file, uint64(i), rows)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	t.Logf("%d files of %.2f GB together", files, float64(total)/1e9)
	if total < 8e9 {
		t.Fatalf("the files have only %d bytes", total)
	}
	var features strings.Builder
	for f := range wideColumns {
		_, _ = fmt.Fprintf(&features, "{name: f%02d, slot: %d}, ", f, f+1)
	}
	train := func(pattern string) int64 {
		text := fmt.Sprintf("version: 1\nname: wide\ndir: DIR\nsource: {parquet: {files: [%s]}}\nparse: {features: [%s], label: click}\nmodel: lr\ntrain: {batch: 4096, workers: 2}\n",
			filepath.Join(folder, pattern), strings.TrimSuffix(features.String(), ", "))
		_, job := makeJob(t, text)
		cmd := exec.CommandContext(t.Context(), path, "train", job)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		peak := cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
		t.Logf("%s: at most %d MiB of memory, %v of CPU\n%s", pattern, peak>>20, cmd.ProcessState.UserTime(), out)
		return peak
	}
	one, all := train("part-0.parquet"), train("*.parquet")
	if float64(all) > 1.15*float64(one) {
		t.Errorf("%d MiB for eight times the data, %d MiB for one part", all>>20, one>>20)
	}
}

// wideColumns is how many columns of ids a row of [writeWide] has.
const wideColumns = 39

// writeWide writes a file of rows of 39 ids out of 1,000 each, in eight bytes an id, and a label.
func writeWide(t *testing.T, path string, seed uint64, rows int) {
	t.Helper()
	group := parquet.Group{"click": parquet.Leaf(parquet.BooleanType)}
	for f := range wideColumns {
		group[fmt.Sprintf("f%02d", f)] = parquet.Encoded(parquet.Leaf(parquet.Int64Type), &parquet.Plain)
	}
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	buffered := bufio.NewWriterSize(file, 1<<20)
	w := parquet.NewWriter(buffered, parquet.NewSchema("wide", group))
	rng := rand.New(rand.NewPCG(seed, 39))
	batch := make([]parquet.Row, 1000)
	for done := 0; done < rows; done += len(batch) {
		for i := range batch {
			// Columns are in the order of their names: click comes first.
			row := append(batch[i][:0], parquet.BooleanValue(rng.IntN(4) == 0).Level(0, 0, 0))
			for f := range wideColumns {
				row = append(row, parquet.Int64Value(rng.Int64N(1000)).Level(0, 0, f+1))
			}
			batch[i] = row
		}
		_, err := w.WriteRows(batch)
		if err == nil && done%50_000 == 0 && done > 0 {
			err = w.Flush() // a row group
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), buffered.Flush(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

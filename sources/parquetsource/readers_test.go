//go:build unix

package parquetsource_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/sources/parquetsource"
)

// readersTable has TestReaders read with the other libraries too, and print what all make of every file.
var readersTable = flag.Bool("readers", false, "compare with other readers of Parquet and print the table")

// Other libraries may take the process with them, so every file is read in a child.
const (
	envReader   = "MONOLITH_TEST_PARQUET_READER"
	hangAfter   = time.Minute
	childMemory = 6 << 30 // of address space
	muchMemory  = 1 << 30 // that was allocated for a file of much less
)

var readers = map[string]func(path string) (rows int64, err error){
	"ours":       readOurs,
	"parquet-go": readParquetGo,
	"arrow-go":   readArrowGo,
}

func readOurs(path string) (rows int64, err error) {
	ctx := context.Background()
	schema, _, err := parquetsource.Describe(ctx, fsx.Local{}, path)
	if err != nil {
		return 0, err
	}
	src, err := parquetsource.New(parquetsource.Options{Files: []string{path}, Columns: schema})
	if err != nil {
		return 0, err
	}
	splits, err := src.Splits(ctx)
	if err != nil {
		return 0, err
	}
	for _, s := range splits {
		r, err := src.Open(ctx, &pipeline.Env{}, s, 0)
		if err != nil {
			return rows, err
		}
		for {
			b, err := r.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return rows, err
			}
			rows += int64(b.NumRows())
			b.Release()
		}
		if err := r.Close(); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

func readParquetGo(path string) (rows int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read from
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	pf, err := parquet.OpenFile(f, info.Size())
	if err != nil {
		return 0, err
	}
	values := make([]parquet.Value, 1024)
	for _, g := range pf.RowGroups() {
		for _, c := range g.ColumnChunks() {
			pages := c.Pages()
			for {
				p, err := pages.ReadPage()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					return rows, err
				}
				if c.Column() == 0 {
					rows += p.NumRows()
				}
				for v := p.Values(); ; {
					_, err := v.ReadValues(values)
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						return rows, err
					}
				}
				parquet.Release(p)
			}
			if err := pages.Close(); err != nil {
				return rows, err
			}
		}
	}
	return rows, nil
}

func readArrowGo(path string) (rows int64, err error) {
	pf, err := file.OpenParquetFile(path, false)
	if err != nil {
		return 0, err
	}
	defer pf.Close() //nolint:errcheck // only read from
	r, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: 1024}, memory.DefaultAllocator)
	if err != nil {
		return 0, err
	}
	rr, err := r.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return 0, err
	}
	defer rr.Release()
	for rr.Next() {
		rows += rr.RecordBatch().NumRows()
	}
	if err := rr.Err(); err != nil && !errors.Is(err, io.EOF) {
		return rows, err
	}
	return rows, nil
}

// TestReadersChild is the child: it reads the files that are named on its input and says of each what became of it.
func TestReadersChild(t *testing.T) {
	read := readers[os.Getenv(envReader)]
	if read == nil {
		t.Skip("not a child")
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: childMemory, Max: childMemory}); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		_, _ = fmt.Fprintf(os.Stdout, "outcome %s\n", outcomeOf(read, in.Text())) // for the parent
	}
}

func outcomeOf(read func(string) (int64, error), path string) (outcome string) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	defer func() {
		if p := recover(); p != nil {
			outcome = "panic"
		}
		runtime.ReadMemStats(&after)
		if after.TotalAlloc-before.TotalAlloc > muchMemory {
			outcome += "+memory"
		}
	}()
	rows, err := read(path)
	if err != nil {
		return "error"
	}
	return fmt.Sprintf("%d rows", rows)
}

// child is a process that reads files for one reader.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // closed when the process has ended
}

func startChild(t *testing.T, reader string) *child {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{cmd: exec.CommandContext(t.Context(), exe, "-test.run=^TestReadersChild$"), lines: make(chan string, 1)}
	c.cmd.Env = append(os.Environ(), envReader+"="+reader)
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			if line, ok := strings.CutPrefix(s.Text(), "outcome "); ok {
				c.lines <- line
			}
		}
	}()
	return c
}

func (c *child) end() {
	_ = c.in.Close()
	_ = c.cmd.Process.Kill()
	for range c.lines { // until it is closed
	}
	_ = c.cmd.Wait() // it was killed
}

// outcomes reads files with one reader.
func outcomes(t *testing.T, reader string, paths []string) (out []string) {
	t.Helper()
	c := startChild(t, reader)
	defer func() { c.end() }()
	for _, path := range paths {
		if _, err := fmt.Fprintln(c.in, path); err != nil {
			t.Fatal(err)
		}
		select {
		case line, alive := <-c.lines:
			if alive {
				out = append(out, line)
				continue
			}
			out = append(out, "died") // out of memory, or of stack: no recover helps
		case <-time.After(hangAfter):
			out = append(out, "hang")
		}
		c.end()
		c = startChild(t, reader)
	}
	return out
}

// TestReaders: whatever a file holds, reading it ends with rows or an error, in bounded time and memory. With -readers the
// other libraries read the same files, and the table of docs/decisions is printed.
func TestReaders(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; part of the full run")
	}
	dir := t.TempDir()
	groups, files := map[string][]string{}, 0 // what a group of files is -> their paths
	add := func(group string, content []byte) {
		files++
		path := write(t, dir, fmt.Sprintf("%04d.parquet", files), content)
		groups[group] = append(groups[group], path)
	}
	bad := malformedFiles(t)
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		add(name, bad[name])
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for _, of := range []struct {
		name string
		opts []parquet.WriterOption
	}{
		{"v1, snappy", []parquet.WriterOption{parquet.DataPageVersion(1), parquet.Compression(&parquet.Snappy)}},
		{"v2, zstd", []parquet.WriterOption{parquet.DataPageVersion(2), parquet.Compression(&parquet.Zstd)}},
		{"v2, plain", []parquet.WriterOption{parquet.DataPageVersion(2)}},
	} {
		whole := small(t, of.opts...)
		add("whole: "+of.name, whole)
		for range 100 {
			add("truncated: "+of.name, whole[:rng.IntN(len(whole))])
			flipped := slices.Clone(whole)
			flipped[rng.IntN(len(flipped))] ^= byte(1 << rng.IntN(8))
			add("one bit flipped: "+of.name, flipped)
			edited := slices.Clone(whole)
			for range 8 {
				edited[rng.IntN(len(edited))] = byte(rng.Uint32())
			}
			add("eight bytes changed: "+of.name, edited)
		}
	}
	if root := os.Getenv(testbed.EnvData); root != "" {
		found, err := filepath.Glob(filepath.Join(root, "formats", "apache_parquet-testing", "data", "*.parquet"))
		if err != nil {
			t.Fatal(err)
		}
		groups["reference files of apache/parquet-testing"] = found
		if len(found) == 0 {
			delete(groups, "reference files of apache/parquet-testing")
		}
	}
	subjects := []string{"ours"}
	if *readersTable {
		subjects = []string{"ours", "parquet-go", "arrow-go"}
	}
	var table strings.Builder
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		fmt.Fprintf(&table, "| %s |", group)
		for _, reader := range subjects {
			got := outcomes(t, reader, groups[group])
			count := map[string]int{}
			for i, o := range got {
				if strings.Contains(o, "rows") && len(got) > 1 {
					o = strings.Replace("rows"+o[strings.Index(o, " rows"):], " rows", "", 1)
				}
				count[o]++
				if reader == "ours" && o != "error" && !strings.HasSuffix(o, "rows") {
					t.Errorf("%s, file %d: %s", group, i, o)
				}
			}
			var cell []string
			for _, o := range slices.Sorted(maps.Keys(count)) {
				if len(got) > 1 {
					cell = append(cell, fmt.Sprintf("%d %s", count[o], o))
				} else {
					cell = append(cell, o)
				}
			}
			fmt.Fprintf(&table, " %s |", strings.Join(cell, ", "))
		}
		table.WriteByte('\n')
	}
	if *readersTable {
		_, _ = fmt.Fprintf(os.Stdout, "| file | %s |\n|---|---|---|---|\n%s", strings.Join(subjects, " | "), &table)
	}
}

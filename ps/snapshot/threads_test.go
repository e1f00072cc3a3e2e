package snapshot_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// threaded writes a part of everything that a part can hold, with so many threads for one record batch after another, the last number
// again and again. It returns the part and its files.
func threaded(t *testing.T, rows *table.Rows, threads ...int) (*snapshot.Part, map[string]string) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	dir, l, n := t.TempDir(), layout(), len(rows.Keys)
	o := snapshot.PartOptions{Dir: dir, Layout: l, Allocator: mem}
	if len(threads) > 0 {
		o.Threads = func() int {
			now := threads[0]
			if len(threads) > 1 {
				threads = threads[1:]
			}
			return now
		}
	}
	var paused atomic.Int64
	o.Pause = func() { paused.Add(1) }
	p := snapshot.NewPart(o)
	counted := table.Rows{Keys: rows.Keys, Times: rows.Times, Counts: rows.Counts}
	for what, err := range map[string]error{
		"rows":    p.Rows(0, feed(rows, l.Tables[0], 0, n)),
		"changed": p.Changed(1, feed(narrow(rows), l.Tables[1], 0, n), func() (int64, []int64) { return int64(n), rows.Keys }),
		"waiting": p.Waiting(0, snapshot.KindWaiting, func(dst *table.Rows, limit int) bool {
			k := min(limit, len(counted.Keys))
			dst.Keys, counted.Keys = append(dst.Keys, counted.Keys[:k]...), counted.Keys[k:]
			dst.Times, counted.Times = append(dst.Times, counted.Times[:k]...), counted.Times[k:]
			dst.Counts, counted.Counts = append(dst.Counts, counted.Counts[:k]...), counted.Counts[k:]
			return k > 0
		}),
		"dense": p.Dense(tensors()),
	} {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if n > 0 && paused.Load() < int64(n/4096) {
		t.Errorf("%d calls of Pause for %d rows", paused.Load(), n)
	}
	files := map[string]string{}
	inside, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range inside {
		b, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name()] = string(b)
	}
	return p.Part(), files
}

// narrow are rows with the first of their weights and no state.
func narrow(rows *table.Rows) *table.Rows {
	out := table.Rows{Keys: rows.Keys, Times: rows.Times, Counts: rows.Counts}
	dim := layout().Tables[0].Dim()
	for i := range rows.Keys {
		out.Weights = append(out.Weights, rows.Weights[i*dim])
	}
	return &out
}

// TestThreads: whatever the number of threads, also when it changes in the midst, the files are byte for byte those of one, and so is the
// digest.
func TestThreads(t *testing.T) {
	t.Parallel()
	many := 140_000 // three record batches
	if testing.Short() {
		many = 70_000
	}
	for _, n := range []int{0, 1, 3, many} {
		rows := randomRows(rand.New(rand.NewPCG(7, uint64(n))), layout().Tables[0], n)
		want, wantFiles := threaded(t, &rows)
		if n > 0 && len(wantFiles) < 6 {
			t.Fatalf("only %d files", len(wantFiles))
		}
		for _, threads := range [][]int{{2}, {7}, {1, 3, 1}} {
			got, files := threaded(t, &rows, threads...)
			if diff := cmp.Diff(want.Files, got.Files); diff != "" {
				t.Errorf("%d rows, threads %d (-one +these):\n%s", n, threads, diff)
			}
			if got.Digest.String() != want.Digest.String() {
				t.Errorf("%d rows, threads %d: digest %v, want %v", n, threads, got.Digest.String(), want.Digest.String())
			}
			if len(files) != len(wantFiles) {
				t.Errorf("%d rows, threads %d: %d files of %d", n, threads, len(files), len(wantFiles))
			}
			for name, b := range wantFiles {
				if files[name] != b {
					t.Errorf("%d rows, threads %d: %s has other bytes", n, threads, name)
				}
			}
		}
	}
}

// brokenDisk takes so many bytes of files of a kind and then no more.
type brokenDisk struct {
	fsx.Disk
	kind string
	left atomic.Int64
}

var errBroken = errors.New("broken disk")

func (d *brokenDisk) Create(path string) (fsx.DiskFile, error) {
	f, err := d.Disk.Create(path)
	if err != nil || !strings.HasPrefix(filepath.Base(path), "."+d.kind) {
		return f, err
	}
	return &brokenFile{f, d}, nil
}

type brokenFile struct {
	fsx.DiskFile
	d *brokenDisk
}

func (f *brokenFile) Write(p []byte) (int, error) {
	if f.d.left.Add(-int64(len(p))) < 0 {
		return 0, errBroken
	}
	return f.DiskFile.Write(p)
}

// TestThreadsFail: an error of any thread is that of the part, and leaves neither files nor anybody who writes them.
func TestThreadsFail(t *testing.T) {
	t.Parallel()
	l := layout()
	const n = 70_000 // two record batches
	rows := randomRows(rand.New(rand.NewPCG(8, 1)), l.Tables[0], n)
	for _, kind := range []string{"rows", "state"} {
		for _, left := range []int64{0, 1 << 20} {
			disk := &brokenDisk{Disk: fsx.OS{}, kind: kind}
			disk.left.Store(left)
			dir := t.TempDir()
			p := snapshot.NewPart(snapshot.PartOptions{FS: fsx.Local{Disk: disk}, Dir: dir, Layout: l, Threads: func() int { return 4 }})
			if err := p.Rows(0, feed(&rows, l.Tables[0], 0, n)); !errors.Is(err, errBroken) {
				t.Errorf("%s files break after %d bytes: %v", kind, left, err)
			}
			if inside, err := os.ReadDir(dir); err != nil || len(inside) > 0 {
				t.Errorf("%s files break after %d bytes: %v are left, %v", kind, left, inside, err)
			}
		}
	}
	rows.State[len(rows.State)-1] = float32(math.NaN())
	p := snapshot.NewPart(snapshot.PartOptions{Dir: t.TempDir(), Layout: l, Threads: func() int { return 4 }})
	if err := p.Rows(0, feed(&rows, l.Tables[0], 0, n)); !errors.Is(err, snapshot.ErrNotFinite) {
		t.Errorf("a NaN in the last row: %v", err)
	}
}

// BenchmarkPart writes rows of 16 numbers, with as many of state.
func BenchmarkPart(b *testing.B) {
	spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: 16, Optimizer: optim.Adagrad{}}}}
	l := &param.Layout{Tables: []param.Table{spec}}
	const n = 600_000
	rows := randomRows(rand.New(rand.NewPCG(9, 1)), spec, n)
	dir := b.TempDir()
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			for b.Loop() {
				p := snapshot.NewPart(snapshot.PartOptions{Dir: dir, Layout: l, Threads: func() int { return threads }})
				if err := p.Rows(0, feed(&rows, spec, 0, n)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(n*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkDense writes the dense tensors of a network of 624-400-400-400-1 with the state of Adam.
func BenchmarkDense(b *testing.B) {
	l := &param.Layout{}
	var tensors []snapshot.Tensor
	for i, n := range []int{624 * 400, 400 * 400, 400 * 400, 400} {
		spec := param.Tensor{Name: fmt.Sprint("w", i), Shape: []int{n}, Optimizer: optim.Adam{}}
		l.Dense = append(l.Dense, spec)
		tensors = append(tensors, snapshot.Tensor{Name: spec.Name, Shape: []int64{int64(n)}, Weights: make([]float32, n), State: make([]float32, spec.Optimizer.StateDim(n))})
	}
	dir := b.TempDir()
	for b.Loop() {
		if err := snapshot.NewPart(snapshot.PartOptions{Dir: dir, Layout: l}).Dense(tensors); err != nil {
			b.Fatal(err)
		}
	}
}

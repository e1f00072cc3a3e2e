package native_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"testing"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sources/snapshotsource"
)

// EnvRows is how many rows the benchmarks have; default a million.
const EnvRows = "MONOLITH_EXPORT_ROWS"

func benchRows(b *testing.B) int {
	n, err := strconv.Atoi(os.Getenv(EnvRows))
	if err != nil {
		return 1_000_000
	}
	return n
}

// bagOfIDs is a model that sums the biases of ids, whose rows have so many weights, and how a snapshot has it.
func bagOfIDs(t testing.TB, dim int) (*graph.Graph, *snapshot.Model) {
	t.Helper()
	b := graph.NewBuilder()
	ids := b.Table(param.Table{Name: "ids", Segments: []param.Segment{{Name: "bias", Dim: 1, Optimizer: optim.SGD{}}, {Name: "vec", Dim: dim - 1, Optimizer: optim.SGD{}, Init: param.Uniform(-1, 1)}}})
	f := b.SparseFeature(model.Feature{Name: "id"}, ids)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: b.Pool(graph.Pooled{X: b.Lookup(f, "bias"), By: graph.Sum})})
	if err != nil {
		t.Fatal(err)
	}
	written, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return g, &snapshot.Model{Name: "graph", Version: graph.Version, Graph: written}
}

// large writes a snapshot of n rows of 17 weights on two shards.
func large(b *testing.B, n int) *snapshot.Info {
	b.Helper()
	const dim = 17
	m, written := bagOfIDs(b, dim)
	l := m.Layout()
	w, err := snapshot.Create(snapshot.Options{Dir: b.TempDir(), ID: 1, Layout: l, Shards: 2, Created: time.Now(), Model: written})
	if err != nil {
		b.Fatal(err)
	}
	step := ^uint64(0) / uint64(n)
	for shard := range 2 {
		p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: l, Shard: shard})
		at, end := n*shard/2, n*(shard+1)/2
		if err := p.Rows(0, func(dst *table.Rows, limit int) bool {
			k := 0
			for ; k < limit && at < end; k++ {
				dst.Keys, dst.Times, dst.Counts = append(dst.Keys, table.Unhash(uint64(at)*step)), append(dst.Times, 1), append(dst.Counts, 1)
				for i := range dim {
					dst.Weights = append(dst.Weights, float32(at)+float32(i)/16)
				}
				at++
			}
			return k > 0
		}); err != nil {
			b.Fatal(err)
		}
		if shard == 0 {
			if err := p.Dense(nil); err != nil {
				b.Fatal(err)
			}
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		b.Fatal(err)
	}
	return info
}

// BenchmarkExport writes a native export, opens it and looks ids up; beside it a plain file of as many bytes is written, synced.
func BenchmarkExport(b *testing.B) {
	n := benchRows(b)
	info := large(b, n)
	m, err := export.Open(b.Context(), info.Path)
	if err != nil {
		b.Fatal(err)
	}
	dir := ""
	var size int64
	write := func(b *testing.B) {
		dir = filepath.Join(b.TempDir(), "export")
		src, err := snapshotsource.New(info, snapshotsource.Options{Table: "ids"})
		if err != nil {
			b.Fatal(err)
		}
		sink, err := native.Rows(filepath.Join(dir, "ids"), "ids", 17, 0, "")
		if err != nil {
			b.Fatal(err)
		}
		g := pipeline.New("rows")
		pipeline.Into(pipeline.Prefetch(pipeline.Read(g, "snapshot", src), "queue", 2), "native", sink)
		plan, err := g.Plan()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := local.Run(b.Context(), plan, pipeline.RunOptions{Workers: 2, Env: func(w int) *pipeline.Env { return &pipeline.Env{Worker: w} }}); err != nil {
			b.Fatal(err)
		}
		if err := native.Complete(b.Context(), fsx.Local{}, dir, m); err != nil {
			b.Fatal(err)
		}
		size = 0
		files, err := filepath.Glob(filepath.Join(dir, "ids", "*.slab"))
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range files {
			info, err := os.Stat(name)
			if err != nil {
				b.Fatal(err)
			}
			size += info.Size()
		}
	}
	keep := b.TempDir()
	b.Run(fmt.Sprintf("write/rows=%d", n), func(b *testing.B) {
		for b.Loop() {
			write(b)
		}
		b.SetBytes(size)
		b.StopTimer()
		if err := os.RemoveAll(filepath.Join(keep, "export")); err != nil {
			b.Fatal(err)
		}
		if err := os.Rename(dir, filepath.Join(keep, "export")); err != nil {
			b.Fatal(err)
		}
	})
	b.Run(fmt.Sprintf("plain file/rows=%d", n), func(b *testing.B) {
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = byte(i * 7)
		}
		for b.Loop() {
			f, err := os.Create(filepath.Join(b.TempDir(), "x"))
			if err != nil {
				b.Fatal(err)
			}
			for at := int64(0); at < size; at += int64(len(chunk)) {
				if _, err := f.Write(chunk[:min(int64(len(chunk)), size-at)]); err != nil {
					b.Fatal(err)
				}
			}
			if err := f.Sync(); err != nil {
				b.Fatal(err)
			}
			if err := f.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.SetBytes(size)
	})
	dir = filepath.Join(keep, "export")
	b.Run(fmt.Sprintf("open/rows=%d", n), func(b *testing.B) {
		for b.Loop() {
			e, err := native.Open(b.Context(), dir)
			if err != nil {
				b.Fatal(err)
			}
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(fmt.Sprintf("find all/rows=%d", n), func(b *testing.B) {
		step := ^uint64(0) / uint64(n)
		ids, dst := make([]int64, 1000), make([]float32, 17_000)
		for b.Loop() {
			debug.FreeOSMemory()
			before := resident(b)
			e, err := native.Open(b.Context(), dir)
			if err != nil {
				b.Fatal(err)
			}
			for at := 0; at < n; at += len(ids) {
				for i := range ids {
					ids[i] = table.Unhash(uint64(at+i) * step)
				}
				if found, err := e.Find(0, ids, dst, nil); err != nil || found != len(ids) {
					b.Fatal(found, err)
				}
			}
			// Of the rows' bytes: ids and weights.
			b.ReportMetric(float64(resident(b)-before)/float64(n*(8+4*17)), "resident/rows")
			if err := e.Close(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run(fmt.Sprintf("find 1000/rows=%d", n), func(b *testing.B) {
		e := open(b, dir)
		rng, step := rand.New(rand.NewPCG(1, 1)), ^uint64(0)/uint64(n)
		ids, dst := make([]int64, 1000), make([]float32, 17_000)
		b.ReportAllocs()
		for b.Loop() {
			for i := range ids {
				ids[i] = table.Unhash(uint64(rng.IntN(n)) * step)
			}
			if found, err := e.Find(0, ids, dst, nil); err != nil || found != len(ids) {
				b.Fatal(found, err)
			}
		}
	})
}

// resident is the memory of this process, in bytes; 0 where nobody says.
func resident(b *testing.B) int64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Logf("no resident memory: %v", err)
		return 0
	}
	_, text, _ = bytes.Cut(text, []byte("VmRSS:"))
	kib := int64(0)
	if _, err := fmt.Sscan(string(text), &kib); err != nil {
		b.Fatal(err)
	}
	return kib << 10
}

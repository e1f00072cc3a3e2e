package jobbench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// What the rows of the benchmark of exports are: a bias and a vector, on two shards.
const (
	exportRows   = 1_000_000
	exportDim    = 17
	exportShards = 2
)

// Export measures a native export of o.Rows rows of 17 weights: how fast it is written beside a plain file of as many bytes, which is synced too; how long it takes to be opened; and how much memory is resident once
// each of its rows was asked for, of the bytes that ids and weights have.
func Export(ctx context.Context, o bench.Options) (results []bench.Result, err error) {
	o = o.WithDefaults()
	if o.Rows == 0 {
		o.Rows = exportRows
	}
	dir, remove, err := folder(o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	path, err := storeRows(dir, o.Rows)
	if err != nil {
		return nil, err
	}
	e := exports{snapshot: path, dir: filepath.Join(dir, "exports"), plain: filepath.Join(dir, "plain")}
	of := fmt.Sprintf(", %d rows of %d", o.Rows, exportDim)
	written, err := bench.Compare(ctx, o, "export write"+of, "bytes/s", bench.Wall,
		bench.Candidate{Name: "monolith", Run: func() (float64, error) { return e.write(ctx) }},
		bench.Candidate{Name: "a file", Run: e.writePlain})
	if err != nil {
		return nil, err
	}
	opened, err := bench.Compare(ctx, o, "export open"+of, "times/s", bench.Wall, bench.Candidate{Name: "monolith", Run: func() (float64, error) {
		x, err := native.Open(ctx, e.last)
		if err != nil {
			return 0, err
		}
		return 1, x.Close()
	}})
	if err != nil {
		return nil, err
	}
	share, err := e.resident(ctx, o.Rows)
	if err != nil {
		return nil, err
	}
	return append(results, written, opened, bench.Result{Name: "export resident" + of, Ours: share, Theirs: map[string]float64{}, Unit: "of ids and weights", Machine: bench.Machine()}), nil
}

// storeRows writes a snapshot of rows whose ids are spread evenly.
func storeRows(dir string, rows int) (path string, err error) {
	b := graph.NewBuilder()
	ids := b.Table(param.Table{Name: "ids", Segments: []param.Segment{{Name: "bias", Dim: 1, Optimizer: optim.SGD{}}, {Name: "vec", Dim: exportDim - 1, Optimizer: optim.SGD{}, Init: param.Uniform(-1, 1)}}})
	f := b.SparseFeature(model.Feature{Name: "id"}, ids)
	m, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.CrossEntropy}, Node: b.Pool(graph.Pooled{X: b.Lookup(f, "bias"), By: graph.Sum})})
	if err != nil {
		return "", err
	}
	written, err := m.Marshal()
	if err != nil {
		return "", err
	}
	w, err := snapshot.Create(snapshot.Options{
		Dir: dir, ID: 1, Layout: m.Layout(), Shards: exportShards, Created: time.Now(), Model: &snapshot.Model{Name: "graph", Version: graph.Version, Graph: written},
	})
	if err != nil {
		return "", err
	}
	for shard := range exportShards {
		p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: m.Layout(), Shard: shard})
		at, end := rows*shard/exportShards, rows*(shard+1)/exportShards
		err := p.Rows(0, func(dst *table.Rows, limit int) bool {
			n := 0
			for ; n < limit && at < end; n++ {
				dst.Keys, dst.Times, dst.Counts = append(dst.Keys, storedID(at, rows)), append(dst.Times, 1), append(dst.Counts, 1)
				for i := range exportDim {
					dst.Weights = append(dst.Weights, float32(at)+float32(i)/16)
				}
				at++
			}
			return n > 0
		})
		if shard == 0 {
			err = errors.Join(err, p.Dense(nil))
		}
		if err != nil {
			return "", err
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		return "", err
	}
	return info.Path, nil
}

// storedID is the id of a row, in the order of their hashes.
func storedID(row, rows int) int64 { return table.Unhash(uint64(row) * (^uint64(0) / uint64(rows))) }

// exports writes the same again and again.
type exports struct {
	snapshot, dir, plain string
	last                 string // the export that is there
	bytes                int64  // of its files
}

func (e *exports) write(ctx context.Context) (float64, error) {
	if err := os.RemoveAll(e.dir); err != nil {
		return 0, err
	}
	r, err := job.ExportModel(ctx, job.ExportModelOptions{Snapshot: e.snapshot, Format: "native", Dir: e.dir, Workers: runtime.GOMAXPROCS(0)})
	if err != nil {
		return 0, err
	}
	e.last, e.bytes = r.Dir, 0
	err = filepath.WalkDir(r.Dir, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			e.bytes += info.Size()
		}
		return err
	})
	return float64(e.bytes), err
}

// writePlain writes a file of as many bytes, in order, and syncs it.
func (e *exports) writePlain() (_ float64, err error) {
	chunk := make([]byte, 1<<20)
	for i := range chunk {
		chunk[i] = byte(i * 7)
	}
	f, err := os.Create(e.plain)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(e.plain)) }()
	for at := int64(0); at < e.bytes; at += int64(len(chunk)) {
		if _, err := f.Write(chunk[:min(int64(len(chunk)), e.bytes-at)]); err != nil {
			return 0, err
		}
	}
	return float64(e.bytes), f.Sync()
}

// resident is how much memory of this process there is more, of the bytes of ids and weights, once each row was asked for.
func (e *exports) resident(ctx context.Context, rows int) (share float64, err error) {
	debug.FreeOSMemory()
	before, err := residentBytes()
	if err != nil {
		return 0, err
	}
	x, err := native.Open(ctx, e.last)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	const group = 1000
	ids, dst := make([]int64, 0, group), make([]float32, exportDim*group)
	for at := 0; at < rows; {
		for ids = ids[:0]; len(ids) < group && at < rows; at++ {
			ids = append(ids, storedID(at, rows))
		}
		found, err := x.Find(0, ids, dst[:exportDim*len(ids)], nil)
		if err != nil {
			return 0, err
		}
		if found != len(ids) || dst[0] != float32(at-len(ids)) {
			return 0, fmt.Errorf("%d of %d rows before %d were found", found, len(ids), at)
		}
	}
	after, err := residentBytes()
	return float64(after-before) / float64(rows*(8+4*exportDim)), err
}

// residentBytes is the memory of this process.
func residentBytes() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("resident memory is known on Linux alone: %w", err)
	}
	_, text, _ = bytes.Cut(text, []byte("VmRSS:"))
	kib := int64(0)
	_, err = fmt.Sscan(string(text), &kib)
	return kib << 10, err
}

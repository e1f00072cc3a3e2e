package native_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/monolith-go/monolith/export"
	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/internal/fsx/fsxtest"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/runners/local"
	"github.com/monolith-go/monolith/sources/snapshotsource"
)

// text is a job of two tables, one of which keeps 16 bits and is read compressed, and the other has a shard without rows now and then.
const text = `
version: 1
name: clicks
source: {synthetic: {examples: 8000, splits: 2}}
parse:
  features:
    - {name: user, slot: 1, table: users}
    - {name: item, slot: 2}
    - {name: price, kind: dense}
  label: click
model: {deepfm: {dim: 4, hidden: [8]}}
tables: [{name: users, storage: fp16, compress: {kind: fixed_r8, range: 0.5}}]
`

// train trains a job and returns it with its newest snapshot.
func train(t testing.TB, set ...string) (*job.Config, *snapshot.Info) {
	t.Helper()
	cfg, err := job.Decode([]byte(text), "clicks.yaml", job.LoadOptions{Set: append(set, "dir="+filepath.Join(t.TempDir(), "run"))})
	if err != nil {
		t.Fatal(err)
	}
	trained, err := job.Run(t.Context(), cfg, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info, err := snapshot.ReadInfo(trained.Snapshot)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, info
}

// sink writes the rows of a table of a snapshot to a folder.
func sink(t testing.TB, info *snapshot.Info, tbl, dir string, dim int, rowsPerFile int64) error {
	t.Helper()
	src, err := snapshotsource.New(info, snapshotsource.Options{Table: tbl, RowsPerSplit: 170, BatchRows: 64, Whole: true})
	if err != nil {
		t.Fatal(err)
	}
	out, err := native.Rows(dir, tbl, dim, rowsPerFile, "")
	if err != nil {
		t.Fatal(err)
	}
	g := pipeline.New("rows")
	pipeline.Into(pipeline.Read(g, "snapshot", src), "native", out)
	plan, err := g.Plan()
	if err != nil {
		t.Fatal(err)
	}
	_, err = local.Run(t.Context(), plan, pipeline.RunOptions{Workers: 2, Env: func(w int) *pipeline.Env { return &pipeline.Env{Worker: w} }})
	return err
}

// rows writes the rows of a snapshot to a folder.
func rows(t testing.TB, info *snapshot.Info, dir string, m *export.Model, rowsPerFile int64) {
	t.Helper()
	for i, tbl := range m.Tables {
		if err := sink(t, info, tbl.Name, filepath.Join(dir, export.Folder(tbl.Name)), m.Graph.Layout().Tables[i].Dim(), rowsPerFile); err != nil {
			t.Fatal(err)
		}
	}
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

// chain writes a whole snapshot of one table and one that adds to it: rows changed, gone and new.
func chain(t *testing.T) *snapshot.Info {
	t.Helper()
	const shards, rows = 2, 900
	m, written := bagOfIDs(t, 3)
	l, step, dir := m.Layout(), ^uint64(0)/rows, t.TempDir()
	var base *snapshot.Info
	for id := range uint64(2) {
		w, err := snapshot.Create(snapshot.Options{Dir: dir, ID: id + 1, Base: base, Layout: l, Shards: shards, Created: time.Unix(int64(id), 0), Model: written})
		if err != nil {
			t.Fatal(err)
		}
		for shard := range shards {
			p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: l, Shard: shard})
			at, end := uint64(shard*rows/shards), uint64((shard+1)*rows/shards)
			var gone []int64
			next := func(dst *table.Rows, limit int) bool {
				n := 0
				for ; n < limit && at < end; at++ {
					key := table.Unhash(at*step + 1)
					switch {
					case base == nil && at%7 == 0, base != nil && at%10 > 1: // not there yet, or not changed
						continue
					case base != nil && at%10 == 1:
						gone = append(gone, key)
						continue
					}
					dst.Keys, dst.Times, dst.Counts = append(dst.Keys, key), append(dst.Times, 1), append(dst.Counts, id+1)
					dst.Weights = append(dst.Weights, float32(at), float32(id), 1)
					n++
				}
				return n > 0
			}
			if base == nil {
				err = errors.Join(p.Rows(0, next), p.Dense(nil))
			} else {
				total := int64(0)
				for i := at; i < end; i++ {
					if i%10 == 0 || i%10 > 1 && i%7 != 0 {
						total++
					}
				}
				err = errors.Join(p.Changed(0, next, func() (int64, []int64) { return total, gone }), p.Dense(nil))
			}
			if err != nil {
				t.Fatal(err)
			}
			w.Add(p.Part())
		}
		if base, err = w.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	return base
}

// exported exports a snapshot to a folder.
func exported(t testing.TB, info *snapshot.Info) (dir string, m *export.Model) {
	t.Helper()
	m, err := export.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "export")
	rows(t, info, dir, m, 100)
	if err := native.Complete(t.Context(), fsx.Local{}, dir, m); err != nil {
		t.Fatal(err)
	}
	return dir, m
}

func open(t testing.TB, dir string) *native.Export {
	t.Helper()
	e, err := native.Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// TestRows: an export has the rows of its snapshot, whole or incremental, of any number of shards, to the bit, and what training would begin others with.
func TestRows(t *testing.T) {
	t.Parallel()
	for name, set := range map[string][]string{
		"one shard":   nil,
		"five shards": {"ps.shards=5"},
		"incremental": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var info *snapshot.Info
			if name == "incremental" {
				info = chain(t)
			} else {
				_, info = train(t, set...)
			}
			if (info.Base != nil) != (name == "incremental") {
				t.Fatalf("the snapshot has the base %v", info.Base)
			}
			dir, m := exported(t, info)
			e := open(t, dir)
			if got := e.Model(); got.From != m.From || !slices.Equal(got.Dense, m.Dense) || len(got.Dense) == 0 && name != "incremental" || !slices.Equal(got.Tables, m.Tables) {
				t.Errorf("the model is %+v", got)
			}
			if faults, err := e.Verify(t.Context()); err != nil || len(faults) > 0 {
				t.Errorf("%v, %v", faults, err)
			}
			for i, tbl := range m.Graph.Layout().Tables {
				dim, n := tbl.Dim(), 0
				if err := m.Rows(t.Context(), i, func(rows *table.Rows) error {
					got, has := make([]float32, len(rows.Keys)*dim), make([]bool, len(rows.Keys))
					found, err := e.Find(i, rows.Keys, got, has)
					if err != nil || found != len(rows.Keys) || slices.Contains(has, false) || !slices.Equal(got, rows.Weights) {
						t.Errorf("table %s: %d of %d rows are found, or have other weights; %v", tbl.Name, found, len(rows.Keys), err)
					}
					n += found
					return nil
				}); err != nil || n < 300 {
					t.Fatalf("table %s: %d rows, %v", tbl.Name, n, err)
				}
				unseen := []int64{-1, 0, 1, 1 << 62, table.Unhash(0), table.Unhash(1<<64 - 1)}
				got, has, want := make([]float32, len(unseen)*dim), make([]bool, len(unseen)), make([]float32, len(unseen)*dim)
				for k, id := range unseen {
					m.Initial(i, id, want[k*dim:][:dim])
				}
				if found, err := e.Find(i, unseen, got, has); err != nil || found != 0 || slices.Contains(has, true) || !slices.Equal(got, want) {
					t.Errorf("table %s: of ids without a row %d are found, %v; %v", tbl.Name, found, has, err)
				}
			}
		})
	}
}

// TestPredictions: a model that is looked up in an export predicts what evaluation does, with the job's own model and shards that are given the snapshot, bit for bit.
func TestPredictions(t *testing.T) {
	t.Parallel()
	cfg, info := train(t, "ps.shards=2")
	dir, _ := exported(t, info)
	e := open(t, dir)
	of, err := wiring.Model(cfg)
	if err != nil {
		t.Fatal(err)
	}
	shards, err := coordinator.Open(t.Context(), coordinator.Options{Layout: of.Layout(), NumShards: 3, Restore: info.Path, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := shards.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	client, err := shards.Client(t.Context(), "eval")
	if err != nil {
		t.Fatal(err)
	}
	known := make([][]int64, len(info.Tables))
	for i := range info.Tables {
		if err := e.Model().Rows(t.Context(), i, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("rows by way of the export's model: %v", err)
		}
		m, err := export.Open(t.Context(), info.Path)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error { known[i] = append(known[i], r.Keys...); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	in := model.Inputs{NumRows: 500}
	keys := make([][]int64, len(known))
	for _, f := range of.Features() {
		if f.Kind == model.Dense {
			x := make([]float32, in.NumRows)
			for i := range x {
				x[i] = rng.Float32() * 10
			}
			in.Dense = append(in.Dense, x)
			continue
		}
		r := model.Ragged{Offsets: []int32{0}}
		for range in.NumRows {
			for range rng.IntN(3) {
				id := known[f.Table][rng.IntN(len(known[f.Table]))]
				if rng.IntN(5) == 0 {
					id = rng.Int64()
				}
				r.Index = append(r.Index, int32(len(keys[f.Table])))
				keys[f.Table] = append(keys[f.Table], id)
			}
			r.Offsets = append(r.Offsets, int32(len(r.Index)))
		}
		in.Sparse = append(in.Sparse, r)
	}
	predict := func(m model.Model, store interface {
		Lookup(ctx context.Context, rows *param.Rows) error
		Dense(ctx context.Context, have uint64, dst []float32) (uint64, error)
	},
	) []float32 {
		l := m.Layout()
		look := param.Rows{Keys: keys, Values: make([][]float32, len(keys))}
		for i, t := range l.Tables {
			look.Values[i] = make([]float32, len(keys[i])*t.Dim())
		}
		dense := make([]float32, l.DenseLen())
		if err := store.Lookup(t.Context(), &look); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Dense(t.Context(), 0, dense); err != nil {
			t.Fatal(err)
		}
		s := m.NewSession(1)
		defer s.Close()
		s.SetDense(dense)
		in.Values = look.Values
		return slices.Clone(s.Predict(&in)[0])
	}
	want := predict(of, client)
	if got := predict(e.Model().Graph, e); !slices.Equal(got, want) || slices.Min(want) == slices.Max(want) {
		t.Errorf("predictions are %v, those of evaluation %v", got[:5], want[:5])
	}
}

// TestFaults: what is no export, or no whole one, is an error that names the file, and nothing is looked up in it.
func TestFaults(t *testing.T) {
	t.Parallel()
	_, info := train(t)
	whole, m := exported(t, info)
	slabs, err := filepath.Glob(filepath.Join(whole, "users", "*.slab"))
	if err != nil || len(slabs) < 3 {
		t.Fatalf("%d slabs, %v", len(slabs), err)
	}
	slab := filepath.Join("users", filepath.Base(slabs[1]))
	edit := func(name, from, to string) func(dir string) error {
		return func(dir string) error {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil && !strings.Contains(string(b), from) {
				err = fmt.Errorf("%s does not have %s", name, from)
			}
			return errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(strings.Replace(string(b), from, to, 1)), 0o644))
		}
	}
	flip := func(name string, at int64) func(dir string) error {
		return func(dir string) error { return flipBit(filepath.Join(dir, name), at) }
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		want   error
		says   string
	}{
		"no manifest":      {func(dir string) error { return os.Remove(filepath.Join(dir, native.ManifestName)) }, native.ErrNone, "monolith export --format native"},
		"no folder":        {os.RemoveAll, native.ErrNone, "no complete native export"},
		"manifest cut":     {func(dir string) error { return os.Truncate(filepath.Join(dir, native.ManifestName), 900) }, native.ErrCorrupt, native.ManifestName},
		"manifest changed": {edit(native.ManifestName, `"job": "clicks"`, `"job": "clacks"`), native.ErrCorrupt, "checksum"},
		"a later version":  {edit(native.ManifestName, `"version": 2`, `"version": 3`), native.ErrVersion, "this program reads 1 to 2"},
		"another format":   {edit(native.ManifestName, "monolith-native", "else"), native.ErrCorrupt, `format "else"`},
		"dense gone":       {func(dir string) error { return os.Remove(filepath.Join(dir, "dense.f32")) }, native.ErrCorrupt, "dense.f32"},
		"dense flipped":    {flip("dense.f32", 9), native.ErrCorrupt, "dense.f32"},
		"dense cut":        {func(dir string) error { return os.Truncate(filepath.Join(dir, "dense.f32"), 8) }, native.ErrCorrupt, "dense.f32"},
		"slab gone":        {func(dir string) error { return os.Remove(filepath.Join(dir, slab)) }, native.ErrCorrupt, slab},
		"slab cut":         {func(dir string) error { return os.Truncate(filepath.Join(dir, slab), 2000) }, native.ErrCorrupt, slab + ": 2000 bytes of"},
		"slab's end":       {flip(slab, -1), native.ErrCorrupt, slab},
		"slab's footer":    {flip(slab, -30), native.ErrCorrupt, slab},
		"another's slab": {func(dir string) error {
			return os.Rename(filepath.Join(dir, "users", filepath.Base(slabs[2])), filepath.Join(dir, slab))
		}, native.ErrCorrupt, slab},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyOf(t, whole)
			if err := c.change(dir); err != nil {
				t.Fatal(err)
			}
			e, err := native.Open(t.Context(), dir)
			if e != nil || !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want one that says %q", err, c.says)
			}
		})
	}
	for name, c := range map[string]struct {
		change func(dir string) error
		says   string
	}{
		"a slab that is missing": {func(dir string) error { return os.Remove(filepath.Join(dir, slab)) }, "and should have"},
		"one that is there twice": {func(dir string) error {
			return os.Link(filepath.Join(dir, slab), filepath.Join(dir, "users", "again.slab"))
		}, "has too"},
		"one of another table": {func(dir string) error {
			return os.Link(filepath.Join(dir, slab), filepath.Join(dir, "embedding", "x.slab"))
		}, `weights a row of table "users", not 5 of "embedding"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyOf(t, whole)
			if err := errors.Join(os.Remove(filepath.Join(dir, native.ManifestName)), c.change(dir)); err != nil {
				t.Fatal(err)
			}
			if err := native.Complete(t.Context(), fsx.Local{}, dir, m); !errors.Is(err, native.ErrCorrupt) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v; want one that says %q", err, c.says)
			}
			if _, err := native.Open(t.Context(), dir); !errors.Is(err, native.ErrNone) {
				t.Errorf("opened, or %v", err)
			}
		})
	}
}

func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// flipBit changes a bit of a file; at counts from the end where it is below 0.
func flipBit(name string, at int64) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if at < 0 {
		at += int64(len(b))
	}
	b[at] ^= 4
	return os.WriteFile(name, b, 0o644)
}

// TestFlippedBits: any bit of the rows or of the index may be wrong: what is looked up ends in numbers or ErrCorrupt, and Verify says which file it is.
func TestFlippedBits(t *testing.T) {
	t.Parallel()
	_, info := train(t)
	whole, m := exported(t, info)
	slabs, err := filepath.Glob(filepath.Join(whole, "users", "*.slab"))
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("users", filepath.Base(slabs[0]))
	size, err := os.Stat(slabs[0])
	if err != nil {
		t.Fatal(err)
	}
	var ids []int64
	if err := m.Rows(t.Context(), 0, func(r *table.Rows) error { ids = append(ids, r.Keys...); return nil }); err != nil {
		t.Fatal(err)
	}
	if m.Tables[0].Name != "users" {
		t.Fatal("the first table is another one")
	}
	dst := make([]float32, len(ids)*m.Graph.Layout().Tables[0].Dim())
	dir := copyOf(t, whole)
	for at := int64(0); at < size.Size(); at += 13 {
		if err := flipBit(filepath.Join(dir, name), at); err != nil {
			t.Fatal(err)
		}
		e, err := native.Open(t.Context(), dir)
		switch {
		case err == nil:
			if _, err := e.Find(0, ids, dst, nil); err != nil && !errors.Is(err, native.ErrCorrupt) {
				t.Errorf("byte %d: %v", at, err)
			}
			faults, err := e.Verify(t.Context())
			if err != nil || len(faults) != 1 || !errors.Is(faults[0], native.ErrCorrupt) || !strings.Contains(faults[0].Error(), name) {
				t.Errorf("byte %d: %v, %v", at, faults, err)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		case !errors.Is(err, native.ErrCorrupt) || !strings.Contains(err.Error(), name):
			t.Errorf("byte %d: %v", at, err)
		}
		if err := flipBit(filepath.Join(dir, name), at); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShortenedWhileOpen: a file that loses its end while it is mapped is an error of who looks up, and not the end of the process.
func TestShortenedWhileOpen(t *testing.T) {
	_, info := train(t)
	dir, m := exported(t, info)
	e := open(t, dir)
	slabs, err := filepath.Glob(filepath.Join(dir, "*", "*.slab"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range slabs {
		if err := os.Truncate(s, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i, tbl := range m.Graph.Layout().Tables {
		if err := m.Rows(t.Context(), i, func(r *table.Rows) error {
			if _, err := e.Find(i, r.Keys, make([]float32, len(r.Keys)*tbl.Dim()), nil); !errors.Is(err, native.ErrCorrupt) {
				t.Errorf("table %s: %v", tbl.Name, err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// full is a disk that has room for so many more files.
type full struct {
	fsx.OS
	left *int
}

// Create implements [fsx.Disk].
func (f full) Create(path string) (fsx.DiskFile, error) {
	if *f.left--; *f.left < 0 {
		return nil, &fs.PathError{Op: "create", Path: path, Err: syscall.ENOSPC}
	}
	return f.OS.Create(path)
}

// TestFullDisk: what is not complete because the disk is full is no export, and is completed when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	_, info := train(t)
	m, err := export.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "export")
	rows(t, info, dir, m, 100)
	for room := range 3 {
		left := room
		err := native.Complete(t.Context(), fsx.Local{Disk: full{left: &left}}, dir, m)
		if room == 2 {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("with room for %d files: %v", room, err)
		}
		if _, err := native.Open(t.Context(), dir); !errors.Is(err, native.ErrNone) {
			t.Errorf("with room for %d files it is opened, or %v", room, err)
		}
	}
	open(t, dir)
}

// TestManifestComesLast: what a manifest names is durable, with its name, before the manifest has its own. Rows are so once their sink is done, which is before: [fsx.Exclusive].
func TestManifestComesLast(t *testing.T) {
	t.Parallel()
	_, info := train(t)
	m, err := export.Open(t.Context(), info.Path)
	if err != nil {
		t.Fatal(err)
	}
	dir, disk := filepath.Join(t.TempDir(), "root", "export"), &fsxtest.Recorder{}
	if err := native.Complete(t.Context(), fsx.Local{Disk: disk}, dir, m); !errors.Is(err, native.ErrCorrupt) || len(disk.Done()) > 0 {
		t.Errorf("without rows: %v after %q", err, disk.Done())
	}
	rows(t, info, dir, m, 100)
	if err := native.Complete(t.Context(), fsx.Local{Disk: disk}, dir, m); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, name := range []string{"dense.f32", native.ManifestName} {
		want = append(want, "sync temporary", "rename "+name, "sync folder export", "sync folder root", "sync folder "+filepath.Base(filepath.Dir(filepath.Dir(dir))))
	}
	if got := disk.Done(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestOrder: rows that do not come in the order of their hashes are refused, since nobody would find them.
func TestOrder(t *testing.T) {
	t.Parallel()
	layout := &param.Layout{Tables: []param.Table{{Name: "users", Segments: []param.Segment{{Name: "vec", Dim: 1, Optimizer: optim.SGD{}}}}}}
	w, err := snapshot.Create(snapshot.Options{Dir: t.TempDir(), ID: 1, Layout: layout, Shards: 1})
	if err != nil {
		t.Fatal(err)
	}
	p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: layout})
	left := []int64{table.Unhash(7), table.Unhash(5)}
	if err := p.Rows(0, func(dst *table.Rows, _ int) bool {
		n := len(left)
		dst.Keys, dst.Times, dst.Counts, dst.Weights = append(dst.Keys, left...), append(dst.Times, 1, 1), append(dst.Counts, 1, 1), append(dst.Weights, 1, 1)
		left = nil
		return n > 0
	}); err != nil {
		t.Fatal(err)
	}
	w.Add(p.Part())
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	if err := sink(t, info, "users", t.TempDir(), 1, 0); !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), "in the order of hashes") {
		t.Errorf("%v", err)
	}
	if err := sink(t, info, "users", t.TempDir(), 2, 0); !errors.Is(err, pipeline.ErrSchema) || !strings.Contains(err.Error(), "or no 2 weights weights") {
		t.Errorf("%v", err)
	}
}

// TestFindAllocatesNothing also of ids without a row.
func TestFindAllocatesNothing(t *testing.T) {
	_, info := train(t)
	dir, m := exported(t, info)
	e := open(t, dir)
	ids := []int64{1, 2, 3, 4}
	if err := m.Rows(t.Context(), 0, func(r *table.Rows) error { ids = append(ids, r.Keys...); return nil }); err != nil {
		t.Fatal(err)
	}
	dst, has := make([]float32, len(ids)*m.Graph.Layout().Tables[0].Dim()), make([]bool, len(ids))
	if n := testing.AllocsPerRun(20, func() {
		if _, err := e.Find(0, ids, dst, has); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLookupRefuses what does not fit.
func TestLookupRefuses(t *testing.T) {
	t.Parallel()
	_, info := train(t)
	dir, m := exported(t, info)
	e := open(t, dir)
	if _, err := e.Find(0, []int64{1}, nil, nil); err == nil {
		t.Error("no room for weights")
	}
	if err := e.Lookup(t.Context(), &param.Rows{}); err == nil {
		t.Error("no tables")
	}
	keys := make([][]int64, len(m.Tables))
	if err := e.Lookup(t.Context(), &param.Rows{Keys: keys, Values: make([][]float32, len(keys)), State: make([][]float32, len(keys))}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("state: %v", err)
	}
	if _, err := e.Dense(t.Context(), 0, nil); err == nil {
		t.Error("no room for dense weights")
	}
}

// TestPartOf: a part is an equal range of hashes, the n-th of which begins at n/of of them all.
func TestPartOf(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		id, n := int64(rng.Uint64()), 1+rng.IntN(1000)
		want := new(big.Int).SetUint64(table.Hash(id))
		want.Rsh(want.Mul(want, big.NewInt(int64(n))), 64)
		if got := native.PartOf(id, n); int64(got) != want.Int64() {
			t.Fatalf("id %d of %d parts: %d, want %s", id, n, got, want)
		}
	}
}

//go:build unix

package main_test

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/export/native"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// largeSnapshot writes a snapshot of rows whose ids are spread evenly, on three shards, and returns it with the number of an id.
func largeSnapshot(t *testing.T, rows, dim int, weight func(row, i int) float32) (info *snapshot.Info, number func(id int64) int) {
	t.Helper()
	b := graph.NewBuilder()
	tbl := b.Table(param.Table{Name: "users", Segments: []param.Segment{{Name: "vec", Dim: dim, Optimizer: optim.SGD{}}}})
	user := b.SparseFeature(model.Feature{Name: "user"}, tbl)
	g, err := b.Build(1, graph.Output{Head: model.Head{Name: "click", Loss: loss.Squared, Width: dim}, Node: b.Pool(graph.Pooled{X: b.Lookup(user, "vec"), By: graph.Sum})})
	if err != nil {
		t.Fatal(err)
	}
	written, err := g.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const shards = 3
	step := ^uint64(0)/uint64(rows) + 1
	w, err := snapshot.Create(snapshot.Options{
		Dir: t.TempDir(), ID: 1, Layout: g.Layout(), Shards: shards, Created: time.Now(), Model: &snapshot.Model{Name: "graph", Version: graph.Version, Graph: written},
	})
	if err != nil {
		t.Fatal(err)
	}
	for s := range shards {
		p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: g.Layout(), Shard: s})
		at, end := s*rows/shards, (s+1)*rows/shards
		err := p.Rows(0, func(dst *table.Rows, limit int) bool {
			n := 0
			for ; n < limit && at < end; n++ {
				dst.Keys, dst.Times, dst.Counts = append(dst.Keys, table.Unhash(uint64(at)*step)), append(dst.Times, int64(at)+1), append(dst.Counts, uint64(at)+2)
				for i := range dim {
					dst.Weights = append(dst.Weights, weight(at, i))
				}
				at++
			}
			return n > 0
		})
		if err == nil && s == 0 {
			err = p.Dense(nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.Add(p.Part())
	}
	if info, err = w.Commit(); err != nil {
		t.Fatal(err)
	}
	return info, func(id int64) int {
		if h := table.Hash(id); h%step == 0 {
			return int(h / step)
		}
		return -1
	}
}

// TestKilledExportsAreWhole kills the export of a snapshot at random files, here and inside Beam's Prism: nothing is there under its name before it is complete, and in the end each
// row is in the files once, with its bits.
func TestKilledExportsAreWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	const rows, dim = 600_000, 16
	weight := func(row, i int) float32 { return float32(row%1000) - float32(i)/16 }
	info, number := largeSnapshot(t, rows, dim, weight)
	for name, c := range map[string]struct {
		format, runner, extension, rowsPerFile string
		pause                                  int  // at most, milliseconds: the export has to be under way still
		store                                  bool // it is uploaded
	}{
		"local":  {"parquet", "local", ".parquet", "20000", 100, false},
		"prism":  {"parquet", "prism", ".parquet", "20000", 100, false},
		"native": {"native", "local", ".slab", "8000", 10, false},
		"store":  {"native", "local", ".slab", "8000", 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 7))
			dir := filepath.Join(t.TempDir(), "exports")
			args := []string{"export", info.Path, "--format", c.format, "--dir", dir, "--rows-per-file", c.rowsPerFile, "--workers", "2", "--runner", c.runner, "--json"}
			named := filepath.Join(dir, "1")
			if c.store {
				args[5] = "file://" + filepath.ToSlash(dir)
				args = append(args, "--spool", filepath.Join(t.TempDir(), "spool"))
				named = filepath.Join(named, "_export.json")
			}
			written := func() []string {
				found, err := filepath.Glob(filepath.Join(dir, "*", "users", "[^.]*"+c.extension))
				if err != nil {
					t.Error(err)
				}
				return found
			}
			files := func() int { return len(written()) }
			// How many files there are depends on where it is killed: a file ends with a batch, and with a life.
			kills, between, complete := 0, 0, -1
			for ; kills < 10; kills++ {
				was := files()
				// Some files further, however fast the machine is at the moment, and anywhere in the next one.
				more, pause := 1+rng.IntN(6), time.Duration(rng.IntN(c.pause))*time.Millisecond
				if !killWritten(t, files, was+more, pause, path, args...) {
					break
				}
				now := files()
				if was > now {
					t.Errorf("%d files, there were %d", now, was)
				}
				if _, err := os.Stat(named); err == nil {
					complete = now
					break
				}
				if now > 0 {
					between++
				}
			}
			if between == 0 {
				t.Errorf("no kill of %d left a part of the files: no test", kills)
			}
			out, err := exec.CommandContext(t.Context(), path, args...).Output()
			if err != nil {
				t.Fatalf("the last life: %v\n%s", err, stderr(err))
			}
			var r struct {
				Result struct {
					Rows    int64
					Already bool
				}
			}
			if err := json.Unmarshal(out, &r); err != nil || r.Result.Rows != rows && !r.Result.Already {
				t.Errorf("%v, %s; want %d rows", err, out, rows)
			}
			if n := files(); complete >= 0 && n != complete {
				t.Errorf("the export had its name with %d files of %d", complete, n)
			}
			if c.format == "native" {
				e, err := native.Open(t.Context(), filepath.Join(dir, "1"))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = e.Close() }()
				if faults, err := e.Verify(t.Context()); err != nil || len(faults) > 0 {
					t.Errorf("%v, %v", faults, err)
				}
				step, got := ^uint64(0)/rows+1, make([]float32, dim)
				for row := range rows {
					if n, err := e.Find(0, []int64{table.Unhash(uint64(row) * step)}, got, nil); n != 1 || err != nil || got[0] != weight(row, 0) || got[dim-1] != weight(row, dim-1) {
						t.Fatalf("row %d: %d found, %v, %v", row, n, got, err)
					}
				}
				return
			}
			names := written()
			seen := make([]bool, rows)
			n := 0
			for _, name := range names {
				read, err := parquet.ReadFile[struct {
					FID    int64     `parquet:"fid"`
					Slot   int32     `parquet:"slot"`
					Time   int64     `parquet:"time"`
					Count  int64     `parquet:"count"`
					Vector []float32 `parquet:"weights_vec,list"`
				}](name)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				for _, r := range read {
					row := number(r.FID)
					if row < 0 || row >= rows || seen[row] || int(r.Slot) != fid.ID(r.FID).Slot() || r.Time != int64(row)+1 || r.Count != int64(row)+2 || len(r.Vector) != dim {
						t.Fatalf("%s: row %+v is none, or there twice", name, r)
					}
					for i, v := range r.Vector {
						if v != weight(row, i) {
							t.Fatalf("%s: weight %d of %d is %v", name, i, r.FID, v)
						}
					}
					seen[row] = true
					n++
				}
			}
			if n != rows {
				t.Errorf("%d rows of %d are in %d files after %d kills", n, rows, len(names), kills)
			}
		})
	}
}

//go:build unix

package main_test

import (
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/snapshot"
	"github.com/monolith-go/monolith/ps/table"
)

// TestKilledRowsAreWrittenOnce kills the writing of a snapshot's rows at random files, here and inside Beam's Prism: in the end each row
// is in the files once, with its bits.
func TestKilledRowsAreWrittenOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute; part of the full run")
	}
	path, err := bin()
	if err != nil {
		t.Fatal(err)
	}
	const rows, shards, dim = 600_000, 3, 16
	weight := func(id int64, i int) float32 { return float32(id%1000) - float32(i)/16 }
	layout := &param.Layout{Tables: []param.Table{{Name: "users", Segments: []param.Segment{{Name: "vec", Dim: dim, Optimizer: optim.SGD{}}}}}}
	w, err := snapshot.Create(snapshot.Options{Dir: t.TempDir(), ID: 1, Layout: layout, Shards: shards, Created: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	for s := range shards {
		p := snapshot.NewPart(snapshot.PartOptions{Dir: w.Dir(), Layout: layout, Shard: s})
		at := int64(s * rows / shards)
		end := int64((s + 1) * rows / shards)
		if err := p.Rows(0, func(dst *table.Rows, limit int) bool {
			n := 0
			for ; n < limit && at < end; n++ {
				dst.Keys, dst.Times, dst.Counts = append(dst.Keys, at), append(dst.Times, at+1), append(dst.Counts, uint64(at+2))
				for i := range dim {
					dst.Weights = append(dst.Weights, weight(at, i))
				}
				at++
			}
			return n > 0
		}); err != nil {
			t.Fatal(err)
		}
		w.Add(p.Part())
	}
	info, err := w.Commit()
	if err != nil {
		t.Fatal(err)
	}
	for _, runner := range []string{"local", "prism"} {
		t.Run(runner, func(t *testing.T) {
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed of the kills: %d", seed)
			rng := rand.New(rand.NewPCG(seed, 7))
			dir := filepath.Join(t.TempDir(), "rows")
			args := []string{"rows", info.Path, "--to", "parquet", "--dir", dir, "--rows-per-file", "20000", "--workers", "2", "--runner", runner, "--json"}
			files := func() int {
				found, err := filepath.Glob(filepath.Join(dir, "users", "[^.]*.parquet"))
				if err != nil {
					t.Error(err)
				}
				return len(found)
			}
			kills, between := 0, 0
			for ; kills < 10; kills++ {
				was := files()
				// Some files further, however fast the machine is at the moment, and anywhere in the next one.
				more, pause := 1+rng.IntN(6), time.Duration(rng.IntN(100))*time.Millisecond
				due, ended := make(chan time.Time, 1), make(chan struct{})
				var watch sync.WaitGroup
				watch.Go(func() {
					for tick := time.NewTicker(5 * time.Millisecond); ; {
						select {
						case <-ended:
							tick.Stop()
							return
						case at := <-tick.C:
							if files() < was+more {
								continue
							}
							tick.Stop()
							time.Sleep(pause)
							due <- at
							return
						}
					}
				})
				killed := killCommand(t, due, path, args...)
				close(ended)
				watch.Wait()
				if !killed {
					break
				}
				if now := files(); now > 0 && now < 30 {
					between++
				} else if was > now {
					t.Errorf("%d files, there were %d", now, was)
				}
			}
			if between == 0 {
				t.Errorf("no kill of %d left a part of the files: no test", kills)
			}
			out, err := exec.CommandContext(t.Context(), path, args...).Output()
			if err != nil {
				t.Fatalf("the last life: %v\n%s", err, stderr(err))
			}
			var r struct{ Result struct{ Rows int64 } }
			if err := json.Unmarshal(out, &r); err != nil || r.Result.Rows != rows {
				t.Errorf("%v, %s; want %d rows", err, out, rows)
			}
			names, err := filepath.Glob(filepath.Join(dir, "users", "[^.]*.parquet"))
			if err != nil {
				t.Fatal(err)
			}
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
					if r.FID < 0 || r.FID >= rows || seen[r.FID] || r.Slot != 0 || r.Time != r.FID+1 || r.Count != r.FID+2 || len(r.Vector) != dim {
						t.Fatalf("%s: row %+v is none, or there twice", name, r)
					}
					for i, v := range r.Vector {
						if v != weight(r.FID, i) {
							t.Fatalf("%s: weight %d of %d is %v", name, i, r.FID, v)
						}
					}
					seen[r.FID] = true
					n++
				}
			}
			if n != rows {
				t.Errorf("%d rows of %d are in %d files after %d kills", n, rows, len(names), kills)
			}
		})
	}
}

//go:build unix

package main_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/internal/fsx"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// writeModel writes the model that docs/from-monolith.md begins with: two tables of a weight and a vector of 16, of three slots and ten rows of
// a fourth.
func writeModel(t *testing.T, dir string) {
	t.Helper()
	assets := filepath.Join(dir, "model.ckpt-1200.assets")
	for k, name := range []string{"MonolithHashTable_a", "MonolithHashTable_b"} {
		w, err := entrydump.Create(t.Context(), fsx.Local{}, assets, entrydump.File{Name: name, Shards: 1}, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 155 {
			slot := 1 + k + i%2
			if i >= 150 {
				slot = 9
			}
			id, err := fid.New(slot, uint64(i))
			if err != nil {
				t.Fatal(err)
			}
			e := entrydump.Entry{ID: int64(id), HasOpt: true, HasTime: true, Time: 1_700_000_000, Num: make([]float32, 17)}
			for j := range e.Num {
				e.Num[j] = float32(i+j) / 1024
			}
			ftrl := e.Add()
			ftrl.Kind, ftrl.Vectors[0], ftrl.Vectors[1] = entrydump.FTRL, []float32{-e.Num[0]}, []float32{0.5}
			adagrad := e.Add()
			adagrad.Kind = entrydump.Adagrad
			for range 16 {
				adagrad.Vectors[0] = append(adagrad.Vectors[0], 0.25)
			}
			if err := w.Write(&e); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Commit(t.Context()), w.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "checkpoint"), []byte("model_checkpoint_path: \"/hdfs/user/model_dir/model.ckpt-1200\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFromMonolithGuide does what docs/from-monolith.md says, word by word, and finds what it says.
func TestFromMonolithGuide(t *testing.T) {
	t.Parallel()
	r := newTour(t)
	writeModel(t, filepath.Join(r.dir, "model_dir"))
	wants := [][]string{
		{"job.yaml is all right"},
		{"none: a dry run", "300 of 310 entries", "runs/taken-over/snapshots/snap-00000001", "10 entries: slot 9 is of no sparse feature of the job", "dense initial", "auc"},
		{"310 of 310 entries"},
		{"back/model.ckpt-2.assets", "multi/model.ckpt-1300.assets", "served/model.ckpt-2.assets", "as MonolithHashTable_embedding"},
		{"runs/again/snapshots/snap-00000001", "dense", "auc"},
	}
	n := 0
	for _, f := range fencedBlocks(t, "../../docs/from-monolith.md") {
		if !strings.HasPrefix(f.text, "$ ") {
			continue // what a command prints
		}
		if n == len(wants) {
			t.Fatalf("docs/from-monolith.md:%d: this test does not know the block %q", f.line, f.text)
		}
		wantAll(t, r.run(t, f.shell()), wants[n]...)
		n++
	}
	if n != len(wants) {
		t.Errorf("%d blocks of commands, want %d", n, len(wants))
	}
}

package zoo_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/zoo"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the goldens")

// TestBits trains each model with and without what behaves differently in training and compares a hash of all parameters
// with that of earlier versions. The kernels of other processors round differently.
func TestBits(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("the hashes are of amd64")
	}
	const ids = 20
	var out strings.Builder
	for _, name := range zoo.Names() {
		for _, full := range []bool{false, true} {
			cfg := zoo.Config{
				Name: name, Seed: 3, Dim: 8, Hidden: []int{16, 12}, CrossLayers: 2, EmbeddingL2: 0.01, DenseL2: 0.001,
				Features: []zoo.Feature{{Name: "user"}, {Name: "tags", Combiner: graph.Mean}, {Name: "x", Kind: model.Dense, Dim: 3, Decay: 0.9}},
			}
			if full {
				cfg.BatchNorm, cfg.Dropout, cfg.ClipNorm, cfg.Interactions = true, 0.2, 0.05, zoo.FieldInteractions
			}
			tr := newTrainer(mustNew(t, cfg), ids)
			rng := rand.New(rand.NewPCG(7, 7))
			for i := range 20 {
				tr.step(mixture(rng, 50, ids), uint64(i))
			}
			h := sha256.New()
			for _, part := range [][]float32{tr.table, tr.tableState, tr.dense} {
				_ = binary.Write(h, binary.LittleEndian, part)
			}
			fmt.Fprintf(&out, "%s full=%t %s\n", name, full, hex.EncodeToString(h.Sum(nil)[:8]))
		}
	}
	path := filepath.Join("testdata", "bits.golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Errorf("parameters have other bits (-want +got):\n%s", diff)
	}
}

// mixture is a batch of one list of one entry, one of up to three, and three numbers, some missing.
func mixture(rng *rand.Rand, rows, ids int) *model.Inputs {
	in := taste(rng, rows, ids/2)
	tags := model.Ragged{Offsets: []int32{0}}
	var x []float32
	for range rows {
		for range rng.IntN(4) {
			tags.Index = append(tags.Index, int32(rng.IntN(ids)))
		}
		tags.Offsets = append(tags.Offsets, int32(len(tags.Index)))
		for range 3 {
			v := float32(rng.NormFloat64())
			if rng.IntN(9) == 0 {
				v = float32(math.NaN())
			}
			x = append(x, v)
		}
		in.Weights = append(in.Weights, float32(rng.IntN(3)))
	}
	in.Sparse[1], in.Dense = tags, [][]float32{x}
	return in
}

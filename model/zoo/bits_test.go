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

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/graph"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/zoo"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the goldens")

// TestBits trains each model with and without what behaves differently in training and compares a hash of all parameters
// with that of earlier versions, for the kernels of this process; MONOLITH_SIMD chooses others.
func TestBits(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		t.Skip("the hashes are of amd64: compilers for others take products and sums together")
	}
	const ids = 20
	var out strings.Builder
	for _, name := range zoo.Names() {
		for _, full := range []bool{false, true} {
			fmt.Fprintf(&out, "%s full=%t %s\n", name, full, bits(trained(t, everyKind(name, full), ids, 50, 20, 1, false)))
		}
	}
	path := filepath.Join("testdata", fmt.Sprintf("bits_%s.golden", simd.Active()))
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

// TestThreads: what is trained has the same bits with any number of threads.
func TestThreads(t *testing.T) {
	t.Parallel()
	const ids = 500
	for _, name := range zoo.Names() {
		for _, full := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/full=%t", name, full), func(t *testing.T) {
				t.Parallel()
				want := bits(trained(t, everyKind(name, full), ids, 1100, 6, 1, true))
				for _, threads := range []int{2, 3} {
					if got := bits(trained(t, everyKind(name, full), ids, 1100, 6, threads, true)); got != want {
						t.Errorf("%d threads: %s, one: %s", threads, got, want)
					}
				}
			})
		}
	}
}

// TestNormSettings: each setting of batch norm changes what a perceptron learns, and a default that is written out does not.
func TestNormSettings(t *testing.T) {
	t.Parallel()
	seen := map[string]zoo.Norm{}
	train := func(n zoo.Norm) string {
		cfg := everyKind(zoo.DeepFM, true)
		cfg.Norm = n
		return fmt.Sprint(bits(trained(t, cfg, 20, 50, 20, 1, false)))
	}
	for _, n := range []zoo.Norm{{}, {Decay: 0.5}, {MaxScale: 1.1}, {MaxScale: 1.1, MaxShift: 0.1}} {
		got := train(n)
		if other, ok := seen[got]; ok {
			t.Errorf("%+v and %+v learn the same bits", n, other)
		}
		seen[got] = n
	}
	if n, ok := seen[train(zoo.Norm{Decay: graph.DefaultBatchNormDecay})]; !ok || n != (zoo.Norm{}) {
		t.Error("the default decay, written out, learns other bits than none")
	}
}

// everyKind is a model of each kind of feature, with what behaves differently in training or without.
func everyKind(name string, full bool) zoo.Config {
	cfg := zoo.Config{
		Name: name, Seed: 3, Dim: 8, Hidden: []int{16, 12}, CrossLayers: 2, EmbeddingL2: 0.01, DenseL2: 0.001,
		Features: []zoo.Feature{{Name: "user"}, {Name: "tags", Combiner: graph.Mean}, {Name: "x", Kind: model.Dense, Dim: 3, Decay: 0.9}},
	}
	if full {
		cfg.BatchNorm, cfg.Dropout, cfg.ClipNorm, cfg.Interactions = true, 0.2, 0.05, zoo.FieldInteractions
	}
	// The hashes are of these rules, whatever the usual ones are.
	cfg.BiasOptimizer, cfg.VecOptimizer = optim.FTRL{}, optim.Adagrad{}
	return small(cfg)
}

// trained trains some batches; with own every other one has lists without ids in common.
func trained(t *testing.T, cfg zoo.Config, ids, rows, batches, threads int, own bool) *trainer {
	t.Helper()
	tr := newTrainer(mustNew(t, cfg), ids)
	tr.useThreads(t, threads)
	rng := rand.New(rand.NewPCG(7, 7))
	for i := range batches {
		tr.step(mixture(rng, rows, ids, own && i%2 == 0), uint64(i))
	}
	return tr
}

// bits is a hash of all parameters.
func bits(tr *trainer) string {
	h := sha256.New()
	for _, part := range [][]float32{tr.table, tr.tableState, tr.dense} {
		_ = binary.Write(h, binary.LittleEndian, part)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// mixture is a batch of one list of one entry, one of up to three, and three numbers, some missing. With own the lists have no ids in common.
func mixture(rng *rand.Rand, rows, ids int, own bool) *model.Inputs {
	in := taste(rng, rows, ids/2)
	low := 0
	if own {
		low = ids / 2
	}
	tags := model.Ragged{Offsets: []int32{0}}
	var x []float32
	for range rows {
		for range rng.IntN(4) {
			tags.Index = append(tags.Index, int32(low+rng.IntN(ids-low)))
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
	in.Sparse[0].Own, tags.Own = own, own
	in.Sparse[1], in.Dense = tags, [][]float32{x}
	return in
}

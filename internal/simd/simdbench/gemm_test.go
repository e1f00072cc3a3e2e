package simdbench_test

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/internal/simd/simdbench"
)

// TestGemm: each product is measured, with OpenBLAS where it is installed, and nothing is left behind.
func TestGemm(t *testing.T) {
	dir := t.TempDir()
	results, err := simdbench.Gemm(t.Context(), bench.Options{Rounds: 1, Each: time.Microsecond, Dir: dir, Only: regexp.MustCompile("512x400x256, 1|gemv.* 512x400, 1")})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 5 {
		t.Errorf("%d results: %+v", len(results), results)
	}
	_, missing := os.Stat("/usr/include/x86_64-linux-gnu/cblas.h")
	_, noCompiler := exec.LookPath("cc")
	for _, r := range results {
		if r.Ours <= 0 || r.Control <= 0 || r.Theirs["gonum"] <= 0 || r.Unit != "GFLOP/s" {
			t.Errorf("%+v", r)
		}
		if missing != nil || noCompiler != nil {
			continue
		}
		openBLAS := slices.DeleteFunc(slices.Collect(maps.Keys(r.Theirs)), func(name string) bool { return !strings.HasPrefix(name, "openblas for ") })
		if len(openBLAS) != 1 || r.Theirs[openBLAS[0]] <= 0 {
			t.Errorf("OpenBLAS is installed and not measured: %+v", r)
		} else if simd.Active() != simd.Portable && openBLAS[0] == "openblas for Prescott" {
			t.Errorf("OpenBLAS runs kernels without AVX beside ours with it: %+v", r)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

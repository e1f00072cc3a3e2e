package coordinator_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
)

// TestKernelsKeepToFloat64 runs the comparison with plain maps in float64 with the other families of kernels that this processor has, in processes of their own.
func TestKernelsKeepToFloat64(t *testing.T) {
	t.Parallel()
	const child = "KERNELS_CHILD"
	if os.Getenv(child) != "" {
		t.Logf("these are kernels %s.", simd.Active())
		return
	}
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for f, env := range map[simd.Family]string{simd.Portable: "off", simd.AVX2: "avx2", simd.AVX512: "avx512", simd.AMX: "amx"} {
		if f == simd.Active() || f > simd.Available()[len(simd.Available())-1] {
			continue // TestCluster runs with those of this process
		}
		t.Run(env, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), me, "-test.run", "^(TestCluster|TestKernelsKeepToFloat64)$/^plain_maps_in_float64$", "-test.short", "-test.v")
			cmd.Env = append(os.Environ(), simd.Env+"="+env, child+"=1")
			out, err := cmd.CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("these are kernels "+f.String()+".")) ||
				!bytes.Contains(out, []byte("--- PASS: TestCluster/plain_maps_in_float64/all,_float32")) {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

package job_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/job"
)

const kernelsJob = `
version: 1
name: kernels
dir: DIR
source: {synthetic: {examples: EXAMPLES}}
parse: {features: [{name: user, slot: 1}, {name: item, slot: 2}], label: click}
model: {fm: {dim: 8}}
deterministic: true
`

// TestKernelsAreRecorded: a snapshot names the kernels its job began with, and a deterministic job that continues with others says so.
func TestKernelsAreRecorded(t *testing.T) {
	if dir := os.Getenv("KERNELS_DIR"); dir != "" { // in a process with other kernels
		trainKernels(t, dir, "2000")
		return
	}
	if simd.Active() == simd.Portable {
		t.Skip("this processor, or MONOLITH_SIMD, has the portable kernels alone")
	}
	dir := filepath.Join(t.TempDir(), "run")
	if notices := trainKernels(t, dir, "1000"); strings.Contains(notices, "kernels") {
		t.Errorf("a first run: %s", notices)
	}
	info, err := job.InspectSnapshot(t.Context(), dir)
	if err != nil || info.Kernels != simd.Active().String() {
		t.Errorf("the snapshot has the kernels %q, want %q; %v", info.Kernels, simd.Active(), err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKernelsAreRecorded$", "-test.v")
	cmd.Env = append(os.Environ(), "KERNELS_DIR="+dir, simd.Env+"=off")
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("began with the kernels %s and continues with %s: results are as good, but have other bits; %s", simd.Active(), simd.Portable, simd.Setting(simd.Active().String()))
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v, want a notice %q in\n%s", err, want, out)
	}
}

func trainKernels(t *testing.T, dir, examples string) string {
	t.Helper()
	text := strings.NewReplacer("DIR", dir, "EXAMPLES", examples).Replace(kernelsJob)
	cfg, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var notices strings.Builder
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(s string) { notices.WriteString(s + "\n") }}); err != nil {
		t.Fatal(err)
	}
	t.Log(notices.String())
	return notices.String()
}

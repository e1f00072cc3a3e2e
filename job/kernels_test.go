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
model: {deepfm: {dim: 8, hidden: [16, 8]}}
train: {precision: PRECISION}
deterministic: true
`

// TestKernelsAreRecorded: a snapshot names the kernels its job began with, and a deterministic job that continues with others says so.
func TestKernelsAreRecorded(t *testing.T) {
	const again = "KERNELS_AGAIN"
	if settings := strings.Fields(os.Getenv(again)); len(settings) == 2 { // in a process with other kernels
		trainKernels(t, settings[0], settings[1], "2000")
		return
	}
	active := simd.Active()
	if active == simd.Portable {
		t.Skip("this processor, or MONOLITH_SIMD, has the portable kernels alone")
	}
	for _, precision := range []string{"float32", "bf16"} {
		for _, with := range []simd.Family{simd.Portable, active - 1, active} {
			dir := filepath.Join(t.TempDir(), "run")
			if notices := trainKernels(t, dir, precision, "1000"); strings.Contains(notices, "kernels") {
				t.Errorf("a first run: %s", notices)
			}
			info, err := job.InspectSnapshot(t.Context(), dir)
			if err != nil || info.Kernels != active.String() {
				t.Errorf("%s: the snapshot has the kernels %q, want %q; %v", precision, info.Kernels, active, err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKernelsAreRecorded$", "-test.v")
			cmd.Env = append(os.Environ(), again+"="+dir+" "+precision)
			cmd.Env = append(cmd.Env, simd.Setting(with.String()))
			out, err := cmd.CombinedOutput()
			want := fmt.Sprintf("began with the kernels %s and continues with %s: results are as good, but have other bits; %s", active, with, simd.Setting(active.String()))
			if err != nil || !strings.Contains(string(out), "trained 2000 examples") || strings.Contains(string(out), want) != (active != with) {
				t.Errorf("%s with %s: %v, want a notice %q: %t, in\n%s", precision, with, err, want, active != with, out)
			}
		}
	}
}

func trainKernels(t *testing.T, dir, precision, examples string) string {
	t.Helper()
	text := strings.NewReplacer("DIR", dir, "EXAMPLES", examples, "PRECISION", precision).Replace(kernelsJob)
	cfg, err := job.Decode([]byte(text), "job.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var notices strings.Builder
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{Notice: func(s string) { notices.WriteString(s + "\n") }}); err != nil {
		t.Fatal(err)
	}
	t.Logf("trained %s examples: %s", examples, notices.String())
	return notices.String()
}

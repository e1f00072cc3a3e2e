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

// TestKernelsAreRecorded: a snapshot names the kernels its job began with, and a deterministic job that continues with others says so. Kernels that are other ones for products of bfloat16 alone are
// others for jobs with such products alone.
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
	for precision, began := range map[string]simd.Family{"float32": active.Float32(), "bf16": active} {
		for _, with := range []simd.Family{simd.Portable, active.Float32()} {
			dir := filepath.Join(t.TempDir(), "run")
			if notices := trainKernels(t, dir, precision, "1000"); strings.Contains(notices, "kernels") {
				t.Errorf("a first run: %s", notices)
			}
			info, err := job.InspectSnapshot(t.Context(), dir)
			if err != nil || info.Kernels != began.String() {
				t.Errorf("%s: the snapshot has the kernels %q, want %q; %v", precision, info.Kernels, began, err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKernelsAreRecorded$", "-test.v")
			cmd.Env = append(os.Environ(), again+"="+dir+" "+precision)
			cmd.Env = append(cmd.Env, simd.Setting(with.String()))
			out, err := cmd.CombinedOutput()
			want := fmt.Sprintf("began with the kernels %s and continues with %s: results are as good, but have other bits; %s", began, with, simd.Setting(began.String()))
			if err != nil || !strings.Contains(string(out), "trained 2000 examples") || strings.Contains(string(out), want) != (began != with) {
				t.Errorf("%s with %s: %v, want a notice %q: %t, in\n%s", precision, with, err, want, began != with, out)
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

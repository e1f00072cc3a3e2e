package job_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
)

// TestUndefinedIsNotZero: the result of training has metrics from where they were stored; one that the examples do not define, such as the
// AUC of one class, is undefined there too, and not 0.
func TestUndefinedIsNotZero(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "rows.csv")
	if err := os.WriteFile(file, []byte("y,x\n"+strings.Repeat("1,0.5\n", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %[2]q
source: {text: {files: [%[1]q]}}
parse: {format: csv, header: true, features: [{name: x, kind: dense}], label: y}
model: lr
train: {batch: 50}
eval: {source: {text: {files: [%[1]q]}}}
`, file, filepath.Join(dir, "run")), "one.yaml", job.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := job.Run(t.Context(), c, job.RunOptions{})
	if err != nil {
		t.Fatal(err)
	}
	auc, there := r.Metrics["auc"]
	if loss := r.Metrics["log_loss"]; !there || !math.IsNaN(auc) || loss <= 0 {
		t.Errorf("of one class the auc is %v (%v) and the log loss %v, want NaN and a number", auc, there, loss)
	}
}

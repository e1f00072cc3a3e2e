package jobbench_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/internal/testbed"
	"github.com/monolith-go/monolith/job/jobbench"
)

// TestFrappe: without the data set the variable that names it is said, and the job that is measured is the example's.
func TestFrappe(t *testing.T) {
	t.Setenv(testbed.EnvData, "")
	if _, err := jobbench.Frappe(t.Context(), bench.Options{}); err == nil || !strings.Contains(err.Error(), testbed.EnvData) {
		t.Errorf("without data: %v", err)
	}
	example, err := os.ReadFile("../../examples/frappe/deepfm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	measured, err := os.ReadFile("frappe.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(example, measured) {
		t.Error("frappe.yaml is not examples/frappe/deepfm.yaml: copy it")
	}
}

// TestRealDataFrappe: the job reaches its target, twice, and PyTorch is absent with a reason where it is not installed.
func TestRealDataFrappe(t *testing.T) {
	data := testbed.Data(t, ".")
	testbed.Data(t, "datasets/frappe")
	t.Setenv(testbed.EnvData, data)
	t.Setenv("PATH", t.TempDir())
	o := options(t, "seed 2")
	o.Rounds = 2
	results, err := jobbench.Frappe(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 1 || results[0].Ours <= 0 || results[0].Control <= 0 || results[0].Unit != "s" || !strings.Contains(results[0].Absent["torch"], "--with") {
		t.Errorf("%+v", results)
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

package jobbench_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job/jobbench"
)

// TestStep: each job trains on all rows, and nothing is left behind.
func TestStep(t *testing.T) {
	dir := t.TempDir()
	results, err := jobbench.Step(t.Context(), bench.Options{Rounds: 1, Each: time.Millisecond, Rows: 1001, Dir: dir, Only: regexp.MustCompile("lr|fm.*512")})
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 3 {
		t.Errorf("%d results: %+v", len(results), results)
	}
	for _, r := range results {
		if r.Ours <= 0 || r.Control <= 0 || r.Unit != "examples/s" {
			t.Errorf("%+v", r)
		}
	}
}

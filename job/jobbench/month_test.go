package jobbench_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/job/jobbench"
)

// TestMonth: over a month of drifting ids, tables with expiry and a limit stay as large as they were in its middle, those without grow all the time, and the model is as
// good as that of all rows. The figures are the same on any machine.
func TestMonth(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 20 seconds of a processor; part of the full run")
	}
	results, err := jobbench.Month(t.Context(), bench.Options{Rows: 3_000_000})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bench.Result{}
	for _, r := range results {
		got[r.Name[strings.Index(r.Name, ": ")+2:]] = r
		t.Logf("%s: %v, %v, ratio %.4f", r.Name, r.Ours, r.Theirs, r.Ratio)
	}
	if auc := got["AUC"]; auc.Ours < .7 || auc.Theirs["without a limit"]-auc.Ours > .002 {
		t.Errorf("AUC %v, without a limit %v: .002 less was allowed", auc.Ours, auc.Theirs)
	}
	for _, what := range []string{"rows", "memory"} {
		if r := got[what].Ratio; r > 1.02 {
			t.Errorf("%s have grown by %.3f since the middle of the month", what, r)
		}
		if r := got[what+" without a limit"].Ratio; r < 1.7 {
			t.Errorf("%s without a limit have grown by %.3f only: the test says nothing", what, r)
		}
	}
}

package psbench_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/bench"
	"github.com/monolith-go/monolith/ps/psbench"
)

// TestTable: each kind of comparison runs, with and without C++ programs, and leaves no file.
func TestTable(t *testing.T) {
	t.Parallel()
	if bench.CPUSeconds() == 0 {
		t.Skip("no processor time on this system")
	}
	o := bench.Options{
		Rounds: 1, Each: 5 * time.Millisecond, Rows: 1 << 15, Dir: t.TempDir(),
		Only: regexp.MustCompile("uniform, (known addresses|go map|two threads)|adagrad uniform|growth|gc"),
	}
	results, err := psbench.Table(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	against := map[string]string{
		"table lookup uniform, known addresses, 32768 rows": "known addresses", "table lookup uniform, go map, 32768 rows": "go map",
		"table lookup uniform, two threads, 32768 rows": "one thread", "table adagrad uniform, lookups, 32768 rows": "lookups",
	}
	compared := 0
	for _, r := range results {
		other := against[r.Name]
		switch {
		case other == "" && r.Ours < 0, other != "" && (r.Ours <= 0 || r.Theirs[other] <= 0 || r.Ratio <= 0 || r.Control <= 0):
			t.Errorf("got %+v", r)
		case other != "":
			compared++
		}
	}
	if compared < len(against)-1 || len(results) < compared+8 { // one needs a compiler
		t.Errorf("%d comparisons, %d results", compared, len(results))
	}
	left, err := os.ReadDir(o.Dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

package table_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/ps/table"
)

// resident is what the process has of the machine's memory.
func resident(t *testing.T) int64 {
	t.Helper()
	runtime.GC()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(b))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// TestProcessTakesWhatIsSaid: a process grows by what its tables are said to take, within a quarter: huge pages, and those made ready ahead, are beside.
func TestProcessTakesWhatIsSaid(t *testing.T) { // alone: others take memory too
	if testing.Short() {
		t.Skip("takes 300 MB")
	}
	const dim, rows = 16, 1_500_000
	spec := needTable(dim, optim.Adagrad{LR: .1})
	tab := table.New(spec, 1, nil)
	defer tab.Close()
	before := resident(t)
	grow(t, tab, dim, rows)
	takes, said := resident(t)-before, rows*spec.RowBytes()
	t.Logf("said %d, takes %d", said, takes)
	if r := float64(takes) / float64(said); r < .75 || r > 1.25 {
		t.Errorf("%d rows are said to take %d bytes, and the process has grown by %d", rows, said, takes)
	}
}

package table_test

import (
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps/table"
)

// The memory of the rows that a large table will have next is there before they are, and closing it while it populates is safe.
func TestPopulatedAhead(t *testing.T) {
	t.Parallel()
	const dim, rows = 16, 300_000
	tab := table.New(adagrad(dim), 1, nil)
	defer tab.Close()
	fill(tab, dim, sequence(rows))
	for deadline := time.Now().Add(3 * time.Minute); !tab.Resident(rows + rows/16); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the row %d after the last of %d is not in memory", rows/16, rows)
		}
	}
	for range 5 {
		other := table.New(adagrad(dim), 1, nil)
		fill(other, dim, sequence(rows))
		other.Close()
	}
}

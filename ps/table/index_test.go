package table_test

import (
	"testing"

	"github.com/monolith-go/monolith/ps/table"
)

// TestSearchesAreShort: while segments fill, searches in the fullest state look at few lines, and no key is so far from home that its segment must split for it. With the next
// line as the second they look at 1.18 lines for keys that are there, 2.00 for others, and up to 23, in place of 1.13, 1.36 and 10.
func TestSearchesAreShort(t *testing.T) {
	t.Parallel()
	tab := table.New(sums(1), 1, nil)
	defer tab.Close()
	const step, most = 4 << 10, 512 << 10
	u := table.Update{LR: 1, Counts: make([]uint32, step), Grads: make([]float32, step)}
	present, absent, longest := 0., 0., 0
	for from := int64(0); from < most; from += step {
		u.Keys = u.Keys[:0]
		for k := from; k < from+step; k++ {
			u.Keys = append(u.Keys, k)
		}
		tab.Apply(u)
		if from < most/2 {
			continue // few segments
		}
		here, elsewhere := 0, 0
		for i := range int64(step) {
			n, found := tab.Searched(i * from / step)
			if !found {
				t.Fatalf("key %d of %d is in no line", i*from/step, from+step)
			}
			longest = max(longest, n)
			here += n
			n, _ = tab.Searched(1<<40 + i)
			elsewhere += n
		}
		present, absent = max(present, float64(here)/step), max(absent, float64(elsewhere)/step)
	}
	t.Logf("%.3f lines for keys that are there, %.3f for others, at most %d", present, absent, longest)
	if present > 1.16 || absent > 1.6 || longest > 16 {
		t.Errorf("a search looks at %.2f lines for keys that are there, %.2f for others, on the mean, and at up to %d; want at most 1.16, 1.6 and 16", present, absent, longest)
	}
}

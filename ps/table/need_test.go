package table_test

import (
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/table"
)

// metaBytes is what a row has beside its numbers: time and count.
const metaBytes = 16

// needTable is a table of one segment.
func needTable(dim int, rule optim.Optimizer) param.Table {
	return param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: dim, Init: param.Uniform(-.1, .1), Optimizer: rule}}}
}

// grow makes so many rows.
func grow(t *testing.T, tab *table.Mem, dim, rows int) {
	t.Helper()
	const batch = 10_000
	u := table.Update{Keys: make([]int64, batch), Counts: make([]uint32, batch), Grads: make([]float32, batch*dim), LR: 1}
	for from := 0; from < rows; from += batch {
		for i := range u.Keys {
			u.Keys[i], u.Counts[i] = int64(param.Mix(7, uint64(from+i))), 1
		}
		if err := tab.Reserve(batch); err != nil {
			t.Fatal(err)
		}
		tab.Apply(u)
	}
}

// TestRowsTakeWhatIsSaid: what jobs reckon with before they run ([param.Table.RowBytes]) is never below what rows and index really take, and above it by
// the index's room to grow, 30 % at most of the narrowest rows.
func TestRowsTakeWhatIsSaid(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]param.Table{
		"dim 1, sgd":         needTable(1, optim.SGD{LR: .1}),
		"dim 1, ftrl":        needTable(1, optim.FTRL{LR: .1}),
		"dim 8, adagrad":     needTable(8, optim.Adagrad{LR: .1}),
		"dim 16, adam, bf16": needTable(16, optim.Stored(optim.Adam{LR: .1}, optim.BF16)),
		"dim 64, adam":       needTable(64, optim.Adam{LR: .1}),
	} {
		for _, rows := range []int{50_000, 80_000, 130_000} { // the index is fuller, and less so
			tab := table.New(spec, 1, nil)
			grow(t, tab, spec.Dim(), rows)
			takes, said := tab.IndexBytes()+int64(rows*(tab.RowBytes()+metaBytes)), int64(rows)*spec.RowBytes()
			if r := float64(said) / float64(takes); r < 1 || r > 1.3 {
				t.Errorf("%s, %d rows: %d bytes are said, and they take %d: ratio %.3f", name, rows, said, takes, r)
			}
			tab.Close()
		}
	}
}

package pstest

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/table"
	"github.com/monolith-go/monolith/ps/tally"
)

// testTally compares what shards say of slots with sums over all rows, whether some were removed or are only counted.
func (s suite) testTally(t *testing.T, shards int) {
	t.Parallel()
	for name, j := range retentionJobs() {
		if name == "expiry" {
			j.Retention = param.Retention{}
		}
		c := s.must(t, coordinator.Options{Layout: j.Layout(), NumShards: shards})
		cl := client(t, c, "worker")
		w, err := NewWorker(t.Context(), j, cl)
		if err != nil {
			t.Fatal(err)
		}
		finish(t, w)
		got, newest, err := c.Tally(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var fids []int64
		for k := -j.NumIDs; k <= j.NumIDs; k++ {
			fids = append(fids, k)
		}
		total := int64(0)
		for i, spec := range j.Layout().Tables {
			var rows table.Rows
			if err := c.Entries(t.Context(), i, fids, &rows); err != nil {
				t.Fatal(err)
			}
			want, dim := map[int]*tally.Slot{}, spec.Dim()
			ages := map[int][]int64{}
			for r, k := range rows.Keys {
				slot := param.SlotOf(k)
				if want[slot] == nil {
					want[slot] = &tally.Slot{}
				}
				x := want[slot]
				x.Rows++
				x.Occurrences += rows.Counts[r]
				if rows.Counts[r] == 1 {
					x.Once++
				}
				if rows.Times[r] == 0 {
					x.Timeless++
				} else {
					ages[slot] = append(ages[slot], newest-rows.Times[r])
				}
				norm := 0.
				for _, v := range rows.Weights[r*dim:][:dim] {
					norm += float64(v) * float64(v)
				}
				x.Norms += math.Sqrt(norm)
			}
			for slot, x := range got[i] {
				if x == nil {
					continue
				}
				total += x.Rows
				plain, a := *x, ages[slot]
				plain.Ages, plain.Waiting = tally.Ages{}, 0
				if want[slot] == nil && x.Rows == 0 {
					continue // fids wait
				}
				if diff := cmp.Diff(want[slot], &plain, cmpopts.EquateApprox(1e-9, 0), cmpopts.IgnoreUnexported(tally.Ages{})); diff != "" {
					t.Errorf("%s, table %d, slot %d (-rows +tally):\n%s", name, i, slot, diff)
				}
				most := int64(0)
				for _, age := range a {
					most = max(most, age)
				}
				if x.Ages.N != int64(len(a)) || x.Ages.Max != uint64(most) {
					t.Errorf("%s, table %d, slot %d: %d ages up to %d, want %d up to %d", name, i, slot, x.Ages.N, x.Ages.Max, len(a), most)
				}
				delete(want, slot)
			}
			if len(want) > 0 {
				t.Errorf("%s, table %d: %d slots are missing", name, i, len(want))
			}
		}
		if total == 0 {
			t.Errorf("%s: no rows: the test says nothing", name)
		}
	}
}

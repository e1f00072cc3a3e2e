package coordinator_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
	"github.com/monolith-go/monolith/ps/pstest"
)

// byteHooks keeps what it was told last of the memory of each table of each shard.
type byteHooks struct {
	mu   sync.Mutex
	last map[string]int64
}

func (h *byteHooks) TableBytes(shard int, table string, bytes int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last[fmt.Sprint(shard, " ", table)] = bytes
}

// TestTableBytes: each shard's memory is reported, table by table, and that a shard is no more.
func TestTableBytes(t *testing.T) {
	t.Parallel()
	j, h := pstest.SmallJob(), &byteHooks{last: map[string]int64{}}
	l := j.Layout()
	f := newFleetOf(t, coordinator.Options{Layout: l, Hooks: ps.NewHooks(h)}, 3, 2, 1, false)
	trained(t, f, j, 10)
	for had, to := range []int{3, 2} {
		if _, err := f.cluster().Scale(t.Context(), f.addrs(to)); err != nil {
			t.Fatal(err)
		}
		// A shard lets the rows that have left it go after the change, a part at a time: what it has may change between two looks at it.
		until(t, "what is reported is what there is", func() bool { return sameBytes(t, f, h, l, had, to) })
	}
}

// sameBytes reports whether hooks were told of the memory that three shards have, of which to are left, and logs a difference.
func sameBytes(t *testing.T, f *fleet, h *byteHooks, l *param.Layout, had, to int) (same bool) {
	t.Helper()
	if got := f.cluster().ReportRows(had + 2); got != to {
		t.Fatalf("%d shards reported, want %d", got, to)
	}
	sum := map[string]int64{}
	st, err := f.cluster().Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	same = true
	for _, tbl := range l.Tables {
		for i := range 3 {
			got := h.last[fmt.Sprint(i, " ", tbl.Name)]
			if here := i < to; here && got <= 0 || !here && got != -1 {
				same = false
				t.Logf("%d shards: table %s of shard %d has %d bytes", to, tbl.Name, i, got)
			}
			sum[tbl.Name] += max(got, 0)
		}
	}
	for _, tbl := range st.Tables {
		if sum[tbl.Name] != tbl.Bytes {
			same = false
			t.Logf("%d shards: table %s has %d bytes, and %d were reported", to, tbl.Name, tbl.Bytes, sum[tbl.Name])
		}
	}
	return same
}

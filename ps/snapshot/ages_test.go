package snapshot_test

import (
	"slices"
	"testing"
	"time"

	"github.com/monolith-go/monolith/ps/snapshot"
)

// TestAges keeps snapshots through clocks that jump or that another machine set.
func TestAges(t *testing.T) {
	t.Parallel()
	start := time.Unix(1700000000, 0)
	at := func(id uint64, created time.Duration) snapshot.Entry {
		return snapshot.Entry{ID: id, Info: &snapshot.Info{ID: id, Created: start.Add(created)}}
	}
	var wall, run time.Duration
	ages := func() *snapshot.Ages {
		wall, run = 0, 0
		return snapshot.AgesOf(func() (time.Time, time.Duration) { return start.Add(wall), run })
	}
	stay := func(a *snapshot.Ages, entries ...snapshot.Entry) (ids []uint64) {
		for i, why := range (snapshot.Retention{Keep: 1, For: 2 * time.Hour}).Kept(entries, a) {
			if why != "" {
				ids = append(ids, entries[i].ID)
			}
		}
		return ids
	}
	for _, c := range []struct {
		name string
		kept func() []uint64
		want []uint64
	}{
		{"the local clock is a day ahead", func() []uint64 {
			a := ages()
			wall = 24 * time.Hour
			return stay(a, at(3, 0), at(2, -time.Hour), at(1, -3*time.Hour))
		}, []uint64{3, 2}},
		{"the clock jumps a day ahead while the process runs", func() []uint64 {
			a := ages()
			a.See([]snapshot.Entry{at(2, 0), at(1, -time.Hour)})
			wall, run = 24*time.Hour, time.Minute
			return stay(a, at(3, 24*time.Hour), at(2, 0), at(1, -time.Hour))
		}, []uint64{3, 2, 1}},
		{"and time goes on", func() []uint64 {
			a := ages()
			a.See([]snapshot.Entry{at(2, 0), at(1, -time.Hour)})
			wall, run = 25*time.Hour, time.Hour
			return stay(a, at(3, 24*time.Hour), at(2, 0), at(1, -time.Hour))
		}, []uint64{3, 2}},
		{"the newest is stamped by a clock that was ahead", func() []uint64 {
			return stay(ages(), at(3, 24*time.Hour), at(2, -time.Hour), at(1, -3*time.Hour))
		}, []uint64{3, 2}},
		{"a list without a manifest", func() []uint64 {
			return stay(ages(), snapshot.Entry{ID: 1, Err: snapshot.ErrCorrupt})
		}, []uint64{1}},
	} {
		if got := c.kept(); !slices.Equal(got, c.want) {
			t.Errorf("%s: kept %v, want %v", c.name, got, c.want)
		}
	}
}

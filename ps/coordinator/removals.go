package coordinator

import (
	"log/slog"
	"math"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// removals reports which rows went by the retention, from one look at the shards to the next.
type removals struct {
	had    []ps.Stats
	warned map[[2]string]time.Time
}

const (
	// warnShare is the share of a table's rows that go between two looks from which on a warning says so, and warnAgain how long it is not said again of a
	// table and cause.
	warnShare = .1
	warnAgain = 10 * time.Minute
)

// report tells the hooks what went since it was called before, and warns where that is much.
func (r *removals) report(all []ps.Stats, hooks *ps.Hooks, log *slog.Logger) {
	had := r.had
	r.had = all
	if len(had) == 0 || len(all) == 0 {
		return // what went before is another coordinator's
	}
	for t, of := range all[0].Tables {
		left := int64(0)
		gone := map[string]int64{}
		for i, now := range all {
			left += now.Tables[t].Rows
			var was ps.TableStats
			if i < len(had) {
				was = had[i].Tables[t]
			}
			// A process that was started again counts from 0.
			since := func(now, was int64) int64 {
				if now < was {
					return now
				}
				return now - was
			}
			gone[ps.Expired] += since(now.Tables[t].Removed.Expired, was.Removed.Expired)
			gone[ps.Evicted] += since(now.Tables[t].Removed.Evicted, was.Removed.Evicted)
		}
		for _, cause := range []string{ps.Expired, ps.Evicted} {
			n := gone[cause]
			if n == 0 {
				continue
			}
			hooks.RowsRemoved(of.Name, cause, n)
			share := float64(n) / float64(left+gone[ps.Expired]+gone[ps.Evicted])
			key := [2]string{of.Name, cause}
			if share < warnShare || time.Since(r.warned[key]) < warnAgain {
				continue
			}
			if r.warned == nil {
				r.warned = map[[2]string]time.Time{}
			}
			r.warned[key] = time.Now()
			why := "event time went on by more than retention.expire for them; check the times of the newest records, raise expire, or bound the steps with retention.max_step"
			if cause == ps.Evicted {
				why = "the table is at retention.table_memory; raise it, or let ids wait for more occurrences"
			}
			log.Warn("much of a table went by its retention", "table", of.Name, "cause", cause, "rows", n, "share", math.Round(share*1000)/1000, "left", left, "why", why)
		}
	}
}

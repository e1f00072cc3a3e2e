package snapshot

import (
	"sync"
	"time"
)

// Ages measures how old snapshots are. Another machine may have stamped Created, and clocks jump. So an
// age never counts on the local clock alone:
//
//   - A snapshot listed for the first time is as old as Created says, up to the newest Created in the
//     list or to the local time, whichever is earlier.
//   - From then on its age grows with the process's monotonic clock.
//
// A clock that jumps ahead therefore makes no snapshot old. Time in which no process ran is not counted
// unless a newer snapshot covers it: when in doubt, a snapshot stays longer. The zero value is ready, and
// safe for concurrent use.
type Ages struct {
	// clock returns the local time and the time on the monotonic clock; nil: those of the process.
	clock func() (wall time.Time, run time.Duration)

	mu    sync.Mutex
	start time.Time
	seen  map[sightedAs]sighting
}

// sightedAs names a snapshot in whatever form it has: compaction keeps both.
type sightedAs struct {
	id      uint64
	created int64
}

type sighting struct {
	// age is what it was at the time at; last is the last time that the snapshot was listed.
	age      time.Duration
	at, last time.Duration
}

// forgotten is how long an entry stays in memory after its snapshot was last listed.
const forgotten = time.Hour

// See notes the entries of a list. Call it when the process starts: a jump after that changes no age.
func (a *Ages) See(entries []Entry) { a.of(entries) }

// of returns the age of each entry; 0 for those without a manifest.
func (a *Ages) of(entries []Entry) []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.seen == nil {
		a.seen, a.start = map[sightedAs]sighting{}, time.Now()
	}
	end, run := time.Now(), time.Since(a.start)
	if a.clock != nil {
		end, run = a.clock()
	}
	var newest time.Time
	for _, e := range entries {
		if e.Info != nil && e.Info.Created.After(newest) {
			newest = e.Info.Created
		}
	}
	if newest.Before(end) {
		end = newest
	}
	ages := make([]time.Duration, len(entries))
	for i, e := range entries {
		if e.Info == nil {
			continue
		}
		key := sightedAs{e.ID, e.Info.Created.UnixNano()}
		s, ok := a.seen[key]
		if !ok {
			s = sighting{age: max(0, end.Sub(e.Info.Created)), at: run}
		}
		s.last = run
		a.seen[key] = s
		ages[i] = s.age + run - s.at
	}
	for key, s := range a.seen {
		if run-s.last > forgotten {
			delete(a.seen, key)
		}
	}
	return ages
}

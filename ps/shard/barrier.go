package shard

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// barrier aligns the streams of a shard for a cut (the aligned barrier of Carbone et al., 2015: lightweight asynchronous
// snapshots): a stream that has passed its marker commits nothing until every other one has, then the shard is copied. A cut that holds streams lets none commit
// from then on until it is ended, or for as long as it holds them at most.
type barrier struct {
	id      uint64 // of the cut under way; 0: none
	hold    time.Duration
	until   time.Time // when commits behind the cut continue, once it is taken
	waiting map[uint64]bool
	passed  map[uint64]bool
	// disturbed: owners have changed since the cut was begun.
	disturbed bool
	cut       *Cut
}

func (b *barrier) holds(session uint64) bool {
	switch {
	case b.id == 0:
		return false
	case !b.until.IsZero():
		return time.Now().Before(b.until)
	default:
		return b.cut == nil && b.passed[session]
	}
}

// take keeps what the shard is at this moment, behind all markers.
func (b *barrier) take(s *Shard) {
	b.cut = s.snapshotCut()
	if b.hold > 0 {
		b.until = time.Now().Add(b.hold)
	}
}

// pass lets a session count as having passed its marker.
func (b *barrier) pass(s *Shard, session uint64) {
	if b.id == 0 || b.cut != nil || !b.waiting[session] {
		return
	}
	delete(b.waiting, session)
	b.passed[session] = true
	if len(b.waiting) == 0 {
		b.take(s)
	}
}

// awaits reports whether the marker of a session is the one that a cut waits for.
func (s *Shard) awaits(session, cut uint64) bool {
	return cut == s.barrier.id && s.barrier.waiting[session]
}

func (s *Shard) marker(session uint64, c *ps.Control) {
	if !s.awaits(session, c.Cut) {
		return
	}
	for k, v := range c.State {
		s.SetState(k, v)
	}
	s.barrier.pass(s, session)
}

// Participants returns the sessions that own a split and have not left, ascending, and the splits whose owners have left
// without settling them. A cut concerns the former and cannot be taken before the latter are taken over.
func (s *Shard) Participants() (sessions []uint64, orphans []ps.SplitID) {
	set := map[uint64]bool{}
	for id, sp := range s.splits {
		switch se := s.sessions[sp.session]; {
		case se == nil:
		case se.gone:
			orphans = append(orphans, id)
		default:
			set[sp.session] = true
		}
	}
	slices.SortFunc(orphans, func(a, b ps.SplitID) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	})
	return slices.Sorted(maps.Keys(set)), orphans
}

// orphaned reports whether the owner of a split has left without settling it, or is the given session.
func (s *Shard) orphaned(id ps.SplitID, session uint64) bool {
	sp := s.splits[id]
	if sp == nil {
		return false
	}
	se := s.sessions[sp.session]
	return se != nil && (se.gone || sp.session == session)
}

// BeginCut asks for a cut after the markers of the given sessions. Without sessions it is taken at once. A cut under way
// is abandoned. Commits behind the cut wait until it is ended, for as long as hold at most.
func (s *Shard) BeginCut(id uint64, sessions []uint64, hold time.Duration) {
	s.EndCut()
	s.barrier = barrier{id: id, hold: hold, waiting: map[uint64]bool{}, passed: map[uint64]bool{}}
	for _, se := range sessions {
		s.barrier.waiting[se] = true
	}
	if len(sessions) == 0 {
		s.barrier.take(s)
	}
}

// CutState describes the progress of a cut: cut is not nil once it is taken, disturbed says that owners have changed since it was
// begun, so that it must be begun again. It may overlap lookups.
func (s *Shard) CutState(id uint64) (cut *Cut, disturbed bool) {
	if s.barrier.id != id {
		return nil, true
	}
	return s.barrier.cut, s.barrier.disturbed
}

// TakeCut hands the cut over to the caller, who closes its tables, and ends the barrier, but for one that holds streams until [Shard.EndCut].
func (s *Shard) TakeCut(id uint64) *Cut {
	if s.barrier.id != id {
		return nil
	}
	c := s.barrier.cut
	if until := s.barrier.until; !until.IsZero() {
		s.barrier = barrier{id: id, until: until}
	} else {
		s.barrier = barrier{}
	}
	return c
}

// EndCut gives the cut under way up.
func (s *Shard) EndCut() {
	if c := s.barrier.cut; c != nil {
		s.giveUp(c)
	}
	s.barrier = barrier{}
}

// Wanted is the cut whose marker the session should send, or 0. Only shard 0 asks, which is the last to begin a cut. It
// may overlap lookups.
func (s *Shard) Wanted(session uint64) uint64 {
	if s.index == 0 && s.barrier.cut == nil && s.barrier.waiting[session] {
		return s.barrier.id
	}
	return 0
}

// Missing returns the workers that have not passed their marker, sorted. It may overlap lookups.
func (s *Shard) Missing() []string {
	var out []string
	for id := range s.barrier.waiting {
		if se := s.sessions[id]; se != nil {
			out = append(out, se.worker)
		}
	}
	slices.Sort(out)
	return out
}

// nopLocker stands for a lock that the caller has already.
type nopLocker struct{}

func (nopLocker) Lock()   {}
func (nopLocker) Unlock() {}

// close ends the copies on write of the cut's tables under l, which must exclude everything else.
func (c *Cut) close(l sync.Locker) {
	for i, t := range c.Tables {
		t.Close(l)
		if w := c.Waiting[i]; w != nil {
			w.Close(l)
		}
	}
}

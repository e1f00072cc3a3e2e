package shard

import (
	"fmt"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/score"
	"github.com/monolith-go/monolith/pipeline/position"
	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/table"
)

// split is what a shard has of a split of a source.
type split struct {
	applied ps.Progress
	staged  []*batch
	epoch   uint64
	session uint64
}

// end is the position after everything applied or staged, -1 when there is nothing.
func (sp *split) end() int64 {
	if n := len(sp.staged); n > 0 {
		return sp.staged[n-1].to
	}
	return int64(sp.applied.Position)
}

// batch is a staged update, or one that may be, kept in the shard's own memory.
type batch struct {
	from, to int64
	rows     int
	tables   []table.Update
	dense    []float32
	trace    []byte
	lr       float32
	examples int64
	// head and parts are scratch of a record of the log.
	head  []byte
	parts [][]byte
}

// after is the progress once b is applied too. An update without examples only moves the position.
func after(p ps.Progress, b *batch) ps.Progress {
	p.Position = position.Position(b.to)
	p.Rows += int64(b.rows)
	if b.rows > 0 {
		p.Batches++
	}
	return p
}

// session is a client's presence on a shard.
type session struct {
	worker string
	gone   bool // without having settled its splits
	// commits counts its updates that were applied.
	commits uint64
}

func (s *Shard) split(id ps.SplitID) *split {
	sp := s.splits[id]
	if sp == nil {
		sp = &split{applied: ps.Progress{Position: position.None}}
		s.splits[id] = sp
	}
	return sp
}

// Open makes a session known.
func (s *Shard) Open(id uint64, worker string) { s.sessions[id] = &session{worker: worker} }

// Leave ends a session. A clean one has committed everywhere whatever it had decided, so it has passed every marker; the
// splits of another must be settled by a new owner before a cut can be taken.
func (s *Shard) Leave(id uint64, clean bool) {
	se := s.sessions[id]
	switch {
	case se == nil || s.closed:
	case clean:
		delete(s.sessions, id)
		s.barrier.pass(s, id)
	default:
		se.gone = true
		s.barrier.disturbed = true
		s.forgetGone()
	}
}

// forgetGone drops sessions that left and own nothing any more.
func (s *Shard) forgetGone() {
	owns := map[uint64]bool{}
	for _, sp := range s.splits {
		owns[sp.session] = true
	}
	for id, se := range s.sessions {
		if se.gone && !owns[id] {
			delete(s.sessions, id)
		}
	}
}

// Acquire makes a session the owner of a split. Errors: [*ps.EpochError], [ps.ErrClosed].
func (s *Shard) Acquire(session uint64, id ps.SplitID, epoch uint64) (ps.SplitState, error) {
	if s.closed {
		return ps.SplitState{}, ps.ErrClosed
	}
	sp := s.split(id)
	if epoch <= sp.epoch {
		return ps.SplitState{}, &ps.EpochError{Split: id, Epoch: epoch, Current: sp.epoch}
	}
	sp.epoch, sp.session = epoch, session
	// A cut under way was begun with other owners in mind; it is begun again.
	s.barrier.disturbed = true
	s.forgetGone()
	st := ps.SplitState{Applied: sp.applied}
	p := sp.applied
	for _, b := range sp.staged {
		p = after(p, b)
		st.Staged = append(st.Staged, p)
	}
	return st, nil
}

// Stage keeps the shard's part of an update until it is committed:
//
//	to <= end            acknowledged without effect: the shard has it
//	from == end          staged; so is whatever comes first of a split
//	from > end           ErrGap
//	from < end < to      ErrOverlap
//
// Rows for it are reserved, so that committing cannot fail.
func (s *Shard) Stage(session, epoch uint64, u *param.Update) error {
	o := s.free.offer(u, len(s.tables), true)
	defer s.free.withdraw(&o)
	return s.take(session, epoch, &o)
}

// take is Stage of an offer.
func (s *Shard) take(session, epoch uint64, o *offer) error {
	sp, err := s.stageable(session, epoch, o.u, 0)
	if err != nil || sp == nil {
		return err
	}
	s.stage(sp, o)
	return nil
}

// stage keeps an update that stageable has found good.
func (s *Shard) stage(sp *split, o *offer) {
	b := o.keep()
	for t := range b.tables {
		s.reserved[t] += len(b.tables[t].Keys)
	}
	sp.staged = append(sp.staged, b)
	s.numBatch++
}

// stageable returns the split that an update can be staged for once so many of its staged batches are committed, with rows
// reserved, or nil for one that the shard has. Errors: those of Stage.
func (s *Shard) stageable(session, epoch uint64, u *param.Update, committed int) (*split, error) {
	if s.closed {
		return nil, ps.ErrClosed
	}
	if err := s.place.CheckUpdate(u, s.place.PushLen(s.index)); err != nil {
		return nil, err
	}
	if s.index != 0 && len(u.Trace) > 0 {
		return nil, fmt.Errorf("ps: shard %d: %s/%s: %d bytes of a trace, which lies on shard 0: %w", s.index, u.Source, u.Split, len(u.Trace), ps.ErrLayout)
	}
	if err := score.Check(u.Trace); err != nil {
		return nil, fmt.Errorf("ps: shard %d: %s/%s: %w: %w", s.index, u.Source, u.Split, err, ps.ErrLayout)
	}
	// The split is looked up without an entry being made: names come from outside.
	id := ps.SplitID{Source: u.Source, Split: u.Split}
	sp := s.splits[id]
	if sp == nil || sp.epoch != epoch || sp.session != session {
		return nil, fmt.Errorf("ps: shard %d: %s: %w", s.index, id, ps.ErrFenced)
	}
	switch end := sp.end(); {
	case end >= 0 && u.To <= end:
		return nil, nil
	case end >= 0 && u.From > end:
		return nil, fmt.Errorf("ps: shard %d: %s: update from %d, the shard has everything before %d: %w", s.index, id, u.From, end, ps.ErrGap)
	case end >= 0 && u.From < end:
		return nil, fmt.Errorf("ps: shard %d: %s: update from %d to %d, the shard has everything before %d: %w",
			s.index, id, u.From, u.To, end, ps.ErrOverlap)
	case len(sp.staged)-committed >= s.maxStaged:
		return nil, fmt.Errorf("ps: shard %d: %s: %d batches: %w", s.index, id, len(sp.staged), ps.ErrBusy)
	}
	for t, keys := range u.Keys {
		if err := s.tables[t].Reserve(s.reserved[t] + len(keys)); err != nil {
			return nil, fmt.Errorf("ps: shard %d: %w", s.index, err)
		}
	}
	return sp, nil
}

// drop takes the first n staged batches of a split away.
func (s *Shard) drop(sp *split, n int) {
	for _, b := range sp.staged[:n] {
		for t := range b.tables {
			s.reserved[t] -= len(b.tables[t].Keys)
		}
		s.free.give(b)
		s.numBatch--
	}
	sp.staged = append(sp.staged[:0], sp.staged[n:]...)
}

// Controls handles controls in order and returns how many it has handled. It stops before a commit that must wait for a
// cut; the caller continues once the cut is taken or abandoned. Errors: [ps.ErrGap], [ps.ErrClosed].
func (s *Shard) Controls(session uint64, ctl []ps.Control) (done int, err error) {
	if s.closed {
		return 0, ps.ErrClosed
	}
	for i := range ctl {
		c := &ctl[i]
		switch c.Kind {
		case ps.Marker:
			s.marker(session, c)
		case ps.Commit:
			if s.barrier.holds(session) {
				return i, nil
			}
			if err := s.commit(session, c); err != nil {
				return i, err
			}
		case ps.Abort:
			if sp := s.splits[c.Split]; sp != nil && sp.epoch == c.Epoch && sp.session == session {
				s.drop(sp, len(sp.staged))
			}
		}
	}
	return len(ctl), nil
}

// takes reports whether commits of different splits, and the update behind them, will be handled without an error and at once. sp
// is as stageable returns it.
func (s *Shard) takes(session uint64, ctl []ps.Control, epoch uint64, u *param.Update) (sp *split, ok bool) {
	committed := 0
	for i := range ctl {
		c := &ctl[i]
		if c.Kind != ps.Commit || s.barrier.holds(session) {
			return nil, false
		}
		for j := range i {
			if ctl[j].Split == c.Split {
				return nil, false
			}
		}
		_, n, err := s.committable(session, c)
		if err != nil {
			return nil, false
		}
		if c.Split.Source == u.Source && c.Split.Split == u.Split {
			committed += n
		}
	}
	sp, err := s.stageable(session, epoch, u, committed)
	return sp, err == nil
}

// committable returns how many staged batches of a split a commit is about; none where it has no effect.
func (s *Shard) committable(session uint64, c *ps.Control) (sp *split, n int, err error) {
	sp = s.splits[c.Split]
	if sp == nil || sp.epoch != c.Epoch || sp.session != session || c.To <= int64(sp.applied.Position) {
		return sp, 0, nil
	}
	for n < len(sp.staged) && sp.staged[n].to <= c.To {
		n++
	}
	if n == 0 || sp.staged[n-1].to != c.To {
		return sp, 0, fmt.Errorf("ps: shard %d: %s: commit to %d, applied is %d and staged %d batches to %d: %w",
			s.index, c.Split, c.To, sp.applied.Position, len(sp.staged), sp.end(), ps.ErrGap)
	}
	return sp, n, nil
}

func (s *Shard) commit(session uint64, c *ps.Control) error {
	sp, n, err := s.committable(session, c)
	if err != nil || n == 0 {
		return err
	}
	s.changes++
	for _, b := range sp.staged[:n] {
		s.apply(c.Split, b)
		// Invariant 1: the position moves with the rows, under one lock.
		sp.applied = after(sp.applied, b)
	}
	s.drop(sp, n)
	s.commits += uint64(n)
	if se := s.sessions[session]; se != nil {
		se.commits += uint64(n)
	}
	return nil
}

func (s *Shard) apply(id ps.SplitID, b *batch) {
	_ = s.trace.Add(b.trace) // checked when it was staged
	_ = s.totals.Add(b.trace)
	if s.retained != nil {
		// The rows are as old as they were when the batch was looked up: it moves the clock afterwards.
		time, draw := s.clock.next(b.tables[0].Time, &s.rules), param.Mix(param.HashName(id.Source, id.Split), uint64(b.to))
		for t := range b.tables {
			b.tables[t].Time, b.tables[t].Draw = time, draw
		}
		defer s.tellTime()
	}
	for t := range b.tables {
		if len(b.tables[t].Keys) > 0 {
			s.tables[t].Apply(b.tables[t])
		}
	}
	if len(b.dense) == 0 {
		return
	}
	s.version++
	s.updateDense(b)
}

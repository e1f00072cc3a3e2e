package shard

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps"
)

// LogRecord is a record of the write-ahead log.
type LogRecord struct {
	Kind    byte
	Payload []byte
}

// LogRecords are those of a session that takes a split over, stages, commits, stages, aborts, stages an edit and leaves.
func LogRecords(u *param.Update) []LogRecord {
	id := ps.SplitID{Source: u.Source, Split: u.Split}
	owner := func() []byte { return appendOwner(nil, 7, id, 1) }
	head, parts := appendUpdate(owner(), nil, u)
	_ = head
	e := *u
	e.Op, e.From, e.To, e.NumRows, e.Dense, e.Trace = param.AssignAdd, u.To, u.To+1, 0, nil, nil
	_, edit := appendUpdate(appendU64(owner(), uint64(e.Op)), nil, &e)
	return []LogRecord{
		{recGeneration, appendU64(appendU64(appendU64(nil, 3), 2), 1)},
		{recOwner, appendText(owner(), "worker")},
		{recStage, slices.Concat(parts...)},
		{recCommit, appendU64(owner(), uint64(u.To))},
		{recStage, slices.Concat(parts...)},
		{recAbort, owner()},
		{recEdit, slices.Concat(edit...)},
		{recState, append(appendText(appendU64(nil, 1), "key"), "value"...)},
		{recState, appendText(appendU64(nil, 0), "key")},
		{recTerm, appendU64(nil, 2)},
		{recLeave, appendU64(nil, 7)},
	}
}

// ApplyRecords applies records to an empty shard.
func ApplyRecords(l *param.Layout, records []LogRecord) (*Shard, error) {
	s, err := New(l, 0, 1, math.MaxInt, nil)
	if err != nil {
		return nil, err
	}
	d := logDecoder{shard: s}
	for _, r := range records {
		if err := d.apply(r.Kind, r.Payload); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Staged returns what a session has staged first of a split, or nil.
func (s *Shard) Staged(id ps.SplitID) *param.Update {
	sp := s.splits[id]
	if sp == nil || len(sp.staged) == 0 {
		return nil
	}
	u := &param.Update{}
	sp.staged[0].update(u, id)
	return u
}

// Generation is that of the node's state.
func (n *Node) Generation() uint64 {
	st, _ := n.Status(context.Background())
	return st.Generation
}

// FreeCopies is how many copies of updates there are that no shard has staged.
func (n *Node) FreeCopies() int {
	n.free.mu.Lock()
	defer n.free.mu.Unlock()
	return len(n.free.free)
}

// ForgetLater returns what the timer of a consumer calls when it has not asked for long, as late as it may come. It has not.
func (n *Node) ForgetLater(name string) func() {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.consumers[name]
	return func() {
		c.mu.Lock()
		c.asked = time.Time{}
		c.mu.Unlock()
		n.forget(c)
	}
}

// CutSpaceRows are of how many rows the tables want to have spaces before the next cut.
func (n *Node) CutSpaceRows() (rows int) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for _, t := range n.shard.mems() {
		rows += t.WantsCutSpace()
	}
	return rows
}

package ps

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/monolith-go/monolith/model/param"
)

// Look restores the shards if they need one, as the watch does from time to time.
func (c *Cluster) Look() error { return c.look() }

// Generation is that of the node's state.
func (n *Node) Generation() uint64 {
	st, _ := n.Status(context.Background())
	return st.Generation
}

// HoldFor is how long a coordinator that was started again waits for claims.
const HoldFor = holdFor

// Group is what a coordinator knows of its members.
type Group struct{ g *group }

func NewGroup(lease, grace time.Duration, now func() time.Time) Group {
	g := newGroup(lease, grace)
	g.now = now
	return Group{g}
}

func (g Group) Begin(generation uint64, held bool) { g.g.begin(generation, held) }
func (g Group) Join(o JoinOptions) uint64          { id, _ := g.g.join(o); return id }
func (g Group) Report(id uint64, r Report) error   { return g.g.report(id, r) }
func (g Group) Leave(id uint64) bool               { return g.g.leave(id) }
func (g Group) Expire() []string                   { return g.g.expire() }
func (g Group) Taken(snapshot uint64)              { g.g.taken(snapshot) }
func (g Group) Close()                             { g.g.close() }

// Task is what a member is asked to do now.
func (g Group) Task(id uint64) (Assignment, error) {
	return g.g.wait(context.Background(), id, 0, time.Hour)
}

func (g Group) Wait(ctx context.Context, id, have uint64, atMost time.Duration) (Assignment, error) {
	return g.g.wait(ctx, id, have, atMost)
}

// LogRecord is a record of the write-ahead log.
type LogRecord struct {
	Kind    byte
	Payload []byte
}

// LogRecords are those of a session that takes a split over, stages, commits, stages, aborts and leaves.
func LogRecords(u *param.Update) []LogRecord {
	id := SplitID{Source: u.Source, Split: u.Split}
	owner := func() []byte { return appendOwner(nil, 7, id, 1) }
	head, parts := appendUpdate(owner(), nil, u)
	_ = head
	return []LogRecord{
		{recGeneration, appendU64(appendU64(nil, 3), 2)},
		{recOwner, appendText(owner(), "worker")},
		{recStage, slices.Concat(parts...)},
		{recCommit, appendU64(owner(), uint64(u.To))},
		{recStage, slices.Concat(parts...)},
		{recAbort, owner()},
		{recState, append(appendText(appendU64(nil, 1), "key"), "value"...)},
		{recState, appendText(appendU64(nil, 0), "key")},
		{recLeave, appendU64(nil, 7)},
	}
}

// ApplyRecords applies records to an empty shard.
func ApplyRecords(l *param.Layout, records []LogRecord) (*Shard, error) {
	s, err := NewShard(l, 0, 1, math.MaxInt, nil)
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
func (s *Shard) Staged(id SplitID) *param.Update {
	sp := s.splits[id]
	if sp == nil || len(sp.staged) == 0 {
		return nil
	}
	u := &param.Update{}
	sp.staged[0].update(u, id)
	return u
}

// Passed is how many sessions have passed their marker of the cut under way.
func (n *Node) Passed() int {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return len(n.shard.barrier.passed)
}

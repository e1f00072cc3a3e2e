package coordinator

import (
	"context"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// EnsureState restores the shards if they need that, as the watch does from time to time.
func (c *Cluster) EnsureState() error { return c.ensureState() }

// Interrupts does what the watch does that has seen, in the state of a generation, that the shards need another one, until it has the turn, which it gives back.
func (c *Cluster) Interrupts(ctx context.Context, generation uint64, why error) (bool, error) {
	ok, err := c.takeTurnFrom(ctx, generation, why)
	if ok {
		<-c.turn
	}
	return ok, err
}

// Hold takes the turn, as a snapshot does, and returns what gives it back.
func (c *Cluster) Hold() (release func()) {
	c.turn <- struct{}{}
	return func() { <-c.turn }
}

// OnGiveUp says what interrupts a snapshot.
func (c *Cluster) OnGiveUp(f context.CancelCauseFunc) { c.onGiveUp(f) }

// UnderWay reports whether a snapshot is.
func (c *Cluster) UnderWay() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.giveUp != nil
}

// SoonRound is how long a round of scaling takes, at most, after which commits wait for the next one.
const SoonRound = soonRound

// HoldFor is how long a coordinator that was started again waits for claims.
const HoldFor = holdFor

// Failures counts snapshots that have failed.
type Failures struct{ f failures }

func (f *Failures) Add(err error, now time.Time) bool { return f.f.add(err, now) }
func (f *Failures) Counts() (inARow, unsafe int)      { return f.f.inARow, f.f.unsafe }

// Group is what a coordinator knows of its members.
type Group struct{ g *group }

func NewGroup(lease, grace time.Duration, now func() time.Time) Group {
	g := newGroup(lease, grace)
	g.now = now
	return Group{g}
}

func (g Group) Begin(generation uint64, held bool)  { g.g.begin(generation, held) }
func (g Group) Join(o ps.JoinOptions) uint64        { id, _ := g.g.join(o); return id }
func (g Group) Report(id uint64, r ps.Report) error { return g.g.report(id, r) }
func (g Group) Leave(id uint64) bool                { return g.g.leave(id) }
func (g Group) Expire() []string                    { return g.g.expire() }
func (g Group) Taken(snapshot uint64)               { g.g.taken(snapshot) }
func (g Group) Close()                              { g.g.close() }
func (g Group) Leads(id uint64) error               { return g.g.leads(id) }
func (g Group) Owns(id uint64, split string) error  { return g.g.owns(id, split) }

// Task is what a member is asked to do now.
func (g Group) Task(id uint64) (ps.Assignment, error) {
	return g.g.wait(context.Background(), id, 0, time.Hour)
}

func (g Group) Wait(ctx context.Context, id, have uint64, atMost time.Duration) (ps.Assignment, error) {
	return g.g.wait(ctx, id, have, atMost)
}

// ReadAddrs returns the addresses of a file with the shards'.
func ReadAddrs(b []byte) ([]string, error) {
	d, err := readAddrs(b)
	return d.Addrs, err
}

// ReportRows tells the hooks how large tables are.
func (c *Cluster) ReportRows(had int) int { return c.reportRows(had) }

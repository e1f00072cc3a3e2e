package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// sameTask reports whether two assignments ask for the same.
func sameTask(a, b *ps.Assignment) bool {
	return a.Generation == b.Generation && a.Phase == b.Phase && a.Task == b.Task && a.Leader == b.Leader && slices.Equal(a.Splits, b.Splits)
}

// group shares the splits of one source among members and assigns them work. Its methods may overlap.
//
// A split that is taken from a member goes to another only once the first has reported that it does not push to it any more,
// or has been silent for the length of the lease: then it is fenced by the shards when it comes back, and notified here.
type group struct {
	lease, grace time.Duration
	now          func() time.Time
	// nonce is in the upper half of the members' numbers, so that those of another group are known.
	nonce uint64

	mu         sync.Mutex
	members    map[uint64]*member
	joined     uint64 // orders members by age
	generation uint64
	phase      uint64
	finished   bool
	single     bool
	splits     map[string]*splitState
	version    uint64
	wake       chan struct{} // closed, and replaced, by every change
	snapshot   uint64
	// hold, if not zero, is until when splits that nobody claims are kept back: members of a coordinator that was started
	// again are on their way to claim theirs.
	hold   time.Time
	closed bool
}

type member struct {
	id, order uint64
	worker    string
	sees      map[string]bool // splits
	lastSeen  time.Time       // when it was last seen
	lost      time.Time       // when its connection broke; zero: it is there
	asked     ps.Assignment
	waiting   int // calls of wait under way
	// delegation is replaced, never changed.
	delegation ps.Delegation
}

type splitState struct {
	owner, next uint64 // members; 0: nobody. next is who gets it once owner releases it
	told        bool   // owner has been notified, so it may work on it
	done        bool
}

func newGroup(lease, grace time.Duration) *group {
	return &group{
		lease: lease, grace: grace, now: time.Now, nonce: ps.NewID() << 32, members: map[uint64]*member{}, splits: map[string]*splitState{}, wake: make(chan struct{}),
	}
}

// maxTasks is how many tasks of delegated work may be told to have ended: memory is not a stranger's to take.
const maxTasks = 1 << 20

// holdFor is how long a coordinator that was started again waits for members to claim their splits.
const holdFor = 2 * time.Second

// begin reports whether the shards have a state of a generation. Of another than before, everything starts over; held says that
// there may be members who work on it already.
func (g *group) begin(generation uint64, held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.generation == generation {
		return
	}
	g.generation, g.finished, g.hold = generation, false, time.Time{}
	if held {
		g.hold = g.now().Add(holdFor)
	}
	for _, s := range g.splits {
		*s = splitState{}
	}
	g.share()
}

// join makes a worker a member, and reports whether it takes another's place.
func (g *group) join(o ps.JoinOptions) (id uint64, replaced bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, m := range g.members {
		if m.worker == o.Worker {
			g.remove(id)
			replaced = true
		}
	}
	g.joined++
	m := &member{id: g.nonce | g.joined, order: g.joined, worker: o.Worker, sees: map[string]bool{}, lastSeen: g.now(), delegation: o.Delegation}
	g.members[m.id] = m
	g.single = g.single || o.Single
	for _, s := range o.Splits {
		m.sees[s] = true
		if g.splits[s] == nil {
			g.splits[s] = &splitState{}
		}
	}
	g.claim(m, &o.Report)
	// A job that is over may be begun again: the source may have grown.
	if g.finished && len(g.members) == 1 {
		g.finished = false
		for _, s := range g.splits {
			s.done = false
		}
	}
	g.share()
	return m.id, replaced
}

// claim takes what a member says of the time before the coordinator was started again.
func (g *group) claim(m *member, r *ps.Report) {
	if r.Generation != g.generation || r.Generation == 0 {
		return
	}
	phase, done := r.Phase, r.Done
	if r.Concluded { // the coordinator before may have died before it reported
		phase, done = r.Phase+1, nil
	}
	if phase > g.phase { // others do not know it yet: what they have read they read in the phase before
		g.phase = phase
		g.finished = r.Finished
		for _, s := range g.splits {
			s.done = false
		}
	}
	for name, s := range g.splits {
		// Whatever the phase, it may still push to these.
		if s.owner == 0 && m.sees[name] && slices.Contains(r.Owned, name) {
			s.owner, s.next, s.told = m.id, m.id, true
		}
		if phase == g.phase && slices.Contains(done, name) {
			s.done = true
		}
	}
}

// remove forgets a member; its splits are free.
func (g *group) remove(id uint64) {
	delete(g.members, id)
	for _, s := range g.splits {
		if s.owner == id {
			s.owner = 0
		}
		if s.next == id {
			s.next = 0
		}
	}
}

// of returns a member. Errors: [ps.ErrFenced].
func (g *group) of(id uint64) (*member, error) {
	if g.closed {
		return nil, ps.ErrClosed
	}
	m := g.members[id]
	if m == nil && id&^(1<<32-1) != g.nonce {
		return nil, ps.ErrRejoin
	}
	if m == nil {
		return nil, fmt.Errorf("ps: this worker was replaced, by one of the same name or because it was silent for longer than %v: %w", g.lease, ps.ErrFenced)
	}
	m.lastSeen, m.lost = g.now(), time.Time{}
	return m, nil
}

// leads returns nil for the member that speaks for all. Errors: [ps.ErrFenced] for others, [ps.ErrRejoin], [ps.ErrClosed].
func (g *group) leads(id uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, err := g.of(id)
	if err == nil && !m.asked.Leader {
		err = fmt.Errorf("ps: worker %s does not lead the workers: %w", m.worker, ps.ErrFenced)
	}
	return err
}

// owns returns nil for the member that works on a split. Errors: [ps.ErrFenced] for others, [ps.ErrRejoin], [ps.ErrClosed].
func (g *group) owns(id uint64, split string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, err := g.of(id)
	if s := g.splits[split]; err == nil && (s == nil || s.owner != id) {
		err = fmt.Errorf("ps: worker %s does not own the split %q: %w", m.worker, split, ps.ErrFenced)
	}
	return err
}

// wait returns the member's assignment as soon as it is newer than have, or after a while as it is. A caller that goes
// away meanwhile has lost its connection.
func (g *group) wait(ctx context.Context, id, have uint64, atMost time.Duration) (ps.Assignment, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for {
		m, err := g.of(id)
		if err != nil {
			return ps.Assignment{}, err
		}
		if m.asked.Version > have {
			return g.answer(m), nil
		}
		wake := g.wake
		m.waiting++
		g.mu.Unlock()
		late := false
		select {
		case <-wake:
		case <-timer.C:
			late = true
		case <-ctx.Done():
		}
		g.mu.Lock()
		m.waiting--
		switch {
		case ctx.Err() != nil:
			if m.waiting == 0 && m.lost.IsZero() {
				m.lost = g.now()
			}
			return ps.Assignment{}, context.Cause(ctx)
		case late:
			if m, err = g.of(id); err != nil {
				return ps.Assignment{}, err
			}
			return g.answer(m), nil
		}
	}
}

func (g *group) answer(m *member) ps.Assignment {
	a := m.asked
	for _, name := range a.Splits {
		g.splits[name].told = true
	}
	a.Snapshot, a.Members, a.Delegation = g.snapshot, len(g.members), m.delegation
	return a
}

// follow returns how the delegated work of a worker is to end, as soon as it is not have, or after a while as it is. ended are tasks
// that have ended; with such it returns at once. ok is false when there is no such worker or it delegates something else.
func (g *group) follow(ctx context.Context, worker, run string, have ps.Ending, ended []int, atMost time.Duration) (_ ps.Ending, ok bool, _ error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	for late := len(ended) > 0; ; {
		if g.closed {
			return 0, false, ps.ErrClosed
		}
		var m *member
		for _, other := range g.members {
			if other.worker == worker {
				m = other
			}
		}
		if m == nil || m.delegation.Run != run {
			return 0, false, nil
		}
		if len(ended) > 0 {
			d := m.delegation
			if len(d.Ended) > maxTasks { // there is no such job
				return 0, false, fmt.Errorf("ps: more than %d tasks of %s have ended: %w", maxTasks, run, ps.ErrMismatch)
			}
			d.Ended = slices.Concat(d.Ended, ended)
			slices.Sort(d.Ended)
			d.Ended, ended = slices.Compact(d.Ended), nil
			m.delegation = d
			g.wakeUp()
		}
		if late || m.delegation.Ending != have {
			return m.delegation.Ending, true, nil
		}
		wake := g.wake
		g.mu.Unlock()
		select {
		case <-wake:
		case <-timer.C:
			late = true
		case <-ctx.Done():
		}
		g.mu.Lock()
		if ctx.Err() != nil {
			return 0, false, context.Cause(ctx)
		}
	}
}

func (g *group) report(id uint64, r ps.Report) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	m, err := g.of(id)
	if err != nil {
		return err
	}
	if len(r.Splits) > 0 {
		for _, name := range r.Splits {
			m.sees[name] = true
			if g.splits[name] == nil {
				g.splits[name] = &splitState{}
			}
		}
		g.share()
		return nil
	}
	if d := r.Delegates; d != nil {
		next := ps.Delegation{Run: d.Run, Ending: d.Ending}
		if d.Run == m.delegation.Run {
			next.Ended = m.delegation.Ended
		}
		m.delegation = next
		g.wakeUp()
		return nil
	}
	if r.Generation != g.generation || r.Phase != g.phase {
		return nil // of a state that is no more
	}
	for name, s := range g.splits {
		if s.owner == m.id && !slices.Contains(r.Owned, name) {
			s.owner = 0
		}
		if slices.Contains(r.Done, name) {
			s.done = true
		}
	}
	if r.Concluded && m.asked.Task == ps.Conclude {
		g.phase++
		g.finished = r.Finished
		for _, s := range g.splits {
			*s = splitState{}
		}
	}
	g.share()
	return nil
}

// leave ends a membership in order and reports whether it was the last. Nobody is while members may be on their way.
func (g *group) leave(id uint64) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(id)
	g.share()
	return len(g.members) == 0 && g.hold.IsZero()
}

// taken reports a snapshot.
func (g *group) taken(number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.snapshot = number
	g.wakeUp()
}

func (g *group) wakeUp() {
	close(g.wake)
	g.wake = make(chan struct{})
}

func (g *group) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.wakeUp()
}

func (g *group) expire() (gone []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	for id, m := range g.members {
		if m.waiting > 0 && m.lost.IsZero() {
			m.lastSeen = now // it is listening
		}
		if now.Sub(m.lastSeen) > g.lease || !m.lost.IsZero() && now.Sub(m.lost) > g.grace {
			gone = append(gone, m.worker)
			g.remove(id)
		}
	}
	held := !g.hold.IsZero() && now.After(g.hold)
	if held {
		g.hold = time.Time{}
	}
	if len(gone) > 0 || held {
		g.share()
	}
	return gone
}

// share decides who works on what. It is called after every change, with the lock.
func (g *group) share() {
	members := slices.SortedFunc(maps.Values(g.members), func(a, b *member) int { return int(a.order) - int(b.order) })
	open := g.deal(members)
	for i, m := range members {
		a := ps.Assignment{Generation: g.generation, Phase: g.phase, Leader: i == 0, Version: m.asked.Version}
		for name, s := range g.splits {
			if s.owner == m.id && s.next == m.id {
				a.Splits = append(a.Splits, name)
			}
		}
		slices.Sort(a.Splits)
		switch {
		case g.generation == 0:
		case g.finished:
			a.Task = ps.Finished
		case len(a.Splits) > 0:
			a.Task = ps.Work
		case !open && i == 0 && len(g.splits) > 0:
			a.Task = ps.Conclude
		}
		if !sameTask(&a, &m.asked) || a.Version == 0 {
			g.version++
			a.Version = g.version
			m.asked = a
		}
	}
	g.wakeUp()
}

// deal gives every split that is not done a next owner, evenly and with as few changes as possible, and hands over those
// that nobody holds. It reports whether there is still something to read.
func (g *group) deal(members []*member) (open bool) {
	g.forget(members)
	names := slices.SortedFunc(maps.Keys(g.splits), strings.Compare)
	left := names[:0]
	for _, name := range names {
		s := g.splits[name]
		// Where one works alone, what it does not see waits until another one does that.
		blind := g.single && len(members) > 0 && !members[0].sees[name]
		if (s.done || blind) && s.owner == 0 {
			s.next = 0
			continue
		}
		open = true
		left = append(left, name)
	}
	if len(members) == 0 || g.finished {
		for _, name := range left {
			g.splits[name].next = 0
		}
		return open
	}
	workers := members
	if g.single {
		workers = members[:1]
	}
	has := make(map[uint64]int, len(workers))
	for _, name := range left {
		s := g.splits[name]
		if s.next == 0 && s.owner != 0 {
			s.next = s.owner
		}
		has[s.next]++
	}
	// Those who have the most get what does not divide evenly, so that nothing moves for it.
	workers = slices.Clone(workers)
	slices.SortStableFunc(workers, func(a, b *member) int { return has[b.id] - has[a.id] })
	quota := make(map[uint64]int, len(workers))
	for i, m := range workers {
		quota[m.id] = len(left) / len(workers)
		if i < len(left)%len(workers) {
			quota[m.id]++
		}
	}
	var free []string
	for _, name := range left {
		s := g.splits[name]
		if quota[s.next] > 0 {
			quota[s.next]--
			continue
		}
		if s.owner != 0 && !s.told {
			s.owner = 0 // nobody was notified of it, so nobody has to release it
		}
		free = append(free, name)
	}
	for _, name := range free {
		// The member that sees it and has the most room; where all who see it have their share, one of them gets more.
		var to *member
		for _, m := range workers {
			if m.sees[name] && (to == nil || quota[m.id] > quota[to.id]) {
				to = m
			}
		}
		if to == nil {
			g.splits[name].next = 0
			continue
		}
		quota[to.id]--
		g.splits[name].next = to.id
	}
	if !g.hold.IsZero() {
		return true
	}
	for _, name := range left {
		if s := g.splits[name]; s.owner == 0 {
			s.owner, s.told = s.next, false
		}
	}
	return open
}

// forget drops splits that no member sees: the member that named them is gone, or has made them up.
func (g *group) forget(members []*member) {
	if len(members) == 0 {
		return
	}
	for name, s := range g.splits {
		sees := func(m *member) bool { return m.sees[name] }
		if s.owner == 0 && !slices.ContainsFunc(members, sees) {
			delete(g.splits, name)
		}
	}
}

// Join makes a worker a member: it is given splits to work on. Errors: [ps.ErrMismatch] when others read the source by another
// plan, or the name is that of a worker of another source; [ps.ErrNotReady], [ps.ErrClosed].
func (c *Cluster) Join(_ context.Context, o ps.JoinOptions) (member uint64, err error) {
	if err := c.Ready(); err != nil {
		return 0, err
	}
	id, replaced, err := c.groups.join(o)
	if err != nil {
		return 0, err
	}
	if replaced {
		c.first.Forsake(o.Worker)
	}
	c.opts.Logger.Debug("worker joined", "source", o.Source, "worker", o.Worker, "splits", len(o.Splits))
	return id, nil
}

// Await returns a member's assignment as soon as its version is above have, or after a second as it is. A member calls it
// all the time: one that has not called for the length of [Options].Lease is replaced. Errors: [ps.ErrFenced] when it was
// replaced, [ps.ErrClosed], the context's.
func (c *Cluster) Await(ctx context.Context, member, have uint64) (ps.Assignment, error) {
	g, err := c.groups.of(member)
	if err != nil {
		return ps.Assignment{}, err
	}
	a, err := g.wait(ctx, member, have, min(time.Second, c.opts.Lease/4))
	if err != nil {
		return a, err
	}
	progress, err := c.first.Progress(ctx)
	for _, p := range progress {
		a.Rows += p.Rows
	}
	return a, err
}

// Report takes what a member says of itself. Errors: [ps.ErrFenced], [ps.ErrClosed].
func (c *Cluster) Report(_ context.Context, member uint64, r ps.Report) error {
	g, err := c.groups.of(member)
	if err != nil {
		return err
	}
	return g.report(member, r)
}

// Follow returns how the work is to end that a worker delegates under a name, as soon as that is not have, or after a second as it
// is. The executors of that work call it all the time. ended are tasks whose executors have ended in order, by number; with such it
// returns at once. Errors: [ps.ErrFenced] when there is no such worker, or it delegates something else: its executors must stop, unless it
// comes back soon; [ps.ErrClosed], the context's.
func (c *Cluster) Follow(ctx context.Context, worker, run string, have ps.Ending, ended []int) (ps.Ending, error) {
	for _, g := range c.groups.all() {
		if how, ok, err := g.follow(ctx, worker, run, have, ended, min(time.Second, c.opts.Lease/4)); ok || err != nil {
			return how, err
		}
	}
	return 0, fmt.Errorf("ps: worker %s does not run %s, or is gone: %w", worker, run, ps.ErrFenced)
}

// Leave ends a membership and reports whether it was the last of its source. Its splits must have been released.
func (c *Cluster) Leave(_ context.Context, member uint64) (last bool, err error) {
	g, err := c.groups.of(member)
	if err != nil {
		return c.groups.empty(), nil //nolint:nilerr // a process that is no member has left
	}
	return g.leave(member), nil
}

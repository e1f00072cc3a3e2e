package coordinator_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/ps"
	"github.com/monolith-go/monolith/ps/coordinator"
)

// actor is a member as it sees itself.
type actor struct {
	id      uint64
	worker  string
	a       ps.Assignment
	version uint64          // of a, of this coordinator
	owned   map[string]bool // may be pushed to
	done    map[string]bool
	home    int // which coordinator it is a member of
}

func (x *actor) report() ps.Report {
	return ps.Report{
		Generation: x.a.Generation, Phase: x.a.Phase, Owned: slices.Sorted(maps.Keys(x.owned)), Done: slices.Sorted(maps.Keys(x.done)),
	}
}

// take takes a new assignment up: splits that are not in it any more are released with the next report.
func (x *actor) take(a ps.Assignment) {
	if a.Generation != x.a.Generation || a.Phase != x.a.Phase {
		x.owned, x.done = map[string]bool{}, map[string]bool{}
	}
	x.a = a
	for _, s := range a.Splits {
		x.owned[s] = true
	}
}

// drop releases what is not assigned.
func (x *actor) drop() {
	for s := range x.owned {
		if !slices.Contains(x.a.Splits, s) || x.done[s] {
			delete(x.owned, s)
		}
	}
}

// groupModel plays members against a group and checks what must hold whatever they do.
type groupModel struct {
	t          *testing.T
	g          coordinator.Group
	c          *clock
	rng        *rand.Rand
	single     bool
	splits     []string
	generation uint64
	home       int
	born       time.Time // of this coordinator
	actors     []*actor
	// read is what has been read to its end and reported in this generation and phase.
	read     map[string]bool
	phase    uint64
	finished bool
	names    int
	seen     map[string]int
}

func (m *groupModel) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nsplits %q read %v", fmt.Sprintf(format, args...), m.splits, slices.Sorted(maps.Keys(m.read)))
}

// forget takes a member out of the model.
func (m *groupModel) forget(x *actor) {
	m.actors = slices.DeleteFunc(m.actors, func(y *actor) bool { return x == y })
}

func (m *groupModel) join(name string, r ps.Report) *actor {
	for _, y := range slices.Clone(m.actors) {
		if y.worker == name && y.home == m.home {
			m.forget(y)
			if _, err := m.g.Task(y.id); err != nil {
				m.fatal("member %s before it is replaced: %v", name, err)
			}
			defer func() {
				if _, err := m.g.Task(y.id); !errors.Is(err, ps.ErrFenced) {
					m.fatal("member %s after it was replaced: %v", name, err)
				}
			}()
		}
	}
	if m.finished && len(m.members()) == 0 {
		m.finished, m.read = false, map[string]bool{}
	}
	id := m.g.Join(ps.JoinOptions{Worker: name, Single: m.single, Splits: m.splits, Report: r})
	x := &actor{id: id, worker: name, owned: map[string]bool{}, done: map[string]bool{}, home: m.home}
	m.actors = append(m.actors, x)
	return x
}

// members are those that the coordinator knows, oldest first.
func (m *groupModel) members() (out []*actor) {
	for _, x := range m.actors {
		if x.home == m.home {
			out = append(out, x)
		}
	}
	return out
}

func (m *groupModel) poll(x *actor) {
	a, err := m.g.Task(x.id)
	if x.home != m.home {
		if !errors.Is(err, ps.ErrRejoin) {
			m.fatal("%s, a member of an earlier coordinator: %v, want ErrRejoin", x.worker, err)
		}
		m.seen["rejoined"]++
		m.forget(x)
		r := x.report()
		y := m.join(x.worker, r)
		y.a, y.done = x.a, x.done
		if m.c.t.Sub(m.born) <= coordinator.HoldFor { // otherwise another else may have them, and the shards fence it
			y.owned = x.owned
		}
		if r.Generation == m.generation && r.Phase >= m.phase {
			if r.Phase > m.phase {
				m.phase, m.read = r.Phase, map[string]bool{}
			}
			for s := range x.done {
				m.read[s] = true
			}
		}
		return
	}
	if err != nil {
		m.fatal("%s: %v", x.worker, err)
	}
	if a.Version < x.version {
		m.fatal("%s: version %d after %d", x.worker, a.Version, x.a.Version)
	}
	x.version = a.Version
	x.take(a)
}

func (m *groupModel) report(x *actor, r ps.Report) {
	if err := m.g.Report(x.id, r); err != nil {
		m.fatal("report of %s: %v", x.worker, err)
	}
	if r.Generation == m.generation && r.Phase == m.phase {
		for _, s := range r.Done {
			m.read[s] = true
		}
	}
}

// check checks what holds at every moment.
func (m *groupModel) check() {
	m.t.Helper()
	holder := map[string]string{}
	for _, x := range m.actors {
		if x.home != m.home && m.c.t.Sub(m.born) > coordinator.HoldFor {
			clear(x.owned) // it has not come back to the new coordinator in time: the shards fence it
		}
		if x.a.Generation != m.generation {
			continue
		}
		for s := range x.owned {
			if y, ok := holder[s]; ok {
				m.fatal("split %s is with %s and %s", s, x.worker, y)
			}
			holder[s] = x.worker
		}
	}
	leaders := 0
	for i, x := range m.members() {
		a, err := m.g.Task(x.id)
		if err != nil {
			m.fatal("%s: %v", x.worker, err)
		}
		if a.Leader {
			leaders++
		}
		if a.Leader != (i == 0) || a.Members != len(m.members()) || a.Generation != m.generation || a.Phase != m.phase {
			m.fatal("member %d of %d: %+v, generation %d phase %d", i, len(m.members()), a, m.generation, m.phase)
		}
		for _, s := range a.Splits {
			if y, ok := holder[s]; ok && y != x.worker {
				m.fatal("split %s is given to %s while %s has it", s, x.worker, y)
			}
		}
		switch a.Task {
		case ps.Conclude:
			m.seen["conclude"]++
			if !a.Leader || len(m.read) != len(m.splits) || len(a.Splits) > 0 {
				m.fatal("%s is asked to conclude, leader %v, with %d splits of %d read", x.worker, a.Leader, len(m.read), len(m.splits))
			}
		case ps.Finished:
			if !m.finished {
				m.fatal("%s is told that the job is over", x.worker)
			}
		}
	}
	if leaders > 1 || leaders == 0 && len(m.members()) > 0 {
		m.fatal("%d leaders", leaders)
	}
}

// quiet lets everybody do what he is asked to until nothing changes, and checks that all work is dealt out then.
func (m *groupModel) quiet() {
	m.t.Helper()
	for _, x := range slices.Clone(m.actors) {
		if x.home != m.home {
			m.poll(x)
		}
	}
	if m.c.t.Sub(m.born) <= coordinator.HoldFor {
		m.c.t = m.c.t.Add(coordinator.HoldFor + 1)
		m.check() // everybody is seen
		if gone := m.g.Expire(); len(gone) > 0 {
			m.fatal("%q are gone", gone)
		}
	}
	for range 4 {
		for _, x := range m.members() {
			m.poll(x)
			for s := range x.owned {
				x.done[s] = x.done[s] || m.read[s] // it finds nothing more to read
				if !x.done[s] {
					delete(x.done, s)
				}
			}
			x.drop()
			m.report(x, x.report())
		}
	}
	members := m.members()
	if len(members) == 0 || m.finished {
		return
	}
	got, most, least := map[string]bool{}, 0, len(m.splits)
	for i, x := range members {
		m.poll(x)
		for _, s := range x.a.Splits {
			got[s] = true
		}
		if m.single && i > 0 && len(x.a.Splits) > 0 {
			m.fatal("%s has splits although one member alone works", x.worker)
		}
		most, least = max(most, len(x.a.Splits)), min(least, len(x.a.Splits))
	}
	for _, s := range m.splits {
		if got[s] == m.read[s] {
			m.fatal("when all is quiet: split %s is read: %v, dealt out: %v", s, m.read[s], got[s])
		}
	}
	if !m.single && most > least+1 {
		m.fatal("when all is quiet: somebody has %d splits and somebody %d", most, least)
	}
	if len(m.read) == len(m.splits) && members[0].a.Task != ps.Conclude {
		m.fatal("all is read and %s is asked to %v", members[0].worker, members[0].a.Task)
	}
}

func (m *groupModel) step() {
	var x *actor
	if n := len(m.actors); n > 0 {
		x = m.actors[m.rng.IntN(n)]
	}
	op := m.rng.IntN(100)
	switch {
	case x == nil || op < 6 && len(m.actors) < 6:
		m.names++
		m.join(fmt.Sprint("w", m.names), ps.Report{})
	case op < 9:
		m.poll(m.join(x.worker, ps.Report{})) // it was started again
	case op < 35:
		m.poll(x)
	case x.home != m.home:
	case op < 55:
		x.drop()
		m.report(x, x.report())
	case op < 75:
		// Something is read to its end.
		for s := range x.owned {
			x.done[s] = true
			break
		}
		if m.rng.IntN(2) == 0 {
			x.drop()
		}
		m.report(x, x.report())
	case op < 78:
		m.forget(x)
		last := m.g.Leave(x.id)
		if want := len(m.members()) == 0; last && !want || want && !last && m.c.t.Sub(m.born) > 2*coordinator.HoldFor {
			m.fatal("%s was the last: %v, want %v", x.worker, last, want)
		}
	case op < 84:
		// One member is silent for longer than the lease; the others are seen.
		m.seen["expired"]++
		m.c.t = m.c.t.Add(groupLease)
		for _, y := range m.members() {
			if y != x {
				m.poll(y)
			}
		}
		m.c.t = m.c.t.Add(1)
		if gone := m.g.Expire(); !slices.Contains(gone, x.worker) {
			m.fatal("%s was silent for longer than its lease; gone are %q", x.worker, gone)
		}
		m.forget(x)
		if _, err := m.g.Task(x.id); !errors.Is(err, ps.ErrFenced) {
			m.fatal("%s after its lease: %v, want ErrFenced", x.worker, err)
		}
	case op < 86:
		m.seen["generation"]++
		m.generation++
		m.g.Begin(m.generation, false)
		m.read, m.finished = map[string]bool{}, false
		m.born = m.c.t.Add(-2 * coordinator.HoldFor) // nobody is waited for
	case op < 88:
		if m.finished {
			return // that is not remembered, and nobody needs it to be
		}
		m.seen["restart"]++
		m.g = coordinator.NewGroup(groupLease, groupGrace, m.c.now)
		m.g.Begin(m.generation, true)
		m.home++
		m.born, m.read, m.phase = m.c.t, map[string]bool{}, 0
	case op < 92:
		m.seen["quiet"]++
		m.quiet()
	default:
		m.poll(x)
		if x.a.Task != ps.Conclude {
			return
		}
		r := ps.Report{Generation: x.a.Generation, Phase: x.a.Phase, Concluded: true, Finished: m.rng.IntN(4) == 0}
		m.report(x, r)
		m.phase, m.finished, m.read = m.phase+1, r.Finished, map[string]bool{}
		m.seen["concluded"]++
	}
}

// TestGroupModel plays members that come, work, fall silent, are started again and leave, under coordinators that are
// started again.
func TestGroupModel(t *testing.T) {
	t.Parallel()
	seen := map[string]int{}
	for seed := range numSeeds(200) {
		rng := rand.New(rand.NewPCG(seed, 9))
		m := &groupModel{
			t: t, c: newClock(), rng: rng, single: seed%5 == 0, generation: 1, read: map[string]bool{}, seen: seen,
		}
		for i := range 1 + rng.IntN(7) {
			m.splits = append(m.splits, fmt.Sprint(i))
		}
		m.g = newTestGroup(m.c)
		m.born = m.c.t.Add(-2 * coordinator.HoldFor)
		for range 300 {
			m.step()
			m.check()
		}
		m.quiet()
	}
	want := map[string]bool{}
	for _, k := range []string{"conclude", "concluded", "expired", "generation", "quiet", "rejoined", "restart"} {
		want[k] = true
	}
	got := map[string]bool{}
	for k, n := range seen {
		got[k] = n > 20
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("too little has happened: %v\n%s", seen, diff)
	}
}

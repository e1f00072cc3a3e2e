package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// groups are the workers of a cluster, a group for each source. Its methods may overlap.
type groups struct {
	lease, grace time.Duration

	mu         sync.Mutex
	bySource   map[string]*group // by source
	plans      map[string]string // that of a source's members
	generation uint64
	heldUntil  time.Time
	snapshot   uint64
	closed     bool
}

func newGroups(lease, grace time.Duration) *groups {
	return &groups{lease: lease, grace: grace, bySource: map[string]*group{}, plans: map[string]string{}}
}

func (s *groups) all() []*group {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.bySource))
}

// join makes a worker a member of the group of its source. Errors: [ps.ErrMismatch], [ps.ErrClosed].
func (s *groups) join(o ps.JoinOptions) (id uint64, replaced bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, false, ps.ErrClosed
	}
	for source, g := range s.bySource {
		others := g.workers()
		if source != o.Source {
			if slices.Contains(others, o.Worker) {
				return 0, false, fmt.Errorf("ps: worker %s reads source %q, and there is a worker of that name for source %q; give one of the two another name (--worker): %w",
					o.Worker, o.Source, source, ps.ErrMismatch)
			}
			continue
		}
		others = slices.DeleteFunc(others, func(w string) bool { return w == o.Worker })
		if plan := s.plans[source]; len(others) > 0 && plan != o.Plan {
			return 0, false, fmt.Errorf("ps: the plans of source %q differ (source, parse, batch): worker %s has plan %s, worker %s plan %s; start all workers of a source with the same job file and the same --set: %w",
				source, others[0], plan, o.Worker, o.Plan, ps.ErrMismatch)
		}
	}
	g := s.bySource[o.Source]
	if g == nil {
		g = newGroup(s.lease, s.grace)
		g.generation, g.snapshot = s.generation, s.snapshot
		if time.Now().Before(s.heldUntil) {
			g.hold = s.heldUntil
		}
		s.bySource[o.Source] = g
	}
	s.plans[o.Source] = o.Plan
	id, replaced = g.join(o)
	return id, replaced, nil
}

// of returns the group of a member. Errors: [ps.ErrRejoin] for one that this coordinator has not made, [ps.ErrClosed].
func (s *groups) of(member uint64) (*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ps.ErrClosed
	}
	for _, g := range s.bySource {
		if g.nonce == member&^(1<<32-1) {
			return g, nil
		}
	}
	return nil, ps.ErrRejoin
}

// empty reports whether nobody is a member, nor on the way.
func (s *groups) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.bySource {
		if len(g.workers()) > 0 {
			return false
		}
	}
	return !time.Now().Before(s.heldUntil)
}

// leads is [group.leads] of the member's group.
func (s *groups) leads(member uint64) error {
	g, err := s.of(member)
	if err != nil {
		return err
	}
	return g.leads(member)
}

// owns is [group.owns] of the member's group, which must be that of the source.
func (s *groups) owns(member uint64, id ps.SplitID) error {
	g, err := s.of(member)
	if err != nil {
		return err
	}
	s.mu.Lock()
	same := s.bySource[id.Source] == g
	s.mu.Unlock()
	if !same {
		return fmt.Errorf("ps: member %x does not read source %q: %w", member, id.Source, ps.ErrFenced)
	}
	return g.owns(member, id.Split)
}

// begin is [group.begin] of every group, also of those to come.
func (s *groups) begin(generation uint64, held bool) {
	s.mu.Lock()
	if s.generation != generation {
		s.generation, s.heldUntil = generation, time.Time{}
		if held {
			s.heldUntil = time.Now().Add(holdFor)
		}
	}
	s.mu.Unlock()
	for _, g := range s.all() {
		g.begin(generation, held)
	}
}

// taken reports a snapshot.
func (s *groups) taken(number uint64) {
	s.mu.Lock()
	s.snapshot = number
	s.mu.Unlock()
	for _, g := range s.all() {
		g.taken(number)
	}
}

func (s *groups) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, g := range s.all() {
		g.close()
	}
}

// tick removes members that have been silent for too long, until the context ends.
func (s *groups) tick(ctx context.Context, log *slog.Logger, gone func(worker string)) {
	every := s.lease / 8
	if s.grace > 0 {
		every = min(every, s.grace/4)
	}
	t := time.NewTicker(max(every, time.Millisecond))
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			for _, g := range s.all() {
				for _, worker := range g.expire() {
					log.WarnContext(ctx, "worker is gone; its splits go to others", "worker", worker)
					gone(worker)
				}
			}
		}
	}
}

// workers are the names of the members.
func (g *group) workers() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []string
	for _, m := range g.members {
		out = append(out, m.worker)
	}
	slices.Sort(out)
	return out
}

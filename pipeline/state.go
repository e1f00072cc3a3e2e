package pipeline

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Stateful is a [Processor] that remembers something of each split beyond the current element: what waits for what belongs
// to it, counts, windows. The executor takes the state from time to time, keeps it until every sink downstream has stored what
// was made of the elements before it, and then gives it to the run's [StateStore], which keeps it in one cut with the
// positions of the parameters. The next reader of the split, in this process or another, begins with the state that is stored
// and reads on from its position, or from where a sink continues if that is before; sinks that are ahead are not given what
// they have. So what a Stateful emits comes to every sink that stores positions exactly once, if
//
//   - what it emits under an origin is a function of the elements of that split, and of what is known of other splits at
//     an event time ([EventTimer]), not of the order in which splits happen to come;
//   - the state of a split covers the elements of the split up to the last one emitted, no more and no less: elements that
//     are held back, so that their positions have not gone out, are read again.
//
// A join of two streams follows: hold the rows of the one back until the watermark has passed what they wait for, and emit
// them under their own origin; keep those of the other as state, and emit their positions at once.
//
// A stage must be Stateful always or never. Its methods are called from the goroutine of Process.
type Stateful interface {
	// Save returns the state of a split; the caller owns it. nil: nothing is to be remembered.
	Save(split SplitID) ([]byte, error)
	// Restore gives back what Save returned, perhaps in a program of another version, before the first element of the split.
	// It is not called for a split whose state is empty.
	Restore(split SplitID, state []byte) error
}

// State is what is stored of one split for a [Stateful] stage.
type State struct {
	// Position is where reading continues with the state.
	Position Position
	Data     []byte
}

// Bytes renders the state for a store.
func (s State) Bytes() []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(s.Position)), s.Data...)
}

// UnmarshalBinary is the inverse of Bytes. Errors: [ErrBadData].
func (s *State) UnmarshalBinary(b []byte) error {
	if len(b) < 8 || int64(binary.LittleEndian.Uint64(b)) < 0 {
		return fmt.Errorf("pipeline: state of %d bytes without a position: %w", len(b), ErrBadData)
	}
	s.Position, s.Data = Position(binary.LittleEndian.Uint64(b)), slices.Clone(b[8:])
	return nil
}

// StateStore keeps the state of [Stateful] stages. Its methods may be called from several goroutines.
type StateStore interface {
	// Load returns what is stored of a stage, by the name of its node, for a split; ok is false when nothing is.
	Load(ctx context.Context, stage string, split SplitID) (state State, ok bool, err error)
	// Put describes what is to be stored of a stage from now on, of all splits of one worker at once: every sink downstream has stored
	// what was made of the elements before. It is quick; a store keeps the last it was given until it makes a cut. It owns
	// the map.
	Put(stage string, states map[SplitID]State)
}

// states are the Stateful stages of a lane. Several goroutines report what their sinks have stored.
type states struct {
	runs []*stateRun // downstream ones first

	mu     sync.Mutex
	stored map[*sinkRun]map[SplitID]Position
}

// stateRun is a Stateful stage within a lane, or within a split's own part.
type stateRun struct {
	node  *node
	lane  *lane
	name  string
	proc  Stateful
	split *splitRun // whose own part it is in; nil: it sees all splits of the lane that lead to it
	at    map[SplitID]Position
	last  time.Time
	// stored and waiting are guarded by states.mu once the lane runs: what is stored, or would be, and what is to be stored
	// when all downstream have got there.
	stored  map[SplitID]Position
	waiting map[SplitID]State
}

// stateful makes an opened stage one with state.
func (b builder) stateful(o *opened, proc Stateful, call func(Element) error) func(Element) error {
	r := &stateRun{node: o.node, lane: b.lane, name: o.node.name, proc: proc, split: b.split, at: map[SplitID]Position{}, stored: map[SplitID]Position{}}
	o.state = r
	b.lane.states.runs = append(b.lane.states.runs, r) // after those that it is upstream of
	f := &floors{node: o.node, split: b.split}
	b.lane.floors = append(b.lane.floors, f)
	return f.pass(func(e Element) error {
		if err := call(e); err != nil {
			return err
		}
		if time.Since(r.last) < b.lane.run.opts.StateEvery {
			return nil
		}
		return o.wrapped(r.save(false))
	})
}

func (o *opened) wrapped(err error) error {
	if err == nil {
		return nil
	}
	return o.wrap(err)
}

// splits are those that the stage sees.
func (r *stateRun) splits() (out []*splitRun) {
	for _, sp := range r.lane.splits {
		if (r.split == nil || r.split == sp) && r.node.reads(sp.source) {
			out = append(out, sp)
		}
	}
	return out
}

// of finds the state of a stage for a split, nil for a stage that keeps none.
func (s *states) of(n *node, id SplitID) *stateRun {
	for _, r := range s.runs {
		if _, ok := r.stored[id]; ok && r.node == n {
			return r
		}
	}
	return nil
}

// from is the smallest position that a state of the split is stored at.
func (s *states) from(id SplitID) (from Position, ok bool) {
	for _, r := range s.runs {
		if p, there := r.stored[id]; there && (!ok || p < from) {
			from, ok = p, true
		}
	}
	return from, ok
}

// restore gives each stage what is stored. State that is ahead of a sink downstream is of no use: the sink lacks something
// that was made before. Then the stage starts over where the splits do, with nothing, and so does reading.
func (s *states) restore(ctx context.Context, l *lane) error {
	s.stored = map[*sinkRun]map[SplitID]Position{}
	for _, r := range s.runs {
		loaded := map[SplitID]State{}
		useful := true
		for _, sp := range r.splits() {
			id := sp.ID()
			r.stored[id] = sp.Start
			if l.env.State == nil {
				continue
			}
			st, ok, err := l.env.State.Load(ctx, r.name, id)
			if err != nil {
				return fmt.Errorf("%s: state of split %s: %w", r.name, id, err)
			}
			if !ok {
				continue
			}
			loaded[id] = st
			if limit, known := s.limit(r, sp); known && st.Position > limit {
				useful = false
				l.env.Log().Warn("state is not used: a sink lacks what was made before it; reading starts over", "stage", r.name, "split", id.String(),
					"state", int64(st.Position), "sink", int64(limit))
			}
		}
		if !useful {
			continue
		}
		for id, st := range loaded {
			if len(st.Data) > 0 {
				if err := guard(r.name, func() error { return r.proc.Restore(id, st.Data) }); err != nil {
					return fmt.Errorf("%s: state of split %s: %w", r.name, id, err)
				}
			}
			r.stored[id] = st.Position
		}
	}
	for _, r := range s.runs {
		maps.Copy(r.at, r.stored)
	}
	for _, sink := range l.sinks {
		s.stored[sink] = map[SplitID]Position{}
	}
	return nil
}

// limit is the smallest position that a stage or sink downstream of r is stored at.
func (s *states) limit(r *stateRun, sp *splitRun) (limit Position, known bool) {
	for _, n := range r.node.below() {
		var p Position
		var ok bool
		if n.kind == sinkNode {
			var from Progress
			from, ok = r.lane.sink(n).from[sp.ID()]
			p = from.Position
		} else if behind := s.of(n, sp.ID()); behind != nil && behind != r {
			p, ok = behind.stored[sp.ID()], true
		}
		if ok && (!known || p < limit) {
			limit, known = p, true
		}
	}
	return limit, known
}

// emitted notes how far the stage's output is.
func (r *stateRun) emitted(o Origin) {
	if _, ok := r.at[o.ID()]; ok {
		r.at[o.ID()] = o.To
	}
}

// save takes the state of all splits. What waits already continues waiting, unless this is the last.
func (r *stateRun) save(last bool) error {
	r.last = time.Now()
	st := &r.lane.states
	if r.lane.env.State == nil {
		return nil
	}
	if !last {
		st.mu.Lock()
		waits := r.waiting != nil
		st.mu.Unlock()
		if waits {
			return nil
		}
	}
	taken := make(map[SplitID]State, len(r.at))
	for id, at := range r.at {
		b, err := r.proc.Save(id)
		if err != nil {
			return fmt.Errorf("state of split %s: %w", id, err)
		}
		taken[id] = State{at, b}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	r.waiting = taken
	st.promote()
	return nil
}

// saveAll takes the last state of a section's stages.
func (s *section) saveAll() error {
	for _, o := range s.procs {
		if o.state == nil {
			continue
		}
		if err := o.state.save(true); err != nil {
			return o.wrap(err)
		}
	}
	return nil
}

// reached notes what a sink has taken.
func (s *states) reached(sink *sinkRun, o Origin) {
	if len(s.runs) == 0 {
		return
	}
	at := o.To
	if sink.storer != nil {
		at = sink.storer.Stored(o.ID())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[sink][o.ID()] = at
	s.promote()
}

// settle asks a sink that stores later what it has stored by now.
func (s *states) settle(sink *sinkRun) {
	if len(s.runs) == 0 || sink.storer == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.stored[sink] {
		s.stored[sink][id] = sink.storer.Stored(id)
	}
	s.promote()
}

// promote stores what waits and has been passed by everything downstream. mu is held.
func (s *states) promote() {
	for _, r := range s.runs {
		if r.waiting == nil || !s.passed(r) {
			continue
		}
		for id, st := range r.waiting {
			r.stored[id] = st.Position
		}
		r.lane.env.State.Put(r.name, r.waiting)
		r.waiting = nil
	}
}

// passed reports whether all that is downstream of a stage has stored what was made before its waiting state.
func (s *states) passed(r *stateRun) bool {
	for id, st := range r.waiting {
		for _, n := range r.node.below() {
			if n.kind == sinkNode {
				sink := r.lane.sink(n)
				if s.stored[sink][id] < st.Position {
					return false
				}
			} else if behind := s.of(n, id); behind != nil && behind != r && behind.stored[id] < st.Position {
				return false
			}
		}
	}
	return true
}

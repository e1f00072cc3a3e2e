package pipeline

import (
	"context"
	"fmt"
	"time"
)

// sinkRun is a sink within a lane.
type sinkRun struct {
	node    *node
	lane    *lane
	writer  anyWriter
	idler   Idler  // nil when the writer has nothing to do when idle
	storer  Storer // nil when what it takes counts as stored
	resumes bool
	from    map[SplitID]Progress   // where the splits continue for it; empty unless it stores positions
	parts   map[SplitID][]Position // where parts of the sink continue, after from ([BoundaryResumer])
	floors  floors
	// boundaries are the positions of each split that no element may straddle and that none has passed yet; nil when there are
	// none. After open the writer's alone.
	boundaries map[SplitID][]Position
}

// openSinks opens the writers of the sinks that the splits lead to.
func (l *lane) openSinks(ctx context.Context) error {
	for _, n := range l.run.shape.sinks {
		if !l.leads(n) {
			continue
		}
		s := &sinkRun{node: n, lane: l, from: map[SplitID]Progress{}, parts: map[SplitID][]Position{}, floors: floors{node: n}}
		l.sinks = append(l.sinks, s)
		err := guard(n.name, func() (err error) {
			s.writer, err = n.sink.open(ctx, l.env)
			return err
		})
		if err != nil {
			return inPart(n.name, err)
		}
		s.idler, _ = s.writer.value().(Idler)
		s.storer, _ = s.writer.value().(Storer)
	}
	return nil
}

// sink finds the lane's writer of a sink.
func (l *lane) sink(n *node) *sinkRun {
	for _, s := range l.sinks {
		if s.node == n {
			return s
		}
	}
	return nil
}

// resume asks the sink where the lane's splits continue.
func (s *sinkRun) resume(ctx context.Context) error {
	r, ok := s.writer.value().(Resumer)
	if !ok {
		return nil
	}
	s.resumes = true
	for _, source := range s.node.sources {
		var splits []Split
		for _, sp := range s.lane.splits {
			if sp.source == source {
				splits = append(splits, sp.Split)
			}
		}
		if len(splits) == 0 {
			continue
		}
		var progress map[string]Progress
		err := guard(s.node.name, func() (err error) {
			progress, err = r.Resume(ctx, source.name, splits)
			return err
		})
		if err != nil {
			return inPart(s.node.name, err)
		}
		for _, sp := range splits {
			p, ok := progress[sp.Name]
			if !ok || p.Position == NoPosition {
				p = Progress{Position: sp.Start}
			}
			s.from[sp.ID()] = p
			if parts, ok := r.(BoundaryResumer); ok {
				s.parts[sp.ID()] = parts.Boundaries(sp.Source, sp.Name)
			}
		}
	}
	return nil
}

// write is the end of a stream: the writer, with its hooks and counts.
func (s *sinkRun) write(ctx context.Context) func(Element) error {
	l := s.lane
	hooks, name := l.env.Observe(), s.node.name
	write := func(e Element) error {
		rows, origin, start := e.NumRows(), e.Origin(), time.Now()
		if err := s.whole(origin); err != nil {
			e.Release()
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := guard(name, func() error { return s.writer.write(ctx, e) }); err != nil {
			return inPart(name, err)
		}
		hooks.StageDone(name, rows, time.Since(start))
		sp := l.bySplit[origin.ID()]
		if sp == nil { // an element of a stage's own making
			l.run.wrote(s.node, rows, 0, s.node == l.run.shape.sinks[0])
			return nil
		}
		main, left := s.node == l.run.shape.mainSink[sp.source], int64(0)
		if main {
			left = sp.leftOutTo(origin.To)
		}
		l.run.wrote(s.node, rows, left, main)
		sp.advance(s, origin, rows, main)
		l.states.reached(s, origin)
		return nil
	}
	return s.floors.pass(write)
}

// settle looks at what the sink has stored by now.
func (s *sinkRun) settle() { s.lane.states.settle(s) }

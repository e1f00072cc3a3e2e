package pipeline

import (
	"context"
	"errors"
	"strings"
	"time"
)

// section is a number of opened stages that share a goroutine: each hands its elements to the next by a call.
type section struct {
	ctx   context.Context // of the run; close ends the section's use of it
	procs []*opened       // those in front first
	alarm *alarm          // nil when no stage acts on the wall clock
	timed bool            // a stage acts on event time
}

// opened is a stage with its processor.
type opened struct {
	node  *node
	proc  anyProcessor // nil until it is open
	next  func(Element) error
	below time.Duration // time spent in next during the current call
	hooks *Hooks
	main  bool      // what it holds are rows
	clock *clock    // nil when it does not act on event time
	state *stateRun // nil when it keeps none
}

func newSection(ctx context.Context) *section { return &section{ctx: ctx} }

// stage opens a stage and everything downstream of it, and returns what hands it an element.
func (b builder) stage(n *node) (func(Element) error, error) {
	s := b.section
	o := &opened{node: n, hooks: b.env.Observe(), main: b.lane.run.shape.main[n]}
	s.procs = append(s.procs, o) // in front of those downstream, which are opened first
	into := b.into
	if len(n.sides) > 0 {
		into = b.branch
	}
	next, err := into(n.next[0])
	if err != nil {
		return nil, err
	}
	o.next = next
	env := b.env
	for _, out := range n.sides {
		next, err := b.branch(out.next[0])
		if err != nil {
			return nil, err
		}
		env = env.withSide(out.output, side{elem: out.elem, emit: func(e Element) error { return o.hand(e, next) }})
	}
	err = guard(n.name, func() (err error) {
		o.proc, err = n.stage.open(b.ctx, env, o.emit)
		return err
	})
	if err != nil {
		return nil, o.wrap(err)
	}
	if !b.lane.run.opts.Deterministic && s.alarm == nil && o.proc.ticks() {
		s.alarm = &alarm{timer: time.NewTimer(time.Hour)}
		s.alarm.timer.Stop()
	}
	call := func(e Element) error { return s.call(o, e) }
	if o.proc.timed() {
		call = b.clocked(o, call)
	}
	if st, ok := o.proc.value().(Stateful); ok {
		call = b.stateful(o, st, call)
	}
	return call, nil
}

// alarm wakes the goroutine of a section when one of its stages is due. The nil alarm never does.
type alarm struct{ timer *time.Timer }

func (a *alarm) c() <-chan time.Time {
	if a == nil {
		return nil
	}
	return a.timer.C
}

// set has the alarm go off when the first of the stages is due.
func (s *section) set() {
	if s.alarm == nil {
		return
	}
	var first time.Time
	for _, o := range s.procs {
		if due := o.proc.due(); !due.IsZero() && (first.IsZero() || due.Before(first)) {
			first = due
		}
	}
	if first.IsZero() {
		s.alarm.timer.Stop()
		return
	}
	s.alarm.timer.Reset(time.Until(first))
}

// tick calls the stages that are due.
func (s *section) tick() error {
	now := time.Now()
	for _, o := range s.procs {
		if due := o.proc.due(); !due.IsZero() && !due.After(now) {
			if err := guard(o.node.name, func() error { return o.proc.tick(s.ctx, now) }); err != nil {
				return o.wrap(err)
			}
		}
	}
	s.set()
	return nil
}

func (o *opened) emit(e Element) error {
	if o.state != nil {
		o.state.emitted(e.Origin())
	}
	return o.hand(e, o.next)
}

// hand gives an element to what is downstream and leaves the time that this takes out of the stage's own.
func (o *opened) hand(e Element, next func(Element) error) error {
	start := time.Now()
	err := next(e)
	o.below += time.Since(start)
	return err
}

func (s *section) call(o *opened, e Element) error {
	rows, start := e.NumRows(), time.Now()
	o.below = 0
	if err := guard(o.node.name, func() error { return o.proc.process(s.ctx, e) }); err != nil {
		return o.wrap(err)
	}
	o.hooks.StageDone(o.node.name, rows, time.Since(start)-o.below)
	return nil
}

// wrap names the stage an error comes from.
func (o *opened) wrap(err error) error { return inPart(o.node.name, err) }

// inPart names the part an error comes from. Errors that only pass through carry a name already.
func inPart(name string, err error) error {
	var named *partError
	if err == nil || errors.As(err, &named) || errors.Is(err, context.Canceled) {
		return err
	}
	return &partError{name, err}
}

type partError struct {
	part string
	err  error
}

// Error puts the part's name in front, unless the part has done so.
func (e *partError) Error() string {
	s := e.err.Error()
	if strings.HasPrefix(s, e.part+": ") {
		return s
	}
	return e.part + ": " + s
}

func (e *partError) Unwrap() error { return e.err }

// process hands an element to a way into the section.
func (s *section) process(e Element, root func(Element) error) error {
	err := root(e)
	s.set()
	return err
}

// flush emits what the stages hold back at the end of their input; drain at the end of a run that is drained.
func (s *section) flush() error { return s.each(anyProcessor.flush) }
func (s *section) drain() error { return s.each(anyProcessor.drain) }

func (s *section) each(f func(anyProcessor, context.Context) error) error {
	for _, o := range s.procs {
		if err := guard(o.node.name, func() error { return f(o.proc, s.ctx) }); err != nil {
			return o.wrap(err)
		}
	}
	return nil
}

// held is the number of rows that the stages hold back.
func (s *section) held() (rows int) {
	if s == nil {
		return 0
	}
	for _, o := range s.procs {
		if o.proc != nil && o.main {
			rows += o.proc.held()
		}
	}
	return rows
}

func (s *section) close() error {
	if s == nil {
		return nil
	}
	var errs []error
	for _, o := range s.procs {
		if o.proc != nil {
			errs = append(errs, o.wrap(Guard(o.node.name, o.proc.close)))
		}
	}
	return errors.Join(errs...)
}

package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/monolith-go/monolith/ps"
)

// member is a run's membership in the workers of a job. A goroutine asks the coordinator all the time what there is to
// do, which is also how the coordinator knows that the worker lives; close joins it.
type member struct {
	shards shards
	log    *slog.Logger
	who    ps.JoinOptions
	lease  time.Duration // 0: this process and the coordinator's are one
	run    context.Context
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	id      uint64
	now     ps.Assignment
	version uint64 // counts changes of what is to be done
	report  ps.Report
	// delegation is what it delegates, with the tasks that have ended as far as the coordinator has said.
	delegation ps.Delegation
	told       uint64 // counts changes of what the coordinator is told: report, delegation and splits
	err        error
	changed    chan struct{} // closed, and replaced, by every change
	// lastSeen is when the process was last seen running, pause the longest time that it was not since listen asked.
	lastSeen time.Time
	pause    time.Duration
}

// enrol makes the run a member.
func enrol(ctx context.Context, s shards, who ps.JoinOptions, lease time.Duration, log *slog.Logger) (*member, error) {
	m := &member{shards: s, who: who, lease: lease, log: log, changed: make(chan struct{}), lastSeen: time.Now()}
	var err error
	if m.id, err = s.Join(ctx, who); err != nil {
		return nil, err
	}
	m.run, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	m.done.Go(m.listen)
	if lease > 0 {
		m.done.Go(m.watch)
	}
	return m, nil
}

// watch notices when the process is stalled, stopped by a signal or starved: who was silent for longer than its lease
// has been replaced, and must not claim its splits from a coordinator that was started meanwhile and does not know.
func (m *member) watch() {
	t := time.NewTicker(m.lease / 8)
	defer t.Stop()
	for {
		select {
		case <-m.run.Done():
			return
		case <-t.C:
			m.longestPause()
		}
	}
}

// longestPause returns the longest time that the process was stalled since listen asked for it last.
func (m *member) longestPause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.paused()
}

// takePause returns longestPause and starts over.
func (m *member) takePause() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	pause := m.paused()
	m.pause = 0
	return pause
}

// paused is longestPause. It needs the lock.
func (m *member) paused() time.Duration {
	now := time.Now()
	m.pause = max(m.pause, now.Sub(m.lastSeen))
	m.lastSeen = now
	return m.pause
}

// listen keeps the assignment up to date until close.
func (m *member) listen() {
	have, longest := uint64(0), time.Duration(0)
	for m.run.Err() == nil {
		m.mu.Lock()
		id := m.id
		m.mu.Unlock()
		a, err := m.shards.Await(m.run, id, have)
		pause := m.takePause()
		if longest = max(longest, pause); errors.Is(err, ps.ErrRejoin) && m.lease > 0 && longest > m.lease {
			err = m.stalled(longest)
		}
		if err == nil && pause <= m.lease {
			longest = 0 // the answer to a call that was made after the process was stalled
		}
		if errors.Is(err, ps.ErrRejoin) {
			m.log.Info("joining the workers again: the coordinator was started again")
			have = 0
			err = m.rejoin()
			// It may have been stalled while it waited for the coordinator, too.
			if longest = max(longest, m.takePause()); err == nil && m.lease > 0 && longest > m.lease {
				err = m.stalled(longest)
			}
			if err == nil {
				continue
			}
		}
		if m.run.Err() != nil {
			return
		}
		have = a.Version
		m.set(a, err)
		if err != nil {
			return
		}
	}
}

// stalled is the error of a process that was stalled for longer than its lease.
func (m *member) stalled(pause time.Duration) error {
	return fmt.Errorf("worker %s was stalled for %v, longer than its lease of %v, and was replaced: %w",
		m.who.Worker, pause.Round(time.Millisecond), m.lease, ps.ErrFenced)
}

// rejoin joins a coordinator that was started again. What the run reports meanwhile goes to the membership that is no more, since the call that joins may take as long as the coordinator
// is away; so it is reported again.
func (m *member) rejoin() error {
	m.mu.Lock()
	who, told := m.who, m.told
	who.Report, who.Delegation = m.report, m.delegation
	m.mu.Unlock()
	id, err := m.shards.Join(m.run, who)
	for {
		m.mu.Lock()
		m.id = id
		late := m.told != told
		report, delegation, splits := m.report, m.delegation, m.who.Splits[len(who.Splits):]
		told = m.told
		m.mu.Unlock()
		if err != nil || !late {
			break
		}
		if len(splits) > 0 {
			err = m.shards.Report(m.run, id, ps.Report{Splits: splits})
		}
		if err == nil && delegation.Run != "" {
			err = m.shards.Report(m.run, id, ps.Report{Delegates: &delegation})
		}
		if err == nil {
			err = m.shards.Report(m.run, id, report)
		}
	}
	if errors.Is(err, ps.ErrRejoin) { // it was started once more, which the next question says too
		return nil
	}
	return err
}

func (m *member) set(a ps.Assignment, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	same := err == nil && sameWork(a, m.now) && m.version > 0
	m.now, m.err = a, err
	if a.Delegation.Run == m.delegation.Run && len(a.Delegation.Ended) > len(m.delegation.Ended) {
		m.delegation.Ended = a.Delegation.Ended
	}
	if !same {
		m.version++
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// sameWork reports whether two assignments ask for the same.
func sameWork(a, b ps.Assignment) bool {
	return a.Generation == b.Generation && a.Phase == b.Phase && a.Task == b.Task && slices.Equal(a.Splits, b.Splits)
}

// current returns what is to be done, which version of it that is, and a channel that is closed by the next change.
func (m *member) current() (a ps.Assignment, version uint64, changed <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, m.version, m.changed, m.err
}

// next waits for something to do of a version above handled. ok is false when the run is drained before.
func (m *member) next(ctx context.Context, drain <-chan struct{}, handled uint64) (a ps.Assignment, version uint64, ok bool, err error) {
	for {
		a, version, changed, err := m.current()
		if err != nil {
			return a, version, false, err
		}
		if version > handled {
			return a, version, true, nil
		}
		select {
		case <-changed:
		case <-drain:
			return a, version, false, nil
		case <-ctx.Done():
			return a, version, false, context.Cause(ctx)
		}
	}
}

// until returns two channels: ended is closed when work of a version is no more what is to be done, enough when the source has
// given maxRows examples; 0: no bound. applied counts the source's examples; the coordinator counts those of all sources there
// ever were. stop must be called.
func (m *member) until(version uint64, maxRows int64, applied func() (int64, error)) (ended, enough <-chan struct{}, stop func()) {
	over, full, quit := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			a, v, changed, err := m.current()
			if v != version || err != nil {
				close(over)
				return
			}
			if maxRows > 0 && a.Rows >= maxRows {
				if rows, err := applied(); err == nil && rows >= maxRows { // an error shows in the work itself
					close(full)
					maxRows = 0
				}
			}
			select {
			case <-changed:
			case <-quit:
				return
			}
		}
	})
	var once sync.Once
	return over, full, func() { once.Do(func() { close(quit); wg.Wait() }) }
}

// total returns how many examples all workers have trained on, of the source of which before are applied now,
// and how many workers there are. It may be as old as the last answer of the coordinator, about a second.
func (m *member) total(before int64) func() (examples int64, workers int) {
	m.mu.Lock()
	base := m.now.Rows // of all sources that there ever were
	m.mu.Unlock()
	return func() (int64, int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return before + max(m.now.Rows-base, 0), m.now.Members
	}
}

// tell reports what the run does with an assignment, and remembers it for a coordinator that is started again.
func (m *member) tell(ctx context.Context, r ps.Report) error {
	m.mu.Lock()
	id := m.id
	m.report = r
	m.told++
	m.mu.Unlock()
	err := m.shards.Report(ctx, id, r)
	if errors.Is(err, ps.ErrRejoin) {
		return nil // listen joins again, with this report
	}
	return err
}

// delegate reports that executors elsewhere do the run's work, and how they are to end.
func (m *member) delegate(ctx context.Context, run string, how ps.Ending) error {
	m.mu.Lock()
	if m.delegation.Run != run {
		m.delegation = ps.Delegation{Run: run}
	}
	m.delegation.Ending = how
	m.told++
	id, d := m.id, m.delegation
	m.mu.Unlock()
	err := m.shards.Report(ctx, id, ps.Report{Delegates: &d})
	if errors.Is(err, ps.ErrRejoin) {
		return nil // listen joins again, with this delegation
	}
	return err
}

// allEnded returns once the executors of so many tasks of a delegated run have ended in order.
func (m *member) allEnded(ctx context.Context, run string, tasks int) error {
	for {
		_, _, changed, err := m.current()
		if err != nil {
			return err
		}
		m.mu.Lock()
		all := m.delegation.Run == run && len(m.delegation.Ended) >= tasks
		m.mu.Unlock()
		if all {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// store keeps a blob of worker state that was decided on a state of the shards. Errors: [ps.ErrFenced] when this worker
// does not lead, [ps.ErrRolledBack] when the shards have another state.
func (m *member) store(ctx context.Context, generation uint64, key string, value []byte) error {
	for {
		m.mu.Lock()
		id, changed := m.id, m.changed
		m.mu.Unlock()
		err := m.shards.SetStateAt(ctx, id, generation, key, value)
		if !errors.Is(err, ps.ErrRejoin) {
			return err
		}
		select { // listen joins the coordinator, which was started again
		case <-changed:
		case <-time.After(m.lease/8 + 10*time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if _, _, _, err := m.current(); err != nil {
			return err
		}
	}
}

// grown reports splits that the source has got, now and whenever the run joins again.
func (m *member) grown(ctx context.Context, splits []string) error {
	m.mu.Lock()
	m.who.Splits = slices.Concat(m.who.Splits, splits)
	m.told++
	id := m.id
	m.mu.Unlock()
	err := m.shards.Report(ctx, id, ps.Report{Splits: splits})
	if errors.Is(err, ps.ErrRejoin) {
		return nil // listen joins again, with these
	}
	return err
}

// accept reports what the run may push to from now on: the splits of its assignment and no others, also such as an
// assignment gave it that it was never notified of.
func (m *member) accept(ctx context.Context, a ps.Assignment) error {
	r := ps.Report{Generation: a.Generation, Phase: a.Phase, Owned: a.Splits}
	m.mu.Lock()
	if m.report.Generation == r.Generation && m.report.Phase == r.Phase {
		r.Done = m.report.Done
	}
	m.mu.Unlock()
	return m.tell(ctx, r)
}

// expelled returns why the coordinator has replaced this worker; nil when it has not.
func (m *member) expelled(ctx context.Context) error {
	m.mu.Lock()
	id := m.id
	m.mu.Unlock()
	_, err := m.shards.Await(ctx, id, 0)
	if errors.Is(err, ps.ErrFenced) {
		return fmt.Errorf("worker %s: %w", m.who.Worker, err)
	}
	return nil
}

// leave ends the membership and reports whether it was the last.
func (m *member) leave(ctx context.Context) (last bool, err error) {
	m.close()
	return m.shards.Leave(ctx, m.id)
}

// close ends the goroutine; the coordinator notices soon. It may be called more than once.
func (m *member) close() {
	m.stop()
	m.done.Wait()
}

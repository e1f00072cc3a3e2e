package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/monolith-go/monolith/ps"
)

// member is a run's membership in the workers of a job. A goroutine asks the coordinator all the time what there is to
// do, which is also how the coordinator knows that the worker lives; close joins it.
type member struct {
	shards shards
	log    *slog.Logger
	who    ps.JoinOptions
	run    context.Context
	stop   context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	id      uint64
	now     ps.Assignment
	version uint64 // counts changes of what is to be done
	report  ps.Report
	err     error
	changed chan struct{} // closed, and replaced, by every change
}

// enrol makes the run a member.
func enrol(ctx context.Context, s shards, who ps.JoinOptions, log *slog.Logger) (*member, error) {
	m := &member{shards: s, who: who, log: log, done: make(chan struct{}), changed: make(chan struct{})}
	var err error
	if m.id, err = s.Join(ctx, who); err != nil {
		return nil, err
	}
	m.run, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	go m.listen()
	return m, nil
}

// listen keeps the assignment up to date until close.
func (m *member) listen() {
	defer close(m.done)
	have := uint64(0)
	for m.run.Err() == nil {
		m.mu.Lock()
		id := m.id
		m.mu.Unlock()
		a, err := m.shards.Await(m.run, id, have)
		if errors.Is(err, ps.ErrRejoin) {
			m.log.Info("joining the workers again: the coordinator was started again")
			have = 0
			err = m.rejoin()
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

func (m *member) rejoin() error {
	m.mu.Lock()
	who := m.who
	who.Report = m.report
	m.mu.Unlock()
	id, err := m.shards.Join(m.run, who)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.id = id
	return err
}

func (m *member) set(a ps.Assignment, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	same := err == nil && sameWork(a, m.now) && m.version > 0
	m.now, m.err = a, err
	if !same {
		m.version++
	}
	close(m.changed)
	m.changed = make(chan struct{})
}

// sameWork tells that two assignments ask for the same.
func sameWork(a, b ps.Assignment) bool {
	return a.Generation == b.Generation && a.Phase == b.Phase && a.Task == b.Task && slices.Equal(a.Splits, b.Splits)
}

// look returns what is to be done, which version of it that is, and a channel that is closed by the next change.
func (m *member) look() (a ps.Assignment, version uint64, changed <-chan struct{}, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now, m.version, m.changed, m.err
}

// next waits for something to do of a version above handled. ok is false when the run is drained before.
func (m *member) next(ctx context.Context, drain <-chan struct{}, handled uint64) (a ps.Assignment, version uint64, ok bool, err error) {
	for {
		a, version, changed, err := m.look()
		if err != nil {
			return a, version, false, err
		}
		if version > handled && a.Task != ps.StandBy {
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

// until returns a channel that is closed when work of a version is no more what is to be done, when the job has trained
// maxRows examples (full is then true), or when drain is. stop must be called.
func (m *member) until(drain <-chan struct{}, version uint64, maxRows int64) (ended <-chan struct{}, full func() bool, stop func()) {
	out, quit := make(chan struct{}), make(chan struct{})
	enough := false
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			a, v, changed, err := m.look()
			enough = maxRows > 0 && a.Rows >= maxRows
			if v != version || err != nil || enough {
				close(out)
				return
			}
			select {
			case <-changed:
			case <-drain:
				close(out)
				return
			case <-quit:
				return
			}
		}
	})
	var once sync.Once
	stop = func() { once.Do(func() { close(quit); wg.Wait() }) }
	return out, func() bool { stop(); return enough }, stop
}

// tell reports what the run does with an assignment, and remembers it for a coordinator that is started again.
func (m *member) tell(ctx context.Context, r ps.Report) error {
	m.mu.Lock()
	id := m.id
	m.report = r
	m.mu.Unlock()
	err := m.shards.Report(ctx, id, r)
	if errors.Is(err, ps.ErrRejoin) {
		return nil // listen joins again, with this report
	}
	return err
}

// began remembers what the run works on.
func (m *member) began(a ps.Assignment) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.report = ps.Report{Generation: a.Generation, Phase: a.Phase, Owned: a.Splits}
}

// expelled tells why the coordinator has replaced this worker; nil when it has not.
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

// leave ends the membership and tells whether it was the last.
func (m *member) leave(ctx context.Context) (last bool, err error) {
	m.close()
	return m.shards.Leave(ctx, m.id)
}

// close ends the goroutine; the coordinator notices soon. It may be called more than once.
func (m *member) close() {
	m.stop()
	<-m.done
}

package beam

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/monolith-go/monolith/pipeline"
)

// lease is an executor that lives in the process as long as bundles of its task renew it. Its goroutine is joined by
// who receives from done; it cancels, joins, drains and releases as [pipeline.Segment.Run] does (invariant 3).
type lease struct {
	run   *runState
	task  task
	again bool // an earlier executor of this process had the task

	taken  *atomic.Int64
	enough <-chan struct{}
	expiry *time.Timer // stops the executor; guarded by run.mu, as is the lease's place in run.mu.leases
	cancel context.CancelCauseFunc
	drain  chan struct{} // closed by endEarly, as stop is
	stop   chan struct{}
	once   struct{ drain, stop sync.Once }
	done   chan struct{}

	// What the executor returned; to be read when done is closed.
	stats pipeline.RunStats
	err   error

	mu struct {
		sync.Mutex
		at    map[pipeline.SplitID]pipeline.Progress
		times map[pipeline.SplitID]int64 // watermark of each split, microseconds
		seen  int64                      // account at the last bundle
		taken int64                      // what the executor has counted for MaxRows
	}
}

// acquire renews the lease of a task, or begins one; fresh reports which.
func (r *runState) acquire(ctx context.Context, t task) (l *lease, fresh bool, err error) {
	built, err := r.graph()
	if err != nil {
		return nil, false, err
	}
	for {
		r.mu.Lock()
		if err := context.Cause(r.ctx); err != nil {
			r.mu.Unlock()
			return nil, false, err
		}
		l = r.mu.leases[t.Index]
		if l == nil {
			l = r.newLease(t, built) // unlocks
			return l, true, nil
		}
		alive := l.expiry.Stop()
		if alive {
			l.expiry.Reset(time.Duration(r.spec.Lease))
		}
		r.mu.Unlock()
		if alive {
			return l, false, nil
		}
		// The lease has run out: the next executor begins when it has ended.
		select {
		case <-l.done:
			l.abandon()
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

// newLease begins an executor. It is called with run.mu locked and unlocks it.
func (r *runState) newLease(t task, built *Built) *lease {
	l := &lease{run: r, task: t, again: r.mu.had[t.Index], drain: make(chan struct{}), stop: make(chan struct{}), done: make(chan struct{})}
	l.mu.at, l.mu.times = map[pipeline.SplitID]pipeline.Progress{}, map[pipeline.SplitID]int64{}
	l.taken, l.enough = r.takenOf(t.Segment), r.enoughOf(t.Segment)
	var ctx context.Context
	ctx, l.cancel = context.WithCancelCause(r.ctx)
	l.expiry = time.AfterFunc(time.Duration(r.spec.Lease), func() {
		r.logger.Warn("no bundle has come for an executor, it is stopped", "task", t.Index, "lease", time.Duration(r.spec.Lease))
		l.cancel(fmt.Errorf("beam: task %d: %w", t.Index, ErrLease))
		<-l.done
		l.abandon()
	})
	r.mu.leases[t.Index] = l
	if r.mu.draining {
		l.endEarly(r.mu.stopping)
	}
	r.mu.Unlock()
	process.stay(r)
	go l.execute(ctx, built)
	return l
}

func (l *lease) execute(ctx context.Context, built *Built) {
	defer close(l.done)
	defer l.cancel(nil)
	s := l.run.spec
	l.stats, l.err = built.Plan.Segments[l.task.Segment].Run(ctx, pipeline.RunOptions{
		Workers: l.task.Lanes, Deterministic: s.Deterministic, MaxRows: s.MaxRows, Splits: l.task.Splits, Interleave: s.Interleave,
		Env:   l.task.env(built),
		Drain: l.drain, Stop: l.stop, Enough: l.enough, IdleEvery: time.Duration(s.IdleEvery), Reached: l.reached, Taken: l.take,
	})
	if l.stats.Full {
		l.run.full(l.task.Segment)
	}
}

// renew keeps the lease for as long again, unless it has run out already.
func (l *lease) renew() {
	l.run.mu.Lock()
	defer l.run.mu.Unlock()
	if l.expiry.Stop() {
		l.expiry.Reset(time.Duration(l.run.spec.Lease))
	}
}

// expired reports whether the executor, which has ended, did so because its lease ran out.
func (l *lease) expired() bool { return errors.Is(l.err, ErrLease) }

// endEarly drains the executor, or stops it now.
func (l *lease) endEarly(now bool) {
	l.once.drain.Do(func() { close(l.drain) })
	if now {
		l.once.stop.Do(func() { close(l.stop) })
	}
}

// remove takes an ended lease out of its run, unless that has been done.
func (l *lease) remove(atOnce func()) {
	r := l.run
	r.mu.Lock()
	l.expiry.Stop()
	there := r.mu.leases[l.task.Index] == l
	if there {
		delete(r.mu.leases, l.task.Index)
		atOnce()
	}
	r.mu.Unlock()
	if there {
		process.leave(r)
	}
}

// abandon removes an ended executor whose record no runner will bring. What it did counts; what it took for MaxRows is
// taken again by the next, which resumes it.
func (l *lease) abandon() {
	l.remove(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken.Add(-l.mu.taken)
		l.run.addLocked(l.record())
		l.run.mu.had[l.task.Index] = true
	})
}

// reached is the executor's report of progress.
func (l *lease) reached(split pipeline.SplitID, at pipeline.Progress, watermark int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.at[split] = at
	l.mu.times[split] = max(l.mu.times[split], watermark)
}

// take counts rows for the bound that all executors of a segment share in the process.
func (l *lease) take(rows int64) int64 {
	l.mu.Lock()
	l.mu.taken += rows
	l.mu.Unlock()
	return l.taken.Add(rows)
}

// wait returns when the executor has ended, with true, or after a while: the run's renewal period shared among the tasks
// of this process, which its runner may process one after the other. An executor without new results is asked less often.
func (l *lease) wait(ctx context.Context) (ended bool, err error) {
	l.run.mu.Lock()
	tasks := len(l.run.mu.leases)
	l.run.mu.Unlock()
	d := time.Duration(l.run.spec.Renew)
	if l.quiet() {
		d = min(idleFactor*d, time.Duration(l.run.spec.Lease)/4)
	}
	t := time.NewTimer(d / time.Duration(max(tasks, 1)))
	defer t.Stop()
	select {
	case <-l.done:
		return true, nil
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// quiet reports whether nothing was done since the last call of progress.
func (l *lease) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.task.account(l.mu.at) == l.mu.seen
}

// progress is how far the executor is, in the unit of the task's restriction, and the time up to which all its splits are
// done, in microseconds; 0: not known.
func (l *lease) progress() (account, upTo int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.seen = l.task.account(l.mu.at)
	for i, s := range l.task.Splits {
		if t := l.mu.times[s.ID()]; i == 0 || t < upTo {
			upTo = t
		}
	}
	return l.mu.seen, upTo
}

func (l *lease) record() record {
	rec := record{Run: l.run.spec.Run, Task: l.task.Index, Segment: l.task.Segment, Again: l.again, Stats: l.stats}
	for id, p := range l.stats.Splits {
		rec.Splits = append(rec.Splits, splitProgress{id, p})
	}
	return rec
}

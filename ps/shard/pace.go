package shard

import (
	"context"
	"runtime"
	"sync"
	"time"
)

const (
	// paceShare is how much of the process's processors its writers of snapshots take together while workers push: training that
	// uses all of them is slowed down by little more than that.
	paceShare = 0.05
	// paceFree is how much work is done before a writer begins to wait: small tables are not worth it.
	paceFree = 50 * time.Millisecond
	// paceLongest bounds how long a writer waits for in all, so that a snapshot of a very large table ends: the rest is written as fast
	// as it can be.
	paceLongest = 2 * time.Minute
	// paceSilence is after how long without a change of the state nobody is in a writer's way, paceAlone after how long a writer may have all
	// processors: a step may take longer than the one.
	paceSilence = 100 * time.Millisecond
	paceAlone   = time.Second
	// pacePiece is the most that counts as work between two calls of pause. What takes longer waits for the disk or for a processor.
	pacePiece = 2 * time.Millisecond
	// paceNap is how long a wait is, at least: shorter ones are saved up.
	paceNap = 5 * time.Millisecond
)

// pace spreads the work of a snapshot's writer over time while streams change the state. The goroutines of one writer call pause without a
// lock about once a millisecond; of those that wait the others wait for one.
type pace struct {
	ctx context.Context
	// calls counts those of clients that change something.
	calls func() uint64
	now   func() time.Time
	sleep func(context.Context, time.Duration)
	// factor is how long to wait for a piece of work, of its length; most is how many threads a writer may have at all.
	factor  float64
	most    int
	hurries bool

	mu                 sync.Mutex
	since, active      time.Time // when the work continued, and when the last change was seen; a zero active: never
	seen               uint64
	worked, owed, idle time.Duration // idle: waited in all
}

// newPace makes the pace of one of so many writers of a process. alone says that no client has a stream, so that nobody is in the way
// until one changes something.
func newPace(ctx context.Context, writers int, alone bool, calls func() uint64) *pace {
	processors, writers := runtime.GOMAXPROCS(0), max(writers, 1)
	share := min(paceShare*float64(processors)/float64(writers), 1)
	p := &pace{
		ctx: ctx, calls: calls, now: time.Now, sleep: sleep, factor: 1/share - 1, most: max(processors/writers, 1), seen: calls(),
	}
	if !alone {
		p.active = time.Now()
	}
	return p
}

// hurry lets the writer have all processors, and wait for nobody, also while clients change the state.
func (p *pace) hurry() { p.hurries = true }

// Pause returns a function that makes other work on snapshots as slow as that of the node's writer. It is called
// without a lock about once a millisecond.
func (n *Node) Pause(ctx context.Context) func() {
	return newPace(ctx, n.opts.Writers, false, n.calls.Load).pause
}

// threads is how many threads a writer may have now.
func (p *pace) threads() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hurries || p.silent(p.now()) > paceAlone {
		return p.most
	}
	return 1
}

// silent is for how long nothing was changed. It needs the lock.
func (p *pace) silent(now time.Time) time.Duration {
	if n := p.calls(); n != p.seen {
		p.seen, p.active = n, now
	}
	return now.Sub(p.active)
}

// pause waits if it is time to.
func (p *pace) pause() {
	runtime.Gosched() // streams go first: a push waits for every shard, and the scheduler's own turns are 10 ms
	if p.hurries {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.since.IsZero() {
		p.since = now
	}
	piece := min(now.Sub(p.since), pacePiece)
	p.since = now
	silent := p.silent(now)
	switch p.worked += piece; {
	case p.worked < paceFree || p.idle >= paceLongest:
		return
	case silent > paceSilence:
		p.owed = 0
		return
	}
	if p.owed += time.Duration(float64(piece) * p.factor); p.owed < paceNap {
		return
	}
	p.sleep(p.ctx, p.owed)
	p.idle, p.owed = p.idle+p.owed, 0
	p.since = p.now()
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

package pipeline

import (
	"context"
	"time"
)

// queue is a bounded prefetch queue: one goroutine puts and closes, one gets.
type queue struct {
	name  string
	ch    chan item
	hooks *Hooks
}

// item is what a queue holds: an element and, in the queue of a split, the exit that it goes to; or the notice that a split
// gives nothing any more, or for a while, or does again.
type item struct {
	e      Element
	exit   int
	silent *silence
}

func newQueue(name string, depth int, hooks *Hooks) *queue {
	return &queue{name: name, ch: make(chan item, depth), hooks: hooks}
}

// put hands an item on, waiting for room. It owns the element even when it fails.
func (q *queue) put(ctx context.Context, it item) error {
	select {
	case q.ch <- it:
		q.hooks.QueueLen(q.name, len(q.ch), cap(q.ch))
		return nil
	default:
	}
	start := time.Now()
	select {
	case q.ch <- it:
		q.hooks.QueueWait(q.name, "put", time.Since(start))
		q.hooks.QueueLen(q.name, len(q.ch), cap(q.ch))
		return nil
	case <-ctx.Done():
		if it.e != nil {
			it.e.Release()
		}
		return context.Cause(ctx)
	}
}

// got reports to the hooks an element taken from ch by someone who waited since start.
func (q *queue) got(start time.Time) {
	q.hooks.QueueWait(q.name, "get", time.Since(start))
	q.hooks.QueueLen(q.name, len(q.ch), cap(q.ch))
}

// close ends the queue: what is in it can still be taken.
func (q *queue) close() { close(q.ch) }

// drain releases what nobody took and counts its rows, as far as those of an exit count. Both sides must have ended.
func (q *queue) drain(counts func(exit int) bool) (rows int) {
	for {
		select {
		case it, ok := <-q.ch:
			if !ok {
				return rows
			}
			if it.e == nil {
				continue
			}
			if counts(it.exit) {
				rows += it.e.NumRows()
			}
			it.e.Release()
		default:
			return rows
		}
	}
}

package pipeline

import (
	"context"
	"time"
)

// queue is a bounded prefetch queue: one goroutine puts and closes, one gets.
type queue struct {
	name  string
	ch    chan Element
	hooks Hooks
}

func newQueue(name string, depth int, hooks Hooks) *queue {
	return &queue{name: name, ch: make(chan Element, depth), hooks: hooks}
}

// put hands e on, waiting for room. It owns e even when it fails.
func (q *queue) put(ctx context.Context, e Element) error {
	select {
	case q.ch <- e:
		q.hooks.QueueLen(q.name, len(q.ch), cap(q.ch))
		return nil
	default:
	}
	start := time.Now()
	select {
	case q.ch <- e:
		q.hooks.QueueWait(q.name, "put", time.Since(start))
		q.hooks.QueueLen(q.name, len(q.ch), cap(q.ch))
		return nil
	case <-ctx.Done():
		e.Release()
		return context.Cause(ctx)
	}
}

// got tells the hooks of an element taken from ch by someone who waited since start.
func (q *queue) got(start time.Time) {
	q.hooks.QueueWait(q.name, "get", time.Since(start))
	q.hooks.QueueLen(q.name, len(q.ch), cap(q.ch))
}

// close ends the queue: what is in it can still be taken.
func (q *queue) close() { close(q.ch) }

// drain releases what nobody took and counts its rows. Both sides must have ended.
func (q *queue) drain() (rows int) {
	for {
		select {
		case e, ok := <-q.ch:
			if !ok {
				return rows
			}
			rows += e.NumRows()
			e.Release()
		default:
			return rows
		}
	}
}

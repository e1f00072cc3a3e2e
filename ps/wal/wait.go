package wal

import (
	"context"
	"fmt"
	"slices"
)

// waiter is somebody in Wait. They are used again, so that waiting costs no memory.
type waiter struct {
	lsn   uint64
	err   error
	ready chan struct{} // of one place; filled under the lock by the goroutine that takes the waiter off the list
}

// wait is [ShardLog.Wait].
func (l *Log) wait(ctx context.Context, lsn uint64) error {
	l.mu.Lock()
	if done, err := l.decided(lsn); done {
		l.mu.Unlock()
		return err
	}
	var w *waiter
	if n := len(l.mu.idle); n > 0 {
		w, l.mu.idle = l.mu.idle[n-1], l.mu.idle[:n-1]
	} else {
		w = &waiter{ready: make(chan struct{}, 1)}
	}
	w.lsn, w.err = lsn, nil
	l.mu.waiters = append(l.mu.waiters, w)
	l.mu.Unlock()

	var gaveUp bool
	select {
	case <-w.ready:
	case <-ctx.Done():
		gaveUp = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := w.err
	if gaveUp {
		if i := slices.Index(l.mu.waiters, w); i >= 0 {
			l.mu.waiters = slices.Delete(l.mu.waiters, i, i+1)
			err = fmt.Errorf("wal: waiting for record %d: %w", lsn, context.Cause(ctx))
		} else {
			// The answer came between the two; it is the better one.
			<-w.ready
			err = w.err
		}
	}
	l.mu.idle = append(l.mu.idle, w)
	return err
}

// decided reports whether it is known what becomes of a record. The lock is held.
func (l *Log) decided(lsn uint64) (bool, error) {
	switch {
	case l.mu.state != opened && lsn <= l.mu.durable:
		return true, nil
	case l.mu.err != nil:
		return true, l.mu.err
	case l.mu.state == opened:
		return true, fmt.Errorf("wal: wait before begin: %w", ErrState)
	case lsn >= l.mu.next:
		return true, fmt.Errorf("wal: waiting for record %d, the next is %d: %w", lsn, l.mu.next, ErrState)
	case l.mu.state == closed:
		return true, fmt.Errorf("wal: %s: %w", l.o.Dir, ErrClosed)
	}
	return false, nil
}

// wake answers the waiters about whom something is known. The lock is held.
func (l *Log) wake() {
	left := l.mu.waiters[:0]
	for _, w := range l.mu.waiters {
		done, err := l.decided(w.lsn)
		if !done {
			left = append(left, w)
			continue
		}
		w.err = err
		w.ready <- struct{}{}
	}
	clear(l.mu.waiters[len(left):])
	l.mu.waiters = left
	l.tellFollowers()
	l.room.Broadcast()
}

// tellFollowers lets those look again that wait for more. The lock is held.
func (l *Log) tellFollowers() {
	if l.mu.grown != nil {
		close(l.mu.grown)
		l.mu.grown = nil
	}
}

package wire

import (
	"sync"
	"time"
)

// sayAfter is how long a shard may be silent while calls wait for it without a word. A server that is busy with a call is not silent: it says so every second.
const sayAfter = 5 * time.Second

// silence logs that a shard does not answer, and that it does again: each once for all that wait, however many workers of the process these are. Methods may
// overlap.
type silence struct {
	mu      sync.Mutex
	waiting map[*Conn]bool
	since   time.Time // of the first of them
}

// waits notes that a call of a connection has heard nothing since a time, and why.
func (s *silence) waits(c *Conn, since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[c] {
		return
	}
	if len(s.waiting) == 0 {
		s.waiting, s.since = map[*Conn]bool{}, since
		c.opts.Logger.Warn("waiting for a shard that does not answer", "shard", c.hello.Shard, "addr", c.addr(), "silent", time.Since(since).Round(time.Millisecond), "at_most", c.opts.RetryFor, "err", err)
	}
	s.waiting[c] = true
}

// left notes that a connection waits no more: it was answered, or has given up. That the shard answers again is logged when the first of them is.
func (s *silence) left(c *Conn, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.waiting[c] {
		return
	}
	delete(s.waiting, c)
	if answered {
		clear(s.waiting)
		c.opts.Logger.Info("the shard answers again", "shard", c.hello.Shard, "addr", c.addr(), "duration", time.Since(s.since).Round(time.Millisecond))
	}
}

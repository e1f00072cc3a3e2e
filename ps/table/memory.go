package table

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Memory is what the tables of a process may take together: rows, indexes, and the copies that cuts keep. The nil Memory
// has no limit. Its methods may overlap.
type Memory struct {
	o  MemoryOptions
	mu struct {
		sync.Mutex
		used int64
		// unasked is what was taken since the machine was asked last.
		unasked int64
	}
	work struct {
		sync.Mutex
		used    int64
		waiting []*claim // the first is served first
	}
	free sync.Pool // of *Work
}

// Work is what a snapshot writer fills and writes again and again. Its slices keep their memory between writers.
type Work struct {
	m     *Memory
	bytes int64
	// Rows are the rows of two record batches.
	Rows [2]Rows
	// Columns are copies of parts of their rows.
	Columns [][]float32
}

// claim is a writer that waits for memory to work with.
type claim struct {
	bytes int64
	given chan struct{}
}

// askEvery is after how many bytes the machine is asked again what it has left.
const askEvery = 4 << 20

// MemoryOptions say how much memory tables may take.
type MemoryOptions struct {
	// Limit is how many bytes.
	Limit int64
	// Of says whose limit it is, for errors: "the limit of cgroup /x, 4 GiB". Do, if not empty, is what helps who needs more.
	Of, Do string
	// Changed, if not nil, is called with how many bytes are taken outside of the Go heap, whenever that has changed, one call at a time.
	// It must not call back.
	Changed func(mapped int64)
	// Free, if not nil, is how many bytes the machine or the process's control group has left, regardless of who has the rest. Below Least nothing more is
	// taken. ok is false when that is not known.
	Free  func() (bytes int64, ok bool)
	Least int64
	// Reclaim, if not nil, returns memory to the system that the process has and does not use. It is called before memory is refused because of Free, and must not
	// call back.
	Reclaim func()
	// Work bounds the bytes that snapshot writers work with at the same time, beside Limit; 0: no bound.
	Work int64
}

// NewMemory makes a Memory of which nothing is taken.
func NewMemory(o MemoryOptions) *Memory { return &Memory{o: o} }

// Limited returns a Memory of which nothing is taken, with a limit of its own, of which errors say whose it is and what to do, and all else as m has it.
func (m *Memory) Limited(limit int64, of, do string) *Memory {
	o := MemoryOptions{}
	if m != nil {
		o = m.o
	}
	o.Limit, o.Of, o.Do = limit, of, do
	return NewMemory(o)
}

// Used is how many bytes are taken.
func (m *Memory) Used() int64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.used
}

// Limit is how many bytes may be taken, and whose limit that is; 0: there is none.
func (m *Memory) Limit() (bytes int64, of string) {
	if m == nil {
		return 0, ""
	}
	return m.o.Limit, m.o.Of
}

// Room is how many bytes may still be taken, as far as the machine has them now; -1 where there is no limit to tell by.
func (m *Memory) Room() int64 {
	if m == nil {
		return -1
	}
	room := m.o.Limit - m.Used()
	if m.o.Free != nil {
		if free, ok := m.o.Free(); ok {
			room = min(room, free-m.o.Least)
		}
	}
	return max(room, 0)
}

// take takes memory, or says why it cannot be had.
func (m *Memory) take(n int64) error {
	if m == nil || n == 0 {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.mu.used
	if n > m.o.Limit-used {
		return fmt.Errorf("all tables of the process take %s of %s (%s)", size(used), size(m.o.Limit), m.whose())
	}
	if m.mu.unasked += n; m.mu.unasked >= askEvery && m.o.Free != nil {
		free, ok := m.o.Free()
		if ok && n > free-m.o.Least && m.o.Reclaim != nil {
			m.o.Reclaim()
			free, ok = m.o.Free()
		}
		if ok && n > free-m.o.Least {
			return fmt.Errorf("all tables of the process take %s of %s (%s), but the machine or the control group has only %s left for everything",
				size(used), size(m.o.Limit), m.whose(), size(max(free, 0)))
		}
		m.mu.unasked = 0
	}
	m.add(n)
	return nil
}

// WorkLimit is how many bytes snapshot writers may work with together; 0: there is no bound.
func (m *Memory) WorkLimit() int64 {
	if m == nil {
		return 0
	}
	return m.o.Work
}

// Borrow waits until a snapshot writer may work with so many bytes. More than the bound counts as the bound, so a writer that is alone never waits.
// Return the memory with [Work.Release]. Errors: the context's.
func (m *Memory) Borrow(ctx context.Context, bytes int64) (*Work, error) {
	if m == nil {
		return &Work{}, nil
	}
	if m.o.Work > 0 {
		bytes = min(bytes, m.o.Work)
		w := &m.work
		w.Lock()
		if w.used+bytes > m.o.Work || len(w.waiting) > 0 {
			c := &claim{bytes, make(chan struct{})}
			w.waiting = append(w.waiting, c)
			w.Unlock()
			select {
			case <-c.given:
			case <-ctx.Done():
				m.withdraw(c)
				return nil, context.Cause(ctx)
			}
		} else {
			w.used += bytes
			w.Unlock()
		}
	}
	out, _ := m.free.Get().(*Work)
	if out == nil {
		out = &Work{m: m}
	}
	out.bytes = bytes
	return out, nil
}

// withdraw ends a claim whose writer has given up, whether it was served meanwhile or not.
func (m *Memory) withdraw(c *claim) {
	w := &m.work
	w.Lock()
	defer w.Unlock()
	if i := slices.Index(w.waiting, c); i >= 0 {
		w.waiting = slices.Delete(w.waiting, i, i+1)
	} else {
		w.used -= c.bytes
	}
	m.serve()
}

// serve serves the claims that there is room for now, in their order. It needs the lock of work.
func (m *Memory) serve() {
	w := &m.work
	for len(w.waiting) > 0 && w.used+w.waiting[0].bytes <= m.o.Work {
		w.used += w.waiting[0].bytes
		close(w.waiting[0].given)
		w.waiting = w.waiting[1:]
	}
}

// Extend asks for more bytes to work with, without waiting, and reports whether there are.
func (w *Work) Extend(bytes int64) bool {
	m := w.m
	if m == nil || m.o.Work <= 0 {
		return true
	}
	m.work.Lock()
	defer m.work.Unlock()
	if m.work.used+bytes > m.o.Work || len(m.work.waiting) > 0 {
		return false
	}
	m.work.used += bytes
	w.bytes += bytes
	return true
}

// Release returns what was borrowed. The caller must not use it any more.
func (w *Work) Release() {
	m := w.m
	if m == nil {
		return
	}
	if m.o.Work > 0 {
		m.work.Lock()
		m.work.used -= w.bytes
		m.serve()
		m.work.Unlock()
	}
	m.free.Put(w)
}

// whose says whose limit it is, and what helps.
func (m *Memory) whose() string {
	if m.o.Do == "" {
		return m.o.Of
	}
	return m.o.Of + "; " + m.o.Do
}

// give gives memory back.
func (m *Memory) give(n int64) {
	if m == nil || n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.add(-n)
}

func (m *Memory) add(n int64) {
	m.mu.used += n
	if m.o.Changed != nil {
		m.o.Changed(m.mu.used)
	}
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}

package table

import (
	"fmt"
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
	// Free, if not nil, is how many bytes the machine has left, regardless of who has the rest; below Least nothing more is taken. ok is
	// false when that is not known.
	Free  func() (bytes int64, ok bool)
	Least int64
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
		if free, ok := m.o.Free(); ok && n > free-m.o.Least {
			return fmt.Errorf("all tables of the process take %s of %s (%s), but the machine has only %s left for all its programs",
				size(used), size(m.o.Limit), m.whose(), size(max(free, 0)))
		}
		m.mu.unasked = 0
	}
	m.add(n)
	return nil
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

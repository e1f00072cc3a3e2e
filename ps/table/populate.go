package table

import "sync"

const (
	// aheadBytes is how much memory is populated ahead of growth, at most.
	aheadBytes = 32 << 20
	// populateBytes is how much of it at once: a huge page.
	populateBytes = 2 << 20
)

// populator makes the system give pages to mappings before they are touched: the first touch of a huge page takes as long as
// thousands of lookups, more on a virtual machine. One goroutine does it while there is something
// to do; close ends it.
type populator struct {
	mu struct {
		sync.Mutex
		queue   [][]byte
		running bool
		closed  bool
	}
	done sync.WaitGroup
}

// extend has b populated up to the end of the huge page of a place, where it is up to from, and returns up to where it is then. Rounding
// down would leave the page in which growth is to the goroutine that grows, where a page is worth more rows than are made ready ahead.
func (p *populator) extend(b []byte, from, to int) int {
	to = min((to+populateBytes-1)/populateBytes*populateBytes, len(b))
	if to <= from {
		return from
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.queue = append(p.mu.queue, b[from:to])
	if !p.mu.running && !p.mu.closed {
		p.mu.running = true
		p.done.Go(p.run)
	}
	return to
}

func (p *populator) run() {
	for {
		b := p.take()
		if b == nil {
			return
		}
		populateMemory(b)
	}
}

// take returns the next page to populate; nil ends the goroutine.
func (p *populator) take() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed || len(p.mu.queue) == 0 {
		p.mu.running = false
		return nil
	}
	b := p.mu.queue[0]
	n := min(populateBytes, len(b))
	if n == len(b) {
		p.mu.queue = append(p.mu.queue[:0], p.mu.queue[1:]...)
	} else {
		p.mu.queue[0] = b[n:]
	}
	return b[:n]
}

// close ends it before mappings go away.
func (p *populator) close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.done.Wait()
}

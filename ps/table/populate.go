package table

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// aheadBytes is how much memory is populated ahead of growth, at most.
	aheadBytes = 32 << 20
	// populateBytes is how much of it at once: a huge page.
	populateBytes = 2 << 20
	// populators is how many goroutines do it for growth at most: rows are made faster than the system gives pages.
	populators = 2
	// leastPage is what a page takes at least.
	leastPage = 100 * time.Microsecond
	// shortestWait and longestWait bound what growth waits at once.
	shortestWait, longestWait = 100 * time.Microsecond, time.Millisecond
)

// populator makes the system give pages to mappings before they are touched: the first touch of a huge page takes as long as
// thousands of lookups, more on a virtual machine. Goroutines do it while there is something to do; close ends them. Where they are
// slower than growth, that waits a little after each update ([populator.wait]), in place of the time of whole pages now and then.
type populator struct {
	mu struct {
		sync.Mutex
		queue   []stretch
		running int
		closed  bool
		// asked is how many bytes were asked for, ever, and doing are where the pages that are being populated begin among them.
		asked int
		doing []int
		// perPage is what a page took of late.
		perPage time.Duration
	}
	done sync.WaitGroup
	// populate is [populateMemory], sleep [time.Sleep], but for tests.
	populate func([]byte)
	sleep    func(time.Duration)
	// most is how many goroutines there are at most, and yield what they call behind each piece, or nil.
	most  int
	yield func()
	// used is how many bytes there were when growth waited last, and owed what it has not waited for yet.
	used int
	owed time.Duration
}

// stretch is memory to populate, which begins behind so many bytes of all that was asked for.
type stretch struct {
	b  []byte
	at int
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
	if p.mu.closed {
		return from
	}
	p.mu.queue = append(p.mu.queue, stretch{b[from:to], p.mu.asked})
	p.mu.asked += to - from
	for p.mu.running < min(p.most, (p.behind()+populateBytes-1)/populateBytes) {
		p.mu.running++
		p.done.Go(p.run)
	}
	return to
}

func newPopulator() *populator {
	p := &populator{populate: populateMemory, sleep: time.Sleep, most: populators}
	p.mu.perPage = leastPage
	return p
}

// newModestPopulator makes one for what training can do without, which goes first: it is one goroutine, which lets others run behind each piece. Go's scheduler takes
// a processor from no goroutine that is in one short call of the system after the other, and two of them held both for 20 ms and more.
func newModestPopulator() *populator {
	p := newPopulator()
	p.most, p.yield = 1, runtime.Gosched
	return p
}

// behind is how many bytes were asked for since the first that is not populated yet. Under mu.
func (p *populator) behind() int {
	first := p.mu.asked
	if len(p.mu.queue) > 0 {
		first = p.mu.queue[0].at
	}
	for _, at := range p.mu.doing {
		first = min(first, at)
	}
	return p.mu.asked - first
}

func (p *populator) run() {
	var page stretch
	var took time.Duration
	for {
		page = p.take(page, took)
		if page.b == nil {
			return
		}
		begin := time.Now()
		p.populate(page.b)
		took = time.Since(begin)
		if p.yield != nil {
			p.yield()
		}
	}
}

// take returns the next page to populate, when one that took so long is done; none ends the goroutine.
func (p *populator) take(did stretch, took time.Duration) stretch {
	p.mu.Lock()
	defer p.mu.Unlock()
	if did.b != nil {
		p.mu.doing = slices.DeleteFunc(p.mu.doing, func(at int) bool { return at == did.at })
	}
	if len(did.b) == populateBytes {
		p.mu.perPage = max(p.mu.perPage+(took/time.Duration(p.mu.running)-p.mu.perPage)/4, leastPage)
	}
	if p.mu.closed || len(p.mu.queue) == 0 {
		p.mu.running--
		return stretch{}
	}
	next := p.mu.queue[0]
	n := min(populateBytes, len(next.b))
	if n == len(next.b) {
		p.mu.queue = append(p.mu.queue[:0], p.mu.queue[1:]...)
	} else {
		p.mu.queue[0] = stretch{next.b[n:], next.at + n}
	}
	p.mu.doing = append(p.mu.doing, next.at)
	return stretch{next.b[:n], next.at}
}

// wait lets growth, which has used so many bytes in all, wait for the goroutines where they are behind. Memory is asked for in the order
// in which it is needed, and at least ahead bytes of rows and of lines lie between what is used and what was asked for last: while fewer were asked for since the first page that is
// missing, no page that is touched is. How many are missing does not say that: a goroutine whose thread waits for its turn may have the page that is needed next, while another one
// populates those behind it.
func (p *populator) wait(used, ahead int) {
	n := used - p.used
	p.used = used
	if n <= 0 {
		return
	}
	p.mu.Lock()
	behind, perPage := p.behind(), p.mu.perPage
	p.mu.Unlock()
	d := delay(n, behind, ahead, perPage)
	if d == 0 {
		p.owed = 0
		return
	}
	if p.owed += d; p.owed >= shortestWait {
		d = min(p.owed, longestWait)
		p.owed -= d
		p.sleep(d)
	}
}

// delay is how long growth by n bytes waits while pages are so many behind: not at all below a quarter of those ahead, as long as they take to be
// populated at a half, and without bound towards three quarters.
func delay(n, behind, ahead int, perPage time.Duration) time.Duration {
	const most = 64
	over, room := behind-ahead/4, ahead*3/4-behind
	if over <= 0 {
		return 0
	}
	times := float64(most)
	if room > 0 {
		times = min(most, float64(over)/float64(room))
	}
	return time.Duration(times * float64(n) / populateBytes * float64(perPage))
}

// close ends it before mappings go away.
func (p *populator) close() {
	p.mu.Lock()
	p.mu.closed = true
	p.mu.Unlock()
	p.done.Wait()
}

package table

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestDelayKeepsGrowthBehind: whatever growth and the system's pages take, growth that waits as long as it is told to uses no page that is not there, and waits
// for nothing where pages come faster than it uses them. The clock is that of the test, in which pages come one after the other.
func TestDelayKeepsGrowthBehind(t *testing.T) {
	t.Parallel()
	const piece = 10 << 10 // of an update
	for _, ahead := range []int{4 * populateBytes, aheadBytes} {
		for _, page := range []time.Duration{leastPage, time.Millisecond, 5 * time.Millisecond, 50 * time.Millisecond} {
			for _, work := range []time.Duration{time.Microsecond, 20 * time.Microsecond, time.Millisecond} {
				t.Run(fmt.Sprintf("ahead=%dMiB/page=%v/update=%v", ahead>>20, page, work), func(t *testing.T) {
					t.Parallel()
					var now, free, waited time.Duration // free: when the page under way is there
					used, asked, there, owed := 0, ahead, ahead, time.Duration(0)
					for range 50_000 {
						for there < asked && free <= now {
							there += populateBytes
							free += page
						}
						if there >= asked {
							free = now + page
						}
						now += work
						if used += piece; used > there {
							t.Fatalf("at %v: %d bytes are used, %d are there", now, used, there)
						}
						for asked < used+ahead {
							asked += populateBytes
						}
						d := delay(piece, asked-there, ahead, page)
						if d == 0 {
							owed = 0
						} else if owed += d; owed >= shortestWait {
							d = min(owed, longestWait)
							now, waited, owed = now+d, waited+d, owed-d
						}
					}
					if fast := populateBytes / piece * work; page < fast && waited > 0 {
						t.Errorf("it waited for %v", waited)
					}
				})
			}
		}
	}
}

// held is a system that gives pages once it is let.
type held struct {
	mu      sync.Mutex
	let     chan struct{}
	pages   int
	running int
	most    int // running at once
}

func (h *held) populate([]byte) {
	h.mu.Lock()
	h.running++
	h.most = max(h.most, h.running)
	h.mu.Unlock()
	<-h.let
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	h.pages++
}

// TestGrowthWaitsForPages: updates that make rows wait, a little each, while pages do not come, and others do not; once all are there nobody does.
func TestGrowthWaitsForPages(t *testing.T) {
	t.Parallel()
	const dim, batch = 16, 64
	tab := New(param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: dim, Init: param.Uniform(-.1, .1), Optimizer: optim.Adagrad{LR: .1}}}}, 1, nil)
	defer tab.Close()
	var waits []time.Duration
	h := &held{let: make(chan struct{})}
	p := tab.index.populate
	p.populate, p.sleep = h.populate, func(d time.Duration) { waits = append(waits, d) }
	u := Update{LR: 1, Keys: make([]int64, batch), Counts: make([]uint32, batch), Grads: make([]float32, batch*dim)}
	next := 0
	grow := func(updates int) {
		for range updates {
			for i := range u.Keys {
				u.Keys[i] = int64(next)
				next++
			}
			tab.Apply(u)
		}
	}
	grow(200_000 / batch)
	if len(waits) == 0 {
		t.Fatalf("%d rows are there and none of the pages, and growth has not waited", next)
	}
	for _, d := range waits {
		if d < shortestWait || d > longestWait {
			t.Fatalf("growth waited for %v", d)
		}
	}
	before := len(waits)
	for range 1000 {
		tab.Apply(u)
	}
	if n := len(waits) - before; n > 0 {
		t.Errorf("updates that make no rows waited %d times", n)
	}
	close(h.let)
	p.done.Wait()
	waits = nil
	// Of the memory that is ready by now a quarter is used without waiting, whenever the goroutines come to the next.
	grow(max(1, min(tab.ahead(), tab.index.store.ahead()/(3*lineBytes/2))/8/batch))
	if len(waits) > 0 {
		t.Errorf("with all pages there growth waited: %v", waits)
	}
	p.done.Wait()
	if h.pages == 0 || h.most > populators || p.behind() != 0 || p.mu.running != 0 {
		t.Errorf("%d pages by %d goroutines at once; they are %d bytes behind and %d run", h.pages, h.most, p.behind(), p.mu.running)
	}
}

// TestGrowthWaitsForThePageThatIsNext: while one goroutine does not get on with its page growth waits before it comes there, though the other one populates all that is asked for behind it.
func TestGrowthWaitsForThePageThatIsNext(t *testing.T) {
	t.Parallel()
	p := newPopulator()
	defer p.close()
	var stick atomic.Bool
	let := make(chan struct{})
	p.populate = func([]byte) {
		if stick.CompareAndSwap(true, false) {
			<-let
		}
	}
	waits := 0
	p.sleep = func(time.Duration) { waits++ }
	b := make([]byte, 2*aheadBytes)
	asked := p.extend(b, 0, aheadBytes)
	p.done.Wait()
	stick.Store(true)
	for used := populateBytes / 64; used <= aheadBytes*3/4; used += populateBytes / 64 {
		asked = p.extend(b, asked, used+aheadBytes)
		for alone := false; !alone; runtime.Gosched() { // with the page that does not come
			p.mu.Lock()
			alone = len(p.mu.queue) == 0 && len(p.mu.doing) == 1
			p.mu.Unlock()
		}
		if p.wait(used, aheadBytes); used < aheadBytes/4 && waits > 0 {
			t.Fatalf("growth waits %d bytes before the page that is missing", aheadBytes-used)
		}
	}
	if waits < 10 {
		t.Errorf("growth has waited %d times where it is %d bytes before the page that is missing", waits, aheadBytes/4)
	}
	close(let)
	p.done.Wait()
	before := waits
	p.wait(aheadBytes, aheadBytes)
	if waits > before {
		t.Error("growth waits with all pages there")
	}
}

// TestModestPopulator: it is one goroutine, however much there is to do, and lets others run behind each piece.
func TestModestPopulator(t *testing.T) {
	t.Parallel()
	const pieces = 100
	h := &held{let: make(chan struct{})}
	p := newModestPopulator()
	yields, yield := 0, p.yield
	p.populate, p.yield = h.populate, func() {
		yields++ // without a lock: there is one goroutine
		if yield(); h.pages != yields {
			t.Errorf("%d pieces are done, and others were let run %d times", h.pages, yields)
		}
	}
	b := make([]byte, pieces*populateBytes)
	for to := populateBytes; to <= len(b); to += populateBytes {
		p.extend(b, to-populateBytes, to)
	}
	p.mu.Lock()
	if n := p.mu.running; n != 1 {
		t.Errorf("with %d pieces to do there are %d goroutines", pieces, n)
	}
	p.mu.Unlock()
	close(h.let)
	p.done.Wait()
	p.close()
	if h.pages != pieces || yields != pieces || h.most != 1 {
		t.Errorf("%d pieces of %d by %d goroutines at once; others were let run %d times", h.pages, pieces, h.most, yields)
	}
}

// TestRangesTakeChunksInTurn: of images that are populated ahead so many as fill a sixteenth of the ranges' chunks take about as many chunks, and never most of them at once.
func TestRangesTakeChunksInTurn(t *testing.T) {
	t.Parallel()
	im := images{arena: arena{populate: newModestPopulator()}}
	im.arena.populate.populate = func([]byte) {}
	im.fit(3)
	defer im.close()
	const part = 16
	window, taken, most := im.perChunk()*ranges/part, int64(0), int64(0)
	for i := range 4 * part * window {
		if _, _, err := im.room(Hash(int64(i))); err != nil {
			t.Fatal(err)
		}
		if i == window { // each range has its first
			taken = im.arena.taken
		}
		if i > window && i%window == 0 {
			most, taken = max(most, im.arena.taken-taken), im.arena.taken
		}
	}
	if most /= chunkBytes; most > 3*ranges/part {
		t.Errorf("%d images take %d chunks at once, of %d ranges", window, most, ranges)
	}
}

// TestFirstImages: there are chunks for all ranges before a cut, and room for many rows of a large table, whose size bounds it.
func TestFirstImages(t *testing.T) {
	t.Parallel()
	for rows, want := range map[int]int{leastSpace: 16 << 20, 10_000_000: 80_000_000, 1 << 30: 128 << 20} {
		if n := firstImages(rows); n%chunkBytes != 0 || n < want-chunkBytes || n > want {
			t.Errorf("%d bytes for %d rows, about %d are wanted", n, rows, want)
		}
	}
}

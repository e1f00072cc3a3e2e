package table_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
)

// spreadSpecs are tables whose rows lie in memory, and change, in different ways.
func spreadSpecs() map[string]param.Table {
	segment := func(name string, dim int, rule optim.Optimizer) param.Segment {
		return param.Segment{Name: name, Dim: dim, Init: param.Uniform(-.1, .1), Optimizer: rule}
	}
	clipped, decayed, delayed := segment("c", 5, optim.Adagrad{}), segment("d", 3, optim.FTRL{}), segment("l", 4, optim.SGD{})
	clipped.Clip, decayed.L2, decayed.L1, delayed.Delay = .5, .01, .01, .3
	return map[string]param.Table{
		"narrow":  {Name: "t", Segments: []param.Segment{segment("w", 1, optim.FTRL{})}},
		"two":     {Name: "t", Segments: []param.Segment{segment("w", 1, optim.FTRL{}), segment("v", 16, optim.Adagrad{})}},
		"halves":  {Name: "t", Segments: []param.Segment{segment("w", 3, optim.Stored(optim.Adagrad{}, optim.BF16)), segment("v", 8, optim.Adagrad{})}},
		"clipped": {Name: "t", Segments: []param.Segment{clipped, decayed}},
		"delayed": {Name: "t", Segments: []param.Segment{delayed, segment("v", 2, optim.Adam{})}},
	}
}

// TestSpreadHasTheSameBits does the same to a table of one thread and to one of several, while rows are made, removed and kept for cuts, and changes noted: what is
// looked up, the numbers of rows and what a cut has are the same, bit for bit.
func TestSpreadHasTheSameBits(t *testing.T) {
	t.Parallel()
	for name, spec := range spreadSpecs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(7, 9))
			one, many := table.New(spec, 3, nil), table.New(spec, 3, nil)
			defer one.Close()
			defer many.Close()
			many.SetThreads(3)
			tables := []*table.Mem{one, many}
			trackers := []*table.Tracker{one.Track(false), many.Track(false)}
			lists := []*table.Tracker{one.Track(true), many.Track(true)}
			width := spec.Width(param.Train)
			var open [2]table.Cut
			for step := range 24 {
				n := []int{3, 1024, 1025, 5000, 9000, 20000}[r.IntN(6)]
				all := []int64{9000, 40000, 1 << 40}[step%3] // few are new, or most
				keys := pstest.Distinct(r, min(n, int(all)), all)
				u := table.Update{Keys: keys, Time: int64(r.IntN(1000)), LR: 1, Examples: int64(step)}
				for range keys {
					u.Counts = append(u.Counts, r.Uint32N(9))
				}
				for range len(keys) * width {
					u.Grads = append(u.Grads, r.Float32()-.5)
				}
				var looked [2][]float32
				var found [2]param.Found
				for i, tab := range tables {
					looked[i] = make([]float32, len(keys)*spec.Dim())
					tab.LookupFound(keys, looked[i], &found[i])
				}
				if !slices.Equal(looked[0], looked[1]) || !slices.Equal(found[0].Numbers, found[1].Numbers) {
					t.Fatalf("step %d: lookups of %d keys differ", step, n)
				}
				if step%5 == 3 { // what was found may be another row's
					gone := keys[:len(keys)/3]
					if a, b := one.Remove(gone), many.Remove(gone); a != b {
						t.Fatalf("step %d: %d and %d removed", step, a, b)
					}
				}
				if step%7 == 5 {
					open = [2]table.Cut{one.Cut(), many.Cut()}
				}
				for i, tab := range tables {
					u.Found = found[i]
					if err := tab.Reserve(len(keys)); err != nil {
						t.Fatal(err)
					}
					tab.Apply(u)
				}
				if step%7 == 6 && open[0] != nil {
					equalCuts(t, fmt.Sprintf("step %d", step), open[0], open[1])
					open = [2]table.Cut{}
				}
			}
			for i, of := range [][]*table.Tracker{trackers, lists} {
				a, b := of[0].Take(), of[1].Take()
				if a.NumRows() != b.NumRows() || !slices.Equal(a.Removed(), b.Removed()) {
					t.Errorf("tracker %d: %d rows changed and %d were removed, and %d and %d", i, a.NumRows(), len(a.Removed()), b.NumRows(), len(b.Removed()))
				}
			}
			equalCuts(t, "at the end", one.Cut(), many.Cut())
		})
	}
}

// equalCuts reads two cuts to their ends.
func equalCuts(t *testing.T, when string, a, b table.Cut) {
	t.Helper()
	var mu sync.Mutex
	var x, y table.Rows
	for a.Next(&mu, &x, 1<<20) {
	}
	for b.Next(&mu, &y, 1<<20) {
	}
	a.Close(&mu)
	b.Close(&mu)
	if len(x.Keys) == 0 || !slices.Equal(x.Keys, y.Keys) || !slices.Equal(x.Times, y.Times) || !slices.Equal(x.Counts, y.Counts) ||
		!slices.Equal(x.Weights, y.Weights) || !slices.Equal(x.State, y.State) {
		t.Fatalf("%s: cuts of %d and %d rows differ", when, len(x.Keys), len(y.Keys))
	}
}

// TestSpreadIsSpread: an update of rows that are there is applied by several goroutines, which an optimizer shows that waits for the others.
func TestSpreadIsSpread(t *testing.T) {
	t.Parallel()
	if !table.Vectors() {
		t.Skip("updates are not spread where rows are always found again")
	}
	const n = 4096
	rule := &meeting{}
	tab := table.New(param.Table{Name: "t", Segments: []param.Segment{{Name: "w", Dim: 1, Optimizer: rule}}}, 1, nil)
	defer tab.Close()
	tab.SetThreads(2)
	u := table.Update{Keys: pstest.Distinct(rand.New(rand.NewPCG(1, 1)), n, 1<<40), Counts: make([]uint32, n), Grads: make([]float32, n), LR: 1}
	tab.Apply(u) // makes rows
	dst := make([]float32, n)
	tab.LookupFound(u.Keys, dst, &u.Found)
	rule.begin()
	tab.Apply(u)
	if got := rule.most(); got != 2 {
		t.Errorf("%d goroutines applied an update at once, want 2", got)
	}
	rule.fails = true
	defer func() {
		if why := fmt.Sprint(recover()); !strings.Contains(why, "boom") {
			t.Errorf("an optimizer's panic came to who applies as %q", why)
		}
	}()
	tab.Apply(u)
}

// meeting is an optimizer whose first update of each goroutine waits until another one updates too.
type meeting struct {
	mu      sync.Mutex
	waiting bool
	fails   bool
	at, max int
}

func (m *meeting) begin() { m.waiting = true }

func (m *meeting) most() int { return m.max }

// StateDim implements [optim.Optimizer].
func (m *meeting) StateDim(int) int { return 0 }

// Init implements [optim.Optimizer].
func (m *meeting) Init(_, _ []float32) {}

// Name implements [optim.Optimizer].
func (m *meeting) Name() string { return "meeting" }

// String implements [optim.Optimizer].
func (m *meeting) String() string { return "meeting" }

// Update implements [optim.Optimizer].
func (m *meeting) Update(_, _, _ []float32, _ float32) {
	m.mu.Lock()
	m.at++
	m.max = max(m.max, m.at)
	fails := m.fails
	m.mu.Unlock()
	if fails {
		panic("boom")
	}
	for {
		m.mu.Lock()
		if !m.waiting || m.max > 1 {
			m.at--
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		runtime.Gosched()
	}
}

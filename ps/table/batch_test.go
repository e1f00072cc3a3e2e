package table_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/ps/pstest"
	"github.com/monolith-go/monolith/ps/table"
)

// own is a rule of another package, which knows nothing of segments.
type own struct{ optim.Optimizer }

func (own) Name() string                               { return "own" }
func (own) String() string                             { return "own()" }
func (own) StateDim(int) int                           { return 1 }
func (own) Init(_, state []float32)                    { clear(state) }
func (own) Update(w, state, grad []float32, _ float32) { state[0]++; w[0] += grad[0] }

// The way without assembly passes the same suite.
func TestPortableMem(t *testing.T) {
	if !table.Vectors() {
		t.Skip("TestMem has tested it: there is no other way here")
	}
	pstest.TestTable(t, func(_ *testing.T, spec param.Table, seed uint64) table.Table {
		return table.New(spec, seed, nil).Portable()
	})
}

// Batches of every length around the chunks, of every dimension around the width of a register, some of whose keys have no row
// or lie far from home: both ways give the same bits, whatever numbers there are.
func TestVectorBits(t *testing.T) {
	t.Parallel()
	if !table.Vectors() {
		t.Skip("there is nothing to compare")
	}
	rules := []optim.Optimizer{
		optim.Adagrad{LR: 0.05},
		optim.Adagrad{LR: 0.3, WeightDecay: 0.01},
		optim.SGD{LR: 0.1},
		optim.FTRL{LR: 0.1, L1: 0.001},
		optim.FTRL{LR: 0.1, L1: 0.1, L2: 0.3, Beta: 1},
		optim.Adam{},
		optim.Adam{Nesterov: true, WeightDecay: 0.01},
		optim.AMSGrad{},
		optim.AMSGrad{Nesterov: true, WeightDecay: 0.01},
		optim.AdagradW{WeightDecay: 0.1},
		optim.LazyAdagradW{WeightDecay: 0.1},
		optim.DenseAdam{WeightDecay: 0.1},
		optim.RowAdagrad{WeightDecay: 0.01},
		optim.GroupAdagrad{L2: 0.1},
		optim.GroupFTRL{L1: 0.1, L2: 0.3, Beta: 1},
		optim.Momentum{},
		optim.Momentum{Nesterov: true, WeightDecay: 0.01},
		optim.RMSprop{},
		optim.RMSprop{Momentum: 0.9},
		optim.Adadelta{WeightDecay: 0.01},
		optim.Stored(optim.Adagrad{LR: 0.05}, optim.BF16),
		optim.Stored(optim.Momentum{LR: 0.05}, optim.FP16),
		optim.EMA{},
		optim.Frozen{},
		own{},
	}
	r := rand.New(rand.NewPCG(1, 2))
	for longest := range 41 {
		dim := max(longest, 1)
		for i, rule := range rules {
			l2 := []float32{0, 0.02}[(dim+i)%2]
			spec := param.Table{Name: "t", Segments: []param.Segment{
				{Name: "a", Dim: 1 + dim/3, Init: param.Uniform(-1, 1), Optimizer: optim.SGD{LR: 0.2}, L2: 0.02 - l2},
				{Name: "b", Dim: dim, Init: param.Normal(0, 0.1), Optimizer: rule, L2: l2, Clip: []float32{0, 0.5, 2}[(dim+2*i)%3], Delay: []float32{0, 0.4}[(dim+i)/2%2]},
			}}
			if longest == 0 { // one weight alone, as of a logistic regression
				spec.Segments = spec.Segments[1:]
			}
			vector, portable := table.New(spec, 1, nil), table.New(spec, 1, nil).Portable()
			for _, n := range []int{0, 1, 2, 31, 32, 33, 47, 48, 49, 63, 64, 65, 96, 97, 128, 129, 256, 257, most(dim)} {
				u := table.Update{LR: 0.5 + r.Float32(), Examples: r.Int64N(1 << 20), Time: r.Int64N(1000)}
				for range n {
					u.Keys, u.Counts = append(u.Keys, key(r)), append(u.Counts, r.Uint32())
				}
				for range n * spec.Width(param.Train) {
					u.Grads = append(u.Grads, number(r))
				}
				same(t, fmt.Sprint("dim ", dim, " ", rule, ", ", n, " keys before an update"), vector, portable, u.Keys, spec.Dim())
				vector.Apply(u)
				portable.Apply(u)
				same(t, fmt.Sprint("dim ", dim, " ", rule, ", ", n, " keys"), vector, portable, u.Keys, spec.Dim())
				u.Op = param.Op(1 + (dim+n)%int(param.NumOps-1))
				u.Grads = u.Grads[:0]
				for j := range u.Keys {
					u.Keys[j] = key(r)
				}
				for range n * spec.Width(u.Op) {
					u.Grads = append(u.Grads, number(r))
				}
				vector.Apply(u)
				portable.Apply(u)
				same(t, fmt.Sprint("dim ", dim, " ", rule, ", ", n, " keys edited by ", u.Op), vector, portable, u.Keys, spec.Dim())
			}
			for k := range int64(300) {
				var a, b table.Rows
				if vector.Get(k, &a) != portable.Get(k, &b) || !slices.Equal(a.Times, b.Times) || !slices.Equal(a.Counts, b.Counts) ||
					!sameBits(a.Weights, b.Weights) || !sameBits(a.State, b.State) {
					t.Fatalf("dim %d, %v: row %d is %v, want %v", dim, rule, k, a, b)
				}
			}
			vector.Close()
			portable.Close()
		}
	}
}

// most is for how many keys batches are compared: where rows are short, for more than go through assembly at once.
func most(dim int) int {
	if dim > 4 {
		return 600
	}
	return 2050
}

// key is one of a few, or one of many with the same home, whose searches continue alike or apart.
func key(r *rand.Rand) int64 {
	if r.IntN(4) == 0 {
		return table.Unhash(r.Uint64N(40)<<58 | r.Uint64N(3)<<11 | 0x77)
	}
	return r.Int64N(300)
}

// number is a gradient, seldom one of those that break sums.
func number(r *rand.Rand) float32 {
	if r.IntN(500) == 0 {
		return []float32{0, float32(math.Copysign(0, -1)), 1e-42, 3e38, float32(math.Inf(1)), float32(math.NaN())}[r.IntN(6)]
	}
	return r.Float32() - 0.5
}

func same(t *testing.T, what string, got, want table.Table, keys []int64, dim int) {
	t.Helper()
	// The values behind the last row must not be touched.
	a, b := make([]float32, len(keys)*dim+8), make([]float32, len(keys)*dim+8)
	n, m := got.Lookup(keys, a[:len(keys)*dim]), want.Lookup(keys, b[:len(keys)*dim])
	if n != m || !sameBits(a, b) {
		t.Fatalf("%s: %d found, want %d; same values: %v", what, n, m, sameBits(a, b))
	}
}

// sameBits takes every NaN for the same: which of two a sum keeps is the compiler's choice.
func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool {
		return math.Float32bits(x) == math.Float32bits(y) || x != x && y != y
	})
}

// TestHalvesAreHalf: what a row of 64 weights takes, as the table's memory has it.
func TestHalvesAreHalf(t *testing.T) {
	t.Parallel()
	of := func(rule optim.Optimizer) int {
		spec := param.Table{Name: "t", Segments: []param.Segment{{Name: "v", Dim: 64, Optimizer: rule}}}
		tab := table.New(spec, 1, nil)
		defer tab.Close()
		const beside = 16 + 32 // time, count and the index
		if n := spec.RowBytes() - beside; n != int64(tab.RowBytes()) {
			t.Errorf("%s: limits take a row for %d bytes, it has %d", rule, n, tab.RowBytes())
		}
		return tab.RowBytes()
	}
	for _, c := range []struct {
		rule      optim.Optimizer
		full, f16 int
	}{
		{optim.SGD{}, 256, 132},
		{optim.RowAdagrad{}, 260, 136},
		{optim.Adagrad{}, 512, 388},
	} {
		for _, v := range []optim.ValueType{optim.BF16, optim.FP16} {
			if full, half := of(c.rule), of(optim.Stored(c.rule, v)); full != c.full || half != c.f16 {
				t.Errorf("%s: %d bytes in float32 and %d in %s, want %d and %d", c.rule, full, half, v, c.full, c.f16)
			}
		}
		if reader := of(optim.Frozen{Values: optim.BF16}); reader != 128 {
			t.Errorf("a reader's row has %d bytes, want 128", reader)
		}
	}
}

// TestLookupBesideCollector looks up ids that have no rows into memory that fills its span of the heap, while the garbage collector runs: it ends a program that keeps a
// pointer to what lies behind.
func TestLookupBesideCollector(t *testing.T) {
	t.Parallel()
	const n, dim = 500, 20 // 40,000 bytes
	m := table.New(param.Table{Name: "t", Segments: []param.Segment{{Name: "w", Dim: dim, Init: param.Normal(0, 1), Optimizer: optim.SGD{LR: 1}}}}, 1, nil)
	defer m.Close()
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = int64(i)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	for range 200 {
		if found := m.Lookup(keys, make([]float32, dim*len(keys))); found != 0 {
			t.Fatalf("%d rows in an empty table", found)
		}
	}
	close(stop)
	<-stopped
}

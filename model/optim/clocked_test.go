package optim_test

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
)

// times are those of updates: far apart and near, from 0 and from beyond what one float32 counts to, and now and then one back.
func times(rng *rand.Rand, n int) []int64 {
	t, out := rng.Int64N(2)*(1<<40+12345), make([]int64, n)
	for i := range out {
		out[i] = t
		if t += rng.Int64N(1 << (1 + rng.IntN(12))); rng.IntN(8) == 0 {
			t = max(t-500, 0)
		}
	}
	return out
}

// TestLazyAdagradWFollowsFloat64Reference: the formula with the time in one integer and its decay by math.Exp.
func TestLazyAdagradWFollowsFloat64Reference(t *testing.T) {
	t.Parallel()
	const lr, decay, every = 0.1, 0.02, 300
	rule := optim.LazyAdagradW{LR: lr, InitialAccumulator: 0.5, WeightDecay: decay, Every: every}
	for dim := 1; dim < 20; dim++ {
		rng := rand.New(rand.NewPCG(uint64(dim), 1))
		w, state, g := make([]float32, dim), make([]float32, rule.StateDim(dim)), make([]float32, dim)
		want, sums := make([]float64, dim), slices.Repeat([]float64{0.5}, dim)
		for k := range w {
			w[k] = rng.Float32() - 0.5
			want[k] = float64(w[k])
		}
		rule.Init(w, state)
		last := int64(-1)
		for step, at := range times(rng, 300) {
			factor := float64(rng.Float32())
			keep := 1.0
			if last >= 0 && at > last {
				keep = math.Exp(-lr * factor * decay * float64(at-last) / every)
			}
			last = max(last, at)
			for k := range g {
				g[k] = rng.Float32() - 0.5
				sums[k] += float64(g[k]) * float64(g[k])
				want[k] = keep*want[k] - lr*factor*float64(g[k])/math.Sqrt(sums[k])
			}
			optim.Apply(rule, w, state, g, float32(factor), at)
			for k := range w {
				if math.Abs(float64(w[k])-want[k]) > 2e-5 {
					t.Fatalf("dim %d, step %d at %d: element %d is %v, want %v", dim, step, at, k, w[k], want[k])
				}
			}
		}
	}
}

// TestLazyDecayIsOfTime: what a weight has decayed does not depend on how many updates there were in between, and AdagradW's does.
func TestLazyDecayIsOfTime(t *testing.T) {
	t.Parallel()
	run := func(rule optim.Optimizer, at ...int64) float64 {
		w, state, g := []float32{1}, make([]float32, rule.StateDim(1)), []float32{0}
		rule.Init(w, state)
		for _, at := range at {
			optim.Apply(rule, w, state, g, 1, at)
		}
		return float64(w[0])
	}
	lazy := optim.LazyAdagradW{LR: 0.1, WeightDecay: 0.5, Every: 100}
	once, often := run(lazy, 0, 10_000), run(lazy, 0, 1, 300, 301, 4000, 3000, 5000, 9999, 10_000)
	if want := math.Exp(-0.1 * 0.5 * 100); math.Abs(once/want-1) > 1e-4 || math.Abs(often/want-1) > 1e-4 {
		t.Errorf("10,000 examples leave %v, or %v with updates in between, want %v", once, often, want)
	}
	w := optim.AdagradW{LR: 0.1, WeightDecay: 0.5}
	if once, often := run(w, 0, 10_000), run(w, 0, 1, 300, 301, 4000, 3000, 5000, 9999, 10_000); math.Abs(once-often) < 0.1 {
		t.Errorf("AdagradW leaves %v and %v: the control shows nothing", once, often)
	}
	if got := run(lazy, 1<<40); got != 1 {
		t.Errorf("the first update left %v of 1", got)
	}
}

// TestDenseAdamIsAdamOfTheMatrix: rows that batches have now and then are, right after each of their updates, those of an Adam of the whole matrix in float64, in which every
// row takes every step, most with the gradient 0.
func TestDenseAdamIsAdamOfTheMatrix(t *testing.T) {
	t.Parallel()
	const lr, decay, every, ids, steps = 0.003, 0.05, 64, 5, 1500
	for _, dim := range []int{1, 3, 19} {
		rule := optim.DenseAdam{LR: lr, WeightDecay: decay, Every: every, CatchUp: steps}
		rng := rand.New(rand.NewPCG(uint64(dim), 3))
		adam, had := make([][]refAdam, ids), make([]int, ids)
		w, state, want := make([][]float32, ids), make([][]float32, ids), make([][]float64, ids)
		for i := range ids {
			w[i], state[i], want[i], adam[i] = make([]float32, dim), make([]float32, rule.StateDim(dim)), make([]float64, dim), make([]refAdam, dim)
			for k := range dim {
				w[i][k] = rng.Float32() - 0.5
				want[i][k], adam[i][k] = float64(w[i][k]), refAdam{b1: optim.DefaultAdamBeta1, b2: float64(float32(optim.DefaultAdamBeta2)), eps: optim.DefaultAdamEpsilon, wd: decay}
			}
			rule.Init(w[i], state[i])
		}
		at := int64(1 << 30)
		for range steps {
			for i := range ids { // id i is in a batch with a probability of 1, 1/4, 1/9, 1/16, 1/25
				in, g := rng.IntN((i+1)*(i+1)) == 0, make([]float32, dim)
				if in {
					for k := range g {
						g[k] = rng.Float32() - 0.4
					}
				}
				if had[i] > 0 || in { // a row is made by its first batch
					had[i]++
					for k := range g {
						want[i][k] = adam[i][k].update(want[i][k], float64(g[k]), lr, had[i])
					}
				}
				if !in {
					continue
				}
				optim.Apply(rule, w[i], state[i], g, 1, at)
				for k := range g {
					if math.Abs(float64(w[i][k])-want[i][k]) > 2e-5 {
						t.Fatalf("dim %d, id %d after %d steps: element %d is %v, want %v", dim, i, had[i], k, w[i][k], want[i][k])
					}
				}
			}
			at += every
		}
	}
}

// TestDenseAdamCatchesUpSoFar: beyond CatchUp steps the averages fade and the corrections continue, and weights stay.
func TestDenseAdamCatchesUpSoFar(t *testing.T) {
	t.Parallel()
	const lr, every, most = 0.01, 10, 4
	for _, passed := range []int{0, 1, 4, 5, 6, 300} { // steps without a gradient
		rule := optim.DenseAdam{LR: lr, Every: every, CatchUp: most}
		w, state := []float32{0.5}, make([]float32, rule.StateDim(1))
		rule.Init(w, state)
		ref, want := refAdam{b1: optim.DefaultAdamBeta1, b2: float64(float32(optim.DefaultAdamBeta2)), eps: optim.DefaultAdamEpsilon}, 0.5
		want = ref.update(want, 1, lr, 1)
		for n := range passed {
			if moved := ref.update(want, 0, lr, 2+n); n < most {
				want = moved
			}
		}
		want = ref.update(want, -0.25, lr, 2+passed)
		optim.Apply(rule, w, state, []float32{1}, 1, 5000)
		optim.Apply(rule, w, state, []float32{-0.25}, 1, 5000+every*int64(1+passed))
		if math.Abs(float64(w[0])-want) > 1e-5 {
			t.Errorf("%d steps without a gradient, %d of them made up for: %v, want %v", passed, min(passed, most), w[0], want)
		}
	}
}

// TestBatchSoftmaxIsAlgorithm2 compares with the arrays A and B of the paper, in float64, and with the true distances.
func TestBatchSoftmaxIsAlgorithm2(t *testing.T) {
	t.Parallel()
	const alpha, initial = 0.05, 700
	rule := optim.BatchSoftmax{LR: alpha}
	rng := rand.New(rand.NewPCG(1, 2))
	const ids = 4 // id i is in a batch of 64 with a probability of 1/2, 1/4, 1/8, 1/16
	var a, b [ids]float64
	var w, state [ids][]float32
	for i := range ids {
		b[i], w[i], state[i] = initial, []float32{initial}, make([]float32, rule.StateDim(1))
		rule.Init(w[i], state[i])
	}
	var mean [ids]float64
	const batches = 60_000
	for step := range int64(batches) {
		at := 64 * step
		for i := range ids {
			if rng.IntN(2<<i) > 0 {
				continue
			}
			b[i] = (1-alpha)*b[i] + alpha*(float64(at)-a[i])
			a[i] = float64(at)
			optim.Apply(rule, w[i], state[i], []float32{float32(math.NaN())}, 1, at)
			if math.Abs(float64(w[i][0])-b[i]) > 1e-4*b[i] {
				t.Fatalf("id %d at %d: estimate %v, want %v", i, at, w[i][0], b[i])
			}
		}
		for i := range ids {
			mean[i] += float64(w[i][0]) / batches
		}
	}
	for i := range ids {
		if want := 64 * math.Ldexp(2, i); math.Abs(mean[i]/want-1) > 0.05 {
			t.Errorf("id %d: estimates of %v examples between batches on the average, want %v", i, mean[i], want)
		}
	}
	optim.Apply(rule, w[0], state[0], nil, 1, 5) // of a worker that is behind
	if want := (1 - alpha) * b[0]; math.Abs(float64(w[0][0])-want) > 1e-4*want {
		t.Errorf("an update from before the last one makes %v, want %v", w[0][0], want)
	}
}

// TestBatchSoftmaxCountsOccurrences: of 300 items with Zipf's frequencies the rule finds how many examples
// lie between two occurrences, whatever the size of batches. A softmax that is corrected by w learns
// ln P(item|user) - ln(w·q) and a constant, with q the item's frequency: so the ten best items are those of
// P(item|user). Without counts, w is the size of the batch for all frequent items: the ranking becomes that
// of P(item|user)/q.
func TestBatchSoftmaxCountsOccurrences(t *testing.T) {
	t.Parallel()
	const items, users, best = 300, 40, 10
	rng := rand.New(rand.NewPCG(7, 7))
	share, total := make([]float64, items), 0.0
	for i := range share {
		share[i] = 1 / float64(i+5)
		total += share[i]
	}
	below := make([]float64, items)
	sum := 0.0
	for i := range share {
		share[i] /= total
		sum += share[i]
		below[i] = sum
	}
	taste := make([][]float64, users) // P(item|user), but for a factor
	for u := range taste {
		taste[u] = make([]float64, items)
		for i := range taste[u] {
			taste[u][i] = share[i] * math.Exp(rng.NormFloat64())
		}
	}
	top := func(score func(i int) float64) []int {
		order := make([]int, items)
		for i := range order {
			order[i] = i
		}
		slices.SortFunc(order, func(a, b int) int { return cmp.Compare(score(b), score(a)) })
		return order[:best]
	}
	rule := optim.BatchSoftmax{}
	for _, batch := range []int{64, 512, 4096} {
		var overlap [2]float64
		for way, counted := range []bool{true, false} {
			w, state := make([][]float32, items), make([][]float32, items)
			for i := range w {
				w[i], state[i] = []float32{0}, make([]float32, rule.StateDim(1))
			}
			for at := 0; at < max(400_000, 100*batch); at += batch {
				counts := map[int]int{}
				for range batch {
					i, _ := slices.BinarySearch(below, rng.Float64())
					counts[min(i, items-1)]++
				}
				for i, n := range counts {
					if !counted {
						n = 1
					}
					optim.Apply(rule, w[i], state[i], []float32{float32(n)}, 1, int64(at))
				}
			}
			worst := 0.0
			for i := range w {
				worst = max(worst, math.Abs(math.Log(float64(w[i][0])*share[i])))
			}
			if counted && worst > 1.2 { // a rare item's estimate has a deviation of a fourth
				t.Errorf("batch %d: an estimate is off by a factor of %.2f", batch, math.Exp(worst))
			}
			for u := range taste {
				want := top(func(i int) float64 { return taste[u][i] })
				for _, i := range top(func(i int) float64 { return taste[u][i] / share[i] / max(float64(w[i][0]), 1) }) {
					if slices.Contains(want, i) {
						overlap[way] += 1. / best / users
					}
				}
			}
		}
		t.Logf("batch %d: overlap of the ten best with the truth %.2f by occurrences, %.2f by batches", batch, overlap[0], overlap[1])
		if overlap[0] < 0.8 || overlap[0] < overlap[1]-0.03 {
			t.Errorf("batch %d: overlap %.2f, %.2f without counts", batch, overlap[0], overlap[1])
		}
		if batch >= 512 && overlap[1] > 0.75 {
			t.Errorf("batch %d: counts make no difference here", batch)
		}
	}
}

// TestClockedRulesAreKnown: who has to know does, 16-bit weights too, and descriptions are read back.
func TestClockedRulesAreKnown(t *testing.T) {
	for _, o := range []optim.Optimizer{
		optim.LazyAdagradW{LR: 0.5, WeightDecay: 0.25, Every: 7}, optim.BatchSoftmax{LR: 0.25}, optim.DenseAdam{LR: 0.25, WeightDecay: 0.25, Every: 7, CatchUp: 3},
	} {
		half := optim.Stored(o, optim.BF16)
		if !optim.IsClocked(o) || !optim.IsClocked(half) || optim.IsClocked(optim.AdagradW{}) || optim.IsClocked(optim.Stored(optim.AdagradW{}, optim.BF16)) {
			t.Errorf("%s or AdagradW is taken for what it is not", o)
		}
		for _, o := range []optim.Optimizer{o, half} {
			if back, err := optim.RuleOf(o).Optimizer(); err != nil || back.String() != o.String() {
				t.Errorf("%v is read back as %v: %v", o, back, err)
			}
		}
		w, state := []float32{1}, make([]float32, half.StateDim(1))
		half.Init(w, state)
		for at := range int64(200) {
			optim.Apply(half, w, state, []float32{0}, 1, at*1000)
		}
		if math.Abs(float64(w[0]-1)) < 0.5 {
			t.Errorf("%s: 200,000 examples made 1 %v: time does not reach the rule", half, w[0])
		}
		g := []float32{1}
		if n := testing.AllocsPerRun(20, func() { optim.Apply(half, w, state, g, 1, 1<<30) }); n != 0 {
			t.Errorf("%s: %v allocations", half, n)
		}
	}
}

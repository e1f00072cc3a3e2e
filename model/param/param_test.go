package param_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// TestFillFollowsDistributions compares the moments of many vectors with those of the distributions.
func TestFillFollowsDistributions(t *testing.T) {
	t.Parallel()
	const n, dim = 20_000, 8
	for _, c := range []struct {
		init         param.Init
		mean, stddev float64
	}{
		{param.Zeros(), 0, 0},
		{param.Constant(3), 3, 0},
		{param.Uniform(-1, 2), .5, 3 / math.Sqrt(12)},
		{param.Normal(1, .5), 1, .5},
		{param.GlorotUniform(30, 20), 0, math.Sqrt(2. / 50)},
		{param.TruncatedNormal(1, .5), 1, .5 * .8796256610342398}, // √(1 - 4·φ(2)/(2·Φ(2)-1))
		{param.GlorotNormal(30, 20), 0, math.Sqrt(2. / 50)},
		{param.HeUniform(30, 20), 0, math.Sqrt(2. / 30)},
		{param.HeNormal(30, 20), 0, math.Sqrt(2. / 30)},
		{param.Glorot(1.5), 0, 1.5 * math.Sqrt(2./(1+dim))},
	} {
		var sum, squares float64
		v := make([]float32, dim)
		for id := range uint64(n) {
			c.init.Fill(v, 1, param.HashName("t", "s"), id)
			for _, x := range v {
				sum += float64(x)
				if c.init.Kind == param.InitTruncatedNormal && math.Abs(float64(x)-c.mean) > 2*float64(c.init.B) {
					t.Fatalf("%s draws %v", c.init, x)
				}
				squares += float64(x) * float64(x)
			}
		}
		mean := sum / (n * dim)
		stddev := math.Sqrt(max(0, squares/(n*dim)-mean*mean))
		tolerance := 5 * (c.stddev + 1e-9) / math.Sqrt(n*dim)
		if math.Abs(mean-c.mean) > tolerance || math.Abs(stddev-c.stddev) > tolerance+1e-6 {
			t.Errorf("%s: mean %.4f and standard deviation %.4f, want %.4f and %.4f", c.init, mean, stddev, c.mean, c.stddev)
		}
	}
}

// TestFillIsAFunctionOfItsArguments holds the values that tables of every version must begin with.
func TestFillIsAFunctionOfItsArguments(t *testing.T) {
	fill := func(n int, seed, name, id uint64) []float32 {
		v := make([]float32, n)
		param.Normal(0, 1).Fill(v, seed, name, id)
		return v
	}
	long, short := fill(8, 1, 2, 3), fill(4, 1, 2, 3)
	for i := range short {
		if short[i] != long[i] {
			t.Errorf("element %d is %v in a short vector and %v in a long one", i, short[i], long[i])
		}
	}
	for _, other := range [][]float32{fill(4, 2, 2, 3), fill(4, 1, 3, 3), fill(4, 1, 2, 4)} {
		if other[0] == short[0] {
			t.Errorf("another seed, name or id begins with %v too", other[0])
		}
	}
	a, b := make([]float32, 500), make([]float32, 400)
	param.TruncatedNormal(0, 1).Fill(a, 1, 2, 3)
	param.TruncatedNormal(0, 1).Fill(b, 1, 2, 3)
	if !slices.Equal(a[:400], b) {
		t.Error("a prefix of truncated normal numbers has other values")
	}
	if param.HashName("ab", "c") == param.HashName("a", "bc") {
		t.Error("names of other parts share a hash")
	}
	if n := testing.AllocsPerRun(10, func() { param.Normal(0, 1).Fill(long, 1, 2, 3) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestLayoutFaultsAreListed(t *testing.T) {
	t.Parallel()
	nan := float32(math.NaN())
	l := param.Layout{
		Tables: []param.Table{
			{Name: "a", Segments: []param.Segment{{Name: "w", Dim: 0, L2: nan}, {Name: "w", Dim: 1, Optimizer: optim.SGD{}}, {Name: "v", Dim: 1, Optimizer: optim.Stored(optim.Shampoo{}, optim.BF16)}}},
			{Name: "a"},
		},
		Dense: []param.Tensor{{Name: "", Shape: []int{-1, -2}, L2: -1}},
	}
	err := l.Validate()
	if err == nil {
		t.Fatal("a bad layout is valid")
	}
	for _, want := range []string{
		`dim 0 is below 1`, `has no optimizer`, `l2 NaN`, `segment name "w" is empty or used twice`, `table name "a" is empty or used twice`,
		`table "a" has no segment`, `segment "v": shampoo.bf16 is a rule of dense tensors`, `dense tensor name ""`, `shape [-1 -2]`, `l2 -1`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
}

func TestLayoutHash(t *testing.T) {
	t.Parallel()
	layout := func(change func(*param.Layout)) string {
		l := param.Layout{
			Seed:   1,
			Tables: []param.Table{{Name: "t", Segments: []param.Segment{{Name: "w", Dim: 4, Init: param.Uniform(-1, 1), Optimizer: optim.SGD{LR: .1}}}}},
			Dense:  []param.Tensor{{Name: "d", Shape: []int{2, 3}, Optimizer: optim.Adam{LR: .1}}, {Name: "e", Shape: []int{5}, Optimizer: optim.Adam{}}},
		}
		if change != nil {
			change(&l)
		}
		if l.DenseLen() != 11 || l.DenseOffset(1) != 6 {
			t.Errorf("dense length %d, offset %d", l.DenseLen(), l.DenseOffset(1))
		}
		return l.Hash()
	}
	same := layout(nil)
	if same != layout(nil) {
		t.Error("the same layout has two hashes")
	}
	for i, change := range []func(*param.Layout){
		func(l *param.Layout) { l.Seed = 2 },
		func(l *param.Layout) { l.Tables[0].Segments[0].Dim = 5 },
		func(l *param.Layout) { l.Tables[0].Segments[0].Init = param.Zeros() },
		func(l *param.Layout) { l.Tables[0].Segments[0].Optimizer = optim.SGD{LR: .2} },
		func(l *param.Layout) { l.Tables[0].Segments[0].L2 = .1 },
		func(l *param.Layout) { l.Tables[0].Segments[0].L1 = .1 },
		func(l *param.Layout) { l.Dense[0].L1 = .1 },
		func(l *param.Layout) { l.Dense[0].Shape = []int{3, 2} },
	} {
		if layout(change) == same {
			t.Errorf("change %d leaves the hash", i)
		}
	}
}

// TestClipIsTheFormula: g·min(1, c/‖g‖), in float64; L2 comes behind it, and what is short enough keeps its bits.
func TestClipIsTheFormula(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	shortened := 0
	for dim := 1; dim < 70; dim++ {
		s := param.Segment{Dim: dim, Clip: 0.2 + r.Float32()}
		w, g, sum := make([]float32, dim), make([]float32, dim), make([]float32, dim)
		squares := 0.
		for k := range g {
			w[k], g[k] = r.Float32(), (r.Float32()-0.5)/float32(1+dim%5)
			squares += float64(g[k]) * float64(g[k])
		}
		got, factor := s.Gradient(w, g, nil, sum), min(1, float64(s.Clip)/math.Sqrt(squares))
		if factor == 1 && &got[0] != &g[0] {
			t.Errorf("dim %d: a gradient of norm %v became another with clip %v", dim, math.Sqrt(squares), s.Clip)
		}
		if factor < 1 {
			shortened++
		}
		for k := range g {
			if want := float64(g[k]) * factor; math.Abs(float64(got[k])-want) > 1e-6 {
				t.Fatalf("dim %d, clip %v: element %d is %v, want %v", dim, s.Clip, k, got[k], want)
			}
		}
		clipped := slices.Clone(got)
		s.L2 = 0.5
		for k, x := range s.Gradient(w, g, nil, sum) {
			if want := clipped[k] + 0.5*w[k]; x != want {
				t.Fatalf("dim %d: with L2 element %d is %v, want %v", dim, k, x, want)
			}
		}
	}
	if shortened < 10 || shortened > 60 {
		t.Errorf("%d of 69 were shortened: too few or too many to mean anything", shortened)
	}
	huge := param.Segment{Clip: 1}
	if got := huge.Gradient(nil, []float32{2e30, 1}, nil, make([]float32, 2)); got[0] != 0 || got[1] != 0 {
		t.Errorf("a gradient whose squares overflow became %v", got)
	}
}

// TestL1IsTheSign: g + l2·w + l1·sign(w), of rows and of dense tensors; a weight of 0 is not pushed. By plain descent a weight comes near 0, as far as a step goes, and stays there.
func TestL1IsTheSign(t *testing.T) {
	t.Parallel()
	s := param.Segment{L1: 0.5, L2: 0.25}
	w, sum := []float32{2, -4, 0, -0.5}, make([]float32, 4)
	if got := s.Gradient(w, []float32{1, 1, 1, 0}, nil, sum); !slices.Equal(got, []float32{2, -0.5, 1, -0.625}) {
		t.Errorf("the gradient is %v", got)
	}
	d := param.Tensor{Shape: []int{4}, Optimizer: optim.SGD{LR: 1}, L1: 0.125}
	d.Update(w, nil, []float32{0, 0, 0, 0}, sum, 1, 0)
	if want := []float32{1.875, -3.875, 0, -0.375}; !slices.Equal(w, want) {
		t.Errorf("a step without a gradient leads to %v, want %v", w, want)
	}
	for range 100 {
		d.Update(w, nil, []float32{0, 0, 0, 0}, sum, 1, 0)
	}
	for i, v := range w {
		if math.Abs(float64(v)) > 0.125 {
			t.Errorf("weight %d ends at %v", i, v)
		}
	}
}

// TestRatesOfSegments: a row's segments follow their own schedules, by the examples before the update.
func TestRatesOfSegments(t *testing.T) {
	t.Parallel()
	rule := param.NewRowRule(param.Table{Segments: []param.Segment{
		{Name: "a", Dim: 1, Optimizer: optim.SGD{LR: 1}, Schedule: optim.Schedule{WarmUp: 100}},
		{Name: "b", Dim: 1, Optimizer: optim.SGD{LR: 1}},
		{Name: "c", Dim: 1, Optimizer: optim.SGD{LR: 1}, Schedule: optim.Schedule{Kind: optim.ExponentialSchedule, Rate: 0.5, Over: 50}},
	}})
	for _, n := range []int64{0, 50, 50, 100, 25} {
		w := make([]float32, 3)
		rule.Update(w, nil, []float32{-1, -1, -1}, 0.5, n)
		want := []float32{0.5 * float32(n) / 100, 0.5, 0.5 * float32(math.Pow(0.5, float64(n)/50))}
		if !slices.Equal(w, want) {
			t.Errorf("after %d examples the steps are %v, want %v", n, w, want)
		}
	}
	l := param.Layout{Tables: []param.Table{{Name: "t", Segments: []param.Segment{{Name: "a", Dim: 1, Optimizer: optim.SGD{}, Clip: -1, Schedule: optim.Schedule{Kind: "none"}}}}}}
	if err := l.Validate(); err == nil || !strings.Contains(err.Error(), "clip -1") || !strings.Contains(err.Error(), `kind is "none"`) {
		t.Errorf("a bad bound and a bad schedule: %v", err)
	}
}

// TestDelaysAreCompensated: of logistic regression, where g² is the Hessian on the average, late gradients lose most of what they are off on the way that the weight has gone, and one that is not late
// stays what it is.
func TestDelaysAreCompensated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	const dim = 9
	s := param.Segment{Dim: dim, Delay: 1}
	late, made := 0., 0.
	for range 2000 {
		w, seen, x := make([]float32, dim), make([]float32, dim), make([]float32, dim)
		for k := range w {
			seen[k], x[k] = float32(r.NormFloat64()), float32(r.NormFloat64())
			w[k] = seen[k] + 0.05*float32(r.NormFloat64())
		}
		dot := func(w []float32) (z float64) {
			for k := range w {
				z += float64(w[k] * x[k])
			}
			return z
		}
		y := 0.
		if r.Float64() < 1/(1+math.Exp(-dot(seen))) {
			y = 1
		}
		// Only weight 0 moves: the Hessian's diagonal is all that the method knows.
		copy(w[1:], seen[1:])
		grad := func(w []float32) []float32 {
			g, p := make([]float32, dim), 1/(1+math.Exp(-dot(w)))
			for k := range g {
				g[k] = float32(p-y) * x[k]
			}
			return g
		}
		old, now := grad(seen), grad(w)
		got := s.Gradient(w, old, seen, make([]float32, dim))
		for k := range got {
			if want := float64(old[k]) + float64(old[k])*float64(old[k])*float64(w[k]-seen[k]); math.Abs(float64(got[k])-want) > 1e-6 {
				t.Fatalf("element %d is %v, want %v", k, got[k], want)
			}
		}
		way := math.Copysign(1, float64(w[0]-seen[0]))
		late += float64(old[0]-now[0]) * way
		made += float64(got[0]-now[0]) * way
		if same := s.Gradient(w, old, w, make([]float32, dim)); !slices.Equal(same, old) {
			t.Fatalf("%v became %v without a delay", old, same)
		}
	}
	if math.Abs(made) > 0.3*math.Abs(late) {
		t.Errorf("compensated gradients are %v from those in time on the way, late ones %v", made, late)
	}
	far := s.Gradient([]float32{3e38}, []float32{1e14}, []float32{-3e38}, make([]float32, 1))
	if far[0] != 1e15 {
		t.Errorf("what is beyond all bounds became %v", far[0])
	}
	if none := s.Gradient([]float32{3e38}, []float32{0}, []float32{-3e38}, make([]float32, 1)); none[0] != 0 {
		t.Errorf("no gradient became %v", none[0])
	}
}

// TestTensorsAreCompensated: what a push has of a tensor is compensated as a row's gradient is, before L2.
func TestTensorsAreCompensated(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	l := param.Layout{Dense: []param.Tensor{
		{Name: "plain", Shape: []int{3}, Optimizer: optim.SGD{LR: 0.5}},
		{Name: "late", Shape: []int{5, 7}, Optimizer: optim.SGD{LR: 0.5}, Delay: 0.25, L2: 0.125},
		{Name: "later", Shape: []int{2}, Optimizer: optim.SGD{LR: 0.5}, Delay: 4},
	}}
	n := l.DenseLen()
	if n != 40 || l.DensePushLen() != 77 || l.Dense[0].PushLen() != 3 || l.Dense[1].PushLen() != 70 {
		t.Fatalf("%d values and %d of a push", n, l.DensePushLen())
	}
	random := func() []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64())
		}
		return x
	}
	for range 20 {
		w, seen, grads := random(), random(), random()
		was, push := slices.Clone(w), l.AppendDenseSeen(nil, grads, seen)
		at, pushAt := 0, 0
		for i := range l.Dense {
			d := &l.Dense[i]
			d.Update(w[at:][:d.Len()], nil, push[pushAt:][:d.PushLen()], make([]float32, d.Len()), 1, 0)
			for k := at; k < at+d.Len(); k++ {
				g, x := float64(grads[k]), float64(was[k])
				want := x - 0.5*(g+float64(d.Delay)*g*g*(x-float64(seen[k]))+float64(d.L2)*x)
				if diff := math.Abs(float64(w[k]) - want); diff > 1e-5*max(1, math.Abs(want)) {
					t.Fatalf("%s, element %d is %v, want %v", d.Name, k-at, w[k], want)
				}
			}
			at, pushAt = at+d.Len(), pushAt+d.PushLen()
		}
	}
	if names := l.Delayed(); !slices.Equal(names, []string{"late", "later"}) {
		t.Errorf("delays are of %v", names)
	}
	was := l.Rules()
	l.Dense[2].Delay = -1
	if got := l.Rules().Changes(was, nil); !slices.Equal(got, []string{"later: delay compensation is -1, was 4"}) {
		t.Errorf("changes are %q", got)
	}
	if err := l.Validate(); err == nil || !strings.Contains(err.Error(), `"later": delay compensation -1`) {
		t.Errorf("a delay compensation of -1: %v", err)
	}
}

// TestPushesBringWhatWasSeen: rows of a push have gradients first and then the weights of the segments with delays.
func TestPushesBringWhatWasSeen(t *testing.T) {
	t.Parallel()
	table := param.Table{Name: "t", Segments: []param.Segment{
		{Name: "a", Dim: 1, Optimizer: optim.SGD{LR: 1}, Delay: 2}, {Name: "b", Dim: 2, Optimizer: optim.SGD{LR: 1}}, {Name: "c", Dim: 1, Optimizer: optim.SGD{LR: 1}, Delay: 1},
	}}
	if a, b, c := table.Width(param.Train), table.Width(param.AssignAdd), table.Width(param.Reinitialize); a != 6 || b != 4 || c != 0 {
		t.Errorf("widths are %d, %d and %d", a, b, c)
	}
	push := table.AppendSeen(nil, []float32{1, 2, 3, 4, 5, 6, 7, 8}, []float32{10, 20, 30, 40, 50, 60, 70, 80})
	if !slices.Equal(push, []float32{1, 2, 3, 4, 10, 40, 5, 6, 7, 8, 50, 80}) {
		t.Errorf("rows are %v", push)
	}
	w := []float32{11, 20, 30, 42}
	param.NewRowRule(table).Update(w, nil, push[:6], 1, 0)
	if want := []float32{11 - (1 + 2*1*1), 18, 27, 42 - (4 + 1*16*2)}; !slices.Equal(w, want) {
		t.Errorf("the row is %v, want %v", w, want)
	}
	l := param.Layout{Tables: []param.Table{table}}
	if names := l.Delayed(); !slices.Equal(names, []string{"t.a", "t.c"}) {
		t.Errorf("delays are of %v", names)
	}
	was := l.Rules()
	l.Tables[0].Segments[0].Delay = 0.5
	if got := l.Rules().Changes(was, nil); !slices.Equal(got, []string{"t.a: delay compensation is 0.5, was 2"}) {
		t.Errorf("changes are %q", got)
	}
	l.Tables[0].Segments[0].Delay = float32(math.NaN())
	if err := l.Validate(); err == nil || !strings.Contains(err.Error(), "delay compensation NaN") {
		t.Errorf("a delay compensation of NaN: %v", err)
	}
}

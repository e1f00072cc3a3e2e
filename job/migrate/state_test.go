package migrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// upstream is a rule as bytedance/monolith has it (native_training/runtime/hash_table/optimizer), in float64: weights and what its proto
// calls what it keeps.
type upstream struct {
	w                []float64
	vectors          [3][]float64
	powers           [2]float64
	sum              float64
	update           func(u *upstream, g []float64)
	vectorsN         int
	hasSum, hasPower bool
}

const rate, decay = 0.05, 0.01

// each runs over the weights.
func each(step func(u *upstream, k int, g float64)) func(u *upstream, g []float64) {
	return func(u *upstream, g []float64) {
		for k := range u.w {
			step(u, k, g[k])
		}
	}
}

func adam(ams bool) func(u *upstream, g []float64) {
	return func(u *upstream, g []float64) {
		lr := rate * math.Sqrt(1-u.powers[1]) / (1 - u.powers[0])
		m, v, h := u.vectors[0], u.vectors[1], u.vectors[2]
		for k := range u.w {
			m[k] += (g[k] - m[k]) * (1 - 0.9)
			v[k] += (g[k]*g[k] - v[k]) * (1 - 0.99)
			root := v[k]
			if ams {
				h[k] = max(h[k], v[k])
				root = h[k]
			}
			u.w[k] -= m[k] * lr / (math.Sqrt(root) + 0.01)
		}
		u.powers[0], u.powers[1] = u.powers[0]*0.9, u.powers[1]*0.99
	}
}

// TestNextStepIsUpstreams: a row that upstream trained, taken over, makes the step that upstream would have made next, by every rule that is
// taken over; and given back it is what it was.
func TestNextStepIsUpstreams(t *testing.T) {
	t.Parallel()
	const dim = 5
	fill := func(v float64) []float64 { return slices.Repeat([]float64{v}, dim) }
	for _, tc := range []struct {
		name string
		ours optim.Optimizer
		kind entrydump.Kind
		up   upstream
	}{
		{"adagrad", optim.Adagrad{LR: rate, InitialAccumulator: 0.1, WeightDecay: decay}, entrydump.Adagrad, upstream{
			vectors: [3][]float64{fill(0.1)}, vectorsN: 1, update: each(func(u *upstream, k int, g float64) {
				g += decay * u.w[k]
				u.vectors[0][k] += g * g
				u.w[k] -= rate / math.Sqrt(u.vectors[0][k]) * g
			}),
		}},
		{"adagradw", optim.AdagradW{LR: rate, InitialAccumulator: 0.1, WeightDecay: decay}, entrydump.DynamicWDAdagrad, upstream{
			vectors: [3][]float64{fill(0.1)}, vectorsN: 1, update: each(func(u *upstream, k int, g float64) {
				u.vectors[0][k] += g * g
				u.w[k] -= rate/math.Sqrt(u.vectors[0][k])*g + rate*decay*u.w[k]
			}),
		}},
		{"ftrl", optim.FTRL{LR: rate, Beta: 1, L2: 0.1, InitialAccumulator: 0.1}, entrydump.FTRL, upstream{
			vectors: [3][]float64{fill(0), fill(0.1)}, vectorsN: 2, update: each(func(u *upstream, k int, g float64) { // zero, norm
				z, n := u.vectors[0], u.vectors[1]
				next := n[k] + g*g
				z[k] += g - (math.Sqrt(next)-math.Sqrt(n[k]))/rate*u.w[k]
				n[k] = next
				u.w[k] = rate * -z[k] / (math.Sqrt(next) + 1 + 0.1*rate)
			}),
		}},
		{"group_ftrl", optim.GroupFTRL{LR: rate, Beta: 1, L1: 0.2, L2: 0.1, InitialAccumulator: 0.1}, entrydump.GroupFTRL, upstream{
			vectors: [3][]float64{fill(0), fill(0.1)}, vectorsN: 2, update: func(u *upstream, g []float64) {
				z, n, norm := u.vectors[0], u.vectors[1], 0.0
				for k := range u.w {
					next := n[k] + g[k]*g[k]
					z[k] += g[k] - (math.Sqrt(next)-math.Sqrt(n[k]))/rate*u.w[k]
					n[k] = next
					norm += z[k] * z[k]
				}
				norm = math.Sqrt(norm)
				for k := range u.w {
					if u.w[k] = 0; norm >= 0.2 {
						u.w[k] = rate * z[k] * (0.2 - norm) / norm / (1 + math.Sqrt(n[k]) + 0.1*rate)
					}
				}
			},
		}},
		{"momentum", optim.Momentum{LR: rate, Momentum: 0.9, WeightDecay: decay}, entrydump.Momentum, upstream{
			vectors: [3][]float64{fill(0)}, vectorsN: 1, update: each(func(u *upstream, k int, g float64) {
				u.vectors[0][k] = 0.9*u.vectors[0][k] - rate*(g+decay*u.w[k])
				u.w[k] += u.vectors[0][k]
			}),
		}},
		{"rmsprop", optim.RMSprop{LR: rate, Decay: 0.9, Epsilon: 1, WeightDecay: decay}, entrydump.RMSprop, upstream{
			vectors: [3][]float64{fill(0)}, vectorsN: 1, update: each(func(u *upstream, k int, g float64) {
				g += decay * u.w[k]
				u.vectors[0][k] = 0.9*u.vectors[0][k] + (1-0.9)*g*g
				u.w[k] -= rate / (math.Sqrt(u.vectors[0][k]) + 1) * g
			}),
		}},
		{"rmspropv2", optim.RMSprop{LR: rate, Decay: 0.9, Epsilon: 1, WeightDecay: decay, Sum: true}, entrydump.RMSpropV2, upstream{
			vectors: [3][]float64{fill(0)}, vectorsN: 1, update: each(func(u *upstream, k int, g float64) {
				g += decay * u.w[k]
				u.vectors[0][k] = 0.9*u.vectors[0][k] + g*g
				u.w[k] -= rate / (math.Sqrt(u.vectors[0][k]) + 1) * g
			}),
		}},
		{"adadelta", optim.Adadelta{LR: rate, Decay: 0.9, Epsilon: 0.01, WeightDecay: decay}, entrydump.Adadelta, upstream{
			vectors: [3][]float64{fill(0), fill(0)}, vectorsN: 2, update: each(func(u *upstream, k int, g float64) { // accum, accum_update
				a, c := u.vectors[0], u.vectors[1]
				g += decay * u.w[k]
				a[k] = 0.9*a[k] + (1-0.9)*g*g
				by := math.Sqrt(c[k]+0.01) / math.Sqrt(a[k]+0.01) * g
				u.w[k] -= rate * by
				c[k] = 0.9*c[k] + (1-0.9)*by*by
			}),
		}},
		{"group_adagrad", optim.GroupAdagrad{LR: rate, Beta: 1, InitialAccumulator: 0.1, L2: 0.2, WeightDecay: decay}, entrydump.GroupAdagrad, upstream{
			sum: 0.1, hasSum: true, update: func(u *upstream, g []float64) {
				most, norm := 0.0, 0.0
				z := make([]float64, len(g))
				for k := range u.w {
					z[k] = g[k] + decay*u.w[k]
					most = max(most, z[k]*z[k])
				}
				u.sum += most
				eta := rate / (1 + math.Sqrt(u.sum))
				for k := range u.w {
					z[k] -= u.w[k] / eta
					norm += z[k] * z[k]
				}
				norm = math.Sqrt(norm)
				for k := range u.w {
					if u.w[k] = 0; norm >= 0.2 {
						u.w[k] = -eta * (norm - 0.2) / norm * z[k]
					}
				}
			},
		}},
		{"adam", optim.Adam{LR: rate, Beta1: 0.9, Beta2: 0.99, Epsilon: 0.01}, entrydump.Adam, upstream{
			vectors: [3][]float64{fill(0), fill(0)}, vectorsN: 2, powers: [2]float64{0.9, 0.99}, hasPower: true, update: adam(false),
		}},
		{"amsgrad", optim.AMSGrad{LR: rate, Beta1: 0.9, Beta2: 0.99, Epsilon: 0.01}, entrydump.AMSGrad, upstream{
			vectors: [3][]float64{fill(0), fill(0), fill(0)}, vectorsN: 3, powers: [2]float64{0.9, 0.99}, hasPower: true, update: adam(true),
		}},
		{"sgd", optim.SGD{LR: rate}, entrydump.SGD, upstream{update: each(func(u *upstream, k int, g float64) { u.w[k] -= rate * g })}},
	} {
		for _, updates := range []int{0, 1, 7, 300, 2000} {
			rng := rand.New(rand.NewPCG(uint64(updates), 1))
			gradient := func() []float64 {
				g := make([]float64, dim)
				for k := range g {
					g[k] = rng.NormFloat64() / 4
				}
				return g
			}
			u := tc.up
			u.w = fill(0)
			for i := range u.vectors {
				u.vectors[i] = slices.Clone(u.vectors[i])
			}
			for range updates {
				u.update(&u, gradient())
			}
			// The dump that upstream would write, in its order of fields.
			d := entrydump.Dump{Kind: tc.kind, Scalars: [2]float32{float32(math.NaN()), float32(math.NaN())}}
			for i := range u.vectorsN {
				d.Vectors[i] = narrow(u.vectors[i])
			}
			if u.hasSum {
				d.Scalars[0] = float32(u.sum)
			}
			if u.hasPower { // kept in float32
				d.Scalars = [2]float32{0.9, 0.99}
				for range updates {
					d.Scalars[0], d.Scalars[1] = d.Scalars[0]*0.9, d.Scalars[1]*0.99
				}
			}
			k := newKeeper(tc.ours)
			w, state := narrow(u.w), make([]float32, tc.ours.StateDim(dim))
			if why := k.take(w, state, &d); why != "" {
				t.Errorf("%s after %d updates: %s", tc.name, updates, why)
				continue
			}
			var back entrydump.Dump
			back.Scalars = [2]float32{float32(math.NaN()), float32(math.NaN())}
			k.give(dim, state, &back)
			again := make([]float32, len(state))
			if why := k.take(w, again, &back); why != "" || !slices.Equal(again, state) || back.Kind != d.Kind {
				t.Errorf("%s after %d updates: given back it is %+v, and taken again %v %s, was %v", tc.name, updates, back, again, why, state)
			}
			for i, v := range d.Vectors {
				if !slices.Equal(back.Vectors[i], v) {
					t.Errorf("%s after %d updates: vector %d is given back as %v, was %v", tc.name, updates, i, back.Vectors[i], v)
				}
			}
			for range 2 {
				g := gradient()
				u.update(&u, g)
				tc.ours.Update(w, state, narrow(g), 1)
			}
			for i := range w {
				if diff := math.Abs(float64(w[i]) - u.w[i]); diff > 1e-5*max(1, math.Abs(u.w[i])) {
					t.Errorf("%s after %d updates: weight %d is %v, upstream's %v", tc.name, updates, i, w[i], u.w[i])
				}
			}
		}
	}
}

func narrow(x []float64) []float32 {
	if x == nil {
		return nil
	}
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

// TestPowers: the step of either side's power leads to the other's bits, from the first update to where neither changes.
func TestPowers(t *testing.T) {
	t.Parallel()
	for _, beta := range []float32{0.1, 0.9, 0.99, 0.999, 0.9999} {
		p := newPowers(beta)
		power, ours, b := beta, float32(0), float64(beta)
		for step := range 400_000 {
			at, ok := p.stepOfPower(power)
			if !ok || p.at(at) != ours {
				t.Fatalf("β %v: after %d updates upstream's %v is step %d (%v), 1-βᵗ %v, want %v", beta, step, power, at, ok, p.at(at), ours)
			}
			if back := p.stepOf(ours); back != min(step, len(p.ours)-1) && p.at(back) != ours {
				t.Fatalf("β %v: 1-βᵗ after %d updates is step %d", beta, step, back)
			}
			power *= beta
			ours = float32((1 - b) + float64(b*float64(ours)))
		}
		for _, v := range []float32{beta * 1.01, -1, float32(math.NaN()), float32(math.Inf(1))} {
			if at, ok := p.stepOfPower(v); ok {
				t.Errorf("β %v: %v is step %d", beta, v, at)
			}
		}
	}
}

// TestRounded: weights that are kept in 16 bits are rounded to the nearest; the state around them is that of the rule.
func TestRounded(t *testing.T) {
	t.Parallel()
	rule := optim.Rounded{Rule: optim.Adagrad{}, Values: optim.BF16}
	k := newKeeper(rule)
	weights := []float32{1.0009765625, -3.1415927, 0}
	d := entrydump.Dump{Kind: entrydump.Adagrad, Vectors: [3][]float32{{1, 2, 3}}}
	w, state := slices.Clone(weights), make([]float32, rule.StateDim(3))
	if why := k.take(w, state, &d); why != "" {
		t.Fatal(why)
	}
	want, begun := slices.Clone(weights), make([]float32, rule.StateDim(3))
	rule.Init(want, begun)
	if slices.Equal(w, weights) || !slices.Equal(w, want) || !slices.Equal(state, []float32{1, 2, 3, begun[3]}) {
		t.Errorf("weights are %v and state %v, want %v and a count of %v", w, state, want, begun[3])
	}
	var back entrydump.Dump
	if k.give(3, state, &back); back.Kind != d.Kind || !slices.Equal(back.Vectors[0], d.Vectors[0]) {
		t.Errorf("given back it is %+v", back)
	}
	if why := newKeeper(optim.Rounded{Rule: optim.SGD{}, Values: optim.FP16}).take(w, state[3:], nil); why != "" {
		t.Errorf("of a rule without state: %s", why)
	}
}

// TestDumpOfSegment: a row may have fewer states than segments, because upstream's moving average writes none.
func TestDumpOfSegment(t *testing.T) {
	t.Parallel()
	table := param.Table{Name: "t", Segments: []param.Segment{
		{Name: "mean", Dim: 1, Optimizer: optim.EMA{}}, {Name: "bias", Dim: 1, Optimizer: optim.FTRL{}}, {Name: "vec", Dim: 2, Optimizer: optim.Adagrad{}},
	}}
	it := &importTable{spec: table}
	for _, s := range table.Segments {
		it.keepers = append(it.keepers, newKeeper(s.Optimizer))
	}
	three := []entrydump.Dump{{Kind: entrydump.SGD}, {Kind: entrydump.FTRL}, {Kind: entrydump.Adagrad}}
	for _, tc := range []struct {
		names []string
		opt   []entrydump.Dump
		at    int
		want  entrydump.Kind // 0: none
	}{
		{nil, three, 1, entrydump.FTRL},
		{nil, three, 2, entrydump.Adagrad},
		{nil, three[1:], 1, entrydump.FTRL},
		{nil, three[1:], 2, entrydump.Adagrad},
		{[]string{"bias", "mean", "vec"}, three[1:], 0, entrydump.FTRL},
		{[]string{"bias", "mean", "vec"}, three[1:], 2, entrydump.Adagrad},
		{nil, three[2:], 2, 0},
	} {
		l, err := layoutOf(table, tc.names)
		if err != nil {
			t.Fatal(err)
		}
		d, why := it.dump(l, tc.at, &entrydump.Entry{HasOpt: true, Opt: tc.opt})
		if got := d; tc.want == 0 && (got != nil || why == "") || tc.want != 0 && (got == nil || got.Kind != tc.want || why != "") {
			t.Errorf("%v, %d states: segment %d has %+v, %q; want %s", tc.names, len(tc.opt), tc.at, d, why, tc.want)
		}
	}
}

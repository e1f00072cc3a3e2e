package optim_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
)

// grid lists the numbers of a format from 0 up to the largest.
func grid(v optim.ValueType) []float64 {
	var g []float64
	if v == optim.BF16 {
		for b := range uint32(0x7f80) {
			g = append(g, float64(math.Float32frombits(b<<16)))
		}
		return g
	}
	for n := range 1024 { // below 2⁻¹⁴
		g = append(g, float64(n)*0x1p-24)
	}
	for e := -14; e <= 15; e++ {
		for n := range 1024 {
			g = append(g, math.Ldexp(1+float64(n)/1024, e))
		}
	}
	return g
}

// TestDraw compares rounding by all random bits with the place of the number between its neighbours in the list of the format's numbers.
func TestDraw(t *testing.T) {
	t.Parallel()
	for _, v := range []optim.ValueType{optim.BF16, optim.FP16} {
		g := grid(v)
		rng := rand.New(rand.NewPCG(1, 2))
		for trial := range 300 {
			x := float32(math.Ldexp(1+rng.Float64(), -26+rng.IntN(43)))
			switch trial {
			case 0, 1:
				x = float32(g[len(g)-1-trial])
			case 2:
				x = 0
			case 3:
				x = 1e30
			case 4:
				x = math.MaxFloat32
			}
			at, exact := slices.BinarySearch(g, float64(x))
			var low, high float64
			switch {
			case exact:
				low, high = g[at], g[at]
			case at == len(g):
				low, high = g[at-1], g[at-1]
			default:
				low, high = g[at-1], g[at]
			}
			up := 0
			for r := range uint32(1 << 16) {
				got := float64(v.Draw(x, r))
				if minus := v.Draw(-x, r); float64(minus) != -got || math.Signbit(float64(minus)) != true {
					t.Fatalf("%s: %g with %d becomes %g, and %g becomes %g", v, x, r, got, -x, minus)
				}
				switch got {
				case low:
				case high:
					up++
				default:
					t.Fatalf("%s: %g becomes %g, want %g or %g", v, x, got, low, high)
				}
			}
			if low == high {
				continue
			}
			share, want := float64(up)/(1<<16), (float64(x)-low)/(high-low)
			if math.Abs(share-want) > 1./(1<<13) {
				t.Errorf("%s: %g becomes %g with a share of %g, want %g", v, x, high, share, want)
			}
		}
		inf := float32(math.Inf(1))
		if a, b := v.Draw(inf, 5), v.Draw(-inf, 5); a != inf || b != -inf {
			t.Errorf("%s: infinities become %g and %g", v, a, b)
		}
		if nan := v.Draw(float32(math.NaN()), 0xffff); nan == nan {
			t.Errorf("%s: NaN becomes %g", v, nan)
		}
	}
}

// TestSmallStepsCount: steps of a sixteenth of what the format tells apart move weights as far as they are long, on the average. Rounding to
// the nearest would leave them where they are.
func TestSmallStepsCount(t *testing.T) {
	t.Parallel()
	for v, unit := range map[optim.ValueType]float32{optim.BF16: 0x1p-7, optim.FP16: 0x1p-10} { // between 1 and 2
		const rows, dim, steps = 500, 7, 160
		rng := rand.New(rand.NewPCG(1, 2))
		rule := optim.Stored(optim.SGD{LR: 1}, v)
		g := slices.Repeat([]float32{-unit / 16}, dim)
		sum, squares := 0.0, 0.0
		for range rows {
			w, state := make([]float32, dim), make([]float32, rule.StateDim(dim))
			for k := range w {
				w[k] = 1 + 0.5*rng.Float32()
			}
			rule.Init(w, state)
			first := slices.Clone(w)
			for range steps {
				rule.Update(w, state, g, 1)
			}
			of := slices.Clone(w)
			if v.Round(of); !slices.Equal(of, w) {
				t.Fatalf("%s: %v is not of the format", v, w)
			}
			for k, x := range w {
				moved := float64(x-first[k]) / float64(steps*unit/16)
				sum, squares = sum+moved, squares+moved*moved
			}
		}
		// Each of 160 steps moves by 16 of its lengths with a probability of 1/16: √(15/160) is the standard deviation of the whole.
		const n, want = rows * dim, 0.306
		mean, deviation := sum/n, math.Sqrt(squares/n-sum/n*sum/n)
		if math.Abs(mean-1) > 5*want/math.Sqrt(n) || math.Abs(deviation-want) > 0.03 {
			t.Errorf("%s: weights moved by %.3f of their steps, with a standard deviation of %.3f", v, mean, deviation)
		}
	}
}

// TestRoundedRules: a rounded rule is read back from its description, has the state of its rule and one number more, and says what is wrong.
func TestRoundedRules(t *testing.T) {
	o := optim.Stored(optim.Adam{LR: 0.5}, optim.FP16)
	back, err := optim.RuleOf(o).Optimizer()
	if err != nil || back.String() != o.String() || back.Name() != "adam.fp16" || !strings.HasPrefix(o.String(), "fp16(adam(lr=0.5,") {
		t.Errorf("%s is read back as %v: %v", o, back, err)
	}
	if n := o.StateDim(5); n != 13 {
		t.Errorf("%d numbers of state", n)
	}
	if optim.Stored(optim.SGD{}, optim.FP32) != (optim.SGD{}) {
		t.Error("a rule of float32 is rounded")
	}
	for _, bad := range []optim.Optimizer{optim.Rounded{}, optim.Rounded{Rule: optim.SGD{}}, optim.Rounded{Rule: optim.SGD{LR: -1}, Values: optim.BF16}} {
		if optim.Validate(bad) == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if _, err := (optim.Rule{Name: "none.bf16"}).Optimizer(); err == nil {
		t.Error("a rounded rule of no rule is read")
	}
	for _, name := range []string{"float32", "bf16", "fp16"} {
		if v, err := optim.ParseValueType(name); err != nil || v.String() != name {
			t.Errorf("%s is %s: %v", name, v, err)
		}
	}
	if _, err := optim.ParseValueType("int8"); err == nil {
		t.Error("int8 is a value type")
	}
	w, g := make([]float32, 9), make([]float32, 9)
	state := make([]float32, o.StateDim(9))
	o.Init(w, state)
	if n := testing.AllocsPerRun(20, func() { o.Update(w, state, g, 1) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestRoundKeepsWhatIsFinite: beyond the largest number weights become that.
func TestRoundKeepsWhatIsFinite(t *testing.T) {
	t.Parallel()
	w := []float32{math.MaxFloat32, -math.MaxFloat32, float32(math.Inf(1)), 1.001, 0, float32(math.NaN())}
	optim.FP16.Round(w)
	if w[0] != 65504 || w[1] != -65504 || !math.IsInf(float64(w[2]), 1) || w[3] != 1.0009765625 || w[4] != 0 || w[5] == w[5] {
		t.Errorf("rounded to %v", w)
	}
	optim.BF16.Round(w[:1])
	w[1] = math.MaxFloat32
	optim.BF16.Round(w[1:2])
	if w[0] != 65536 || w[1] != 0x1.fep127 {
		t.Errorf("rounded to %v", w[:2])
	}
}

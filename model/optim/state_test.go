package optim_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/optim"
)

// TestStatesThatRulesContinueFrom: each rule continues from any state that it makes itself, and from whatever else it takes to be one weights stay finite.
func TestStatesThatRulesContinueFrom(t *testing.T) {
	t.Parallel()
	all := []optim.Optimizer{optim.LazyAdagradW{WeightDecay: 0.1}, optim.DenseAdam{WeightDecay: 0.1}, optim.BatchSoftmax{}, optim.Stored(optim.Adam{}, optim.BF16), optim.Stored(optim.LazyAdagradW{}, optim.FP16)}
	for _, r := range rules {
		all = append(all, r.rule)
	}
	odd := []float32{-1e9, -1, -0.5, 0, 1e-9, 0.5, 1, 2, 1 << 24, 1e9, float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1))}
	for _, rule := range all {
		rng := rand.New(rand.NewPCG(5, 6))
		const dim = 3
		examples, refused := int64(0), 0
		random := func() []float32 {
			x := make([]float32, dim)
			for k := range x {
				x[k] = float32(rng.NormFloat64())
			}
			return x
		}
		update := func(w, state []float32) {
			examples += rng.Int64N(1 << 26)
			optim.Apply(rule, w, state, random(), rng.Float32(), examples)
		}
		for range 200 {
			w, state := make([]float32, dim), make([]float32, rule.StateDim(dim))
			rule.Init(w, state)
			for range rng.IntN(4) {
				update(w, state)
			}
			if err := optim.CheckState(rule, dim, state); err != nil {
				t.Fatalf("%s: its own state %v: %v", rule, state, err)
			}
			if len(state) == 0 {
				break
			}
			state[rng.IntN(len(state))] = odd[rng.IntN(len(odd))]
			if optim.CheckState(rule, dim, state) != nil {
				refused++
				continue
			}
			before := slices.Clone(state)
			for range 5 {
				update(w, state)
			}
			for _, v := range slices.Concat(w, state) {
				if v-v != 0 {
					t.Fatalf("%s: from state %v it comes to weights %v with %v", rule, before, w, state)
				}
			}
		}
		if rule.StateDim(dim) > 0 && refused == 0 {
			t.Errorf("%s: no state was refused", rule)
		}
	}
}

// TestStatesThatAreRefused: each fault is named.
func TestStatesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule  optim.Optimizer
		state []float32 // of 2 weights
		want  string
	}{
		{optim.Adagrad{}, []float32{1}, "1 numbers for 2 weights, want 2"},
		{optim.SGD{}, []float32{1}, "1 numbers for 2 weights, want 0"},
		{optim.Momentum{}, []float32{1, float32(math.Inf(1))}, "not finite"},
		{optim.Adagrad{}, []float32{1, 0}, "sum of squares is not above 0"},
		{optim.AdagradW{}, []float32{-1, 1}, "sum of squares is not above 0"},
		{optim.RowAdagrad{}, []float32{0}, "sum of squares is not above 0"},
		{optim.GroupAdagrad{}, []float32{0}, "sum of squares is not above 0"},
		{optim.FTRL{}, []float32{1, 0, -1, -1}, "sum of squares is not above 0"},
		{optim.GroupFTRL{}, []float32{0, 1, -1, -1}, "sum of squares is not above 0"},
		{optim.LazyAdagradW{}, []float32{0, 1, -1, 0}, "sum of squares is not above 0"},
		{optim.LazyAdagradW{}, []float32{1, 1, -1, 1}, "number of examples"},
		{optim.LazyAdagradW{}, []float32{1, 1, 0, 0.5}, "number of examples"},
		{optim.DenseAdam{}, []float32{0, 0, -1, 1, 0, 0, -1, 0}, "below 0"},
		{optim.DenseAdam{}, []float32{0, 0, 1, 1, 0, 2, -1, 0}, "correction"},
		{optim.DenseAdam{}, []float32{0, 0, 1, 1, 0, 0, -1, 1}, "number of examples"},
		{optim.BatchSoftmax{}, []float32{0, 1 << 24}, "number of examples"},
		{optim.RMSprop{}, []float32{0, -1}, "mean square is below 0"},
		{optim.RMSprop{Momentum: 0.9}, []float32{0, -1, -1, -1}, "mean square is below 0"},
		{optim.Adadelta{}, []float32{0, 0, 0, -1}, "mean square is below 0"},
		{optim.Adam{}, []float32{-1, -1, 0, -1, 0, 0}, "mean square is below 0"},
		{optim.Adam{}, []float32{-1, -1, 0, 0, 0, 1.5}, "bias corrections"},
		{optim.AMSGrad{}, []float32{-1, -1, 0, 0, 0, -1, 0, 0}, "mean square is below 0"},
		{optim.AMSGrad{}, []float32{-1, -1, 0, 0, 0, 0, -1, 0}, "bias corrections"},
		{optim.AdamW{}, []float32{-1, -1, 0, -1, 0, 0}, "mean square is below 0"},
		{optim.LAMB{}, []float32{-1, -1, 0, 0, 0, 2}, "bias corrections"},
		{optim.Shampoo{MaxDim: 1}, []float32{-1, -1, -1, -1, 0, -1, -1, -1, -1, -1, 0, 0}, "sum of squares is below 0"},
		{optim.Shampoo{MaxDim: 1}, []float32{-1, -1, -1, -1, 0, 0, -1, -1, -1, -1, 0, 0.5}, "number of updates"},
		{optim.Adamom{}, []float32{-1, -1, 0, -1, 0}, "mean square is below 0"},
		{optim.Adamom{}, []float32{-1, -1, 0, 0, -1}, "number of gradients"},
		{optim.Stored(optim.SGD{}, optim.BF16), []float32{-1}, "number of updates"},
		{optim.Stored(optim.Adagrad{}, optim.BF16), []float32{1, 0, 7}, "sum of squares is not above 0"},
	} {
		if err := optim.CheckState(c.rule, 2, c.state); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, state %v: %v, want one about %q", c.rule, c.state, err, c.want)
		}
	}
}

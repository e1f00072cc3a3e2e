package param_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// trained is the layout of a model that was trained.
func trained(change func(*param.Layout)) *param.Layout {
	adam := optim.Adam{LR: .001}
	l := &param.Layout{
		Seed: 1,
		Tables: []param.Table{{Name: "embedding", Segments: []param.Segment{
			{Name: "bias", Dim: 1, Optimizer: optim.FTRL{LR: .05}},
			{Name: "vec", Dim: 8, Init: param.Uniform(-.05, .05), Optimizer: optim.Adagrad{LR: .05}},
		}}},
		Dense: []param.Tensor{
			{Name: "deep.0.weight", Shape: []int{24, 8}, Optimizer: adam},
			{Name: "deep.0.bias", Shape: []int{8}, Optimizer: adam},
			{Name: "deep.1.weight", Shape: []int{8, 4}, Optimizer: adam},
			{Name: "deep.1.bias", Shape: []int{4}, Optimizer: adam},
			{Name: "out.weight", Shape: []int{4, 1}, Optimizer: adam},
		},
	}
	if change != nil {
		change(l)
	}
	return l
}

func TestRulesThatChangeAreNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(*param.Layout)
		want   []string
	}{
		{"none", nil, nil},
		{"learning rate", func(l *param.Layout) { l.Tables[0].Segments[1].Optimizer = optim.Adagrad{LR: .1} }, []string{"embedding.vec: adagrad's lr is 0.1, was 0.05"}},
		{"default by name", func(l *param.Layout) {
			l.Tables[0].Segments[1].Optimizer = optim.Adagrad{LR: .05, InitialAccumulator: optim.DefaultAdagradInitialAccumulator}
		}, nil},
		{"learning rate of all layers", func(l *param.Layout) {
			for i := range l.Dense {
				l.Dense[i].Optimizer = optim.Adam{LR: .01, Nesterov: true}
			}
		}, []string{
			"deep.0.weight, deep.0.bias, deep.1.weight, 2 more: adam's lr is 0.01, was 0.001",
			"deep.0.weight, deep.0.bias, deep.1.weight, 2 more: adam's nesterov is true, was false",
		}},
		{"two settings and l2", func(l *param.Layout) {
			l.Tables[0].Segments[0].Optimizer = optim.FTRL{LR: .05, L1: 1, L2: 2}
			l.Tables[0].Segments[1].L2 = .1
		}, []string{"embedding.bias: ftrl's l1 is 1, was 0", "embedding.bias: ftrl's l2 is 2, was 0", "embedding.vec: l2 is 0.1, was 0"}},
		{"another rule", func(l *param.Layout) { l.Tables[0].Segments[1].Optimizer = optim.SGD{LR: .1} }, []string{"embedding.vec: optimizer is sgd, was adagrad"}},
		{"initial values", func(l *param.Layout) { l.Tables[0].Segments[1].Init = param.Normal(0, .01) }, []string{"embedding.vec: init is normal(0,0.01), was uniform(-0.05,0.05)"}},
		{"retention", func(l *param.Layout) {
			l.Retention = param.Retention{Default: param.SlotRetention{Expire: 3.6e9}, MaxJump: 60e6, MaxStep: 1e6}
		}, []string{"retention: rows: expire after 1h0m0s; max jump 1m0s; max step 1s, was every id has a row for ever"}},
		{"seed", func(l *param.Layout) { l.Seed = 1<<64 - 1 }, []string{"initial values: the seed is 18446744073709551615, was 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			// As a manifest has them.
			var earlier, now param.Rules
			for l, to := range map[*param.Layout]*param.Rules{trained(nil): &earlier, trained(c.change): &now} {
				b, err := json.Marshal(l.Rules())
				if err != nil {
					t.Fatal(err)
				}
				if err := json.Unmarshal(b, to); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(c.want, now.Changes(earlier, nil)); diff != "" {
				t.Error(diff)
			}
		})
	}
	renamed := trained(func(l *param.Layout) {
		l.Tables[0].Name, l.Tables[0].Segments[1].Optimizer = "users", optim.Adagrad{LR: .1}
		for i := range l.Dense {
			l.Dense[i].Name = strings.Replace(l.Dense[i].Name, "deep.", "tower.", 1)
		}
		l.Dense[0].L2 = 1
	})
	want := []string{"users.vec: adagrad's lr is 0.1, was 0.05", "tower.0.weight: l2 is 1, was 0"}
	if diff := cmp.Diff(want, renamed.Rules().Changes(trained(nil).Rules(), map[string]string{"embedding": "users", "deep": "tower"})); diff != "" {
		t.Error(diff)
	}
}

// TestRulesRoundTrip makes the optimizers and initializers again from a manifest's JSON.
func TestRulesRoundTrip(t *testing.T) {
	t.Parallel()
	l := trained(func(l *param.Layout) {
		l.Dense[0].Optimizer = optim.EMA{Decay: .5}
		l.Dense[1].Optimizer = optim.SGD{LR: .3}
		l.Dense[2].Init = param.Constant(.25)
	})
	b, err := json.Marshal(l.Rules())
	if err != nil {
		t.Fatal(err)
	}
	var r param.Rules
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	at := 0
	check := func(o optim.Optimizer, i param.Init) {
		p := r.Parameters[at]
		at++
		made, err := p.Optimizer.Optimizer()
		if err != nil || made.String() != o.String() {
			t.Errorf("%s: %v, %v; want %v", p.Name, made, err, o)
		}
		if init, err := p.Init.Init(); err != nil || init != i {
			t.Errorf("%s: %v, %v; want %v", p.Name, init, err, i)
		}
	}
	for _, s := range l.Tables[0].Segments {
		check(s.Optimizer, s.Init)
	}
	for _, d := range l.Dense {
		check(d.Optimizer, d.Init)
	}
	for _, bad := range []string{`{"name":"nag"}`, `{"name":"sgd","settings":{"lr":"much"}}`, `{"name":"sgd","settings":{"rate":1}}`, `{"name":"sgd","settings":{"lr":-1}}`} {
		var rule optim.Rule
		if err := json.Unmarshal([]byte(bad), &rule); err != nil {
			t.Fatal(err)
		}
		if o, err := rule.Optimizer(); err == nil {
			t.Errorf("%s made %v", bad, o)
		}
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	all := func(p param.Policy) param.Policies {
		return param.Policies{Tables: map[string]param.Policy{"*": p}, Tensors: map[string]param.Policy{"*": p}}
	}
	for _, c := range []struct {
		name   string
		change func(*param.Layout)
		p      param.Policies
		// faults must all be in the error, or notes be the notes; exact when both are empty.
		faults, notes []string
	}{
		{name: "as it is"},
		{name: "rules alone", change: func(l *param.Layout) {
			l.Seed, l.Tables[0].Segments[1].Optimizer, l.Dense[0].L2 = 7, optim.Adagrad{LR: 3, InitialAccumulator: 9}, 1
		}},
		{name: "another order of tensors", change: func(l *param.Layout) { l.Dense[0], l.Dense[3] = l.Dense[3], l.Dense[0] }},
		{name: "another order of segments", change: func(l *param.Layout) { slices.Reverse(l.Tables[0].Segments) }, notes: []string{"table embedding: its segments come in another order"}},
		{name: "wider layer", change: func(l *param.Layout) { l.Dense[0].Shape = []int{32, 8} }, faults: []string{
			"tensor deep.0.weight: the snapshot has shape [24 8], the model [32 8]",
			"set restore: {tensors: {deep.0.weight: init}} (grow instead of init keeps what lies in both shapes)",
		}},
		{name: "policy for a stranger", change: func(l *param.Layout) { l.Dense[0].Shape = []int{32, 8} }, p: param.Policies{
			Tensors: map[string]param.Policy{"deep.0.weigth": param.PolicyGrow}, Tables: map[string]param.Policy{"embeding": param.PolicyInit},
		}, faults: []string{
			`tensors: a policy is set for deep.0.weigth, which neither the snapshot nor the model has, did you mean "deep.0.weight"?`,
			`tables: a policy is set for embeding, which neither the snapshot nor the model has, did you mean "embedding"?`,
		}},
		{name: "policy for what was dropped before", p: param.Policies{Tables: map[string]param.Policy{"old": param.PolicyDrop}}},
		{name: "wider layer starts over", change: func(l *param.Layout) { l.Dense[0].Shape = []int{32, 8} }, p: param.Policies{Tensors: map[string]param.Policy{"deep.0.weight": param.PolicyInit}}, notes: []string{
			"tensor deep.0.weight begins with initial values: it has shape [32 8], was [24 8]",
		}},
		{name: "wider layer grows", change: func(l *param.Layout) { l.Dense[0].Shape = []int{32, 8} }, p: all(param.PolicyGrow), notes: []string{
			"tensor deep.0.weight keeps what lies in both shapes: it is [32 8], was [24 8]",
		}},
		{name: "new and gone", change: func(l *param.Layout) { l.Dense[4].Name = "top.weight" }, faults: []string{
			"tensor top.weight: the snapshot has none, the model one of shape [4 1]", "tensor out.weight: the snapshot has it with shape [4 1], the model has no such tensor",
			"restore: {tensors: {out.weight: drop, top.weight: init}}",
		}},
		{name: "init drops nothing", change: func(l *param.Layout) { l.Dense = l.Dense[:4] }, p: all(param.PolicyInit), faults: []string{"out.weight: drop"}},
		{name: "renamed", change: func(l *param.Layout) { l.Dense[4].Name, l.Tables[0].Name = "top.weight", "users" }, p: param.Policies{
			Rename: map[string]string{"out": "top", "embedding": "users"},
		}, notes: []string{"embedding is called users now", "out is called top now"}},
		{name: "renamed for nothing", p: param.Policies{Rename: map[string]string{"x": "out", "y": "z"}}, faults: []string{
			"rename y to z: the model has nothing of that name",
		}},
		{name: "renamed from nothing", change: func(l *param.Layout) { l.Dense[4].Name = "top.weight" }, p: param.Policies{
			Rename: map[string]string{"outt": "top"}, Tensors: map[string]param.Policy{"*": param.PolicyInit, "out.weight": param.PolicyDrop},
		}, faults: []string{"rename outt to top: the snapshot has nothing called outt"}},
		{name: "another optimizer", change: func(l *param.Layout) { l.Tables[0].Segments[1].Optimizer = optim.Adam{} }, faults: []string{
			"table embedding segment vec: the snapshot has the state of adagrad (8 of state), the model's optimizer is adam (18 of state)", "tables: {embedding.vec: init}",
		}},
		{name: "another optimizer starts over", change: func(l *param.Layout) {
			l.Tables[0].Segments[1].Optimizer, l.Dense[0].Optimizer = optim.Adam{}, optim.SGD{}
		}, p: all(param.PolicyInit), notes: []string{
			"embedding.vec keeps its weights; the optimizer's state starts over: it is adam, was adagrad",
			"tensor deep.0.weight keeps its weights; the optimizer's state starts over: it is sgd, was adam",
		}},
		{name: "an intercept", change: func(l *param.Layout) { l.Dense[0].Optimizer = optim.Intercept{} }, notes: []string{
			"tensor deep.0.weight keeps its weights; the optimizer's state starts over: it is intercept, was adam",
		}},
		{name: "dim", change: func(l *param.Layout) { l.Tables[0].Segments[1].Dim = 16 }, faults: []string{"table embedding segment vec: the snapshot has dim 8, the model dim 16"}},
		{name: "dim starts over", change: func(l *param.Layout) { l.Tables[0].Segments[1].Dim = 16 }, p: all(param.PolicyInit), notes: []string{"embedding.vec begins with initial values: it has dim 16, was 8"}},
		{name: "dim grows", change: func(l *param.Layout) { l.Tables[0].Segments[1].Dim = 16 }, p: all(param.PolicyGrow), notes: []string{"embedding.vec keeps its first 8 of 8 weights: it has dim 16 now"}},
		{name: "dim drops rows", change: func(l *param.Layout) { l.Tables[0].Segments[1].Dim = 16 }, p: all(param.PolicyDrop), notes: []string{"the rows of table embedding are dropped: embedding.vec has dim 16, was 8"}},
		{name: "segment gone", change: func(l *param.Layout) { l.Tables[0].Segments = l.Tables[0].Segments[1:] }, faults: []string{"table embedding: the snapshot has segment bias of dim 1, the model none of that name"}},
		{name: "segment dropped", change: func(l *param.Layout) { l.Tables[0].Segments = l.Tables[0].Segments[1:] }, p: param.Policies{
			Tables: map[string]param.Policy{"embedding.bias": param.PolicyDrop},
		}, notes: []string{"embedding.bias is dropped: the model has no such segment", "table embedding: its segments come in another order"}},
		{name: "new table", change: func(l *param.Layout) {
			l.Tables = append(l.Tables, param.Table{Name: "items", Segments: []param.Segment{{Name: "vec", Dim: 4, Optimizer: optim.SGD{}}}})
		}, p: param.Policies{Tables: map[string]param.Policy{"items": param.PolicyInit}}, notes: []string{"items.vec begins with initial values: it is new"}},
		{name: "readers need no state", change: func(l *param.Layout) { *l = *l.Frozen() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			fit, err := trained(c.change).Fit(trained(nil).Shape(), c.p)
			if len(c.faults) > 0 {
				if _, ok := errors.AsType[*param.FitError](err); !ok {
					t.Fatalf("%v, want a FitError", err)
				}
				for _, want := range c.faults {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q is not in: %v", want, err)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.notes, fit.Notes); diff != "" || fit.Exact != (len(c.notes) == 0) {
				t.Errorf("exact: %v\n%s", fit.Exact, diff)
			}
		})
	}
	if err := all("maybe").Validate(); err == nil || !strings.Contains(err.Error(), `"maybe"`) {
		t.Errorf("a policy that is none: %v", err)
	}
}

// TestTakeGrows compares with the element-by-element meaning of growing and shrinking.
func TestTakeGrows(t *testing.T) {
	t.Parallel()
	for _, o := range []optim.Optimizer{optim.SGD{}, optim.Adagrad{}, optim.FTRL{}, optim.Adam{}, optim.AMSGrad{}, optim.RowAdagrad{}} {
		for _, c := range []struct{ is, was []int }{{[]int{3}, []int{2}}, {[]int{1}, []int{2}}, {[]int{3, 4}, []int{2, 5}}, {[]int{2, 2, 3}, []int{3, 1, 2}}, {[]int{2, 2}, []int{2, 2}}} {
			size := func(shape []int) int {
				n := 1
				for _, d := range shape {
					n *= d
				}
				return n
			}
			fill := func(n int, from float32) []float32 {
				out := make([]float32, n)
				for i := range out {
					out[i] = from + float32(i)
				}
				return out
			}
			n, m := size(c.is), size(c.was)
			weights, state := fill(m, 1000), fill(o.StateDim(m), 2000)
			dst, dstState := fill(n, -1000), fill(o.StateDim(n), -2000)
			want, wantState := slices.Clone(dst), slices.Clone(dstState)
			scalars := o.StateDim(0)
			for i := range n {
				// The place of element i in the other shape.
				at, inside, rest, size := 0, true, i, n
				for d := range c.is {
					size /= c.is[d]
					k := rest / size
					rest %= size
					inside = inside && k < c.was[d]
					at = at*c.was[d] + k
				}
				if !inside {
					continue
				}
				want[i] = weights[at]
				for v := range (len(state) - scalars) / m {
					wantState[v*n+i] = state[v*m+at]
				}
			}
			copy(wantState[len(wantState)-scalars:], state[len(state)-scalars:])
			param.Take(o, dst, dstState, weights, state, c.is, c.was, true)
			if !slices.Equal(dst, want) || !slices.Equal(dstState, wantState) {
				t.Errorf("%s %v of %v: %v %v, want %v %v", o.Name(), c.is, c.was, dst, dstState, want, wantState)
			}
		}
	}
}

func FuzzShape(f *testing.F) {
	b, err := json.Marshal(trained(nil).Shape())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"dense":[{"name":"x","shape":[1099511627776,1099511627776]}]}`))
	f.Add([]byte(`{"tables":[{"name":"x","segments":[{"name":"v","dim":-1}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s param.Shape
		if json.Unmarshal(b, &s) != nil || s.Validate() != nil {
			return
		}
		for _, d := range s.Dense {
			if d.Len() < 1 {
				t.Errorf("tensor of shape %v has %d elements", d.Shape, d.Len())
			}
		}
		for _, d := range s.Tables {
			if d.Dim() < 1 || d.StateDim() < 0 {
				t.Errorf("table of dim %d and %d of state", d.Dim(), d.StateDim())
			}
		}
		// Any input fits or gives an error with the reason.
		fit, err := trained(nil).Fit(s, param.Policies{Tables: map[string]param.Policy{"*": param.PolicyGrow}, Tensors: map[string]param.Policy{"*": param.PolicyDrop}})
		if (fit == nil) == (err == nil) {
			t.Errorf("fit %v, error %v", fit, err)
		}
	})
}

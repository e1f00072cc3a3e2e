package param_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

func TestDifferencesAreNamed(t *testing.T) {
	t.Parallel()
	layout := func(change func(*param.Layout)) *param.Layout {
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
	for _, c := range []struct {
		name   string
		change func(*param.Layout)
		want   []string
	}{
		{"none", nil, nil},
		{"learning rate", func(l *param.Layout) { l.Tables[0].Segments[1].Optimizer = optim.Adagrad{LR: .1} }, []string{"embedding.vec: adagrad's lr is 0.1, was 0.05"}},
		{"learning rate of all layers", func(l *param.Layout) {
			for i := range l.Dense {
				l.Dense[i].Optimizer = optim.Adam{LR: .01}
			}
		}, []string{"deep.0.weight, deep.0.bias, deep.1.weight, 2 more: adam's lr is 0.01, was 0.001"}},
		{"two settings and l2", func(l *param.Layout) {
			l.Tables[0].Segments[0].Optimizer = optim.FTRL{LR: .05, L1: 1, L2: 2}
			l.Tables[0].Segments[1].L2 = .1
		}, []string{"embedding.bias: ftrl's l1 is 1, was 0", "embedding.bias: ftrl's l2 is 2, was 0", "embedding.vec: l2 is 0.1, was 0"}},
		{"another rule", func(l *param.Layout) { l.Tables[0].Segments[1].Optimizer = optim.SGD{LR: .1} }, []string{
			"embedding.vec: optimizer is sgd(lr=0.1), was adagrad(lr=0.05,initial_accumulator=0.1,weight_decay=0)",
		}},
		{"width", func(l *param.Layout) { l.Dense[0].Shape, l.Dense[1].Shape = []int{24, 16}, []int{16} }, []string{
			"deep.0.weight: shape is [24 16], was [24 8]", "deep.0.bias: shape is [16], was [8]",
		}},
		{"dimension and initial values", func(l *param.Layout) {
			l.Tables[0].Segments[1].Dim, l.Tables[0].Segments[1].Init = 16, param.Normal(0, .01)
		}, []string{"embedding.vec: shape is 16, was 8", "embedding.vec: init is normal(0,0.01), was uniform(-0.05,0.05)"}},
		{"seed", func(l *param.Layout) { l.Seed = 2 }, []string{"initial values: init is of seed 2, was of seed 1"}},
		{"new and gone", func(l *param.Layout) { l.Dense[4].Name = "top.weight" }, []string{"top.weight: is new", "out.weight: is gone"}},
		{"order", func(l *param.Layout) { l.Dense[0], l.Dense[2] = l.Dense[2], l.Dense[0] }, []string{"the parameters come in another order"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, layout(c.change).Differences(layout(nil).String())); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := layout(nil).Differences("what is this?\n"); len(got) == 0 {
		t.Error("a text of another program differs in nothing")
	}
}

package zoo_test

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/zoo"
)

// TestRowRulesFollowTheFeatures: rates and accumulators by hand, for few and many sparse features; dense ones do not count, and rules that are given stay.
func TestRowRulesFollowTheFeatures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		model                      string
		features                   int
		bias, l2, vec, accumulator float32
	}{
		{zoo.FM, 0, 0.25, 0.001, 0.05, 3e-9},
		{zoo.FM, 2, 0.25, 0.002, 0.05, 1.2e-8},
		{zoo.FM, 10, 0.2, 0.01, 0.04, 3e-7},
		{zoo.FM, 39, 0.051, 0.03, 0.01, 4.6e-6},
		{zoo.DeepFM, 39, 0.051, 0.03, 0.01, 4.6e-6},
		{zoo.DCNv2, 10, 0.2, 0.01, 0.05, 3e-8},
		{zoo.DCNv2, 39, 0.051, 0.03, 0.026, 3e-8},
		{"a program's own", 400, 0.005, 0.03, 0.0025, 3e-8},
	} {
		cfg := zoo.Config{Name: c.model, Features: []zoo.Feature{{Name: "x", Kind: model.Dense, Dim: 7}}}
		for i := range c.features {
			cfg.Features = append(cfg.Features, zoo.Feature{Name: fmt.Sprint("f", i)})
		}
		if c.features > 2 { // entries side by side count like features
			cfg.Features = append(cfg.Features[:c.features-1], zoo.Feature{Name: "list", Combiner: zoo.First, First: 2})
		}
		got := cfg.RowRules()
		if bias, vec := got.Bias.(optim.FTRL), got.Vec.(optim.Adagrad); bias.LR != c.bias || bias.L2 != c.l2 || vec.LR != c.vec || vec.InitialAccumulator != c.accumulator {
			t.Errorf("%s, %d features: %s and %s; want rates %g and %g, L2 %g, accumulator %g", c.model, c.features, bias, vec, c.bias, c.vec, c.l2, c.accumulator)
		}
		cfg.BiasOptimizer, cfg.VecOptimizer = optim.SGD{LR: 3}, optim.SGD{LR: 4}
		if got := cfg.RowRules(); got.Bias != cfg.BiasOptimizer || got.Vec != cfg.VecOptimizer {
			t.Errorf("%s: rules that were given became %s, %s", c.model, got.Bias, got.Vec)
		}
	}
}

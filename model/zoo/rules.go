package zoo

import (
	"strconv"

	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/optim"
)

// The rates of [Config.RowRules] and where they begin to fall.
const (
	biasRate, biasMost = 2.0, 0.25
	biasL2, biasL2Most = 0.001, 0.03
	vecRate            = 0.05
	productFeatures    = 8.0
	otherFeatures      = 20.0
	// vecAccumulator is the sum of squares that vectors begin with. Gradients are sums over a batch divided by 512 as a
	// rule (train.reference_batch), and that of a vector that begins near 0 is smaller still: 1e-6 swamps it.
	vecAccumulator = 3e-8
	// productAccumulator is that of factorization machines by F²: the gradient of a vector is a sum of F-1 others.
	productAccumulator = 3e-9
)

// RowRules are the update rules of embedding rows.
type RowRules struct {
	// Bias updates the weights of single fids, Vec the vectors.
	Bias, Vec optim.Optimizer
}

// RowRules returns the rules of c, and for those that are nil the usual ones, which follow F, the number of sparse features, one with
// [First] for each of its entries:
//
//	bias  FTRL     lr = min(0.25, 2/F), L2 = min(0.03, F/1000)
//	vec   Adagrad  lr = 0.05·min(1, 8/F), initial accumulator 3e-9·F²    factorization machines beside a linear term
//	vec   Adagrad  lr = 0.05·min(1, 20/F), initial accumulator 3e-8      other models
//
// All F ids of an example move at once and the same way, so the sum of their steps is what has to stay of one size. The
// accumulator keeps the first example of a rare id from moving its vector by a whole step, and L2 its linear weight: the
// more ids an example has, the less each is worth. bytedance/monolith has the same
// rules, with rates that do not follow F. docs/quality.md has the measurements.
func (c Config) RowRules() RowRules {
	f := 0.0
	for _, feature := range c.Features {
		if feature.Kind == model.Sparse {
			f += float64(max(feature.First, 1))
		}
	}
	f = max(f, 1)
	r := RowRules{Bias: c.BiasOptimizer, Vec: c.VecOptimizer}
	if r.Bias == nil {
		r.Bias = optim.FTRL{LR: round2(min(biasMost, biasRate/f)), L2: round2(min(biasL2Most, biasL2*f))}.WithDefaults()
	}
	if r.Vec == nil {
		n, accumulator := otherFeatures, vecAccumulator
		if t := c.topology(); t.bias && t.interacts {
			n, accumulator = productFeatures, productAccumulator*f*f
		}
		r.Vec = optim.Adagrad{LR: round2(vecRate * min(1, n/f)), InitialAccumulator: round2(accumulator)}.WithDefaults()
	}
	return r
}

// round2 is v with two significant digits, so that a rate reads well in a job file.
func round2(v float64) float32 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 2, 64), 32)
	if err != nil {
		return float32(v)
	}
	return float32(r)
}

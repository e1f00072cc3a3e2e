package metric

import (
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/monolith-go/monolith/model/param"
)

// MinReplicates is the fewest replicates that intervals are made of.
const MinReplicates = 20

// The fewest independent examples, or groups with [Set].GroupIDs, that an interval is made of.
const (
	// MinEach is the fewest with a positive, and the fewest with a negative, for metrics of probabilities.
	MinEach = 10
	// MinAll is the fewest for all metrics. For those of groups it is the fewest groups that count.
	MinAll = 20
)

// Few reports whether the set is too small for an interval of a metric ([MinEach], [MinAll]). The
// bootstrap draws from what there is: of a handful of examples that happen to be in order every replicate
// has an AUC of 1. Examples of weight 0 do not count.
func (s *Set) Few(m *Metric) bool {
	if m.Grouped {
		c, ok := s.Counted(m)
		return s.Groups == nil || ok && c.Groups < MinAll
	}
	const positive, negative = 1, 2
	var seen []uint8 // of each group
	if s.GroupIDs != nil && s.Groups != nil {
		seen = make([]uint8, s.NumGroups)
	}
	var all, positives, negatives int
	for i, y := range s.Labels {
		if weightOf(s.Weights, i) == 0 {
			continue
		}
		class := uint8(negative)
		if y > 0.5 {
			class = positive
		}
		before := uint8(0)
		if seen != nil && s.GroupIDs[s.Groups[i]] != 0 {
			before = seen[s.Groups[i]]
			seen[s.Groups[i]] |= class
		}
		if before == 0 {
			all++
		}
		if before&class == 0 && class == positive {
			positives++
		}
		if before&class == 0 && class == negative {
			negatives++
		}
	}
	return all < MinAll || m.Probabilities && s.Classes == 0 && min(positives, negatives) < MinEach
}

// Bootstrap computes metrics of n replicates of the set. In each, an example counts as often as a Poisson
// variable of mean 1 says. For many examples that is the same as drawing with replacement (Chamandy,
// Muralidharan, Najmi and Naidu, 2012, Estimating Uncertainty for Massive Data Streams, section 2.2).
// How often depends on seed, replicate and the example's ID alone. Order and other examples do not matter,
// and replicates of two models on the same examples are paired.
//
// Examples of a group depend on each other. With GroupIDs, whole groups are drawn for every metric (the
// cluster bootstrap; Field and Welsh, 2007, Bootstrapping Clustered Data). An example whose group has the
// ID 0 is in none and is drawn by itself.
//
// The result is [metric][replicate]. The set needs IDs, and GroupIDs for metrics of groups. Workers share
// the replicates; results do not depend on their number. Examples are sorted once. Then auc and the
// metrics that are functions of sums take one pass over the examples for all replicates of a worker
// together, a few nanoseconds for each example and replicate. The others, such as those of groups, are
// computed from the weighted set. It takes 32 bytes an example, 12 more for groups, and where there are
// such others 12 more for each worker, 28 with groups. Errors: that of the context when it ends.
func (s *Set) Bootstrap(ctx context.Context, metrics []Metric, n int, seed uint64, workers int) ([][]float64, error) {
	out := make([][]float64, len(metrics))
	for i := range out {
		out[i] = make([]float64, n)
	}
	b := bootstrap{draw: newPoisson(), seed: seed, metrics: metrics, out: out}
	var ranked bool
	of := *s
	of.IDs = s.draws()
	b.set, ranked = of.byPrediction()
	for i, m := range metrics {
		if ranked && m.parts != nil {
			b.quick = append(b.quick, i)
		} else {
			b.others = append(b.others, i)
		}
	}
	workers = min(max(workers, 1), n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for k := range workers {
		wg.Go(func() {
			b.pass(ctx, n*k/workers, n*(k+1)/workers)
			if len(b.others) == 0 {
				return
			}
			var work Workspace
			weighted := *b.set
			weighted.Weights = make([]float32, s.Len())
			if weighted.GroupIDs == nil {
				weighted.Groups = nil // no metric of groups is defined
			}
			for ctx.Err() == nil {
				r := int(next.Add(1)) - 1
				if r >= n {
					return
				}
				b.compute(&work, &weighted, r)
			}
		})
	}
	wg.Wait()
	return out, context.Cause(ctx)
}

// bootstrap is the work of [Set.Bootstrap].
type bootstrap struct {
	set     *Set // ascending by prediction, where metrics are quick
	draw    *poisson
	seed    uint64
	metrics []Metric
	out     [][]float64 // [metric][replicate]
	// quick and others are the places of metrics by how they are computed.
	quick, others []int
}

func (b *bootstrap) key(replicate int) uint64 { return param.Mix(b.seed, uint64(replicate)) }

// compute computes the metrics of a replicate that are not quick, of the weighted set.
func (b *bootstrap) compute(work *Workspace, weighted *Set, r int) {
	b.draw.weigh(weighted.Weights, b.set, b.key(r))
	for _, i := range b.others {
		b.out[i][r] = b.metrics[i].Measure(work, weighted)
	}
}

// draws returns what each example is drawn by: its group's ID, or its own.
func (s *Set) draws() []uint64 {
	if s.Groups == nil || s.GroupIDs == nil || s.IDs == nil {
		return s.IDs
	}
	out := make([]uint64, len(s.IDs))
	for i, g := range s.Groups {
		if out[i] = s.GroupIDs[g]; out[i] == 0 {
			out[i] = s.IDs[i]
		}
	}
	return out
}

// blockRows is how many examples go through all replicates at a time: what is known of them stays in the nearest cache.
const blockRows = 512

// parts is how a metric is put together from examples that come in ascending order of predictions, with other weights each time. Its result is
// that of Compute but for rounding.
type parts struct {
	// terms sets the columns to what an example of weight 1 adds to each of their sums.
	columns int
	terms   func(to []float64, p, y float32)
	// of is the metric of the weight of all examples and the sums.
	of func(total float64, sums []float64) float64
	// area takes the area under the ROC curve in place of sums.
	area bool
}

// meanOf are the parts of the weighted mean of what f says of each example.
func meanOf(f func(p, y float64) float64) *parts {
	return &parts{
		columns: 1,
		terms:   func(to []float64, p, y float32) { to[0] = f(float64(p), float64(y)) },
		of:      func(total float64, sums []float64) float64 { return ratio(sums[0], total) },
	}
}

// pass computes the quick metrics of replicates from low to high in one pass over the examples.
func (b *bootstrap) pass(ctx context.Context, low, high int) {
	if len(b.quick) == 0 || low == high {
		return
	}
	columns, areas := 0, false
	for _, i := range b.quick {
		columns, areas = columns+b.metrics[i].parts.columns, areas || b.metrics[i].parts.area
	}
	block := newBlock(columns)
	keys, totals, curves, sums := make([]uint64, high-low), make([]float64, high-low), make([]curve, high-low), make([]float64, (high-low)*columns)
	for r := range keys {
		keys[r] = b.key(low + r)
	}
	for from := 0; from < b.set.Len() && ctx.Err() == nil; from += blockRows {
		block.fill(b, from, min(from+blockRows, b.set.Len()))
		for r, key := range keys {
			block.weigh(b.draw, key)
			totals[r] += total(block.weights)
			for c := range columns {
				sums[r*columns+c] += dot(block.weights, block.columns[c][:len(block.weights)])
			}
			if areas {
				curves[r].add(block)
			}
		}
	}
	for r := range keys {
		of := sums[r*columns : (r+1)*columns]
		for _, i := range b.quick {
			m := b.metrics[i].parts
			if m.area {
				b.out[i][low+r] = curves[r].area()
				continue
			}
			b.out[i][low+r] = m.of(totals[r], of[:m.columns])
			of = of[m.columns:]
		}
	}
}

// block is what replicates need to know of some examples.
type block struct {
	ids      []uint64
	of       []float32 // their own weights, or nil
	weights  []float64 // in the replicate at work
	positive []float64 // 1 or 0
	begins   []bool    // the prediction differs from the one before
	columns  [][]float64
	terms    []float64
}

func newBlock(columns int) *block {
	b := &block{weights: make([]float64, blockRows), positive: make([]float64, blockRows), begins: make([]bool, blockRows), terms: make([]float64, columns)}
	for range columns {
		b.columns = append(b.columns, make([]float64, blockRows))
	}
	return b
}

// fill sets the block to examples of the set.
func (k *block) fill(b *bootstrap, from, to int) {
	s := b.set
	k.ids, k.of, k.weights = s.IDs[from:to], nil, k.weights[:to-from]
	if s.Weights != nil {
		k.of = s.Weights[from:to]
	}
	for i := range k.weights {
		p, y := s.Predictions[from+i], s.Labels[from+i]
		k.positive[i] = 0
		if y > 0.5 {
			k.positive[i] = 1
		}
		k.begins[i] = from+i > 0 && p != s.Predictions[from+i-1]
		at := 0
		for _, m := range b.quick {
			if n := b.metrics[m].parts.columns; n > 0 {
				b.metrics[m].parts.terms(k.terms[at:at+n], p, y)
				at += n
			}
		}
		for c, v := range k.terms {
			k.columns[c][i] = v
		}
	}
}

// weigh draws the weights of a replicate.
func (k *block) weigh(draw *poisson, key uint64) {
	weights := k.weights[:len(k.ids)]
	for i, id := range k.ids {
		weights[i] = float64(draw.times(param.Mix(key, id)))
	}
	for i, w := range k.of {
		weights[i] = float64(float32(weights[i]) * w)
	}
}

// total is the sum of v, four sums at once as dot.
func total(v []float64) float64 {
	var a, b, c, d float64
	for ; len(v) >= 4; v = v[4:] {
		a, b, c, d = a+v[0], b+v[1], c+v[2], d+v[3]
	}
	for _, x := range v {
		a += x
	}
	return a + b + (c + d)
}

// dot is Σ v·t, four sums at once: one waits for its own last addition.
func dot(v, t []float64) float64 {
	var a, b, c, d float64
	for ; len(v) >= 4 && len(t) >= 4; v, t = v[4:], t[4:] {
		a, b, c, d = a+v[0]*t[0], b+v[1]*t[1], c+v[2]*t[2], d+v[3]*t[3]
	}
	for i, x := range v {
		a += x * t[i]
	}
	return a + b + (c + d)
}

// curve is the ROC curve as far as examples have come, in ascending order of predictions.
type curve struct {
	won, lost, positives, negatives float64
	run                             struct{ positives, negatives float64 } // of the prediction at hand
}

func (c *curve) add(k *block) {
	n := len(k.weights)
	positive, begins := k.positive[:n], k.begins[:n]
	at := *c
	for i, w := range k.weights {
		if begins[i] {
			at.close()
		}
		p := w * positive[i]
		at.run.positives += p
		at.run.negatives += w - p
	}
	*c = at
}

func (c *curve) close() {
	c.won += c.run.positives * (c.negatives + c.run.negatives/2)
	c.lost += c.run.negatives * (c.positives + c.run.positives/2)
	c.positives += c.run.positives
	c.negatives += c.run.negatives
	c.run.positives, c.run.negatives = 0, 0
}

// area ends the curve and is the area under it, NaN where one class has no weight.
func (c *curve) area() float64 {
	c.close()
	if !(c.positives > 0 && c.negatives > 0) {
		return math.NaN()
	}
	return ratio(c.won, c.won+c.lost)
}

// byPrediction is a copy of the set in ascending order of predictions, which every replicate has in common; the set as it is where a
// prediction is NaN, or where there are several to an example.
func (s *Set) byPrediction() (_ *Set, ranked bool) {
	var w Workspace
	if s.Classes > 0 || !w.rank(s.Predictions) {
		return s, false
	}
	out := &Set{NumGroups: s.NumGroups, GroupIDs: s.GroupIDs}
	out.Predictions, out.Labels = pick(s.Predictions, w.items), pick(s.Labels, w.items)
	out.Weights, out.Groups, out.IDs = pick(s.Weights, w.items), pick(s.Groups, w.items), pick(s.IDs, w.items)
	return out, true
}

// pick is a column in the order of items; nil stays nil.
func pick[T any](column []T, items []uint64) []T {
	if column == nil {
		return nil
	}
	out := make([]T, len(items))
	for i, item := range items {
		out[i] = column[uint32(item)]
	}
	return out
}

// poisson draws Poisson variables of mean 1 from uniform words by inversion.
type poisson struct {
	// below[k] is the probability of at most k, as a share of 2^64.
	below []uint64
	// first has the value by the word's first 12 bits; many: they do not decide.
	first [1 << 12]uint8
}

const many = math.MaxUint8

func newPoisson() *poisson {
	p := &poisson{}
	sum, term := 0.0, math.Exp(-1)
	for k := 1; ; k++ {
		sum += term
		if sum*(1<<53) >= 1<<53-1 {
			break
		}
		p.below = append(p.below, uint64(sum*(1<<53))<<11)
		term /= float64(k)
	}
	for i := range p.first {
		low := uint64(i) << 52
		if p.first[i] = p.search(low); p.search(low|(1<<52-1)) != p.first[i] {
			p.first[i] = many
		}
	}
	return p
}

func (p *poisson) search(word uint64) (k uint8) {
	for int(k) < len(p.below) && word >= p.below[k] {
		k++
	}
	return k
}

func (p *poisson) times(word uint64) uint8 {
	if k := p.first[word>>52]; k != many {
		return k
	}
	return p.search(word)
}

// weigh sets to to the weights of a replicate.
func (p *poisson) weigh(to []float32, s *Set, key uint64) {
	for i := range to {
		to[i] = float32(p.times(param.Mix(key, s.IDs[i])))
	}
	for i, w := range s.Weights {
		to[i] *= w
	}
}

// Interval is the percentile interval of replicates, from the 2.5th to the 97.5th in a hundred (Efron and Tibshirani, 1993, section 13.3; in
// between by straight lines), and their standard deviation. Replicates that are not defined are left out; where they are more than
// half, or fewer than 2 are left, all three are NaN.
func Interval(replicates []float64) (low, high, deviation float64) {
	var known []float64
	for _, v := range replicates {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			known = append(known, v)
		}
	}
	if len(known) < 2 || 2*len(known) < len(replicates) {
		return math.NaN(), math.NaN(), math.NaN()
	}
	slices.Sort(known)
	at := func(share float64) float64 {
		place := share * float64(len(known)-1)
		below := int(place)
		above := min(below+1, len(known)-1)
		return known[below] + (place-float64(below))*(known[above]-known[below])
	}
	mean := 0.0
	for _, v := range known {
		mean += v / float64(len(known))
	}
	for _, v := range known {
		deviation += (v - mean) * (v - mean) / float64(len(known)-1)
	}
	return at(.025), at(.975), math.Sqrt(deviation)
}

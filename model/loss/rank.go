package loss

import (
	"maps"
	"math"
	"slices"
)

// The names of the losses that compare the examples of a list.
const (
	// BPR learns which of two examples is the better one, by the logarithm of how probable that is.
	BPR = "bpr"
	// PairwiseHinge learns the same by a margin.
	PairwiseHinge = "pairwise_hinge"
	// LambdaRank weighs such pairs by what exchanging the two would do to the NDCG.
	LambdaRank = "lambda_rank"
	// ListSoftmax learns which of a list is chosen.
	ListSoftmax = "list_softmax"
)

// maxRelevance is the largest label of [LambdaRank], whose gain is 2ʸ-1.
const maxRelevance = 30

// rankings are the losses whose Ranks is true. A list is the rows of one group (of [Batch].Groups) that have a label and a weight above
// 0, W their weight; i and j are rows of it, wᵢ, zᵢ and yᵢ weight, output and label. A pair is two rows with yᵢ > yⱼ. The loss is the sum
// over the lists, over the number of rows of the batch. A list without pairs, or without a label above 0, adds nothing.
//
// bpr and pairwise_hinge are W·Σ wᵢwⱼ·ℓ(zᵢ-zⱼ)/Σ wᵢwⱼ: the mean over the pairs, for each row of the list, so that neither long lists nor
// seldom positives change what a row counts, and a row of weight k counts as k rows.
func rankings() []Loss {
	score := func(l Loss) Loss {
		l.Link, l.Ranks, l.Metrics = Identity, true, []string{"xauc"}
		return l
	}
	return []Loss{
		// Rendle et al. (2009), Bayesian Personalized Ranking, section 4.1, BPR-Opt; the same as the cross-entropy of RankNet (Burges et
		// al., 2005, equation 3) for pairs whose order is certain. Over the whole batch it is bytedance/monolith's inbatch_auc_loss with its
		// sign changed, as a mean.
		score(Loss{
			Name: BPR, Formula: "-ln σ(zᵢ-zⱼ), the mean over pairs with yᵢ > yⱼ", Labels: AnyNumber(),
			step:      stepLists((*list).bpr),
			reference: lists(meanOfPairs(func(d float64) float64 { return math.Log(1 + math.Exp(-d)) })),
		}),
		// Herbrich, Graepel and Obermayer (2000), Large Margin Rank Boundaries for Ordinal Regression, with a margin of 1.
		score(Loss{
			Name: PairwiseHinge, Formula: "max(0, 1-(zᵢ-zⱼ)), the mean over pairs with yᵢ > yⱼ", Labels: AnyNumber(),
			step: stepLists(func(l *list) float64 {
				return l.pairs(func(d float64) (float64, float64) {
					if d < 1 {
						return 1 - d, -1
					}
					return 0, 0
				})
			}),
			reference: lists(meanOfPairs(func(d float64) float64 { return max(0, 1-d) })),
		}),
		// Burges (2010), From RankNet to LambdaRank to LambdaMART, section 4, λ with σ = 1 and NDCG over the whole list; it is the derivative of
		// what Wang et al. (2018), The LambdaLoss Framework, sum up, at the places that the outputs give.
		score(Loss{
			Name: LambdaRank, Formula: "-|ΔNDCGᵢⱼ|·ln σ(zᵢ-zⱼ), the sum over pairs with yᵢ > yⱼ", Labels: Range{Min: 0, Max: maxRelevance},
			step:      stepLists((*list).lambdas),
			reference: lists(lambdaReference),
		}),
		// Cao et al. (2007), ListNet, top-one probabilities, with the labels' shares in the place of their softmax, as Bruch et al. (2019), An
		// Analysis of the Softmax Cross Entropy Loss for Learning-to-Rank with Binary Relevance.
		score(Loss{
			Name: ListSoftmax, Formula: "-Σ yᵢ/Σy·ln(e^zᵢ/Σe^z) of a list", Labels: Range{Min: 0, Max: math.MaxFloat32},
			step:      stepLists((*list).softmax),
			reference: lists(softmaxReference),
		}),
	}
}

// Work is memory that losses with Ranks set compute in. The zero value is ready. Not for concurrent use.
type Work struct {
	order []int32 // the rows that count, those of a list together
	ends  []int32 // of each group: where its rows end in order
	list  list
}

// list is one list at work.
type list struct {
	z, y, w, g []float64
	weight     float64 // the sum of w
	// e are exponentials of z, or gains of y.
	e, discount  []float64
	best, places []int32
}

// arrange sorts the rows that count by group, in each group in their order, and returns how many groups there are.
func (k *Work) arrange(b *Batch) int {
	groups := 1
	for _, g := range b.Groups {
		groups = max(groups, int(g)+1)
	}
	k.ends = sized(k.ends, groups)
	clear(k.ends)
	counted := int32(0)
	for r := range b.Rows {
		if w, _ := b.weight(r); w > 0 {
			k.ends[b.group(r)]++
			counted++
		}
	}
	at := int32(0)
	for g, n := range k.ends { // now where each begins
		k.ends[g] = at
		at += n
	}
	k.order = sized(k.order, int(counted))
	for r := range b.Rows {
		if w, _ := b.weight(r); w > 0 {
			end := &k.ends[b.group(r)]
			k.order[*end] = int32(r)
			*end++
		}
	}
	return groups
}

// group is the list that a row is in.
func (b *Batch) group(r int) int {
	if b.Groups == nil {
		return 0
	}
	return int(b.Groups[r])
}

// stepLists is the step of a loss that looks at one list at a time: of returns its value and writes its derivative by l.z to l.g, which is 0.
// Each column of outputs is lists of its own.
func stepLists(of func(l *list) float64) func(b *Batch) float64 {
	return func(b *Batch) float64 {
		k := b.Work
		if k == nil {
			k = new(Work)
		}
		clear(b.Grad)
		scale, sum := 1/float64(b.Rows), 0.0
		groups, from := k.arrange(b), int32(0)
		for g := range groups {
			rows := k.order[from:k.ends[g]]
			from = k.ends[g]
			if len(rows) == 0 {
				continue
			}
			for c := range b.Width {
				l := &k.list
				l.take(b, rows, c)
				sum += of(l)
				for i, r := range rows {
					b.Grad[int(r)*b.Width+c] = float32(l.g[i] * scale * b.Scale)
				}
			}
		}
		return sum * scale
	}
}

// take sets l to the outputs of a column in some rows.
func (l *list) take(b *Batch, rows []int32, column int) {
	n := len(rows)
	l.weight = 0
	l.z, l.y, l.w, l.g = sized(l.z, n), sized(l.y, n), sized(l.w, n), sized(l.g, n)
	for i, r := range rows {
		at := int(r)*b.Width + column
		l.z[i], l.y[i] = float64(b.Outputs[at]), float64(b.Labels[at])
		l.w[i], _ = b.weight(int(r))
		l.weight += l.w[i]
	}
	clear(l.g)
}

// logistic is -ln σ(d) with its derivative.
func logistic(d float64) (value, slope float64) {
	p, e := sigmoidExp(-d)
	return max(-d, 0) + math.Log1p(e), -p
}

// pairs is the weight of the list times the mean of f over its pairs. O(rows²).
func (l *list) pairs(f func(d float64) (value, slope float64)) float64 {
	var sum, total float64
	for i, y := range l.y {
		for j := range l.y {
			if !(y > l.y[j]) {
				continue
			}
			w := l.w[i] * l.w[j]
			value, slope := f(l.z[i] - l.z[j])
			sum += w * value
			total += w
			l.g[i] += w * slope
			l.g[j] -= w * slope
		}
	}
	if total == 0 {
		return 0
	}
	factor := l.weight / total
	for i := range l.g {
		l.g[i] *= factor
	}
	return sum * factor
}

// farthest is how far apart outputs may be for the exponentials of their differences to stay far from infinity.
const farthest = 600

// bpr is pairs of logistic. Where all rows weigh the same, exponentials are taken of rows in place of pairs, and logarithms of products:
// with eᵢ = exp(zᵢ) it is σ(zⱼ-zᵢ) = eⱼ/(eᵢ+eⱼ) and -Σ ln σ(zᵢ-zⱼ) = ln Π (eᵢ+eⱼ)/eᵢ.
func (l *list) bpr() float64 {
	low, high := slices.Min(l.z), slices.Max(l.z)
	if !(high-low < farthest) || slices.ContainsFunc(l.w, func(w float64) bool { return w != l.w[0] }) {
		return l.pairs(logistic)
	}
	l.e = sized(l.e, len(l.z))
	for i, z := range l.z {
		l.e[i] = math.Exp(z - high)
	}
	sum, product, pairs := 0.0, 1.0, 0
	for i, y := range l.y {
		e, inverse, slopes := l.e[i], 1/l.e[i], 0.0
		for j := range l.y {
			if !(y > l.y[j]) {
				continue
			}
			both := e + l.e[j]
			if product *= both * inverse; product > 1e30 {
				sum += math.Log(product)
				product = 1
			}
			slope := l.e[j] / both
			slopes += slope
			l.g[j] += slope
			pairs++
		}
		l.g[i] -= slopes
	}
	if pairs == 0 {
		return 0
	}
	factor := l.weight / float64(pairs)
	for i := range l.g {
		l.g[i] *= factor
	}
	return (sum + math.Log(product)) * factor
}

// lambdas is LambdaRank's value. Rows with equal outputs have places in the order of the batch. O(rows²).
func (l *list) lambdas() (sum float64) {
	n := len(l.z)
	l.places, l.best, l.discount, l.e = sized(l.places, n), sized(l.best, n), sized(l.discount, n), sized(l.e, n)
	for i, y := range l.y {
		l.places[i], l.best[i] = int32(i), int32(i)
		l.e[i] = math.Exp2(y) - 1
	}
	descend := func(by []float64) func(i, j int32) int {
		return func(i, j int32) int {
			switch {
			case by[i] > by[j]:
				return -1
			case by[i] < by[j]:
				return 1
			}
			return int(i - j)
		}
	}
	slices.SortFunc(l.places, descend(l.z))
	slices.SortFunc(l.best, descend(l.y))
	ideal := 0.0
	for place, i := range l.best {
		ideal += l.e[i] / math.Log2(float64(place+2))
	}
	if ideal == 0 {
		return 0
	}
	for place, i := range l.places {
		l.discount[i] = 1 / math.Log2(float64(place+2))
	}
	for i, y := range l.y {
		for j := range l.y {
			if !(y > l.y[j]) {
				continue
			}
			w := l.w[i] * l.w[j] * (l.e[i] - l.e[j]) * math.Abs(l.discount[i]-l.discount[j]) / ideal
			value, slope := logistic(l.z[i] - l.z[j])
			sum += w * value
			l.g[i] += w * slope
			l.g[j] -= w * slope
		}
	}
	return sum
}

// softmax is ListSoftmax's value: the cross-entropy of the labels' shares, times the weight of the list. O(rows).
func (l *list) softmax() (sum float64) {
	top, labels, total := math.Inf(-1), 0.0, 0.0
	for i, z := range l.z {
		top = max(top, z)
		labels += l.w[i] * l.y[i]
	}
	if labels == 0 {
		return 0
	}
	for i, z := range l.z {
		l.g[i] = l.w[i] * math.Exp(z-top)
		total += l.g[i]
	}
	log := top + math.Log(total)
	for i, z := range l.z {
		share := l.w[i] * l.y[i] / labels
		sum += share * (log - z)
		l.g[i] = l.weight * (l.g[i]/total - share)
	}
	return l.weight * sum
}

// list64 is a list of the reference.
type list64 struct{ z, y, w []float64 }

// lists is the reference of a loss that looks at one list at a time.
func lists(value func(l list64) float64) func(t Batch64) float64 {
	return func(t Batch64) (sum float64) {
		for c := range t.Width {
			of := map[int32]list64{}
			for r := range t.Rows {
				w, group := 1.0, int32(0)
				if t.Weights != nil {
					w = float64(t.Weights[r])
				}
				if t.Groups != nil {
					group = t.Groups[r]
				}
				if w == 0 || t.Mask != nil && !t.Mask[r] {
					continue
				}
				l := of[group]
				of[group] = list64{append(l.z, t.Outputs[r*t.Width+c]), append(l.y, float64(t.Labels[r*t.Width+c])), append(l.w, w)}
			}
			for _, group := range slices.Sorted(maps.Keys(of)) {
				sum += value(of[group]) / float64(t.Rows)
			}
		}
		return sum
	}
}

func meanOfPairs(value func(d float64) float64) func(l list64) float64 {
	return func(l list64) float64 {
		var sum, pairs, weight float64
		for i := range l.z {
			weight += l.w[i]
			for j := range l.z {
				if l.y[i] > l.y[j] {
					sum += l.w[i] * l.w[j] * value(l.z[i]-l.z[j])
					pairs += l.w[i] * l.w[j]
				}
			}
		}
		if pairs == 0 {
			return 0
		}
		return weight * sum / pairs
	}
}

// lambdaReference counts places, and exchanges each pair for the NDCG without it.
func lambdaReference(l list64) (sum float64) {
	places := func(key []float64) []int {
		out := make([]int, len(key))
		for i := range key {
			for j := range key {
				if key[j] > key[i] || key[j] == key[i] && j < i {
					out[i]++
				}
			}
		}
		return out
	}
	dcg := func(place []int) (total float64) {
		for i, y := range l.y {
			total += (math.Pow(2, y) - 1) / math.Log2(float64(place[i]+2))
		}
		return total
	}
	best, place := dcg(places(l.y)), places(l.z)
	for i := range l.z {
		for j := range l.z {
			if best > 0 && l.y[i] > l.y[j] {
				before := dcg(place)
				place[i], place[j] = place[j], place[i]
				change := math.Abs(dcg(place)-before) / best
				place[i], place[j] = place[j], place[i]
				sum += l.w[i] * l.w[j] * change * math.Log(1+math.Exp(l.z[j]-l.z[i]))
			}
		}
	}
	return sum
}

func softmaxReference(l list64) (sum float64) {
	var weight, labels, total float64
	for i, z := range l.z {
		weight += l.w[i]
		labels += l.w[i] * l.y[i]
		total += l.w[i] * math.Exp(z)
	}
	for i, z := range l.z {
		if labels > 0 {
			sum -= weight * l.w[i] * l.y[i] / labels * math.Log(math.Exp(z)/total)
		}
	}
	return sum
}

// sized returns s with length n, reusing its memory where it suffices.
func sized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n, n+n/4)
	}
	return s[:n]
}

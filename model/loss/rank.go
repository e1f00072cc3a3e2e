package loss

import (
	"cmp"
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
	// PairwiseSoftZeroOne learns it by how probable the wrong order is.
	PairwiseSoftZeroOne = "pairwise_soft_zero_one"
	// LambdaRank weighs such pairs by what exchanging the two would do to the NDCG.
	LambdaRank = "lambda_rank"
	// LambdaMRR weighs them by what exchanging the two would do to the reciprocal rank.
	LambdaMRR = "lambda_mrr"
	// ApproxNDCG is the NDCG at places that are smooth functions of the scores.
	ApproxNDCG = "approx_ndcg"
	// ListMLE learns the order of a list by how probable it is, place by place.
	ListMLE = "list_mle"
	// PListMLE weighs the first places more.
	PListMLE = "p_list_mle"
	// ListSoftmax learns which of a list is chosen.
	ListSoftmax = "list_softmax"
)

// maxRelevance is the largest label of [LambdaRank] and [ApproxNDCG], whose gain is 2ʸ-1.
const maxRelevance = 30

// rankings are the losses whose Ranks is true. A list is the rows of one group (of [Batch].Groups) that have a label and a weight above
// 0, W their weight; i and j are rows of it, wᵢ, zᵢ and yᵢ weight, output and label. A pair is two rows with yᵢ > yⱼ. The loss is the sum
// over the lists, over the number of rows of the batch. A list without pairs, or without a label above 0, adds nothing.
//
// The losses called pairwise and bpr are W·Σ wᵢwⱼ·ℓ(zᵢ-zⱼ)/Σ wᵢwⱼ: the mean over the pairs, for each row of the list, so that neither long lists nor
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
			Name: BPR, Takes: []string{settingNegWeight}, Formula: "-ln σ(zᵢ-zⱼ), the mean over pairs with yᵢ > yⱼ", Labels: AnyNumber(),
			step:      stepLists((*list).bpr),
			reference: lists(meanOfPairs(logistic64)),
		}),
		// Herbrich, Graepel and Obermayer (2000), Large Margin Rank Boundaries for Ordinal Regression, with a margin of 1.
		score(Loss{
			Name: PairwiseHinge, Takes: []string{settingNegWeight}, Formula: "max(0, 1-(zᵢ-zⱼ)), the mean over pairs with yᵢ > yⱼ", Labels: AnyNumber(),
			step: stepLists(func(l *list) float64 {
				return l.pairs(hinge)
			}),
			reference: lists(meanOfPairs(hinge64)),
		}),
		// TF-Ranking (Pasumarthi et al., 2019), PairwiseSoftZeroOneLoss; it is what RankNet (Burges et al., 2005, equation 2) says is the probability of the wrong order.
		score(Loss{
			Name: PairwiseSoftZeroOne, Takes: []string{settingNegWeight}, Formula: "σ(zⱼ-zᵢ), the mean over pairs with yᵢ > yⱼ", Labels: AnyNumber(),
			step: stepLists(func(l *list) float64 {
				return l.pairs(softZeroOne)
			}),
			reference: lists(meanOfPairs(softZeroOne64)),
		}),
		// Burges (2010), From RankNet to LambdaRank to LambdaMART, section 4, λ with σ = 1 and NDCG over the whole list; it is the derivative of
		// what Wang et al. (2018), The LambdaLoss Framework, sum up, at the places that the outputs give.
		score(Loss{
			Name: LambdaRank, Takes: []string{settingTop, settingPair, settingByDistance}, Formula: "-|ΔNDCGᵢⱼ|·ln σ(zᵢ-zⱼ), the sum over pairs with yᵢ > yⱼ", Labels: Range{Min: 0, Max: maxRelevance},
			step:      stepLists(func(l *list) float64 { return l.lambdas(gain, byLog) }),
			reference: lists(lambdaReference(func(y float64) float64 { return math.Pow(2, y) - 1 }, func(place int) float64 { return 1 / math.Log2(float64(place+2)) })),
		}),
		// The same with the weights of TF-Ranking (Pasumarthi et al., 2019), create_reciprocal_rank_lambda_weight: y/place in the place of the gain over the logarithm. Of a list with
		// one label above 0 that is the change of its reciprocal rank (Donmez, Svore and Burges, 2009, On the Local Optimality of LambdaRank, section 3.2).
		score(Loss{
			Name: LambdaMRR, Takes: []string{settingTop, settingPair, settingByDistance}, Formula: "-|yᵢ-yⱼ|·|1/placeᵢ-1/placeⱼ|·ln σ(zᵢ-zⱼ), the sum over pairs with yᵢ > yⱼ", Labels: Range{Min: 0, Max: math.MaxFloat32},
			step:      stepLists(func(l *list) float64 { return l.lambdas(itself, byPlace) }),
			reference: lists(lambdaReference(func(y float64) float64 { return y }, func(place int) float64 { return 1 / float64(place+1) })),
		}),
		// Qin, Liu and Li (2010), A General Approximation Framework for Direct Optimization of Information Retrieval Measures, section 4.1, in the form of Bruch et al. (2019), Revisiting
		// Approximate Metric Optimization in the Age of Deep Neural Networks, equations 4 and 5. Gains count by their rows' weights, a list by the mean of its weights.
		score(Loss{
			Name: ApproxNDCG, Takes: []string{settingAlpha}, Formula: "1 - NDCG of a list, at places 1 + Σσ(α·(zⱼ-zᵢ))", Labels: Range{Min: 0, Max: maxRelevance},
			step:      stepLists((*list).approxNDCG),
			reference: lists(approxReference),
		}),
		// Xia et al. (2008), Listwise Approach to Learning to Rank: Theory and Algorithm, equation 9. Rows of equal labels have no order: each is taken to be chosen from them and
		// all below them (Breslow, 1974, Covariance Analysis of Censored Survival Data, section 3), and those of the list's lowest label from nothing, as a list's last row is.
		score(Loss{
			Name: ListMLE, Formula: "Σ ln Σe^z of rows with y ≤ yᵢ, less zᵢ, over all rows i of a list but its lowest", Labels: AnyNumber(),
			step:      stepLists(func(l *list) float64 { return l.likelihood(false) }),
			reference: lists(likelihoodReference(false)),
		}),
		// Lan et al. (2014), Position-Aware ListMLE: A Sequential Learning Process for Ranking, equation 6, with α(place) = 2^(top-place) - 1 over that of the first place, as TF-Ranking
		// has it (create_p_list_mle_lambda_weight). Rows of equal labels have the mean of their places'.
		score(Loss{
			Name: PListMLE, Takes: []string{settingTop}, Formula: "the same, times (2^(top-place)-1)/(2^(top-1)-1) of the row's place by the labels", Labels: AnyNumber(),
			step:      stepLists(func(l *list) float64 { return l.likelihood(true) }),
			reference: lists(likelihoodReference(true)),
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
	Settings
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
				l.Settings = b.Settings
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

// hinge is max(0, 1-d) with its derivative.
func hinge(d float64) (value, slope float64) {
	if d < 1 {
		return 1 - d, -1
	}
	return 0, 0
}

// softZeroOne is σ(-d) with its derivative.
func softZeroOne(d float64) (value, slope float64) {
	wrong := sigmoid(-d)
	return wrong, -wrong * sigmoid(d)
}

// cost is what a pair of a list with lambdas costs.
func (s *Settings) cost() func(d float64) (value, slope float64) {
	switch s.Pair {
	case PairHinge:
		return hinge
	case PairSoftZeroOne:
		return softZeroOne
	}
	return logistic
}

// pairs is the weight of the list times the mean of f over its pairs. O(rows²).
func (l *list) pairs(f func(d float64) (value, slope float64)) float64 {
	var sum, total float64
	worse := l.negWeight()
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
			l.g[j] -= w * slope * worse
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
	sum, product, pairs, worse := 0.0, 1.0, 0, l.negWeight()
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
			l.g[j] += slope * worse
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

// gain and itself are what a label is worth, byLog and byPlace what at a place, from 0 up, is left of it.
func gain(y float64) float64    { return math.Exp2(y) - 1 }
func itself(y float64) float64  { return y }
func byLog(place int) float64   { return 1 / math.Log2(float64(place+2)) }
func byPlace(place int) float64 { return 1 / float64(place+1) }

// counted is how many places of a list count.
func (l *list) counted(n int) int {
	if l.Top > 0 {
		return min(l.Top, n)
	}
	return n
}

// lambdas is the value of LambdaRank and LambdaMRR. Rows with equal outputs have places in the order of the batch. O(rows²).
func (l *list) lambdas(gain func(y float64) float64, discount func(place int) float64) (sum float64) {
	n := len(l.z)
	l.places, l.best, l.discount, l.e = sized(l.places, n), sized(l.best, n), sized(l.discount, n), sized(l.e, n)
	for i, y := range l.y {
		l.places[i], l.best[i] = int32(i), int32(i)
		l.e[i] = gain(y)
	}
	slices.SortFunc(l.places, descend(l.z))
	slices.SortFunc(l.best, descend(l.y))
	ideal, top := 0.0, l.counted(n)
	for place, i := range l.best[:top] {
		ideal += l.e[i] * discount(place)
	}
	if ideal == 0 {
		return 0
	}
	clear(l.discount)
	for place, i := range l.places[:top] {
		l.discount[i] = discount(place)
	}
	far := float64(l.ByDistance)
	if far > 0 {
		for place, i := range l.places {
			l.best[i] = int32(place)
		}
	}
	cost := l.cost()
	for i, y := range l.y {
		for j := range l.y {
			if !(y > l.y[j]) {
				continue
			}
			change := math.Abs(l.discount[i] - l.discount[j])
			if far > 0 {
				apart := 0.0
				if d := int(max(l.best[i]-l.best[j], l.best[j]-l.best[i])); min(int(l.best[i]), int(l.best[j])) < top {
					apart = discount(d-1) - discount(d)
				}
				change = (1-far)*change + far*apart
			}
			w := l.w[i] * l.w[j] * (l.e[i] - l.e[j]) * change / ideal
			value, slope := cost(l.z[i] - l.z[j])
			sum += w * value
			l.g[i] += w * slope
			l.g[j] -= w * slope
		}
	}
	return sum
}

// descend orders rows by a number of each, the largest first and equal ones as they are in the batch.
func descend(by []float64) func(i, j int32) int {
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

// approxNDCG is ApproxNDCG's value. Of a place r the derivative of 1/log₂(1+r) is -ln 2/((1+r)·ln²(1+r)). O(rows·rows with a label above 0).
func (l *list) approxNDCG() float64 {
	n, alpha := len(l.z), float64(cmp.Or(l.Alpha, 10))
	l.best, l.e = sized(l.best, n), sized(l.e, n)
	for i, y := range l.y {
		l.best[i], l.e[i] = int32(i), l.w[i]*gain(y)
	}
	slices.SortFunc(l.best, descend(l.e))
	ideal := 0.0
	for place, i := range l.best {
		ideal += l.e[i] * byLog(place)
	}
	if ideal == 0 {
		return 0
	}
	counts, ndcg := l.weight/float64(n), 0.0
	for i, z := range l.z {
		if l.e[i] == 0 {
			continue
		}
		place := 1.0
		for j, other := range l.z {
			if j != i {
				place += sigmoid(alpha * (other - z))
			}
		}
		log := math.Log1p(place)
		ndcg += l.e[i] * math.Ln2 / log
		slope := counts * l.e[i] / ideal * math.Ln2 / ((1 + place) * log * log) * alpha
		for j, other := range l.z {
			if j != i {
				before := sigmoid(alpha * (other - z))
				d := slope * before * sigmoid(alpha*(z-other))
				l.g[j] += d
				l.g[i] -= d
			}
		}
	}
	return counts * (1 - ndcg/ideal)
}

// likelihood is the value of ListMLE and PListMLE. Sums of exponentials are kept beside their largest exponent, so that nothing overflows and nothing that counts is lost. O(rows·ln rows).
func (l *list) likelihood(byPlace bool) (sum float64) {
	n := len(l.z)
	l.best, l.discount, l.e = sized(l.best, n), sized(l.discount, n), sized(l.e, n)
	for i := range l.best {
		l.best[i] = int32(i)
	}
	slices.SortFunc(l.best, descend(l.y))
	// From the worst rows up: e is ln Σ e^z of a row and all that are not better, the same for rows of one label.
	top, scaled := math.Inf(-1), 0.0
	for end := n; end > 0; {
		from := end
		for from > 0 && l.y[l.best[from-1]] == l.y[l.best[end-1]] {
			from--
			z := l.z[l.best[from]]
			if z > top {
				scaled *= math.Exp(top - z)
				top = z
			}
			scaled += l.w[l.best[from]] * math.Exp(z-top)
		}
		counts := 1.0
		if byPlace {
			counts = l.countOf(from, end)
		}
		if end == n {
			counts = 0 // the lowest are chosen from nothing
		}
		for _, i := range l.best[from:end] {
			l.e[i], l.discount[i] = top+math.Log(scaled), counts*l.w[i]
		}
		end = from
	}
	// From the best rows down: a row learns from all that are chosen while it is there, Σ counts·e^-e of them and of those of its own label.
	least, among := math.Inf(1), 0.0
	for from := 0; from < n; {
		end, own := from, 0.0
		for ; end < n && l.y[l.best[end]] == l.y[l.best[from]]; end++ {
			i := l.best[end]
			own += l.discount[i]
			sum += l.discount[i] * (l.e[i] - l.z[i])
		}
		if e := l.e[l.best[from]]; own > 0 {
			among = among*math.Exp(e-least) + own
			least = e
		}
		for _, i := range l.best[from:end] {
			l.g[i] -= l.discount[i]
			if among > 0 {
				l.g[i] += l.w[i] * math.Exp(l.z[i]-least) * among
			}
		}
		from = end
	}
	return sum
}

// countOf is the mean of what the places from one to before another, from 0 up, count in PListMLE: of place r (2^-r - 2^(1-top))/(1 - 2^(1-top)), nothing behind top.
func (l *list) countOf(from, to int) (mean float64) {
	top := l.Top
	if top == 0 {
		top = len(l.z)
	}
	if top == 1 {
		if from == 0 {
			mean = 1 / float64(to)
		}
		return mean
	}
	least := math.Exp2(float64(1 - top))
	for place := from; place < min(to, top); place++ {
		mean += (math.Exp2(float64(-place)) - least) / (1 - least)
	}
	return mean / float64(to-from)
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
type list64 struct {
	Settings
	z, y, w []float64
	// worse is z as the worse row of a pair.
	worse []float64
}

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
				l, at := of[group], r*t.Width+c
				worse := t.Outputs[at]
				if t.Stopped != nil {
					worse = t.Stopped[at] + t.negWeight()*(worse-t.Stopped[at])
				}
				of[group] = list64{t.Settings, append(l.z, t.Outputs[at]), append(l.y, float64(t.Labels[at])), append(l.w, w), append(l.worse, worse)}
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
					sum += l.w[i] * l.w[j] * value(l.z[i]-l.worse[j])
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
// The costs of pairs as formulas.
func logistic64(d float64) float64    { return math.Log(1 + math.Exp(-d)) }
func hinge64(d float64) float64       { return max(0, 1-d) }
func softZeroOne64(d float64) float64 { return 1 - 1/(1+math.Exp(-d)) }

func lambdaReference(gain func(y float64) float64, discount func(place int) float64) func(l list64) float64 {
	return func(l list64) (sum float64) {
		dcg := func(place []int) (total float64) {
			for i, y := range l.y {
				if l.Top == 0 || place[i] < l.Top {
					total += gain(y) * discount(place[i])
				}
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
					apart, d := 0., max(place[i]-place[j], place[j]-place[i])
					if l.Top == 0 || place[i] < l.Top || place[j] < l.Top {
						apart = math.Abs(gain(l.y[i])-gain(l.y[j])) * math.Abs(discount(d-1)-discount(d)) / best
					}
					cost := map[string]func(float64) float64{PairHinge: hinge64, PairSoftZeroOne: softZeroOne64}[l.Pair]
					if cost == nil {
						cost = logistic64
					}
					sum += l.w[i] * l.w[j] * ((1-float64(l.ByDistance))*change + float64(l.ByDistance)*apart) * cost(l.z[i]-l.z[j])
				}
			}
		}
		return sum
	}
}

// places are those of numbers among them, from 0 up; of equal ones the first has the better one.
func places(key []float64) []int {
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

func approxReference(l list64) float64 {
	var weight, ndcg, ideal float64
	worth := make([]float64, len(l.z))
	for i, y := range l.y {
		weight += l.w[i]
		worth[i] = l.w[i] * (math.Pow(2, y) - 1)
	}
	best := places(worth)
	for i, z := range l.z {
		place := 1.0
		for j, other := range l.z {
			if j != i {
				place += 1 / (1 + math.Exp(float64(l.Alpha)*(z-other)))
			}
		}
		ndcg += worth[i] / math.Log2(1+place)
		ideal += worth[i] / math.Log2(float64(best[i]+2))
	}
	if ideal == 0 {
		return 0
	}
	return weight / float64(len(l.z)) * (1 - ndcg/ideal)
}

func likelihoodReference(byPlace bool) func(l list64) float64 {
	return func(l list64) (sum float64) {
		top := l.Top
		if top == 0 {
			top = len(l.z)
		}
		for i, y := range l.y {
			total, better, equal, lowest := 0.0, 0, 0, true
			for j, other := range l.y {
				switch {
				case other > y:
					better++
					continue
				case other == y:
					equal++
				default:
					lowest = false
				}
				total += l.w[j] * math.Exp(l.z[j])
			}
			if lowest {
				continue
			}
			counts := 1.0
			if byPlace {
				counts = 0
				for place := better + 1; place <= better+equal; place++ {
					share := 1.0 // of the first place
					if place > 1 {
						share = max(0, (math.Pow(2, float64(top-place))-1)/(math.Pow(2, float64(top-1))-1))
					}
					if place > top {
						share = 0
					}
					counts += share / float64(equal)
				}
			}
			sum += counts * l.w[i] * (math.Log(total) - l.z[i])
		}
		return sum
	}
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

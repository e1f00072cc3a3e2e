package loss_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/model/loss"
)

// near reports whether got is within tolerance of want, relative above 1.
func near(got, want, tolerance float64) bool {
	return math.Abs(got-want) <= tolerance*max(1, math.Abs(want))
}

// random makes a batch of a loss with labels in its range, and its reference.
func random(l *loss.Loss, rows, width int, rate, bound float64, seed uint64) (*loss.Batch, loss.Batch64) {
	rng := rand.New(rand.NewPCG(seed, 4))
	b := &loss.Batch{
		Rows: rows, Width: width, Shift: -math.Log(rate), Bound: bound, Scale: 3,
		Predictions: make([]float32, rows*width), Grad: make([]float32, rows*width),
	}
	t := loss.Batch64{Rows: rows, Width: width, Rate: rate, Bound: bound}
	for range rows {
		if seed < 2 {
			b.Weights = append(b.Weights, float32(rng.IntN(3)))
		}
		b.Mask = append(b.Mask, rng.IntN(4) > 0)
		if l.Ranks && seed%2 == 0 {
			b.Groups = append(b.Groups, int32(rng.IntN(6)))
		}
	}
	if l.Ranks {
		b.Work = new(loss.Work)
	}
	for range rows * width {
		b.Outputs = append(b.Outputs, float32(rng.NormFloat64()*2))
		t.Outputs = append(t.Outputs, float64(b.Outputs[len(b.Outputs)-1]))
	}
	labels, of := l.NumLabels(width), l.LabelsOf(width)
	for i := range rows * labels {
		y := float32(rng.NormFloat64() * 2)
		if !b.Mask[i/labels] {
			y = float32(math.NaN()) // what a masked row has for a label must not matter
		} else {
			y = min(max(y, of.Min), of.Max)
			if l.Ranks || of.Whole {
				y = float32(math.Round(float64(y))) // some are equal
			}
		}
		b.Labels = append(b.Labels, y)
	}
	if takes := func(name string) bool { return slices.Contains(l.Takes, name) }; len(l.Takes) > 0 {
		if takes("gamma") {
			b.Gamma = 0.5 + float32(seed)
		}
		if takes("alpha") {
			b.Alpha = 0.5 + float32(seed)
		}
		if takes("top") {
			b.Top = int(seed)
		}
		if takes("pair") {
			b.Pair = append(loss.Pairs(), "")[seed%4]
			b.ByDistance = float32(seed%3) / 2
		}
		if takes("neg_weight") && seed > 0 {
			b.NegWeight = float32(seed) * .75
		}
		b.SampleBias = takes("sample_bias") && seed%2 == 1
	}
	t.Settings, t.Stopped = b.Settings, slices.Clone(t.Outputs)
	t.Labels, t.Weights, t.Mask, t.Groups = b.Labels, b.Weights, b.Mask, b.Groups
	return b, t
}

// TestLossesFollowReference compares values with the formula in float64, gradients with its central differences, and
// predictions with the link's.
func TestLossesFollowReference(t *testing.T) {
	t.Parallel()
	for _, l := range loss.All() {
		for _, width := range []int{1, 3} {
			for _, rate := range []float64{1, 0.1} {
				if rate != 1 && !l.Sampled || l.Classes && width == 1 {
					continue
				}
				for seed := range uint64(8) {
					bound := float64(seed / 4)
					if seed >= 4 && !l.Clipped {
						break
					}
					t.Run(fmt.Sprintf("%s/width=%d/rate=%g/seed=%d", l.Name, width, rate, seed), func(t *testing.T) {
						t.Parallel()
						b, twin := random(&l, 40, width, rate, bound, seed)
						if got, want := l.Step(b), l.Reference(twin); !near(got, want, 1e-6) {
							t.Errorf("loss %v, want %v", got, want)
						}
						for i, want := range l.Link.Reference(twin.Outputs, width) {
							if !near(float64(b.Predictions[i]), want, 1e-6) {
								t.Errorf("prediction %d is %v, want %v", i, b.Predictions[i], want)
							}
						}
						const h = 1e-6
						for i, z := range twin.Outputs {
							twin.Outputs[i] = z + h
							up := l.Reference(twin)
							twin.Outputs[i] = z - h
							down := l.Reference(twin)
							twin.Outputs[i] = z
							if want := b.Scale * (up - down) / (2 * h); math.Abs(float64(b.Grad[i])-want) > 1e-5 {
								t.Errorf("gradient %d is %v, central difference %v", i, b.Grad[i], want)
							}
						}
					})
				}
			}
		}
	}
}

// TestValuesByHand checks one number of each loss that is easily worked out.
func TestValuesByHand(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		z, y       float32
		want       float64
		prediction float32
		grad       float32
	}{
		{loss.CrossEntropy, 0, 1, math.Ln2, 0.5, -0.5},
		{loss.CrossEntropy, 0, 0.25, math.Ln2, 0.5, 0.25},
		{loss.CrossEntropy, -300, 1, 300, 0, -1},
		{loss.Focal, 0, 1, math.Ln2 / 4, 0.5, -0.25 * (math.Ln2 + 0.5)},
		{loss.Focal, 0, 0, math.Ln2 / 4, 0.5, 0.25 * (math.Ln2 + 0.5)},
		{loss.Focal, -300, 1, 300, 0, -1},
		{loss.Focal, 300, 1, 0, 1, 0},
		{loss.Squared, 3, 1, 4, 3, 4},
		{loss.Absolute, 3, 5, 2, 3, -1},
		{loss.Absolute, 3, 3, 0, 3, 0},
		{loss.Huber, 3, 2.5, 0.125, 3, 0.5},
		{loss.Huber, 3, -1, 3.5, 3, 1},
		{loss.Poisson, 0, 4, 1, 1, -3},
	}
	for _, test := range tests {
		l, err := loss.Find(test.name)
		if err != nil {
			t.Fatal(err)
		}
		b := &loss.Batch{Rows: 1, Width: 1, Outputs: []float32{test.z}, Labels: []float32{test.y}, Settings: loss.Settings{Gamma: 2}, Scale: 1, Predictions: make([]float32, 1), Grad: make([]float32, 1)}
		if got := l.Step(b); !near(got, test.want, 1e-12) || b.Predictions[0] != test.prediction || b.Grad[0] != test.grad {
			t.Errorf("%s of %v and %v: loss %v, prediction %v, gradient %v, want %v, %v, %v",
				test.name, test.z, test.y, got, b.Predictions[0], b.Grad[0], test.want, test.prediction, test.grad)
		}
	}
}

// TestClippedLogits: what is predicted beyond the bound has the loss of the bound and teaches nothing, whichever side it is wrong on; predictions are as they are.
func TestClippedLogits(t *testing.T) {
	t.Parallel()
	l, err := loss.Find(loss.CrossEntropy)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		z, y       float32
		want, grad float64
	}{{5, 0, math.Log(10), 0}, {5, 1, math.Log(10. / 9), 0}, {-5, 1, math.Log(10), 0}, {0, 1, math.Ln2, -0.5}} {
		b := &loss.Batch{Rows: 1, Width: 1, Outputs: []float32{test.z}, Labels: []float32{test.y}, Bound: math.Log(9), Scale: 1, Predictions: make([]float32, 1), Grad: make([]float32, 1)}
		got := l.Step(b)
		if p := 1 / (1 + math.Exp(-float64(test.z))); !near(got, test.want, 1e-12) || float64(b.Grad[0]) != test.grad || !near(float64(b.Predictions[0]), p, 1e-6) {
			t.Errorf("logit %v, label %v: %v, gradient %v, prediction %v", test.z, test.y, got, b.Grad[0], b.Predictions[0])
		}
	}
}

// TestCrossEntropyOfMany: the loss of more examples than logarithms are taken of at once is the mean of theirs, also where all are so sure and right that 1 and the
// exponential have no digit of it in common.
func TestCrossEntropyOfMany(t *testing.T) {
	t.Parallel()
	l, err := loss.Find(loss.CrossEntropy)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, rows := range []int{1, 511, 512, 513, 1600} {
		for _, logits := range []func() float32{
			func() float32 { return 4 * float32(rng.NormFloat64()) },
			func() float32 { return 100 * (rng.Float32() - .5) },
			func() float32 { return 12 + 5*rng.Float32() },
			func() float32 { return 30 + 8*rng.Float32() },
			func() float32 { return 0 },
		} {
			b := &loss.Batch{Rows: rows, Width: 1, Outputs: make([]float32, rows), Labels: make([]float32, rows), Scale: 1, Predictions: make([]float32, rows), Grad: make([]float32, rows)}
			want := 0.0
			for r := range b.Outputs {
				b.Outputs[r], b.Labels[r] = logits(), 1
				z := float64(b.Outputs[r])
				if z < 5 && rng.IntN(2) == 0 {
					b.Labels[r] = 0
					z = -z
				}
				want += max(-z, 0) + math.Log1p(math.Exp(-math.Abs(z)))
			}
			want /= float64(rows)
			got := l.Step(b)
			if math.Abs(got-want) > 1e-9*want {
				t.Errorf("%d examples from logit %v on: %v, want %v", rows, b.Outputs[0], got, want)
			}
			b.Weights = slices.Repeat([]float32{2}, rows)
			if double := l.Step(b); math.Abs(double-2*want) > 1e-12*want {
				t.Errorf("%d examples of weight 2 from logit %v on: %v, want %v", rows, b.Outputs[0], double, 2*want)
			}
		}
	}
}

// TestSoftmaxByHand checks numbers of softmax that are easily worked out, and that large outputs do not overflow.
func TestSoftmaxByHand(t *testing.T) {
	t.Parallel()
	l, err := loss.Find(loss.SoftmaxCrossEntropy)
	if err != nil {
		t.Fatal(err)
	}
	ln := func(x float64) float32 { return float32(math.Log(x)) }
	for _, test := range []struct {
		z           []float32
		class       float32
		want        float64
		predictions []float32
		grad        []float32
	}{
		{[]float32{0, 0}, 1, math.Ln2, []float32{.5, .5}, []float32{.5, -.5}},
		{[]float32{ln(1), ln(2), ln(5)}, 1, math.Log(4), []float32{.125, .25, .625}, []float32{.125, -.75, .625}},
		{[]float32{1e4, 0, -1e4}, 0, 0, []float32{1, 0, 0}, []float32{0, 0, 0}},
		{[]float32{1e4, 0, -1e4}, 2, 2e4, []float32{1, 0, 0}, []float32{1, 0, -1}},
	} {
		n := len(test.z)
		b := &loss.Batch{Rows: 1, Width: n, Outputs: test.z, Labels: []float32{test.class}, Scale: 1, Predictions: make([]float32, n), Grad: make([]float32, n)}
		if got := l.Step(b); !near(got, test.want, 1e-6) {
			t.Errorf("%v, class %v: %v, want %v", test.z, test.class, got, test.want)
		}
		for i := range n {
			if !near(float64(b.Predictions[i]), float64(test.predictions[i]), 1e-6) || !near(float64(b.Grad[i]), float64(test.grad[i]), 1e-6) {
				t.Errorf("%v, class %v: predictions %v, gradient %v, want %v, %v", test.z, test.class, b.Predictions, b.Grad, test.predictions, test.grad)
				break
			}
		}
	}
}

// TestListsByHand checks numbers of losses of lists that are easily worked out: of two rows, the first of which is the better one, as one
// list, with a third row in a list of its own, and with weights.
func TestListsByHand(t *testing.T) {
	t.Parallel()
	ndcg := 1 - 1/math.Log2(3) // what exchanging two places, of which one has a label of 1, does
	for _, test := range []struct {
		name    string
		z       []float32
		weights []float32
		groups  []int32
		want    float64
		grad    []float32
	}{
		{loss.BPR, []float32{0, 0}, nil, nil, math.Ln2, []float32{-.5, .5}},
		{loss.BPR, []float32{0, 0, 9}, nil, []int32{1, 1, 0}, 2 * math.Ln2 / 3, []float32{-1. / 3, 1. / 3, 0}},
		{loss.BPR, []float32{0, 0}, []float32{3, 1}, nil, 2 * math.Ln2, []float32{-1, 1}},
		{loss.BPR, []float32{-200, 200}, nil, nil, 400, []float32{-1, 1}},
		{loss.BPR, []float32{-400, 400}, nil, nil, 800, []float32{-1, 1}},
		{loss.PairwiseHinge, []float32{.25, 0}, nil, nil, .75, []float32{-1, 1}},
		{loss.PairwiseHinge, []float32{3, 0}, nil, nil, 0, []float32{0, 0}},
		{loss.LambdaRank, []float32{0, 0}, nil, nil, ndcg * math.Ln2 / 2, []float32{float32(-ndcg / 4), float32(ndcg / 4)}},
		{loss.PairwiseSoftZeroOne, []float32{0, 0}, nil, nil, .5, []float32{-.25, .25}},
		{loss.PairwiseSoftZeroOne, []float32{-900, 900}, nil, nil, 1, []float32{0, 0}},
		{loss.LambdaMRR, []float32{0, 0}, nil, nil, math.Ln2 / 4, []float32{-.125, .125}}, // the reciprocal rank falls from 1 to 1/2
		{loss.ApproxNDCG, []float32{0, 0}, nil, nil, (1 - 1/math.Log2(2.5)) / 2, []float32{-.4127897, .4127897}},
		{loss.ApproxNDCG, []float32{90, 0}, nil, nil, 0, []float32{0, 0}},
		{loss.ListMLE, []float32{0, 0}, nil, nil, math.Ln2 / 2, []float32{-.25, .25}},
		{loss.ListMLE, []float32{0, 0}, []float32{2, 3}, nil, math.Log(5), []float32{-.6, .6}},
		{loss.ListMLE, []float32{0, 0, 0}, nil, nil, 2 * math.Log(3) / 3, []float32{-1. / 9, 2. / 9, -1. / 9}},
		{loss.ListMLE, []float32{-5000, 5000}, nil, nil, 5000, []float32{-.5, .5}},
		{loss.ListMLE, []float32{5000, -5000}, nil, nil, 0, []float32{0, 0}},
		{loss.PListMLE, []float32{0, 0}, nil, nil, math.Ln2 / 2, []float32{-.25, .25}},
		{loss.PListMLE, []float32{0, 0, 0}, nil, nil, (1 + 1./3) * math.Log(3) / 3, []float32{-2. / 27, 4. / 27, -2. / 27}}, // places count 1, 1/3 and 0
		{loss.ListSoftmax, []float32{0, 0}, nil, nil, math.Ln2, []float32{-.5, .5}},
		{loss.ListSoftmax, []float32{0, 0}, []float32{1, 3}, nil, 2 * math.Log(4), []float32{-1.5, 1.5}},
		{loss.ListSoftmax, []float32{300, -300}, nil, nil, 0, []float32{0, 0}},
	} {
		l, err := loss.Find(test.name)
		if err != nil {
			t.Fatal(err)
		}
		n := len(test.z)
		labels := []float32{1, 0, 1}[:n]
		b := &loss.Batch{Rows: n, Width: 1, Outputs: test.z, Labels: labels, Weights: test.weights, Groups: test.groups, Scale: 1, Predictions: make([]float32, n), Grad: make([]float32, n)}
		got := l.Step(b)
		if !near(got, test.want, 1e-12) || !slices.Equal(b.Predictions, test.z) {
			t.Errorf("%s of %v: loss %v, predictions %v, want %v", test.name, test.z, got, b.Predictions, test.want)
		}
		for i, want := range test.grad {
			if !near(float64(b.Grad[i]), float64(want), 1e-6) {
				t.Errorf("%s of %v: gradient %v, want %v", test.name, test.z, b.Grad, test.grad)
			}
		}
	}
}

// TestTopPlaces: behind the top nothing counts, whatever the scores there are.
func TestTopPlaces(t *testing.T) {
	t.Parallel()
	for _, name := range []string{loss.LambdaRank, loss.LambdaMRR, loss.PListMLE} {
		l, err := loss.Find(name)
		if err != nil {
			t.Fatal(err)
		}
		// Scores and labels have one order: place by place the best rows first.
		b := &loss.Batch{
			Rows: 5, Width: 1, Settings: loss.Settings{Top: 2}, Outputs: []float32{5, 4, 3, 2, 1}, Labels: []float32{4, 3, 2, 1, 0}, Scale: 1,
			Predictions: make([]float32, 5), Grad: make([]float32, 5),
		}
		got := l.Step(b)
		if name == loss.PListMLE { // of top 2 the first place counts 1 and the second nothing: -ln of the first row's share
			if want := (math.Log(math.Exp(5)+math.Exp(4)+math.Exp(3)+math.Exp(2)+math.E) - 5) / 5; !near(got, want, 1e-12) {
				t.Errorf("%s: %v, want %v", name, got, want)
			}
			continue
		}
		if got == 0 || b.Grad[0] == 0 || b.Grad[4] == 0 {
			t.Errorf("%s: pairs across the top teach nothing: %v, %v", name, got, b.Grad)
		}
		b.Labels = []float32{1, 1, 1, 2, 1} // the one better row and all others are behind the top
		b.Outputs = []float32{5, 4, 3, 2, 1}
		l.Step(b)
		if b.Grad[0] <= 0 || b.Grad[1] <= 0 || b.Grad[2] != 0 || b.Grad[3] >= 0 || b.Grad[4] != 0 {
			t.Errorf("%s: rows behind the top are compared with each other: %v", name, b.Grad)
		}
	}
}

// TestPairsOfLambdas: of three rows in the wrong order the pairs of the best one, which is last, by hand: by where places are, by how far apart they are, and by half of each.
func TestPairsOfLambdas(t *testing.T) {
	t.Parallel()
	l, err := loss.Find(loss.LambdaRank)
	if err != nil {
		t.Fatal(err)
	}
	second, third := 1/math.Log2(3), 0.5
	for _, test := range []struct {
		s            loss.Settings
		near, two    float64 // weights of the pairs with the second and with the first row
		cost1, cost2 float64 // of a better row that is 1 and 2 behind
	}{
		{loss.Settings{}, second - third, 1 - third, math.Log(1 + math.E), math.Log(1 + math.Exp(2))},
		{loss.Settings{Pair: loss.PairHinge}, second - third, 1 - third, 2, 3},
		{loss.Settings{ByDistance: 1, Pair: loss.PairSoftZeroOne}, 1 - second, second - third, 1 / (1 + math.Exp(-1)), 1 / (1 + math.Exp(-2))},
		{loss.Settings{ByDistance: 0.5, Pair: loss.PairHinge}, (1 - third) / 2, (1 + second - 2*third) / 2, 2, 3},
		{loss.Settings{ByDistance: 1, Pair: loss.PairHinge, Top: 1}, 0, second - third, 2, 3}, // the second place is behind the top too
	} {
		b := &loss.Batch{Rows: 3, Width: 1, Settings: test.s, Outputs: []float32{2, 1, 0}, Labels: []float32{0, 0, 1}, Scale: 1, Predictions: make([]float32, 3), Grad: make([]float32, 3)}
		if got, want := l.Step(b), (test.near*test.cost1+test.two*test.cost2)/3; !near(got, want, 1e-12) {
			t.Errorf("%s: %v, want %v", test.s.Text(), got, want)
		}
	}
}

// TestPairsOfEqualRows: bpr of rows that all weigh 2 is what pairs one by one give, twice that of weights of 1, and with outputs far from each
// other it is finite.
func TestPairsOfEqualRows(t *testing.T) {
	t.Parallel()
	l, err := loss.Find(loss.BPR)
	if err != nil {
		t.Fatal(err)
	}
	for _, spread := range []float64{0, 1, 60, 150, 1e5} {
		rng := rand.New(rand.NewPCG(7, 7))
		const rows = 200
		b := &loss.Batch{Rows: rows, Width: 1, Scale: 1, Predictions: make([]float32, rows), Grad: make([]float32, rows)}
		twin := loss.Batch64{Rows: rows, Width: 1, Rate: 1}
		for range rows {
			z := float32(spread * rng.NormFloat64())
			b.Outputs, b.Labels, b.Weights = append(b.Outputs, z), append(b.Labels, float32(rng.IntN(3))), append(b.Weights, 2)
			twin.Outputs = append(twin.Outputs, float64(z))
		}
		twin.Labels = b.Labels
		got := l.Step(b)
		if want := 2 * l.Reference(twin); spread < 1e5 && !near(got, want, 1e-12) || math.IsNaN(got) || math.IsInf(got, 0) {
			t.Errorf("spread %g: %v, want %v", spread, got, want)
		}
		grad := slices.Clone(b.Grad)
		b.Weights[0] = math.Nextafter32(2, 3) // one by one
		l.Step(b)
		for i := range grad {
			if !near(float64(rows*grad[i]), float64(rows*b.Grad[i]), 1e-5) {
				t.Errorf("spread %g: gradient %d is %v, one by one %v", spread, i, grad[i], b.Grad[i])
			}
		}
	}
}

// TestListsAreApart: a batch of two groups, however their rows lie among each other, has the losses of both alone, and weights count as rows
// that are there more than once.
func TestListsAreApart(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	step := func(l *loss.Loss, z, y, w []float32, groups []int32) float64 {
		n := len(z)
		b := &loss.Batch{Rows: n, Width: 1, Outputs: z, Labels: y, Weights: w, Groups: groups, Scale: 1, Predictions: make([]float32, n), Grad: make([]float32, n)}
		return l.Step(b) * float64(n)
	}
	for _, l := range loss.All() {
		if !l.Ranks {
			continue
		}
		var all, one, two, many [4][]float32 // outputs, labels, weights
		var groups []int32
		for range 30 {
			row := [3]float32{float32(rng.NormFloat64()), float32(rng.IntN(3)), float32(1 + rng.IntN(3))}
			g := int32(rng.IntN(2))
			part := &one
			if g == 1 {
				part = &two
			}
			groups = append(groups, g)
			for c, v := range row {
				all[c], part[c] = append(all[c], v), append(part[c], v)
				for range int(row[2]) {
					many[c] = append(many[c], v)
				}
			}
		}
		if got, want := step(&l, all[0], all[1], all[2], groups), step(&l, one[0], one[1], one[2], nil)+step(&l, two[0], two[1], two[2], nil); !near(got, want, 1e-12) {
			t.Errorf("%s: %v of both groups, %v of each", l.Name, got, want)
		}
		if slices.Contains([]string{loss.LambdaRank, loss.LambdaMRR, loss.ApproxNDCG, loss.PListMLE}, l.Name) { // the places of rows that are there twice are others
			continue
		}
		if got, want := step(&l, all[0], all[1], all[2], nil), step(&l, many[0], many[1], nil, nil); !near(got, want, 1e-12) {
			t.Errorf("%s: %v with weights, %v of repeated rows", l.Name, got, want)
		}
	}
}

// TestSampleRateCorrectsTheLogit trains one logit on data of which a tenth of the negatives is left: the prediction must be
// the share of positives in all of it.
func TestSampleRateCorrectsTheLogit(t *testing.T) {
	t.Parallel()
	l, err := loss.Find(loss.CrossEntropy)
	if err != nil {
		t.Fatal(err)
	}
	// 20 positives and 980 negatives, of which 98 are left: 0.02.
	const rows = 20 + 98
	b := &loss.Batch{Rows: rows, Width: 1, Outputs: make([]float32, rows), Labels: make([]float32, rows), Shift: -math.Log(0.1), Scale: 1, Predictions: make([]float32, rows), Grad: make([]float32, rows)}
	for r := range 20 {
		b.Labels[r] = 1
	}
	logit := float32(0)
	for range 400 {
		for r := range b.Outputs {
			b.Outputs[r] = logit
		}
		l.Step(b)
		for _, d := range b.Grad {
			logit -= 5 * d
		}
	}
	if got := b.Predictions[0]; math.Abs(float64(got)-0.02) > 1e-4 {
		t.Errorf("the model predicts %v, want 0.02", got)
	}
}

// TestSampleBiasCorrectsTheLogit trains one logit on data in which each positive is a negative too: the prediction must be the share of positives in the data without, also
// where a tenth of the negatives is left.
func TestSampleBiasCorrectsTheLogit(t *testing.T) {
	t.Parallel()
	l, err := loss.Find(loss.CrossEntropy)
	if err != nil {
		t.Fatal(err)
	}
	for _, rate := range []float64{1, 0.1} {
		negatives := int(1000 * rate) // of 1000 examples, 20 of which turn out to be positive
		rows := 20 + negatives
		b := &loss.Batch{
			Rows: rows, Width: 1, Settings: loss.Settings{SampleBias: true}, Outputs: make([]float32, rows), Labels: make([]float32, rows), Shift: -math.Log(rate), Scale: 1,
			Predictions: make([]float32, rows), Grad: make([]float32, rows),
		}
		for r := range 20 {
			b.Labels[r] = 1
		}
		logit := float32(0)
		for range 2000 {
			for r := range b.Outputs {
				b.Outputs[r] = logit
			}
			l.Step(b)
			for _, d := range b.Grad {
				logit -= 5 * d
			}
		}
		if got := b.Predictions[0]; math.Abs(float64(got)-0.02) > 1e-4 {
			t.Errorf("with a rate of %g the model predicts %v, want 0.02", rate, got)
		}
	}
}

// TestSettingsAreTheLosses: a setting that a loss does not take, or that is no number above 0, is named.
func TestSettingsAreTheLosses(t *testing.T) {
	t.Parallel()
	inf := float32(math.Inf(1))
	for _, test := range []struct {
		loss string
		s    loss.Settings
		want []loss.SettingFault
	}{
		{loss.Focal, loss.Settings{Gamma: 2}, nil},
		{loss.Focal, loss.Settings{Gamma: -2}, []loss.SettingFault{{Setting: "gamma", Value: float32(-2), Want: "a number above 0"}}},
		{loss.BPR, loss.Settings{NegWeight: inf}, []loss.SettingFault{{Setting: "neg_weight", Value: inf, Want: "a number above 0"}}},
		{loss.BPR, loss.Settings{SampleBias: true, Alpha: 3}, []loss.SettingFault{{Setting: "sample_bias", Value: true}, {Setting: "alpha", Value: float32(3)}}},
		{loss.LambdaRank, loss.Settings{Top: -1}, []loss.SettingFault{{Setting: "top", Value: -1, Want: "a number above 0"}}},
		{loss.LambdaRank, loss.Settings{Pair: loss.PairHinge, ByDistance: 1}, nil},
		{loss.LambdaMRR, loss.Settings{Pair: "hing", ByDistance: 1.5}, []loss.SettingFault{{"pair", "hing", "one of logistic, hinge, soft_zero_one"}, {"by_distance", float32(1.5), "a number from 0 to 1"}}},
		{loss.BPR, loss.Settings{Pair: loss.PairHinge}, []loss.SettingFault{{Setting: "pair", Value: "hinge"}}},
		{loss.CrossEntropy, loss.Settings{SampleBias: true}, nil},
		{loss.ApproxNDCG, loss.Settings{Alpha: 3}, nil},
	} {
		l, err := loss.Find(test.loss)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.FaultsOf(test.s); !slices.Equal(got, test.want) {
			t.Errorf("%s with%s: %v, want %v", test.loss, test.s.Text(), got, test.want)
		}
	}
	if got := (loss.Settings{Gamma: 1.5, Top: 3}).Text(); got != " gamma 1.5 top 3" {
		t.Errorf("settings are%q", got)
	}
}

func TestNoRowsGiveNoLoss(t *testing.T) {
	t.Parallel()
	for _, l := range loss.All() {
		if got := l.Step(&loss.Batch{Width: 1}); got != 0 {
			t.Errorf("%s: %v", l.Name, got)
		}
	}
}

func TestStepAllocatesNothing(t *testing.T) {
	for _, l := range loss.All() {
		b, _ := random(&l, 50, 2, 1, 0, 3)
		if n := testing.AllocsPerRun(5, func() { l.Step(b) }); n != 0 {
			t.Errorf("%s: %v allocations", l.Name, n)
		}
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	tests := []struct {
		r    loss.Range
		in   []float32
		out  []float32
		text string
	}{
		{loss.Range{Min: 0, Max: 1}, []float32{0, 0.5, 1}, []float32{-0.1, 1.1, nan, inf}, "0 to 1"},
		{loss.Range{Min: 0, Max: math.MaxFloat32}, []float32{0, 1e38}, []float32{-1, nan, inf}, "from 0 up"},
		{loss.Range{Min: -math.MaxFloat32, Max: math.MaxFloat32}, []float32{-1e38, 3}, []float32{nan, inf, -inf}, "any number"},
		{loss.Range{Min: -math.MaxFloat32, Max: 2}, []float32{-1e38, 2}, []float32{3, -inf}, "up to 2"},
		{loss.Range{Min: 0, Max: 9, Whole: true}, []float32{0, 9}, []float32{0.5, 10, nan}, "0 to 9, whole"},
	}
	for _, test := range tests {
		for _, y := range test.in {
			if !test.r.Contains(y) {
				t.Errorf("%s does not contain %v", test.r, y)
			}
		}
		for _, y := range test.out {
			if test.r.Contains(y) {
				t.Errorf("%s contains %v", test.r, y)
			}
		}
		if test.r.String() != test.text {
			t.Errorf("%q, want %q", test.r, test.text)
		}
	}
}

func TestFindNamesWhatIsKnown(t *testing.T) {
	t.Parallel()
	var names []string
	for _, l := range loss.All() {
		names = append(names, l.Name)
		if got, err := loss.Find(l.Name); err != nil || got.Name != l.Name || len(l.Metrics) == 0 || l.Formula == "" {
			t.Errorf("%s: %v, %v", l.Name, got, err)
		}
	}
	_, err := loss.Find("mse")
	if err == nil || !strings.Contains(err.Error(), `loss "mse" is unknown (known: `+strings.Join(names, ", ")+")") {
		t.Errorf("error %v", err)
	}
}

// TestOwn: a loss of a program's own is computed as one of the list with the same formula, with weights, masks and several
// outputs, and its reference is its value.
func TestOwn(t *testing.T) {
	t.Parallel()
	squared, err := loss.Find(loss.Squared)
	if err != nil {
		t.Fatal(err)
	}
	own := loss.Own(loss.Loss{Name: "mine", Labels: loss.AnyNumber(), Link: loss.Identity}, func(z, y float64) (float64, float64) {
		return (z - y) * (z - y), 2 * (z - y)
	})
	batch := func() *loss.Batch {
		return &loss.Batch{
			Rows: 3, Width: 2, Outputs: []float32{1, 2, -1, .5, 3, 0}, Labels: []float32{0, 2, 1, 1, 7, 7}, Weights: []float32{1, 2, 3},
			Mask: []bool{true, true, false}, Scale: 2, Predictions: make([]float32, 6), Grad: make([]float32, 6),
		}
	}
	a, b := batch(), batch()
	x, y := own.Step(a), squared.Step(b)
	if x != y || !slices.Equal(a.Grad, b.Grad) || !slices.Equal(a.Predictions, b.Predictions) {
		t.Errorf("%v, %v, %v; want %v, %v, %v", x, a.Grad, a.Predictions, y, b.Grad, b.Predictions)
	}
	twin := loss.Batch64{Rows: 3, Width: 2, Outputs: []float64{1, 2, -1, .5, 3, 0}, Labels: a.Labels, Weights: a.Weights, Mask: a.Mask, Rate: 1}
	if got := own.Reference(twin); math.Abs(got-x) > 1e-12 {
		t.Errorf("the reference is %v, the step's loss %v", got, x)
	}
	if own.NumLabels(2) != 2 {
		t.Errorf("%d labels of 2 outputs", own.NumLabels(2))
	}
}

// BenchmarkStep measures losses over a batch of 512, those of lists over lists of eight and over the whole batch.
func BenchmarkStep(b *testing.B) {
	const rows = 512
	for _, l := range loss.All() {
		for _, size := range []int{8, rows} {
			if !l.Ranks && size == rows {
				continue
			}
			b.Run(fmt.Sprintf("loss=%s/list=%d", l.Name, size), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				width := 1
				if l.Classes {
					width = 10
				}
				t := &loss.Batch{Rows: rows, Width: width, Scale: 1, Predictions: make([]float32, rows*width), Grad: make([]float32, rows*width), Work: new(loss.Work)}
				for range rows * width {
					t.Outputs = append(t.Outputs, float32(rng.NormFloat64()))
				}
				for r := range rows {
					t.Labels = append(t.Labels, float32(rng.IntN(2)))
					t.Groups = append(t.Groups, int32(r/size))
				}
				b.ReportAllocs()
				for b.Loop() {
					l.Step(t)
				}
				b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
			})
		}
	}
}

package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
)

// gradNorm passes a value on to several heads, and weighs their losses by the lengths of the gradients that come back.
type gradNorm struct {
	plain
	Weights string `json:"weights"`
	// Heads are those that the parts of the value are for.
	Heads    []string `json:"tasks"`
	Scale    float32  `json:"scale"`
	Power    float32  `json:"power"`
	Relative bool     `json:"relative,omitzero"`
	// Alpha is the exponent of the training rates; with it Begin has the first loss of each head.
	Alpha float32 `json:"alpha,omitzero"`
	Begin string  `json:"begin,omitempty"`

	weights, begin int
}

// gradNormState has the heads' weights of a step, and space for what they are made of.
type gradNormState struct {
	weights, norms, rates, slopes []float64
}

// gradNormEpsilon keeps relative differences finite (bytedance/monolith: GradNorm's epsilon), and gradNormDecay is that of the first losses, which are observed once.
const (
	gradNormEpsilon = 1e-6
	gradNormDecay   = 0.5
)

// GradNorm are the settings of [Builder.GradNorm].
type GradNorm struct {
	// Name is that of the tensors.
	Name string
	// Heads are the names of the heads that share the value, two or more.
	Heads []string
	// Scale times the differences of lengths is minimised, above 0; 0 means 1. Power is their exponent, at least 1; 0 means 2. Relative divides them by the mean length.
	Scale, Power float32
	Relative     bool
	// Alpha is how strongly heads that learn slowly get longer gradients, at least 0.
	Alpha float32
	// Optimizer updates the weights.
	Optimizer optim.Optimizer
}

// GradNorm weighs the losses of heads that share a value, so that the gradients of that value are of the same length (Chen et al., 2018, "GradNorm: Gradient Normalization for Adaptive Loss Balancing in Deep
// Multitask Networks", equations 1 and 2 and algorithm 1; bytedance/monolith: GradNorm): x [rows, dim] -> for each head x, which that head alone takes. In training
//
//	wᵢ = n·softmax(a)ᵢ                               of n heads: the weights add up to n
//	L  = Σᵢ wᵢ·Lᵢ                                    is what all but a learn by; each Lᵢ with the head's own weight
//	Gᵢ = ‖∂(wᵢ·Lᵢ)/∂x‖                               of the batch
//	a learns by Σᵢ Scale·|(Gᵢ - Ḡ·rᵢᵅ)/δ|^Power      Ḡ the mean of the Gᵢ, δ = Ḡ + 10⁻⁶ with Relative, else 1
//
// where ‖∂Lᵢ/∂x‖, Ḡ and rᵢ are taken for numbers that do not depend on a. rᵢ = (Lᵢ/Lᵢ₀)/mean, how slowly a head learns, is the loss of the batch over the first one that there was, over the mean of that of all heads; it is 1
// where there was none. The paper has Power 1 and lengths of the gradients of the last shared weights; those of what the weights make are upstream's, which needs no second pass back, and has Alpha 0 and Power 2. Upstream's weights add up
// to 1.
//
// Tensors: "Name.weights" [n], the a, zeros at first, and with Alpha "Name.begin" [n], the first losses, an observation. Losses that a step returns, and metrics, are without the weights.
// Predictions do not depend on them.
func (b *Builder) GradNorm(x Node, cfg GradNorm) []Node {
	n := len(cfg.Heads)
	if n < 2 {
		b.fault("grad norm %q: %d heads, want 2 or more", cfg.Name, n)
		return slices.Repeat([]Node{x}, n)
	}
	if cfg.Scale == 0 {
		cfg.Scale = 1
	}
	if cfg.Power == 0 {
		cfg.Power = 2
	}
	o := &gradNorm{Weights: cfg.Name + ".weights", Heads: slices.Clone(cfg.Heads), Scale: cfg.Scale, Power: cfg.Power, Relative: cfg.Relative, Alpha: cfg.Alpha}
	b.Tensor(param.Tensor{Name: o.Weights, Shape: []int{n}, Optimizer: cfg.Optimizer})
	if cfg.Alpha > 0 {
		o.Begin = cfg.Name + ".begin"
		b.tensor(param.Tensor{Name: o.Begin, Shape: []int{n}, Optimizer: optim.EMA{Decay: gradNormDecay}}, true)
	}
	all := b.apply(o, n*x.shape.Dim, b.Concat(slices.Repeat([]Node{x}, n)...))
	var out []Node
	for i := range n {
		out = append(out, b.Columns(all, i*x.shape.Dim, (i+1)*x.shape.Dim))
	}
	return out
}

func (*gradNorm) name() string       { return "grad_norm" }
func (*gradNorm) readsBack(int) bool { return false }
func (*gradNorm) overwrites() bool   { return true }
func (*gradNorm) learns() bool       { return true }

func (o *gradNorm) String() string {
	return fmt.Sprintf("grad_norm[%s, scale %g, power %g, relative %t, alpha %g]", o.Heads, o.Scale, o.Power, o.Relative, o.Alpha)
}

func (o *gradNorm) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	n := len(o.Heads)
	sorted := slices.Sorted(slices.Values(o.Heads))
	if n < 2 || len(slices.Compact(sorted)) != n {
		return Shape{}, fmt.Errorf("heads %q: two or more are balanced, each once", o.Heads)
	}
	if in[0].shape.Dim%n != 0 {
		return Shape{}, fmt.Errorf("%d columns are not one value of each of %d heads", in[0].shape.Dim, n)
	}
	inf := func(v float32) bool { return math.IsInf(float64(v), 0) }
	if !(o.Scale > 0) || inf(o.Scale) || !(o.Power >= 1) || inf(o.Power) || !(o.Alpha >= 0) || inf(o.Alpha) {
		return Shape{}, fmt.Errorf("scale %v is above 0, power %v at least 1, alpha %v at least 0", o.Scale, o.Power, o.Alpha)
	}
	if (o.Alpha > 0) != (o.Begin != "") {
		return Shape{}, errors.New("the first losses are kept with an alpha above 0, and only then")
	}
	if o.Begin != "" {
		if o.begin, err = b.tensorNamed(o.Begin, true, n); err != nil {
			return Shape{}, err
		}
	}
	o.weights, err = b.tensorNamed(o.Weights, false, n)
	return in[0].shape, err
}

func (*gradNorm) flops(*Graph, *node, float64) float64 { return 0 }

func (o *gradNorm) newState() any {
	n := len(o.Heads)
	return &gradNormState{make([]float64, n), make([]float64, n), make([]float64, n), make([]float64, n)}
}

func (o *gradNorm) forward(s *Session, n *node) {
	copy(s.vals[n.id], s.vals[n.inputs[0]])
	weights, sum := s.state[n.id].(*gradNormState).weights, 0.0
	logits := s.tensor(o.weights)
	top := slices.Max(logits)
	for i, a := range logits {
		weights[i] = math.Exp(float64(a - top))
		sum += weights[i]
	}
	for i := range weights {
		weights[i] *= float64(len(weights)) / sum
	}
}

// backward passes gradients on, and learns the weights: of what is minimised by wᵢ the derivative is Scale·Power·|Dᵢ|^(Power-1)·sign(Dᵢ)·(Gᵢ/wᵢ)/δ, and of wᵢ by aⱼ it is wᵢ·([i = j] - wⱼ/n).
func (o *gradNorm) backward(s *Session, n *node) {
	st, dy := s.state[n.id].(*gradNormState), s.grads[n.id]
	if dx := s.gradSum(n.inputs[0]); dx != nil {
		add(dx, dy)
	}
	heads := len(o.Heads)
	part := n.dim / heads
	clear(st.norms)
	for at := 0; at < len(dy); at += part {
		sum := 0.0
		for _, d := range dy[at:][:part] {
			sum += float64(float64(d) * float64(d))
		}
		st.norms[at/part%heads] += sum
	}
	mean := 0.0
	for i, squares := range st.norms {
		st.norms[i] = math.Sqrt(squares)
		mean += st.norms[i] / float64(heads)
	}
	o.trainingRates(s, st)
	by := 1.0
	if o.Relative {
		by = mean + gradNormEpsilon
	}
	inner := 0.0
	for i, g := range st.norms {
		d := (g - float64(mean*math.Pow(st.rates[i], float64(o.Alpha)))) / by
		st.slopes[i] = 0
		if w := st.weights[i]; w > 0 && d != 0 {
			st.slopes[i] = float64(o.Scale) * float64(o.Power) * math.Copysign(math.Pow(math.Abs(d), float64(o.Power)-1), d) * g / w / by
		}
		inner += float64(st.slopes[i] * st.weights[i])
	}
	grad := s.tensorGrad(o.weights)
	for i, w := range st.weights {
		grad[i] += float32(w * (st.slopes[i] - inner/float64(heads)))
	}
}

// trainingRates makes the rᵢ of the losses of the step, and observes the first losses.
func (o *gradNorm) trainingRates(s *Session, st *gradNormState) {
	for i := range st.rates {
		st.rates[i] = 1
	}
	if o.Begin == "" {
		return
	}
	begin, seen := s.tensor(o.begin), s.tensorGrad(o.begin)
	sum, count := 0.0, 0
	for h := range s.g.outputs {
		i := slices.Index(o.Heads, s.g.outputs[h].head.Name)
		if i < 0 {
			continue
		}
		if seen[i] = begin[i]; begin[i] <= 0 { // what is observed now is half of what it becomes
			seen[i] = float32(s.losses[h] / (1 - gradNormDecay))
			continue
		}
		st.rates[i] = s.losses[h] / float64(begin[i])
		sum += st.rates[i]
		count++
	}
	for i := range st.rates {
		switch {
		case count < len(st.rates) || !(sum > 0) || !(st.rates[i] > 0):
			st.rates[i] = 1
		default:
			st.rates[i] *= float64(count) / sum
		}
	}
}

func (o *gradNorm) reference(e *evaluation, n *node) []float64 {
	return slices.Clone(e.vals[n.inputs[0]])
}

// headShare is where the weight of a head is made: part i of the operator of a node. A node below 0: the head has no such weight.
type headShare struct{ node, i int }

// shareOf finds the operator that weighs the loss of a head.
func (b *Builder) shareOf(head string) headShare {
	found := headShare{node: -1}
	for i := range b.nodes {
		o, ok := b.nodes[i].op.(*gradNorm)
		if !ok || !slices.Contains(o.Heads, head) {
			continue
		}
		if found.node >= 0 {
			b.fault("head %q is weighed by two grad norms", head)
		}
		found = headShare{i, slices.Index(o.Heads, head)}
	}
	return found
}

// checkGradNorms wants all heads that are weighed, and that one of them depends on what is between.
func (b *Builder) checkGradNorms(heads []Output) {
	for i := range b.nodes {
		o, ok := b.nodes[i].op.(*gradNorm)
		if !ok {
			continue
		}
		for _, name := range o.Heads {
			if !slices.ContainsFunc(heads, func(h Output) bool { return h.Name == name }) {
				b.fault("%s: the graph has no head %q", o, name)
			}
		}
		if !slices.ContainsFunc(heads, func(h Output) bool { return b.owns("head", h.Node) && b.depends(h.Node.id, i) }) {
			b.fault("%s: no head depends on its value", o)
		}
	}
}

// depends reports whether one node lies before another, or is it.
func (b *Builder) depends(id, on int) bool {
	return id == on || id > on && slices.ContainsFunc(b.nodes[id].inputs, func(in int) bool { return b.depends(in, on) })
}

// weight is what the loss of a head counts in a step.
func (s *Session) weight(o *output) float64 {
	if o.share.node < 0 {
		return float64(o.head.Weight)
	}
	return float64(o.head.Weight) * s.state[o.share.node].(*gradNormState).weights[o.share.i]
}

// referenceShare is what a head's loss counts by its grad norm, 1 where it has none.
func (e *evaluation) referenceShare(o *output) float64 {
	if o.share.node < 0 {
		return 1
	}
	logits, sum := e.tensor(e.g.declared[o.share.node].op.(*gradNorm).weights), 0.0
	for _, a := range logits {
		sum += math.Exp(a)
	}
	return float64(len(logits)) * math.Exp(logits[o.share.i]) / sum
}

package graph

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/internal/simd"
)

// Function is a function of one number, without parameters, for [Builder.Apply]. Relu, the sigmoid and those with parameters are operators of their own.
type Function string

// The functions.
const (
	// Tanh is tanh x.
	Tanh Function = "tanh"
	// LeakyRelu is x above 0 and x/100 below (Maas, Hannun and Ng, 2013, section 2).
	LeakyRelu Function = "leaky_relu"
	// ELU is x above 0 and eˣ - 1 below (Clevert, Unterthiner and Hochreiter, 2016, equation 15 with α = 1).
	ELU Function = "elu"
	// SELU is λx above 0 and λα(eˣ - 1) below, with the λ and α that keep mean and variance (Klambauer et al., 2017, equation 2).
	SELU Function = "selu"
	// Softplus is ln(1 + eˣ) (Dugas et al., 2001, section 3).
	Softplus Function = "softplus"
	// Softsign is x/(1 + |x|) (Glorot and Bengio, 2010, section 3).
	Softsign Function = "softsign"
	// Swish is x·σ(x) (Ramachandran, Zoph and Le, 2017, section 4 with β = 1), also known as SiLU.
	Swish Function = "swish"
	// HardSigmoid is x/5 + 1/2, cut at 0 and 1 (Keras 2).
	HardSigmoid Function = "hard_sigmoid"
	// ThresholdedRelu is x above 1 and 0 below (Konda, Memisevic and Krueger, 2014, with Θ = 1).
	ThresholdedRelu Function = "thresholded_relu"
	// Exponential is eˣ.
	Exponential Function = "exponential"
	// Relu is x above 0 and 0 below, of [Candidates] alone: for [Builder.Apply] there is [Builder.Relu].
	Relu Function = "relu"
)

// The constants of SELU, of the paper's proof.
const (
	seluScale  = 1.0507009873554805
	seluAlpha  = 1.6732632423543772
	leakySlope = 0.01
)

// function is what is known of one.
type function struct {
	name Function
	// flops of one number.
	flops float64
	// reads says which of x, value 0, and y, [ownValue], slope reads.
	reads func(value int) bool
	// forward computes y of x and may leave in t what the way back needs.
	forward func(x, t, y []float32)
	// slope is the derivative.
	slope func(x, t, y float32) float32
	// reference is the formula.
	reference func(x float64) float64
}

// functions is the list of all there are. Adding one is an entry here and in export/forward.
func functions() []function {
	return []function{
		{Tanh, 3, ofY, func(x, _, y []float32) { simd.Tanh(x, y) }, func(_, _, y float32) float32 { return 1 - y*y }, math.Tanh},
		{LeakyRelu, 1, ofX, each(func(x float32) float32 { return max(x, leakySlope*x) }), where(leakySlope), func(x float64) float64 { return math.Max(x, leakySlope*x) }},
		{ELU, 3, ofBoth, func(x, t, y []float32) { exponentialBelow(x, t, y, 1, 1) }, func(x, _, y float32) float32 {
			if x > 0 {
				return 1
			}
			return y + 1
		}, func(x float64) float64 { return math.Max(x, 0) + math.Expm1(math.Min(x, 0)) }},
		{SELU, 4, ofBoth, func(x, t, y []float32) { exponentialBelow(x, t, y, seluScale, seluScale*seluAlpha) }, func(x, _, y float32) float32 {
			if x > 0 {
				return seluScale
			}
			return y + seluScale*seluAlpha
		}, func(x float64) float64 { return seluScale * (math.Max(x, 0) + seluAlpha*math.Expm1(math.Min(x, 0))) }},
		{Softplus, 4, ofNone, softplus, func(_, t, _ float32) float32 { return t }, func(x float64) float64 { return math.Max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) }},
		{Softsign, 3, ofX, each(func(x float32) float32 { return x / (1 + abs(x)) }), func(x, _, _ float32) float32 {
			d := 1 + abs(x)
			return 1 / (d * d)
		}, func(x float64) float64 { return x / (1 + math.Abs(x)) }},
		{Swish, 4, ofY, func(x, t, y []float32) {
			simd.Sigmoid(x, t)
			simd.Mul(x, t, y)
		}, func(_, t, y float32) float32 { return t + y*(1-t) }, func(x float64) float64 { return x / (1 + math.Exp(-x)) }},
		{HardSigmoid, 3, ofY, each(func(x float32) float32 { return min(max(0.2*x+0.5, 0), 1) }), func(_, _, y float32) float32 {
			if y > 0 && y < 1 {
				return 0.2
			}
			return 0
		}, func(x float64) float64 { return math.Min(math.Max(0.2*x+0.5, 0), 1) }},
		{ThresholdedRelu, 1, ofX, each(func(x float32) float32 {
			if x <= 1 {
				return 0
			}
			return x
		}), func(x, _, _ float32) float32 {
			if x > 1 {
				return 1
			}
			return 0
		}, func(x float64) float64 {
			if x > 1 {
				return x
			}
			return 0
		}},
		{Exponential, 2, ofY, each(func(x float32) float32 { return float32(math.Exp(float64(x))) }), func(_, _, y float32) float32 { return y }, math.Exp},
	}
}

// Functions lists the names of all there are.
func Functions() (names []Function) {
	for _, f := range functions() {
		names = append(names, f.name)
	}
	return names
}

// each applies f to every number.
func each(f func(float32) float32) func(x, t, y []float32) {
	return func(x, _, y []float32) {
		for i, v := range x {
			y[i] = f(v)
		}
	}
}

// What derivatives read.
func ofX(value int) bool { return value != ownValue }
func ofY(value int) bool { return value == ownValue }
func ofBoth(int) bool    { return true }
func ofNone(int) bool    { return false }

// where is the derivative of what is x above 0 and a share of it below.
func where(below float32) func(x, t, y float32) float32 {
	return func(x, _, _ float32) float32 {
		if x > 0 {
			return 1
		}
		return below
	}
}

func abs(x float32) float32 { return max(x, -x) }

// exponentialBelow is above·x where x > 0 and below·(eˣ - 1) elsewhere. With h = tanh x/2, eˣ - 1 is 2h/(1-h), which is right near 0 too.
func exponentialBelow(x, t, y []float32, above, below float32) {
	for i, v := range x {
		t[i] = min(v, 0) / 2
	}
	simd.Tanh(t, y)
	for i, v := range x {
		if h := y[i]; v > 0 {
			y[i] = above * v
		} else {
			y[i] = below * 2 * h / (1 - h)
		}
	}
}

// softplus is max(x, 0) - ln σ(|x|), with σ(x) in t.
func softplus(x, t, y []float32) {
	simd.Sigmoid(x, t)
	for i, v := range t {
		y[i] = max(v, 1-v)
	}
	simd.Log(y, y)
	for i, v := range x {
		y[i] = max(v, 0) - y[i]
	}
}

// activation applies a function to each number.
type activation struct {
	plain
	Function Function `json:"function"`
	function
}

// activationState keeps what the function left for the way back.
type activationState struct{ t []float32 }

// Apply computes a function of each number of x: the same shape.
func (b *Builder) Apply(f Function, x Node) Node {
	return b.apply(&activation{Function: f}, x.shape.Dim, x)
}

func (*activation) name() string               { return "activation" }
func (o *activation) readsBack(value int) bool { return o.reads(value) }
func (o *activation) String() string           { return string(o.Function) }

func (o *activation) bind(_ *Builder, in []Node) (Shape, error) {
	if err := arity(in, 1); err != nil {
		return Shape{}, err
	}
	all := functions()
	i := slices.IndexFunc(all, func(f function) bool { return f.name == o.Function })
	if i < 0 {
		return Shape{}, fmt.Errorf("function %q is unknown%s", o.Function, nearest.Suggest(string(o.Function), texts(Functions())))
	}
	o.function = all[i]
	return in[0].shape, nil
}

func texts(of []Function) (out []string) {
	for _, f := range of {
		out = append(out, string(f))
	}
	return out
}

func (o *activation) flops(_ *Graph, n *node, _ float64) float64 {
	return o.function.flops * float64(n.dim)
}

func (*activation) newState() any { return &activationState{} }

func (o *activation) forward(s *Session, n *node) {
	st := s.state[n.id].(*activationState)
	st.t = resize(st.t, len(s.vals[n.id]))
	s.divide(o, n, ahead, len(st.t), 1, 64)
}

func (o *activation) backward(s *Session, n *node) {
	s.work.into = s.gradSum(n.inputs[0])
	s.divide(o, n, back, len(s.vals[n.id]), 1, 64)
}

// block is of elements.
func (o *activation) block(s *Session, n *node, p pass, from, to int) {
	x, t, y := s.vals[n.inputs[0]][from:to], s.state[n.id].(*activationState).t[from:to], s.vals[n.id][from:to]
	if p == ahead {
		o.function.forward(x, t, y)
		return
	}
	dy, dx := s.grads[n.id][from:to], s.work.into[from:to]
	for i := range dx {
		dx[i] += dy[i] * o.slope(x[i], t[i], y[i])
	}
}

func (o *activation) reference(e *evaluation, n *node) []float64 {
	return e.each(n, o.function.reference)
}

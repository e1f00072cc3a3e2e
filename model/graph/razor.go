package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/simd"
)

// razor multiplies the parts of vectors by shares that are learned.
type razor struct {
	plain
	Logits      string  `json:"logits"`
	Space       []int   `json:"space"`
	Temperature float32 `json:"temperature"`
	// Cost is what a mask of 1 costs for each number of a vector: of all, or of each.
	Cost []float32 `json:"cost,omitempty"`

	logits, vectors, dim int
}

// razorState keeps the shares [vectors, choices] and the masks that they make [vectors·dim], and on the way back the gradient of the masks.
type razorState struct{ shares, mask, grad []float32 }

// Razor searches which vectors are of use, and how many of their numbers (Yao et al., 2022, "i-Razor: A Differentiable Neural Input Razor for Feature Selection and Dimension Search in DNN-Based
// Recommender Systems", section 3.2; bytedance/monolith: iRazor): x [rows, n·dim], made of n vectors, and logits [n, choices] -> [rows, n·dim],
//
//	pᵢ = softmax(logitsᵢ / temperature)        yᵢₖ = xᵢₖ·pᵢⱼ where space[j-1] <= k < space[j]
//
// space begins with 0, is ascending, and ends with dim: choice 0 is that a vector is of no use, and choice j > 0 stands for the numbers from space[j-1] to space[j]. As temperature goes to 0, one choice of a vector gets all.
// cost, none, one for all vectors or one for each, times the sum of a vector's masks is minimised with the losses, so that what is of no use goes: as of L2, only the gradient shows it.
func (b *Builder) Razor(x Node, logits Tensor, space []int, temperature float32, cost ...float32) Node {
	if !b.ownsTensors("razor", logits) {
		return b.broken(x.shape.Dim)
	}
	return b.apply(&razor{Logits: b.tensorName(logits), Space: slices.Clone(space), Temperature: temperature, Cost: slices.Clone(cost)}, x.shape.Dim, x)
}

func (*razor) name() string             { return "razor" }
func (*razor) readsBack(value int) bool { return value != ownValue }
func (*razor) overwrites() bool         { return true }
func (*razor) learns() bool             { return true }

func (o *razor) String() string {
	return fmt.Sprintf("razor[%v, temperature %g, cost %g]", o.Space, o.Temperature, o.Cost)
}

func (o *razor) bind(b *Builder, in []Node) (Shape, error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	choices := len(o.Space)
	if choices < 2 || o.Space[0] != 0 || !slices.IsSorted(o.Space) || len(slices.Compact(slices.Clone(o.Space))) != choices {
		return Shape{}, fmt.Errorf("the space %v does not begin with 0 and ascend from there", o.Space)
	}
	if o.dim = o.Space[choices-1]; in[0].shape.Dim%o.dim != 0 {
		return Shape{}, fmt.Errorf("%d columns are no vectors of %d numbers, where the space %v ends", in[0].shape.Dim, o.dim, o.Space)
	}
	o.vectors = in[0].shape.Dim / o.dim
	if !(o.Temperature > 0) || math.IsInf(float64(o.Temperature), 0) {
		return Shape{}, fmt.Errorf("temperature %v is not a number above 0", o.Temperature)
	}
	if n := len(o.Cost); n > 1 && n != o.vectors {
		return Shape{}, fmt.Errorf("%d costs of %d vectors", n, o.vectors)
	}
	for _, c := range o.Cost {
		if !(c >= 0) || math.IsInf(float64(c), 0) {
			return Shape{}, errors.New("a cost is not a number from 0 up")
		}
	}
	id, err := b.tensorNamed(o.Logits, false, o.vectors, choices)
	o.logits = id
	return in[0].shape, err
}

func (*razor) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (*razor) newState() any { return &razorState{} }

// choice is the one that number k of a vector belongs to.
func (o *razor) choice(k int) int {
	for j, end := range o.Space {
		if k < end {
			return j
		}
	}
	return len(o.Space) - 1
}

func (o *razor) forward(s *Session, n *node) {
	st, choices := s.state[n.id].(*razorState), len(o.Space)
	st.shares, st.mask = resize(st.shares, o.vectors*choices), resize(st.mask, n.dim)
	for i, v := range s.tensor(o.logits) {
		st.shares[i] = v / o.Temperature
	}
	for v := range o.vectors {
		shares := st.shares[v*choices:][:choices]
		softmaxOf(shares, shares, 0, choices, 1)
		for k := range o.dim {
			st.mask[v*o.dim+k] = shares[o.choice(k)]
		}
	}
	x, y := s.vals[n.inputs[0]], s.vals[n.id]
	for at := 0; at < len(y); at += n.dim {
		simd.Mul(x[at:][:n.dim], st.mask, y[at:][:n.dim])
	}
}

// backward is dlogitᵢⱼ = pᵢⱼ·(dpᵢⱼ - Σₗ pᵢₗ·dpᵢₗ)/temperature, where dpᵢⱼ adds up what the numbers of choice j say and what each costs.
func (o *razor) backward(s *Session, n *node) {
	st, x, dy, choices := s.state[n.id].(*razorState), s.vals[n.inputs[0]], s.grads[n.id], len(o.Space)
	st.grad = resize(st.grad, n.dim)
	clear(st.grad)
	dx := s.gradSum(n.inputs[0])
	for at := 0; at < len(dy); at += n.dim {
		simd.AddMul(dy[at:][:n.dim], x[at:][:n.dim], st.grad)
		if dx != nil {
			simd.AddMul(dy[at:][:n.dim], st.mask, dx[at:][:n.dim])
		}
	}
	dlogits := s.tensorGrad(o.logits)
	for v := range o.vectors {
		cost := float32(0)
		switch len(o.Cost) {
		case 0:
		case 1:
			cost = o.Cost[0]
		default:
			cost = o.Cost[v]
		}
		sum := float32(0)
		for k, d := range st.grad[v*o.dim:][:o.dim] {
			sum += float32(st.mask[v*o.dim+k] * (d + cost))
		}
		for j, p := range st.shares[v*choices:][:choices] {
			got := float32(0)
			if j > 0 {
				for _, d := range st.grad[v*o.dim+o.Space[j-1] : v*o.dim+o.Space[j]] {
					got += d + cost
				}
			}
			dlogits[v*choices+j] += float32(p * (got - sum) / o.Temperature)
		}
	}
}

func (o *razor) reference(e *evaluation, n *node) []float64 {
	x, logits := e.vals[n.inputs[0]], e.tensor(o.logits)
	out := make([]float64, len(x))
	for i, v := range x {
		k := i % n.dim
		own := logits[k/o.dim*len(o.Space):][:len(o.Space)]
		sum := 0.0
		for _, l := range own {
			sum += math.Exp((l - own[0]) / float64(o.Temperature))
		}
		j := 1
		for o.Space[j] <= k%o.dim {
			j++
		}
		out[i] = v * math.Exp((own[j]-own[0])/float64(o.Temperature)) / sum
	}
	return out
}

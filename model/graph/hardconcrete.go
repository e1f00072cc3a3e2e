package graph

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/monolith-go/monolith/internal/simd"
	"github.com/monolith-go/monolith/model/param"
)

// The distribution of the gates of a [HardConcrete] that says nothing of it (Louizos, Welling and Kingma, 2018, section 4; bytedance/monolith: the defaults of SNR).
const (
	DefaultGateHigh        = 1.1
	DefaultGateLow         = -0.1
	DefaultGateTemperature = 0.5
)

// HardConcrete are the settings of gates that are learned.
type HardConcrete struct {
	// L0 is the share of the expected number of open gates that is minimised with the losses, from 0 up.
	L0 float32 `json:"l0,omitzero"`
	// High and Low are what gates are stretched to before they are cut off at 1 and 0, above 1 and below 0: the wider, the more gates are whole or closed (bytedance/monolith: zeta
	// and gamma). 0 means [DefaultGateHigh] and [DefaultGateLow].
	High float64 `json:"high,omitzero"`
	Low  float64 `json:"low,omitzero"`
	// Temperature is that of what is drawn in training, above 0: the lower, the fewer gates lie between 0 and 1 (bytedance/monolith: beta). 0 means [DefaultGateTemperature].
	Temperature float64 `json:"temperature,omitzero"`
	// StraightThrough gives gates that are cut off the gradient that they would have without (Bengio, Léonard and Courville, 2013; bytedance/monolith: use_ste), so that they learn in every step.
	StraightThrough bool `json:"straight_through,omitzero"`
}

// WithDefaults has numbers for settings that are 0.
func (c HardConcrete) WithDefaults() HardConcrete {
	c.High, c.Low, c.Temperature = cmp.Or(c.High, DefaultGateHigh), cmp.Or(c.Low, DefaultGateLow), cmp.Or(c.Temperature, DefaultGateTemperature)
	return c
}

// Validate says what no gates can have.
func (c HardConcrete) Validate() error {
	c = c.WithDefaults()
	finite := func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
	var faults []error
	if !(c.L0 >= 0) || math.IsInf(float64(c.L0), 0) {
		faults = append(faults, fmt.Errorf("l0 %v is not a number from 0 up", c.L0))
	}
	if !(c.High > 1) || !finite(c.High) {
		faults = append(faults, fmt.Errorf("the upper end of gates, %v, is not a number above 1", c.High))
	}
	if !(c.Low < 0) || !finite(c.Low) {
		faults = append(faults, fmt.Errorf("the lower end of gates, %v, is not a number below 0", c.Low))
	}
	if !(c.Temperature > 0) || !finite(c.Temperature) {
		faults = append(faults, fmt.Errorf("the temperature of gates, %v, is not a number above 0", c.Temperature))
	}
	return errors.Join(faults...)
}

// hardConcrete multiplies vectors by gates that are learned.
type hardConcrete struct {
	Logits string `json:"logits"`
	HardConcrete
	// Salt makes the noise of a graph's gates differ.
	Salt uint64 `json:"salt"`

	of     HardConcrete // with numbers for what is 0
	logits int
	gates  int
	dim    int
}

// hardConcreteState keeps the gates and their derivatives by the logits for the way back.
type hardConcreteState struct{ gates, slopes []float32 }

// HardConcrete multiplies each of the n vectors that x is made of by a gate from 0 to 1 that is learned: x [rows, n·dim] and logits a [n] -> [rows, n·dim] (Louizos, Welling and
// Kingma, 2018, equations 10 and 11, of the whole batch at once). In training
//
//	z = min(1, max(0, σ((ln u - ln(1-u) + a)/temperature)·(high - low) + low))
//
// with u between 0 and 1 drawn of the step's seed, the operator and the gate, so that gates are 0 or 1 with some probability and learn in between, or always where gradients go straight through;
// in prediction z is min(1, max(0, σ(a)·(high - low) + low)) (equation 13). L0 times the expected number of gates that are not 0 (equation 12) is minimised with the losses: as of L2, only the
// gradient shows it.
func (b *Builder) HardConcrete(x Node, logits Tensor, cfg HardConcrete) Node {
	if !b.ownsTensors("hard concrete", logits) {
		return b.broken(x.shape.Dim)
	}
	return b.apply(&hardConcrete{Logits: b.tensorName(logits), HardConcrete: cfg, Salt: b.salt}, x.shape.Dim, x)
}

func (*hardConcrete) name() string             { return "hard_concrete" }
func (*hardConcrete) readsBack(value int) bool { return value != ownValue }
func (*hardConcrete) overwrites() bool         { return true }
func (*hardConcrete) learns() bool             { return true }
func (*hardConcrete) differs() bool            { return true }

func (o *hardConcrete) String() string {
	of := ""
	if o.of != (HardConcrete{L0: o.L0}).WithDefaults() {
		of = fmt.Sprintf(", from %g to %g, temperature %g, straight through %t", o.of.Low, o.of.High, o.of.Temperature, o.of.StraightThrough)
	}
	return fmt.Sprintf("hard_concrete[%d gates, l0 %g%s]", o.gates, o.L0, of)
}

func (o *hardConcrete) bind(b *Builder, in []Node) (shape Shape, err error) {
	if err := one(in, PerRow); err != nil {
		return Shape{}, err
	}
	if err := o.Validate(); err != nil {
		return Shape{}, err
	}
	o.of = o.WithDefaults()
	for _, t := range b.tensors {
		if t.Name == o.Logits && len(t.Shape) == 1 {
			o.gates = t.Shape[0]
		}
	}
	if o.gates < 1 || in[0].shape.Dim%o.gates != 0 {
		return Shape{}, fmt.Errorf("%d columns are not %d vectors of one width, for as many gates", in[0].shape.Dim, o.gates)
	}
	o.dim = in[0].shape.Dim / o.gates
	o.logits, err = b.tensorNamed(o.Logits, false, o.gates)
	return in[0].shape, err
}

func (*hardConcrete) flops(_ *Graph, n *node, _ float64) float64 { return float64(n.dim) }

func (*hardConcrete) newState() any { return &hardConcreteState{} }

// gate is that of a logit with its derivative; noise is ln u - ln(1-u) in training.
func (o *hardConcrete) gate(logit, noise float64, train bool) (z, slope float64) {
	temperature := 1.0
	if train {
		temperature = o.of.Temperature
	}
	s := 1 / (1 + math.Exp(-(noise+logit)/temperature))
	slope = s * (1 - s) / temperature * (o.of.High - o.of.Low)
	if z = s*(o.of.High-o.of.Low) + o.of.Low; (z <= 0 || z >= 1) && !o.of.StraightThrough {
		slope = 0
	}
	return min(max(z, 0), 1), slope
}

// noise is ln u - ln(1-u) of gate i in a step with a seed.
func (o *hardConcrete) noise(seed uint64, i int) float64 {
	u := (float64(param.Mix(param.Mix(seed, o.Salt), uint64(i))>>11) + 0.5) / (1 << 53)
	return math.Log(u) - math.Log1p(-u)
}

// open is the probability that a gate is not 0, and its derivative by the logit.
func (o *hardConcrete) open(logit float64) (p, slope float64) {
	p = 1 / (1 + math.Exp(-(logit - o.of.Temperature*math.Log(-o.of.Low/o.of.High))))
	return p, p * (1 - p)
}

func (o *hardConcrete) forward(s *Session, n *node) {
	st := s.state[n.id].(*hardConcreteState)
	st.gates, st.slopes = resize(st.gates, o.gates), resize(st.slopes, o.gates)
	for i, logit := range s.tensor(o.logits) {
		noise := 0.0
		if s.train {
			noise = o.noise(s.seed, i)
		}
		z, slope := o.gate(float64(logit), noise, s.train)
		st.gates[i], st.slopes[i] = float32(z), float32(slope)
	}
	y := s.vals[n.id]
	copy(y, s.vals[n.inputs[0]])
	for at := 0; at < len(y); at += o.dim {
		simd.Scale(st.gates[at/o.dim%o.gates], y[at:][:o.dim])
	}
}

func (o *hardConcrete) backward(s *Session, n *node) {
	st, x, dy := s.state[n.id].(*hardConcreteState), s.vals[n.inputs[0]], s.grads[n.id]
	dx, dlogits := s.gradSum(n.inputs[0]), s.tensorGrad(o.logits)
	for at := 0; at < len(dy); at += o.dim {
		i, d := at/o.dim%o.gates, dy[at:][:o.dim]
		dlogits[i] += float32(st.slopes[i] * simd.Dot(d, x[at:][:o.dim]))
		if dx != nil {
			simd.Axpy(st.gates[i], d, dx[at:][:o.dim])
		}
	}
	for i, logit := range s.tensor(o.logits) {
		_, slope := o.open(float64(logit))
		dlogits[i] += float32(o.L0 * float32(slope))
	}
}

func (o *hardConcrete) reference(e *evaluation, n *node) []float64 {
	x := e.vals[n.inputs[0]]
	out := make([]float64, len(x))
	for i, v := range x {
		gate := i / o.dim % o.gates
		logit := e.tensor(o.logits)[gate]
		if e.train {
			logit = (o.noise(e.seed, gate) + logit) / o.of.Temperature
		}
		out[i] = v * min(max((o.of.High-o.of.Low)/(1+math.Exp(-logit))+o.of.Low, 0), 1)
	}
	return out
}

package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// The settings of an [FTRL] that names none, for a loss that is a mean over the batch; bytedance/monolith has 0.01 and 0.1
// (FtrlOptimizerConfig), see [DefaultAdagradLR].
const (
	DefaultFTRLLR                 = 0.05
	DefaultFTRLInitialAccumulator = 1e-6
)

// FTRL is follow the regularised leader with proximal terms and L1 and L2 (McMahan et al., 2013, algorithm 1), which
// keeps weights of rare features at exactly 0:
//
//	n' = n + g²
//	z  = z + g - σ·w        σ = (β+√n')/lr' - (β+√n)/lr
//	n  = n'
//	w  = 0                                          if |z| ≤ L1
//	w  = lr'·(sign(z)·L1 - z)/(β + √n + L2·lr')     otherwise
//
// lr is the learning rate of the update that made w, lr' this one's; while it stays the same, σ is the paper's
// (√n' - √n)/lr. σ is a difference of 1/η, η the per-coordinate rate (section 3.1), so a changing lr belongs in it; the
// usual code leaves it out, and a learning rate cut to a tenth cuts every weight to a tenth with it. The former lr is not
// stored: w itself holds it, see Update. State: n [dim], z [dim].
type FTRL struct {
	// LR is α, above 0; 0 means [DefaultFTRLLR].
	LR float32 `json:"lr"`
	// Beta is β, at least 0, default 0. It slows down the first steps.
	Beta float32 `json:"beta"`
	// L1 is at least 0, default 0.
	L1 float32 `json:"l1"`
	// L2 is at least 0, default 0.
	L2 float32 `json:"l2"`
	// InitialAccumulator is n before the first gradient, above 0; 0 means [DefaultFTRLInitialAccumulator].
	InitialAccumulator float32 `json:"initial_accumulator"`
}

var (
	_ Optimizer  = FTRL{}
	_ RowUpdater = FTRL{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o FTRL) WithDefaults() FTRL {
	o.LR = orDefault(o.LR, DefaultFTRLLR)
	o.InitialAccumulator = orDefault(o.InitialAccumulator, DefaultFTRLInitialAccumulator)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o FTRL) Validate() error { return o.check(o.Name()) }

// check is Validate of a rule of that name with the same settings.
func (o FTRL) check(name string) error {
	o = o.WithDefaults()
	return validate(
		name,
		positive("lr", o.LR),
		notNegative("beta", o.Beta),
		notNegative("l1", o.L1),
		notNegative("l2", o.L2),
		positive("initial_accumulator", o.InitialAccumulator),
	)
}

// Name is "ftrl".
func (FTRL) Name() string { return "ftrl" }

// String renders the rule with every setting.
func (o FTRL) String() string { return o.render(o.Name()) }

// render is String of a rule of that name with the same settings.
func (o FTRL) render(name string) string {
	o = o.WithDefaults()
	return fmt.Sprintf("%s(lr=%g,beta=%g,l1=%g,l2=%g,initial_accumulator=%g)", name, o.LR, o.Beta, o.L1, o.L2, o.InitialAccumulator)
}

// StateDim is 2·dim: n and z.
func (FTRL) StateDim(dim int) int { return 2 * dim }

// Init sets n to InitialAccumulator and z to 0.
func (o FTRL) Init(w, state []float32) {
	initial := orDefault(o.InitialAccumulator, DefaultFTRLInitialAccumulator)
	n, z := state[:len(w)], state[len(w):]
	for k := range n {
		n[k] = initial
	}
	clear(z)
}

// Update applies one gradient. An lr of 0 changes neither weights nor state.
func (o FTRL) Update(w, state, grad []float32, lr float32) {
	o = o.WithDefaults()
	rate := o.LR * lr
	if rate == 0 {
		return
	}
	n, z := state[:len(w)], state[len(w):2*len(w)]
	grad = grad[:len(w)]
	if len(w) >= wide {
		simd.FTRL(w, n, z, grad, rate, o.Beta, o.L1, o.L2)
		return
	}
	for k := range w {
		root := sqrt32(n[k])
		n[k] += float32(grad[k] * grad[k])
		newRoot := sqrt32(n[k])
		if shrunk := shrink(z[k], o.L1); shrunk != 0 {
			// w was made of z as shrunk/((β+√n)/lr + L2), so (β+√n)/lr·w = shrunk - L2·w and the former lr is not needed:
			// z + (β+√n)/lr·w = z + shrunk - L2·w.
			z[k] += shrunk - float32(o.L2*w[k]) + grad[k] - float32((o.Beta+newRoot)/rate*w[k])
		} else {
			// w is 0, or the initial value, which no gradient has made.
			z[k] += grad[k] - float32((newRoot-root)/rate*w[k])
		}
		w[k] = rate * shrink(z[k], o.L1) / (o.Beta + newRoot + float32(o.L2*rate))
	}
}

// UpdateRows implements [RowUpdater].
func (o FTRL) UpdateRows(s *simd.Segments, lr float32) {
	o = o.WithDefaults()
	if rate := o.LR * lr; rate != 0 {
		s.FTRL(rate, o.Beta, o.L1, o.L2)
	}
}

// shrink returns sign(z)·l1 - z, or 0 within ±l1.
func shrink(z, l1 float32) float32 {
	switch {
	case z > l1:
		return l1 - z
	case z < -l1:
		return -l1 - z
	}
	return 0
}

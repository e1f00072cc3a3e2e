package optim

import (
	"fmt"

	"github.com/monolith-go/monolith/internal/simd"
)

// DefaultSGDLR is the learning rate of an [SGD] that names none.
const DefaultSGDLR = 0.01

// SGD is stochastic gradient descent without momentum (Robbins and Monro, 1951): w = w - lr·g. It keeps no state.
type SGD struct {
	// LR is the learning rate, above 0; 0 means [DefaultSGDLR].
	LR float32 `json:"lr"`
}

var (
	_ Optimizer  = SGD{}
	_ RowUpdater = SGD{}
)

// WithDefaults returns a copy in which every zero field has its default.
func (o SGD) WithDefaults() SGD {
	o.LR = orDefault(o.LR, DefaultSGDLR)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o SGD) Validate() error {
	o = o.WithDefaults()
	return validate(o.Name(), positive("lr", o.LR))
}

// Name is "sgd".
func (SGD) Name() string { return "sgd" }

// String renders the rule with every setting.
func (o SGD) String() string { return fmt.Sprintf("sgd(lr=%g)", o.WithDefaults().LR) }

// StateDim is 0.
func (SGD) StateDim(int) int { return 0 }

// Init does nothing: there is no state.
func (SGD) Init(_, _ []float32) {}

// Update applies one gradient.
func (o SGD) Update(w, _, grad []float32, lr float32) {
	rate := o.WithDefaults().LR * lr
	grad = grad[:len(w)]
	if len(w) >= wide {
		simd.SGD(w, grad, rate)
		return
	}
	for k := range w {
		w[k] -= float32(rate * grad[k])
	}
}

// UpdateRows implements [RowUpdater].
func (o SGD) UpdateRows(s *simd.Segments, lr float32) { s.SGD(o.WithDefaults().LR * lr) }

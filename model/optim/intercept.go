package optim

import (
	"errors"
	"fmt"
	"math"
)

// The settings of an [Intercept] that names none.
const (
	DefaultInterceptFloor = 0.01
	// interceptStep bounds a step of a logit, times the rate: e² in the odds.
	interceptStep = 2
)

// The links of an [Intercept].
const (
	// LogitIntercept is for heads that predict σ(z).
	LogitIntercept = "logit"
	// MeanIntercept is for heads that predict z itself.
	MeanIntercept = "mean"
)

// Intercept moves the bias of a head's output to where the mean prediction is the mean label. A rule with small steps
// needs thousands of batches for that when positives are rare, and until then each id's weight learns the base rate too.
// With t the number of the update, from 1, and g the mean over the batch of prediction minus label:
//
//	η  = max(2/(t+1), Floor)·lr
//	w' = w - η·g/Scale                                  link mean
//	w' = w + clip(logit(σ(w) - η·g/Scale) - w, ±2η)     link logit; the logit of what is outside (0, 1) is ±∞
//
// With the bias as the only parameter, link mean gives the mean label over all batches, batch t weighing t: the first
// batches, which the other parameters change most after, count least. Link logit is the same in the prediction's space,
// and about a Newton step, g/(σ(w)·(1-σ(w))), once g is small. The bound keeps a first batch without positives from
// moving the bias to -∞. Floor makes the bias follow a mean that drifts, over about 1/Floor batches.
//
// State: t, one number.
type Intercept struct {
	// Link is [LogitIntercept] or [MeanIntercept]; "" means [LogitIntercept].
	Link string `json:"link"`
	// Scale is the derivative of a row's loss over prediction minus label, above 0; 0 means 1. It is 2 for squares.
	Scale float32 `json:"scale"`
	// Floor is the least rate, in (0, 1); 0 means [DefaultInterceptFloor].
	Floor float32 `json:"floor"`
}

var _ Optimizer = Intercept{}

// WithDefaults returns a copy in which every zero field has its default.
func (o Intercept) WithDefaults() Intercept {
	if o.Link == "" {
		o.Link = LogitIntercept
	}
	o.Scale, o.Floor = orDefault(o.Scale, 1), orDefault(o.Floor, DefaultInterceptFloor)
	return o
}

// Validate reports every setting out of range at once; it looks at the values after defaults.
func (o Intercept) Validate() error {
	o = o.WithDefaults()
	var link error
	if o.Link != LogitIntercept && o.Link != MeanIntercept {
		link = errors.New("link is neither logit nor mean")
	}
	return validate(o.Name(), link, positive("scale", o.Scale), fraction("floor", o.Floor))
}

// Name is "intercept".
func (Intercept) Name() string { return "intercept" }

// String renders the rule with every setting.
func (o Intercept) String() string {
	o = o.WithDefaults()
	return fmt.Sprintf("intercept(link=%s,scale=%g,floor=%g)", o.Link, o.Scale, o.Floor)
}

// StateDim is 1.
func (Intercept) StateDim(int) int { return 1 }

// Init begins the count: at 0 for a bias of 0, and at the floor for one that another rule has trained.
func (o Intercept) Init(w, state []float32) {
	state[0] = 0
	for _, v := range w {
		if v != 0 {
			state[0] = 2 / o.WithDefaults().Floor
		}
	}
}

// Update applies one gradient.
func (o Intercept) Update(w, state, grad []float32, lr float32) {
	o = o.WithDefaults()
	state[0] = min(state[0]+1, 1<<20) // far beyond the floor, and a float32 still counts there
	rate := max(2/(float64(state[0])+1), float64(o.Floor)) * float64(lr)
	grad = grad[:len(w)]
	for k := range w {
		step := float64(rate * float64(grad[k]) / float64(o.Scale))
		at := float64(w[k])
		if o.Link == MeanIntercept {
			w[k] = float32(at - step)
			continue
		}
		mean := 1/(1+math.Exp(-at)) - step
		to := math.Copysign(math.Inf(1), mean)
		if mean > 0 && mean < 1 {
			to = math.Log(mean / (1 - mean))
		}
		bound := float64(interceptStep * rate)
		w[k] = float32(at + min(max(to-at, -bound), bound))
	}
}

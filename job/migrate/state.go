package migrate

import (
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/internal/entrydump"
	"github.com/monolith-go/monolith/model/optim"
)

// What a report says of state that was not taken over.
const (
	whyNoState   = "the checkpoint has no state of it"
	whyNotFinite = "its state is not finite"
	whyNotAbove  = "its sum of squares is not above 0"
	whyPowers    = "its powers of beta1 and beta2 are not of one step (upstream's Restore mixes them up, or the job has other betas): m and v are kept, the bias correction is over"
)

// keeper takes the state of segments of one rule over and gives it back.
type keeper struct {
	rule optim.Optimizer
	// kind is that of the rule's dumps; 0: upstream has none.
	kind         entrydump.Kind
	beta1, beta2 powers // of Adam
}

// newKeeper knows which of upstream's rules is the same as one of ours.
func newKeeper(o optim.Optimizer) *keeper {
	k := &keeper{rule: o}
	switch o := o.(type) {
	case optim.SGD:
		k.kind = entrydump.SGD
	case optim.Adagrad:
		k.kind = entrydump.Adagrad
	case optim.FTRL:
		k.kind = entrydump.FTRL
	case optim.Adam:
		o = o.WithDefaults()
		k.kind, k.beta1, k.beta2 = entrydump.Adam, newPowers(o.Beta1), newPowers(o.Beta2)
	}
	return k
}

// dumps reports whether upstream writes a dump for a segment of the rule: its moving average does not.
func (k *keeper) dumps() bool {
	_, ema := k.rule.(optim.EMA)
	return !ema
}

// take makes the state of a segment of a dump, and leaves in state what the rule begins with where it cannot. why says then what is the
// matter, or what was not taken as it is.
func (k *keeper) take(w, state []float32, d *entrydump.Dump) (why string) {
	k.rule.Init(w, state)
	if len(state) == 0 {
		return ""
	}
	if d == nil {
		return whyNoState
	}
	if d.Kind != k.kind {
		return fmt.Sprintf("the checkpoint's rule is %s, the job's %s", d.Kind, k.rule.Name())
	}
	dim := len(w)
	for _, v := range d.Vectors[:k.vectors()] {
		if len(v) != dim {
			return fmt.Sprintf("it has %d numbers for %d weights", len(v), dim)
		}
		if !finite(v) {
			return whyNotFinite
		}
	}
	switch k.kind {
	case entrydump.Adagrad:
		if slices.Min(d.Vectors[0]) <= 0 {
			return whyNotAbove
		}
		copy(state, d.Vectors[0])
	case entrydump.FTRL:
		if slices.Min(d.Vectors[1]) <= 0 {
			return whyNotAbove
		}
		copy(state, d.Vectors[1])
		copy(state[dim:], d.Vectors[0])
	case entrydump.Adam:
		if slices.Min(d.Vectors[1]) < 0 {
			return "its mean square is below 0"
		}
		copy(state, d.Vectors[0])
		copy(state[dim:], d.Vectors[1])
		bias := state[2*dim:]
		t1, ok1 := k.beta1.stepOfPower(d.Scalars[0])
		t2, ok2 := k.beta2.stepOfPower(d.Scalars[1])
		if t := max(t1, t2); !ok1 || !ok2 || k.beta1.at(t1) != k.beta1.at(t) || k.beta2.at(t2) != k.beta2.at(t) {
			bias[0], bias[1] = 1, 1
			return whyPowers
		}
		bias[0], bias[1] = k.beta1.at(t1), k.beta2.at(t2)
	}
	return ""
}

// vectors is how many a dump of the kind has.
func (k *keeper) vectors() int {
	switch k.kind {
	case entrydump.Adagrad:
		return 1
	case entrydump.FTRL, entrydump.Adam:
		return 2
	}
	return 0
}

// give makes the dump of a segment's state. ok is false where upstream has no such rule: the segment then starts over there.
func (k *keeper) give(w, state []float32, d *entrydump.Dump) (ok bool) {
	dim := len(w)
	d.Kind = k.kind
	switch k.kind {
	case entrydump.SGD:
	case entrydump.Adagrad:
		d.Vectors[0] = append(d.Vectors[0], state[:dim]...)
	case entrydump.FTRL:
		d.Vectors[0] = append(d.Vectors[0], state[dim:2*dim]...)
		d.Vectors[1] = append(d.Vectors[1], state[:dim]...)
	case entrydump.Adam:
		d.Vectors[0] = append(d.Vectors[0], state[:dim]...)
		d.Vectors[1] = append(d.Vectors[1], state[dim:2*dim]...)
		t := max(k.beta1.stepOf(state[2*dim]), k.beta2.stepOf(state[2*dim+1]))
		d.Scalars[0], d.Scalars[1] = k.beta1.power(t), k.beta2.power(t)
	default:
		d.Kind = entrydump.SGD // a dump there must be, and this one says nothing
		return k.rule.StateDim(dim) == 0
	}
	return true
}

func finite(x []float32) bool {
	for _, v := range x {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return false
		}
	}
	return true
}

// powers are what both sides keep of βᵗ: upstream the power itself, beginning with β and multiplied by β at each update, this project
// its complement 1-βᵗ ([optim.Adam]). Either is a function of t by float32 recurrence, so t leads from the one to the other with the
// bits that so many updates would have made.
type powers struct {
	beta float32
	// upstream[t] and ours[t] are those after t updates, up to the last at which ours changes.
	upstream, ours []float32
}

func newPowers(beta float32) powers {
	p := powers{beta: beta, upstream: []float32{beta}, ours: []float32{0}}
	b := float64(beta)
	for t := 1; ; t++ {
		next := float32((1 - b) + float64(b*float64(p.ours[t-1])))
		if next <= p.ours[t-1] {
			return p
		}
		p.ours = append(p.ours, next)
		p.upstream = append(p.upstream, p.upstream[t-1]*beta)
	}
}

// at is the complement after t updates.
func (p powers) at(t int) float32 { return p.ours[min(t, len(p.ours)-1)] }

// power is upstream's power after t updates.
func (p powers) power(t int) float32 { return p.upstream[min(t, len(p.upstream)-1)] }

// stepOf is the first step with a complement, or the nearest.
func (p powers) stepOf(c float32) int {
	at, _ := slices.BinarySearch(p.ours, c)
	if at == len(p.ours) || at > 0 && p.ours[at]-c > c-p.ours[at-1] {
		at--
	}
	return at
}

// stepOfPower is the step with a power, or the nearest. ok is false for what is no power of β: more than β, negative or NaN.
func (p powers) stepOfPower(v float32) (t int, ok bool) {
	if !(v >= 0 && v <= p.beta*(1+1e-6)) {
		return 0, false
	}
	at, _ := slices.BinarySearchFunc(p.upstream, v, func(a, b float32) int {
		switch {
		case a > b:
			return -1
		case a < b:
			return 1
		}
		return 0
	})
	if at == len(p.upstream) || at > 0 && v-p.upstream[at] > p.upstream[at-1]-v {
		at--
	}
	return at, true
}

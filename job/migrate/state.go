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
	whyNoState = "the checkpoint has no state of it"
	whyPowers  = "its powers of beta1 and beta2 are not of one step (upstream's Restore mixes them up, or the job has other betas): m and v are kept, the bias correction is over"
)

// keeper takes the state of segments of one rule over and gives it back.
type keeper struct {
	rule optim.Optimizer
	// rounded, if not nil, is around the rule: weights are rounded to its format, and its count of updates, behind the rule's state, starts
	// over, since upstream keeps none.
	rounded *optim.Rounded
	// kind is that of the rule's dumps; 0: upstream has none.
	kind entrydump.Kind
	// vectors are those of a dump in the order in which the rule's state has them, of one number a weight.
	vectors []int
	// sum says that the state is one number, above 0, and corrects that it ends with the bias corrections of Adam.
	sum, corrects bool
	beta1, beta2  powers
}

// newKeeper knows which of upstream's rules is the same as one of ours.
func newKeeper(o optim.Optimizer) *keeper {
	if r, ok := o.(optim.Rounded); ok {
		k := newKeeper(r.Rule)
		k.rounded = &r
		return k
	}
	k := &keeper{rule: o}
	switch o := o.(type) {
	case optim.SGD:
		k.kind = entrydump.SGD
	case optim.Momentum:
		k.kind, k.vectors = entrydump.Momentum, []int{0}
	case optim.Adagrad:
		k.kind, k.vectors = entrydump.Adagrad, []int{0}
	case optim.AdagradW, optim.LazyAdagradW: // the latter's time starts over: upstream counts steps
		k.kind, k.vectors = entrydump.DynamicWDAdagrad, []int{0}
	case optim.GroupAdagrad:
		k.kind, k.sum = entrydump.GroupAdagrad, true
	case optim.RMSprop:
		if o.Momentum != 0 {
			break // upstream's rules of rows have none; those of dense parameters are not imported
		}
		if k.kind = entrydump.RMSprop; o.Sum {
			k.kind = entrydump.RMSpropV2
		}
		k.vectors = []int{0}
	case optim.Adadelta:
		k.kind, k.vectors = entrydump.Adadelta, []int{0, 1}
	case optim.FTRL:
		k.kind, k.vectors = entrydump.FTRL, []int{1, 0}
	case optim.GroupFTRL:
		k.kind, k.vectors = entrydump.GroupFTRL, []int{1, 0}
	case optim.Adam:
		o = o.WithDefaults()
		k.kind, k.vectors = entrydump.Adam, []int{0, 1}
		k.corrects, k.beta1, k.beta2 = true, newPowers(o.Beta1), newPowers(o.Beta2)
	case optim.AMSGrad:
		o = o.WithDefaults()
		k.kind, k.vectors = entrydump.AMSGrad, []int{0, 1, 2}
		k.corrects, k.beta1, k.beta2 = true, newPowers(o.Beta1), newPowers(o.Beta2)
	}
	return k
}

// dumps reports whether upstream writes a dump for a segment of the rule: its moving average does not.
func (k *keeper) dumps() bool {
	_, ema := k.rule.(optim.EMA)
	return !ema
}

// take makes the state of a segment of a dump, rounds the weights where they are kept so, and leaves in state what the rule begins with where it cannot. why says then what is the
// matter, or what was not taken as it is.
func (k *keeper) take(w, state []float32, d *entrydump.Dump) (why string) {
	if k.rounded != nil {
		k.rounded.Init(w, state)
		state = state[:len(state)-1]
	}
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
	for _, from := range k.vectors {
		if n := len(d.Vectors[from]); n != dim {
			return fmt.Sprintf("it has %d numbers for %d weights", n, dim)
		}
	}
	if k.sum {
		state[0] = d.Scalars[0]
	}
	for place, from := range k.vectors {
		copy(state[place*dim:][:dim], d.Vectors[from])
	}
	if k.corrects {
		why = k.correct(state[len(k.vectors)*dim:], d.Scalars)
	}
	if err := optim.CheckState(k.rule, dim, state); err != nil {
		k.rule.Init(w, state)
		return err.Error()
	}
	return why
}

// correct makes the bias corrections of upstream's powers.
func (k *keeper) correct(bias []float32, stored [2]float32) (why string) {
	t1, ok1 := k.beta1.stepOfPower(stored[0])
	t2, ok2 := k.beta2.stepOfPower(stored[1])
	if t := max(t1, t2); !ok1 || !ok2 || k.beta1.at(t1) != k.beta1.at(t) || k.beta2.at(t2) != k.beta2.at(t) {
		bias[0], bias[1] = 1, 1
		return whyPowers
	}
	bias[0], bias[1] = k.beta1.at(t1), k.beta2.at(t2)
	return ""
}

// give makes the dump of the state of dim weights. Where upstream has no such rule it says nothing, and the segment starts over there.
func (k *keeper) give(dim int, state []float32, d *entrydump.Dump) {
	if d.Kind = k.kind; k.kind == 0 {
		d.Kind = entrydump.SGD // a dump there must be
		return
	}
	if k.sum {
		d.Scalars[0] = state[0]
	}
	for place, to := range k.vectors {
		d.Vectors[to] = append(d.Vectors[to], state[place*dim:][:dim]...)
	}
	if k.corrects {
		bias := state[len(k.vectors)*dim:]
		t := max(k.beta1.stepOf(bias[0]), k.beta2.stepOf(bias[1]))
		d.Scalars[0], d.Scalars[1] = k.beta1.power(t), k.beta2.power(t)
	}
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
// its complement 1-βᵗ ([optim.Adam], [optim.AMSGrad]). Either is a function of t by float32 recurrence, so t leads from the one to the other with the
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

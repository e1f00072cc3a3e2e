package entrydump

import "strconv"

// Kind is the rule that a segment was trained by, as its number in SingleOptimizerDump.
type Kind uint8

// The kinds, and what a [Dump] of each holds: vectors of a number per weight, single numbers, a step.
const (
	Adagrad          Kind = 1  // norm
	SGD              Kind = 2  // nothing
	FTRL             Kind = 3  // zero, norm
	DynamicWDAdagrad Kind = 4  // norm; last_update_step
	Adadelta         Kind = 6  // accum, accum_update
	Adam             Kind = 7  // m, v; beta1_power, beta2_power
	AMSGrad          Kind = 8  // m, v, vhat; beta1_power, beta2_power
	Momentum         Kind = 9  // n
	RMSprop          Kind = 11 // n
	RMSpropV2        Kind = 12 // n
	GroupFTRL        Kind = 13 // zero, norm
	BatchSoftmax     Kind = 14 // global_step
	GroupAdagrad     Kind = 15 // grad_square_sum
)

// shape describes the message of a kind: the numbers of its fields, 0 behind the last.
type shape struct {
	name    string
	vectors [3]int32
	scalars [2]int32
	step    int32
}

// shape returns what the message of a kind looks like; ok is false for one that there is none of.
func (k Kind) shape() (s shape, ok bool) {
	switch k {
	case Adagrad:
		s = shape{name: "adagrad", vectors: [3]int32{1}}
	case SGD:
		s = shape{name: "sgd"}
	case FTRL:
		s = shape{name: "ftrl", vectors: [3]int32{1, 2}}
	case DynamicWDAdagrad:
		s = shape{name: "dynamic_wd_adagrad", vectors: [3]int32{1}, step: 2}
	case Adadelta:
		s = shape{name: "adadelta", vectors: [3]int32{1, 2}}
	case Adam:
		s = shape{name: "adam", vectors: [3]int32{1, 2}, scalars: [2]int32{3, 4}}
	case AMSGrad:
		s = shape{name: "amsgrad", vectors: [3]int32{1, 2, 3}, scalars: [2]int32{4, 5}}
	case Momentum:
		s = shape{name: "momentum", vectors: [3]int32{1}}
	case RMSprop:
		s = shape{name: "rmsprop", vectors: [3]int32{1}}
	case RMSpropV2:
		s = shape{name: "rmspropv2", vectors: [3]int32{1}}
	case GroupFTRL:
		s = shape{name: "group_ftrl", vectors: [3]int32{1, 2}}
	case BatchSoftmax:
		s = shape{name: "batch_softmax", step: 1}
	case GroupAdagrad:
		s = shape{name: "group_adagrad", scalars: [2]int32{1}}
	default:
		return shape{}, false
	}
	return s, true
}

// String is the name of the field: "adagrad", "ftrl".
func (k Kind) String() string {
	if s, ok := k.shape(); ok {
		return s.name
	}
	return "rule " + strconv.Itoa(int(k))
}

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{Adagrad, SGD, FTRL, DynamicWDAdagrad, Adadelta, Adam, AMSGrad, Momentum, RMSprop, RMSpropV2, GroupFTRL, BatchSoftmax, GroupAdagrad}
}

package loss

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Settings are what some losses are set by, as the losses' Takes say. A field that is 0 means its default; it is 0 for all other losses.
type Settings struct {
	// Gamma is by how much [Focal] looks away from what is predicted well, above 0. 0 means 2.
	Gamma float32 `json:"gamma,omitempty"`
	// SampleBias says for [CrossEntropy] that every positive is in the data as a negative too, since an example is given as one until its label is known: the loss is taken of
	// ln σ(z) in place of the logit z, which is the logit in such data, and predictions are as they are (Ktena et al., 2019, "Addressing Delayed Feedback for Continuous Training with
	// Neural Networks in CTR Prediction", the distribution of fake negatives, p/(1+p); bytedance/monolith: LogitCorrection with sample_bias).
	SampleBias bool `json:"sample_bias,omitempty"`
	// NegWeight multiplies the gradient of the worse row of each pair and not that of the better one, above 0: what is learnt is then no derivative of the value
	// (bytedance/monolith: neg_weight of inbatch_auc_loss). 0 means 1.
	NegWeight float32 `json:"neg_weight,omitempty"`
	// Top is how many places of a list count: the NDCG and the reciprocal rank are those at Top, and the weights of [PListMLE] are 0 from place Top on. 0: all.
	Top int `json:"top,omitempty"`
	// Alpha is how steep the steps between the places of [ApproxNDCG] are, above 0. 0 means 10, bytedance/monolith's.
	Alpha float32 `json:"alpha,omitempty"`
	// Pair is what a pair of [LambdaRank] and [LambdaMRR] costs before its weight, one of the Pair constants. Empty means [PairLogistic].
	Pair string `json:"pair,omitempty"`
	// ByDistance is the share of the weight of a pair of [LambdaRank] and [LambdaMRR] that goes by how far apart its places are, 0 to 1, in place of where they are (Wang et al., 2018, "The
	// LambdaLoss Framework", equation 17, NDCG-Loss2; bytedance/monolith: 1 - smooth_fraction).
	ByDistance float32 `json:"by_distance,omitempty"`
}

// What a pair of rows costs, by how much the better one is ahead, d.
const (
	// PairLogistic is -ln σ(d), that of [BPR].
	PairLogistic = "logistic"
	// PairHinge is max(0, 1-d), that of [PairwiseHinge].
	PairHinge = "hinge"
	// PairSoftZeroOne is σ(-d), that of [PairwiseSoftZeroOne].
	PairSoftZeroOne = "soft_zero_one"
)

// Pairs lists them.
func Pairs() []string { return []string{PairLogistic, PairHinge, PairSoftZeroOne} }

// The names of the settings.
const (
	settingGamma      = "gamma"
	settingSampleBias = "sample_bias"
	settingNegWeight  = "neg_weight"
	settingTop        = "top"
	settingAlpha      = "alpha"
	settingPair       = "pair"
	settingByDistance = "by_distance"
)

// setting is a field of [Settings] by its name.
type setting struct {
	name   string
	value  any
	set    bool
	number float64 // 1 where it is none
	want   string  // what number must be, where that is not above 0
}

func (s Settings) all() []setting {
	number := func(name string, v float32) setting {
		return setting{name: name, value: v, set: v != 0, number: float64(v)}
	}
	pair := setting{name: settingPair, value: s.Pair, set: s.Pair != "", number: 1}
	if pair.set && !slices.Contains(Pairs(), s.Pair) {
		pair.number, pair.want = 0, "one of "+strings.Join(Pairs(), ", ")
	}
	distance := number(settingByDistance, s.ByDistance)
	if !(s.ByDistance >= 0 && s.ByDistance <= 1) {
		distance.number, distance.want = 0, "a number from 0 to 1"
	}
	return []setting{
		number(settingGamma, s.Gamma),
		{name: settingSampleBias, value: s.SampleBias, set: s.SampleBias, number: 1},
		number(settingNegWeight, s.NegWeight),
		{name: settingTop, value: s.Top, set: s.Top != 0, number: float64(s.Top)},
		number(settingAlpha, s.Alpha),
		pair,
		distance,
	}
}

// Text lists the settings that are no defaults: " gamma 1.5 top 10".
func (s Settings) Text() string {
	var b strings.Builder
	for _, f := range s.all() {
		if f.set {
			fmt.Fprintf(&b, " %s %v", f.name, f.value)
		}
	}
	return b.String()
}

// WithDefaults returns a copy in which the numbers that a loss takes and that are 0 have their defaults.
func (s Settings) WithDefaults(lossName string) Settings {
	if lossName == Focal {
		s.Gamma = cmp.Or(s.Gamma, 2)
	}
	if lossName == ApproxNDCG {
		s.Alpha = cmp.Or(s.Alpha, 10)
	}
	return s
}

// SettingFault is a setting that a loss does not take, or that is nothing it can be.
type SettingFault struct {
	// Setting is its name, Value what it is.
	Setting string
	Value   any
	// Want is what it must be; empty: the loss does not take it.
	Want string
}

// FaultsOf lists what of s is not for the loss.
func (l *Loss) FaultsOf(s Settings) (faults []SettingFault) {
	for _, f := range s.all() {
		switch {
		case f.set && !slices.Contains(l.Takes, f.name):
			faults = append(faults, SettingFault{Setting: f.name, Value: f.value})
		case f.set && (!(f.number > 0) || math.IsInf(f.number, 0)):
			faults = append(faults, SettingFault{f.name, f.value, cmp.Or(f.want, "a number above 0")})
		}
	}
	return faults
}

// negWeight is NegWeight with its default.
func (s Settings) negWeight() float64 { return float64(cmp.Or(s.NegWeight, 1)) }

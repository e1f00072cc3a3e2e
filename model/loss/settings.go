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
}

// The names of the settings.
const (
	settingGamma      = "gamma"
	settingSampleBias = "sample_bias"
	settingNegWeight  = "neg_weight"
	settingTop        = "top"
	settingAlpha      = "alpha"
)

// setting is a field of [Settings] by its name.
type setting struct {
	name   string
	value  any
	set    bool
	number float64 // 1 where it is none
}

func (s Settings) all() []setting {
	number := func(name string, v float32) setting { return setting{name, v, v != 0, float64(v)} }
	return []setting{
		number(settingGamma, s.Gamma),
		{settingSampleBias, s.SampleBias, s.SampleBias, 1},
		number(settingNegWeight, s.NegWeight),
		{settingTop, s.Top, s.Top != 0, float64(s.Top)},
		number(settingAlpha, s.Alpha),
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

// SettingFault is a setting that a loss does not take, or that is no such number.
type SettingFault struct {
	// Setting is its name, Value what it is.
	Setting string
	Value   any
	// Foreign reports that the loss does not take it; otherwise it is not above 0.
	Foreign bool
}

// FaultsOf lists what of s is not for the loss.
func (l *Loss) FaultsOf(s Settings) (faults []SettingFault) {
	for _, f := range s.all() {
		switch {
		case f.set && !slices.Contains(l.Takes, f.name):
			faults = append(faults, SettingFault{f.name, f.value, true})
		case f.set && (!(f.number > 0) || math.IsInf(f.number, 0)):
			faults = append(faults, SettingFault{f.name, f.value, false})
		}
	}
	return faults
}

// negWeight is NegWeight with its default.
func (s Settings) negWeight() float64 { return float64(cmp.Or(s.NegWeight, 1)) }

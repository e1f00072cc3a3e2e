package metric

import "math"

// Calibration is the mean prediction over the mean label, both weighted: 1 is right, above 1 predicts too much (He et al.,
// 2014, section 3). ok is false, and the ratio NaN, when the labels do not add up to more than 0 or a prediction is NaN.
func Calibration(predictions, labels, weights []float32) (level float64, ok bool) {
	checkLengths(predictions, labels, weights)
	var predicted, happened float64
	for i, p := range predictions {
		w := weightOf(weights, i)
		predicted += w * float64(p)
		happened += w * float64(labels[i])
	}
	level = ratio(predicted, happened)
	return level, !math.IsNaN(level)
}

func calibrationMetric() Metric {
	return Metric{
		Name: "calibration", Doc: "the mean prediction over the mean label", Direction: One,
		Compute: func(_ *Workspace, s *Set) float64 {
			level, _ := Calibration(s.Predictions, s.Labels, s.Weights)
			return level
		},
		parts: &parts{
			columns: 2,
			terms:   func(to []float64, p, y float32) { to[0], to[1] = float64(p), float64(y) },
			of:      func(_ float64, sums []float64) float64 { return ratio(sums[0], sums[1]) },
		},
	}
}

// bins is the number of bins of the expected calibration error.
const bins = 15

// expectedCalibrationError is Σ (w_b/w)·|mean label of b - mean prediction of b| over the bins ((b-1)/15, b/15] of the
// predictions, 0 lying in the first (Guo et al., 2017, On Calibration of Modern Neural Networks, equation 3 with M = 15).
// A calibration of 1 may hide errors that cancel, this does not. NaN where a prediction is not in 0 to 1.
func expectedCalibrationError() Metric {
	return Metric{
		Name: "ece", Doc: "the mean distance of predictions from what happened, over 15 bins of predictions", Direction: Lower, Probabilities: true,
		Compute: func(_ *Workspace, s *Set) float64 {
			var b [bins]Bin
			if !s.widthBins(b[:]) {
				return math.NaN()
			}
			return distance(b[:])
		},
	}
}

// equalMassCalibrationError is as ece, with bins that have one fifteenth of the weight each (Nixon et al., 2019, Measuring
// Calibration in Deep Learning, section 3, adaptive): where most predictions are small, as of clicks, equal widths put nearly
// everything in one bin. Equal predictions are never parted, so bins may be fewer and uneven. NaN where a prediction is not in 0
// to 1.
func equalMassCalibrationError() Metric {
	return Metric{
		Name: "ece_mass", Doc: "the mean distance of predictions from what happened, over 15 bins of equal weight", Direction: Lower, Probabilities: true,
		Compute: func(w *Workspace, s *Set) float64 {
			var b [bins]Bin
			if !s.massBins(w, b[:]) {
				return math.NaN()
			}
			return distance(b[:])
		},
	}
}

// Bin is the examples with predictions from Low to High.
type Bin struct {
	Low, High float64
	// Weight is that of the examples, Predicted and Happened their weighted mean prediction and label; NaN without weight.
	Weight, Predicted, Happened float64

	gap float64 // sum of w(y - p)
}

// CalibrationBins cuts the examples into at most n bins of predictions, of equal width or of equal weight as of the metrics ece and
// ece_mass, and leaves out those without weight: what a reliability diagram shows (DeGroot and Fienberg, 1983; Guo et al.,
// 2017, section 2). nil where a prediction is not in 0 to 1.
func (s *Set) CalibrationBins(w *Workspace, n int, equalMass bool) []Bin {
	out := make([]Bin, n)
	if equalMass && !s.massBins(w, out) || !equalMass && !s.widthBins(out) {
		return nil
	}
	kept := out[:0]
	for _, b := range out {
		if b.Weight > 0 {
			b.Predicted, b.Happened = b.Predicted/b.Weight, b.Happened/b.Weight
			kept = append(kept, b)
		}
	}
	return kept
}

// add adds an example; Predicted and Happened are sums meanwhile.
func (b *Bin) add(p, y, w float64) {
	b.Weight += w
	b.Predicted += w * p
	b.Happened += w * y
	b.gap += w * (y - p)
}

// widthBins sums up the examples of each of len(to) zero bins of one width; false: a prediction is not in 0 to 1.
func (s *Set) widthBins(to []Bin) bool {
	s.check()
	n := float64(len(to))
	for b := range to {
		to[b].Low, to[b].High = float64(b)/n, float64(b+1)/n
	}
	for i, p := range s.Predictions {
		if !(p >= 0 && p <= 1) {
			return false
		}
		to[max(0, int(math.Ceil(float64(p)*n))-1)].add(float64(p), float64(s.Labels[i]), weightOf(s.Weights, i))
	}
	return true
}

// massBins is widthBins with bins of one weight: examples in the order of predictions go to bin b once those before them have
// b/len(to) of the weight.
func (s *Set) massBins(w *Workspace, to []Bin) bool {
	s.check()
	if !w.rank(s.Predictions) {
		return false
	}
	total := 0.0
	for i := range s.Predictions {
		total += weightOf(s.Weights, i)
	}
	below, bin := 0.0, 0
	for at := 0; at < len(w.items); {
		key := w.items[at] >> 32
		p := s.Predictions[uint32(w.items[at])]
		if !(p >= 0 && p <= 1) {
			return false
		}
		if total > 0 {
			bin = min(max(bin, int(below/total*float64(len(to)))), len(to)-1)
		}
		b := &to[bin]
		before := b.Weight
		for ; at < len(w.items) && w.items[at]>>32 == key; at++ {
			i := int(uint32(w.items[at]))
			b.add(float64(p), float64(s.Labels[i]), weightOf(s.Weights, i))
		}
		below += b.Weight - before
		if before == 0 {
			b.Low = float64(p)
		}
		if b.Weight > before {
			b.High = float64(p)
		}
	}
	return true
}

// distance is the expected calibration error of bins.
func distance(b []Bin) float64 {
	var sum, total float64
	for i := range b {
		sum += math.Abs(b[i].gap)
		total += b[i].Weight
	}
	return ratio(sum, total)
}

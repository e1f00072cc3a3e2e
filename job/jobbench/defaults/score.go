package main

import (
	"math"

	"github.com/monolith-go/monolith/model/metric"
)

// score is how good predictions are.
type score struct{ auc, logLoss float64 }

// scoreOf measures probabilities.
func scoreOf(probabilities, labels []float32) score {
	auc, _ := metric.AUC(probabilities, labels, nil) // NaN where it is not defined
	loss, _ := metric.LogLoss(probabilities, labels, nil)
	return score{auc, loss}
}

// window is how many rows the first and the last ones are.
const window = 65_536

// predictions are those of a pass, each made before its row was learnt, in the order of training.
type predictions struct{ probabilities, labels []float32 }

func (p *predictions) add(probabilities, labels []float32) {
	p.probabilities, p.labels = append(p.probabilities, probabilities...), append(p.labels, labels...)
}

// scores measures the first rows, the last ones and all.
func (p *predictions) scores() (first, last, life score) {
	n := min(window, len(p.labels))
	at := len(p.labels) - n
	return scoreOf(p.probabilities[:n], p.labels[:n]), scoreOf(p.probabilities[at:], p.labels[at:]), scoreOf(p.probabilities, p.labels)
}

// labels are those of rows, as numbers.
func labels(rows []row) []float32 {
	out := make([]float32, len(rows))
	for i, r := range rows {
		out[i] = float32(bit(r.positive))
	}
	return out
}

// constant is how good the training rows' base rate is for the validation.
func constant(d *data) score {
	sum := 0
	for _, r := range d.train {
		sum += bit(r.positive)
	}
	rate := float32(sum) / float32(len(d.train))
	predicted := make([]float32, len(d.valid))
	for i := range predicted {
		predicted[i] = rate
	}
	return scoreOf(predicted, labels(d.valid))
}

// best is how good the true probabilities are for the validation; NaN: nobody knows them.
func best(d *data) score {
	if !d.truth {
		return score{math.NaN(), math.NaN()}
	}
	predicted := make([]float32, len(d.valid))
	for i, r := range d.valid {
		predicted[i] = float32(r.p)
	}
	return scoreOf(predicted, labels(d.valid))
}

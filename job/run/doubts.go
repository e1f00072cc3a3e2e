package run

import (
	"fmt"
	"log/slog"
	"math"
	"slices"

	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/stored"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/metric"
)

const (
	// doubtsFrom is how many examples figures are doubted by at least.
	doubtsFrom = 50
	// qualityFrom is how many examples say something of a model: those of its first batches were predicted by one that had learnt nothing.
	qualityFrom = 1000
	// tooGood is an AUC that hardly any data allows.
	tooGood = 0.9995
	// worseBy is how much more than that of a constant the log loss of a useful model is at most: a share, and in nats.
	worseBy, worseByNats = 1.1, 0.01
	// doubtAfter is how many examples of a run are trained on when its last ones are looked at, since a stream has no end.
	doubtAfter = 100_000
)

// figures says where the examples that a head predicted come from.
type figures bool

const (
	// learnt are figures of examples that the model trains on, heldOut of those it is evaluated on.
	learnt, heldOut figures = false, true
)

// oneLabel says what it means that all labels are the same.
func (f figures) oneLabel(l *loss.Loss) string {
	switch {
	case f == learnt:
		return "there is nothing to learn"
	case slices.Contains(l.Metrics, "auc"):
		return "so there is no AUC, and the other metrics say little"
	}
	return "so the metrics say little: a constant would do as well"
}

// doubts returns warnings about a head's figures. It looks for weights of 0, labels that are all
// the same, an AUC too good to be true or no better than guessing, and probabilities that are
// worse than a constant.
func doubts(cfg *spec.Config, h *spec.Head, set *metric.Set, of figures) []string {
	n := set.Len()
	l, ok := cfg.FindLoss(h.Loss)
	if n < doubtsFrom || !ok || l.InBatch { // it distinguishes the items of a batch, and labels weigh them
		return nil
	}
	head := ""
	if h.Name != "" {
		head = " of " + h.Name
	}
	if set.Weights != nil && slices.Max(set.Weights) <= 0 {
		return []string{fmt.Sprintf("the weights%s of all %d examples are 0: nothing is learnt or measured of them; look at the weight's column (parse.weight)", head, n)}
	}
	lo, hi := labelRange(set)
	if lo == hi {
		if h.SampleBias {
			return nil // those of positives are on their way
		}
		return []string{fmt.Sprintf("the labels%s of all %d examples are %g: %s; look at the label's column, positive, weights and the order of the data", head, n, wiring.Short(float64(lo)), of.oneLabel(l))}
	}
	if n < qualityFrom || !slices.Contains(l.Metrics, "auc") {
		return nil
	}
	var out []string
	var w metric.Workspace
	guess := "" // said where nothing else is, whose advice goes for it too
	auc, ok := w.AUC(set.Predictions, set.Labels, set.Weights)
	switch {
	case ok && auc >= tooGood:
		out = append(out, fmt.Sprintf("an AUC%s of %.4f is hardly true: does a feature hold what is known afterwards only, or, of held-out examples, were they trained on too?", head, auc))
	case ok && auc <= guessed(set):
		guess = fmt.Sprintf("an AUC%s of %.4f is no better than that of guessing may be: nothing was learnt that distinguishes these labels; more steps, features or another model may help", head, auc)
	}
	if h.Loss != loss.CrossEntropy || h.SampleRate < 1 || h.SampleBias {
		// Its probabilities are not those of these labels.
	} else if got, ok := metric.LogLoss(set.Predictions, set.Labels, set.Weights); ok {
		mean, constant := meanLabel(set)
		if got > worseBy*constant+worseByNats {
			out = append(out, fmt.Sprintf("the log loss%s, %.4f, is worse than %.4f, that of always predicting %g, the mean label: lower learning rates, give dense features the size of 1 (standardise), take more steps (more examples, smaller batches) or, where it is lower in training, fewer epochs", head, got, constant, wiring.Short(mean)))
		}
	}
	if len(out) == 0 && guess != "" {
		return []string{guess}
	}
	return out
}

// fewGroups is the share of the examples below which a metric of groups is said to be of few.
const fewGroups = 0.1

// groupDoubts says where metrics of groups are computed of nothing, or of few of the examples. set is grouped.
func groupDoubts(cfg *spec.Config, h *spec.Head, set *metric.Set) (out []string) {
	if set.Groups == nil || set.Len() < doubtsFrom {
		return nil
	}
	of := ""
	if h.Name != "" {
		of = " of " + h.Name
	}
	for _, m := range metricsOf(cfg, h) {
		c, ok := set.Counted(&m)
		switch {
		case !ok:
		case set.Single():
			return []string{fmt.Sprintf("each value of eval.group (%s) has one example%s: %s compares the examples of a group, and there is nothing to compare; group by a column whose values repeat, such as the user or the request", cfg.Eval.Group, of, m.Name)}
		case float64(c.Rows) < fewGroups*float64(c.OfRows):
			out = append(out, fmt.Sprintf("%s%s is computed of %d of %d examples, in %d of %d groups (eval.group: %s): the other groups have labels of one kind, or no positive", m.Name, of, c.Rows, c.OfRows, c.Groups, c.OfGroups, cfg.Eval.Group))
		}
	}
	return out
}

// guessed is the AUC that predictions which say nothing of the labels are below with 97 in a hundred: two standard errors above one half (Mann and Whitney, 1947). An example of weight 0
// is none; of other weights that differ it is too low a bound, which doubts less.
func guessed(set *metric.Set) float64 {
	ones, zeros := 0.0, 0.0
	for i, y := range set.Labels {
		switch {
		case set.Weights != nil && set.Weights[i] == 0:
		case y > 0.5:
			ones++
		default:
			zeros++
		}
	}
	return 0.5 + 2*math.Sqrt((ones+zeros+1)/(12*ones*zeros))
}

// fellBack says that the model was better after an earlier epoch than it is, by the metric that a job's evaluations go by, and what to do; "" where it was not, where figures of
// four places do not show it, and under early_stop, which says so itself and has the best snapshot read. kept reports whether the snapshot of that epoch is marked.
func fellBack(cfg *spec.Config, s *stored.Trainer, kept bool) string {
	score := cfg.Watched()
	now, measured := s.Metrics[score]
	if cfg.Train.EarlyStop != nil || !measured || s.Top == nil || s.TopOf != score || s.TopEpoch >= s.Epochs {
		return ""
	}
	best, last := fmt.Sprintf("%.4f", *s.Top), fmt.Sprintf("%.4f", now)
	if best == last {
		return ""
	}
	text := fmt.Sprintf("%s was best after epoch %d, %s, and is %s after epoch %d", score, s.TopEpoch, best, last, s.Epochs)
	if kept {
		text += "; that snapshot is kept, for --snapshot best"
	}
	return text + "; train.early_stop ends training there, and eval and predict take the best then"
}

// labelRange returns the smallest and the largest label of the examples that have a weight.
func labelRange(set *metric.Set) (lo, hi float32) {
	lo, hi = slices.Max(set.Labels), slices.Min(set.Labels)
	for i, y := range set.Labels {
		if set.Weights == nil || set.Weights[i] > 0 {
			lo, hi = min(lo, y), max(hi, y)
		}
	}
	return lo, hi
}

// meanLabel returns the mean of the labels, and the log loss of predicting it for every example: the entropy.
func meanLabel(set *metric.Set) (mean, entropy float64) {
	sum, total := 0.0, 0.0
	for i, y := range set.Labels {
		w := 1.0
		if set.Weights != nil {
			w = float64(set.Weights[i])
		}
		sum, total = sum+w*float64(y), total+w
	}
	mean = sum / total
	if mean <= 0 || mean >= 1 {
		return mean, 0
	}
	return mean, -mean*math.Log(mean) - (1-mean)*math.Log1p(-mean)
}

// doubtWatch looks once at what a run has predicted of its last examples, as the end of one does.
type doubtWatch struct {
	cfg    *spec.Config
	log    *slog.Logger
	seen   int64
	judged bool
}

// add counts examples, of which the glances have the last.
func (d *doubtWatch) add(rows int64, glances []glance) {
	if d.seen += rows; d.judged || d.seen < doubtAfter {
		return
	}
	d.judged = true
	for i, h := range d.cfg.AllHeads() {
		for _, text := range doubts(d.cfg, &h, glances[i].window.Set(), learnt) {
			d.log.Warn("figures to doubt", "doubt", text, "examples", d.seen)
		}
	}
}

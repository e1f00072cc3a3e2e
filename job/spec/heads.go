package spec

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/metric"
)

// Head is one thing that the model predicts, with what it learns from.
type Head struct {
	// Name distinguishes the heads: letters, digits and underscores. Metrics of it are called NAME.METRIC.
	Name string `yaml:"name" required:"true"`
	// Label is what is predicted. Default: the column of the head's name. Which labels are good ones follows from the loss;
	// others are bad rows.
	Label Label `yaml:"label"`
	// Loss is what is learnt by. cross_entropy takes labels from 0 to 1 and predicts a probability; so does focal, for which examples that are predicted well count little, so that its
	// probabilities order examples and are not their frequencies; squared, absolute and huber
	// (squared within 1 of the label, absolute beyond) take any number and predict one; poisson takes counts and times from 0
	// up and predicts their mean; batch_softmax tells an item from the others of the batch, for two towers (docs/heads.md); softmax takes the number of one of
	// several classes, from 0 up, and predicts the probability of each. The others compare the examples of a batch, or of a group in it, and predict scores of which the order alone
	// means something: bpr, pairwise_hinge and pairwise_soft_zero_one learn, of two with different labels, which has the higher one; lambda_rank (labels from 0 to
	// 30) and lambda_mrr (from 0 up) learn that most where it matters to the NDCG, or the reciprocal rank; approx_ndcg (0 to 30) is a smooth NDCG; list_softmax (from 0 up) learns which is
	// chosen, list_mle the whole order and p_list_mle most of all its first places. docs/heads.md.
	Loss string `yaml:"loss" default:"cross_entropy" enum:"@losses"`
	// Classes is how many classes softmax tells apart, from 2 up; labels are their numbers, 0 to classes-1.
	Classes int `yaml:"classes" default:"0" min:"0" max:"1024"`
	// Group is the column of the user, or the request, within which a loss that compares examples does so: rows of a batch with equal values are
	// a list; those without a value are one too. Records of one group should follow each other, since a batch sees only its own. Default:
	// the whole batch is one list.
	Group string `yaml:"group"`
	// Weight multiplies the head's loss where the losses of the heads are added up.
	Weight float64 `yaml:"weight" default:"1" above:"0"`
	// Mask chooses the rows that have this label. Absent: all, and one without it is a bad row. {}: those that have it.
	Mask *Mask `yaml:"mask"`
	// SampleRate is the share of the negative examples that the data holds; predictions are then those of all examples. For
	// cross_entropy.
	SampleRate float64 `yaml:"sample_rate" default:"1" above:"0" max:"1"`
	// LogitClip is how near to 0 and 1 a probability may come in the loss: an example that is predicted beyond teaches nothing. Predictions stay as they are. 0: there is no bound. For
	// cross_entropy and focal.
	LogitClip float64 `yaml:"logit_clip" default:"0" min:"0" max:"0.499"`
	// Gamma is by how much focal looks away from examples that are predicted well: a positive of probability p counts (1-p)^gamma.
	Gamma float64 `yaml:"gamma" default:"2" above:"0" max:"20"`
	// SampleBias says that every positive example is in the data as a negative too, because an example is given as one until its label is known; predictions are those of each
	// example once. For cross_entropy.
	SampleBias bool `yaml:"sample_bias" default:"false"`
	// NegWeight multiplies what the worse example of each pair learns, and not what the better one does. For bpr, pairwise_hinge and pairwise_soft_zero_one.
	NegWeight float64 `yaml:"neg_weight" default:"1" above:"0" max:"1000"`
	// Top is how many places of a list count; 0: all. For lambda_rank, lambda_mrr and p_list_mle.
	Top int `yaml:"top" default:"0" min:"0" max:"1000000"`
	// Alpha is how steep the steps between places of approx_ndcg are: the larger, the nearer to the NDCG, and the fewer pairs teach something.
	Alpha float64 `yaml:"alpha" default:"10" above:"0" max:"1000"`
	// Pair is what a pair of rows costs before lambda_rank and lambda_mrr weigh it, as in bpr, pairwise_hinge and pairwise_soft_zero_one.
	Pair string `yaml:"pair" default:"logistic" enum:"logistic|hinge|soft_zero_one"`
	// ByDistance is the share of that weight that goes by how far apart the two places are, in place of where they are. For lambda_rank and lambda_mrr.
	ByDistance float64 `yaml:"by_distance" default:"0" min:"0" max:"1"`
	// Metrics are what is computed, as of eval.metrics. Default: what suits the loss: auc, log_loss and calibration of
	// probabilities, of values mae, rmse and, for squared, r2, of scores xauc, which for labels of 0 and 1 is the AUC, of classes accuracy and log_loss.
	Metrics []string `yaml:"metrics" enum:"@metrics"`
}

// Mask describes which rows have a label. Short form: the column alone. Rows without the label never have it.
type Mask struct {
	// Column holds a number, or true and false: where it is 0 or missing a row has no label, whatever the label's column
	// holds. It may hold text that Positive compares. Empty: only rows without a label have none.
	Column string `yaml:"column" short:"true" default:""`
	// Positive is what the number or text must be for a row to have a label, as in ">= 1" or "== yes". Empty: not 0.
	Positive string `yaml:"positive" default:""`
}

// FindLoss returns the loss of that name, of those that the job may name.
func (c *Config) FindLoss(name string) (*loss.Loss, bool) {
	i := slices.IndexFunc(c.set.Losses, func(l loss.Loss) bool { return l.Name == name })
	if i < 0 {
		return nil, false
	}
	return &c.set.Losses[i], true
}

// lossNames are the names of the losses of which something is true.
func (c *Config) lossNames(of func(l loss.Loss) bool) (names []string) {
	for _, l := range c.set.Losses {
		if of(l) {
			names = append(names, l.Name)
		}
	}
	return names
}

// Settings are those of the head's loss; what has its default is 0.
func (h *Head) Settings() loss.Settings {
	own := func(v, usual float64) float32 {
		if v == usual {
			return 0
		}
		return float32(v)
	}
	pair := h.Pair
	if pair == loss.PairLogistic {
		pair = ""
	}
	return loss.Settings{
		Gamma: own(h.Gamma, 2), SampleBias: h.SampleBias, NegWeight: own(h.NegWeight, 1), Top: h.Top, Alpha: own(h.Alpha, 10), Pair: pair, ByDistance: float32(h.ByDistance),
	}
}

// FindMetric returns the metric of that name, of those that the job may name.
func (c *Config) FindMetric(name string) (metric.Metric, bool) {
	i := slices.IndexFunc(c.set.Metrics, func(m metric.Metric) bool { return m.Name == name })
	if i < 0 {
		return metric.Metric{}, false
	}
	return c.set.Metrics[i], true
}

// AllHeads are the heads of the job; of a job without heads the one that parse.label and eval.metrics describe, which has no
// name.
func (c *Config) AllHeads() []Head {
	if len(c.Heads) > 0 {
		return c.Heads
	}
	return []Head{{Label: c.Parse.Label, Loss: loss.CrossEntropy, Weight: 1, SampleRate: 1, Metrics: c.Eval.Metrics}}
}

// Score is what results call a metric of the head: its name, after that of the head.
func (h *Head) Score(metric string) string {
	if h.Name == "" {
		return metric
	}
	return h.Name + "." + metric
}

// Scores lists the names of all metrics that an evaluation computes, as results call them.
func (c *Config) Scores() (names []string) {
	for _, h := range c.AllHeads() {
		for _, m := range h.Metrics {
			names = append(names, h.Score(m))
		}
	}
	return names
}

// Watched is the score by which the best of a job's evaluations is known: that of train.early_stop, and without one what it would be by default;
// empty where evaluations do not compute it.
func (c *Config) Watched() string {
	if c.Train.EarlyStop != nil {
		return c.Train.EarlyStop.Metric
	}
	score := c.decides()
	if _, ok := c.Measured(score); !ok {
		if scores := c.Scores(); len(scores) > 0 {
			return scores[0]
		}
		return ""
	}
	return score
}

// Measured finds the metric that a name of a result means: "auc", or "price.rmse" of a head.
func (c *Config) Measured(score string) (metric.Metric, bool) {
	for _, h := range c.AllHeads() {
		for _, m := range h.Metrics {
			if h.Score(m) == score {
				return c.FindMetric(m)
			}
		}
	}
	return metric.Metric{}, false
}

// Keys are the columns that metrics group and slice by.
func (e *Eval) Keys() (columns []string) {
	if e.Group != "" {
		columns = append(columns, e.Group)
	}
	for _, s := range e.Slices {
		for _, column := range s.Columns() {
			if !slices.Contains(columns, column) {
				columns = append(columns, column)
			}
		}
	}
	return columns
}

// Keys are the columns that are passed on as text: those of eval, and the groups of losses.
func (c *Config) Keys() []string {
	columns := c.Eval.Keys()
	for _, h := range c.Heads {
		if h.Group != "" && !slices.Contains(columns, h.Group) {
			columns = append(columns, h.Group)
		}
	}
	return columns
}

// Columns are the one or two columns whose values the slices are of.
func (s *Slices) Columns() []string {
	if s.With == "" {
		return []string{s.Column}
	}
	return []string{s.Column, s.With}
}

// ReadColumns lists the columns that features, joins, labels and weights read, sorted.
func (c *Config) ReadColumns() (known []string) {
	for _, f := range c.Parse.Features {
		known = append(known, f.Column)
	}
	for _, j := range c.Parse.Joins {
		known = append(known, j.Key)
		for _, column := range j.Columns {
			known = append(known, j.Prefix+column)
		}
	}
	for _, h := range c.AllHeads() {
		known = append(known, h.Label.Column)
		if h.Mask != nil {
			known = append(known, h.Mask.Column)
		}
	}
	if c.Parse.Weight != nil {
		known = append(known, c.Parse.Weight.Column)
	}
	slices.Sort(known)
	return slices.DeleteFunc(slices.Compact(known), func(column string) bool { return column == "" })
}

// Absent is what the first records have in place of a column that they lack: the nearest name, or
// all names. Both are empty where it is not known.
type Absent struct {
	Near  string
	Names []string
}

// UnknownSlices is the error for columns of eval.slices that no example had a value of and that
// nothing else in the job reads; nil: there is none. blank has these columns, each with the names
// in the first records, where they are known. Errors: [*ConfigError].
func (c *Config) UnknownSlices(blank map[string]Absent) error {
	read := c.ReadColumns()
	var faults []Fault
	for i, s := range c.Eval.Slices {
		for k, column := range s.Columns() {
			seen, found := blank[column]
			if !found || slices.Contains(read, column) {
				continue
			}
			path := fmt.Sprintf("eval.slices[%d].%s", i, []string{"column", "with"}[k])
			f := Fault{Where: c.places.At(path), Path: path, Message: fmt.Sprintf("no example has a value of column %q", column)}
			f.Suggestion = cmp.Or(seen.Near, nearest.Name(column, read))
			if len(seen.Names) > 0 {
				f.Message += "; the records have " + Listed(seen.Names)
				f.Suggestion = ""
			} else if f.Suggestion == "" {
				f.Message += "; any column of the records can be named, also one that the job does not read"
			}
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return &ConfigError{Faults: faults}
	}
	return nil
}

// Listed writes the first names of a list for a message.
func Listed(names []string) string {
	const most = 20
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (h *Head) derive(c *Config) {
	if h.Label.Name == "" && h.Label.Column == "" {
		h.Label.Name = h.Name
	}
	h.Label.derive()
	if len(h.Metrics) > 0 {
		return
	}
	if l, ok := c.FindLoss(h.Loss); ok {
		h.Metrics = slices.Clone(l.Metrics)
	}
}

// derive takes name and column from each other.
func (l *Label) derive() {
	if l.Name == "" {
		l.Name = l.Column
	} else if l.Column == "" {
		l.Column = l.Name
	}
}

var headName = regexp.MustCompile(`^[A-Za-z0-9_]{1,64}$`)

// heads checks the heads, and with them what eval measures.
func (v *validator) heads(known []string) {
	c := v.c
	for i := range c.Heads {
		h, path := &c.Heads[i], fmt.Sprintf("heads[%d]", i)
		if h.Name != "" && !headName.MatchString(h.Name) {
			v.fault(path+".name", "is %q; names are letters, digits and underscores, 64 at most", h.Name)
		}
		if j := slices.IndexFunc(c.Heads, func(o Head) bool { return o.Name == h.Name }); j < i && h.Name != "" {
			v.fault(path+".name", "is %q, which is already the name of heads[%d]", h.Name, j)
		}
		v.label(&h.Label, path+".label", known)
		l, ok := c.FindLoss(h.Loss)
		if !ok {
			continue // the name has been refused
		}
		if h.SampleRate != 1 && !l.Sampled {
			v.fault(path+".sample_rate", "is %v, but %s does not support sampled negatives", h.SampleRate, l.Name)
		}
		if l.Classes && h.Classes < 2 {
			v.fault(path+".classes", "is %d, and %s tells two or more apart; say how many labels there are: those of n classes are 0 to n-1", h.Classes, l.Name)
		} else if !l.Classes && h.Classes != 0 {
			v.fault(path+".classes", "is %d, but %s is not of classes; use %s", h.Classes, l.Name, loss.SoftmaxCrossEntropy)
		}
		if h.LogitClip != 0 && !l.Clipped {
			v.fault(path+".logit_clip", "is %v, but %s has no logit; use %s or %s", h.LogitClip, l.Name, loss.CrossEntropy, loss.Focal)
		}
		for _, f := range l.FaultsOf(h.Settings()) {
			if f.Want != "" {
				continue // a bound of the key, which is said
			}
			v.fault(path+"."+f.Setting, "is %v, but %s has none; use %s", f.Value, l.Name, strings.Join(c.lossNames(func(l loss.Loss) bool { return slices.Contains(l.Takes, f.Setting) }), ", "))
		}
		v.column(h.Group, path+".group", known)
		if h.Group != "" && !l.Ranks {
			v.fault(path+".group", "is %q, but %s does not compare examples; use %s", h.Group, l.Name, strings.Join(c.lossNames(func(l loss.Loss) bool { return l.Ranks }), ", "))
		}
		if m := h.Mask; m != nil {
			v.column(m.Column, path+".mask.column", known)
			v.positive(m.Positive, path+".mask.positive")
			if m.Positive != "" && m.Column == "" {
				v.fault(path+".mask.positive", "is %q, but there is no column", m.Positive)
			}
		}
		v.metrics(h.Metrics, path+".metrics", l)
	}
	if len(c.Heads) == 0 {
		if l, ok := c.FindLoss(loss.CrossEntropy); ok {
			v.metrics(c.Eval.Metrics, "eval.metrics", l)
		}
	} else {
		if c.Parse.Label != (Label{}) {
			v.fault("parse.label", "is the label of a job without heads; each of heads has its own")
		}
		if c.places.Set("eval.metrics") {
			v.fault("eval.metrics", "are those of a job without heads; each of heads names its own")
		}
	}
	v.column(c.Eval.Group, "eval.group", known)
	if h := c.Eval.Holdout; h != nil {
		v.column(h.By, "eval.holdout.by", known)
	}
	for i, s := range c.Eval.Slices {
		path := fmt.Sprintf("eval.slices[%d]", i)
		v.column(s.Column, path+".column", known)
		v.column(s.With, path+".with", known)
		if s.With != "" && s.With == s.Column {
			v.fault(path+".with", "is %q, which is the column itself; name another, or none", s.With)
		}
		same := func(o Slices) bool { return slices.Equal(o.Columns(), s.Columns()) }
		if j := slices.IndexFunc(c.Eval.Slices, same); j < i {
			v.fault(path+".column", "is %q, which slice %d is of already", strings.Join(s.Columns(), ","), j)
		}
	}
}

// metrics checks that metrics suit the predictions of a loss.
func (v *validator) metrics(names []string, path string, l *loss.Loss) {
	probabilities := l.Link == loss.Sigmoid
	for i, name := range names {
		m, ok := v.c.FindMetric(name)
		if !ok {
			continue // the name has been refused
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		if slices.Index(names, name) < i {
			v.fault(at, "is %s, which is there already", name)
		}
		if l.Classes && !m.Classes {
			v.fault(at, "is %s, which is not of several classes, as %s predicts; take of accuracy, log_loss, auc", name, l.Name)
			continue
		}
		if m.Probabilities && !probabilities && !l.Classes {
			v.fault(at, "is %s, which is of probabilities, and %s predicts none; take of mse, rmse, mae, r2, xauc, calibration", name, l.Name)
		}
		if m.Grouped && v.c.Eval.Group == "" {
			v.fault(at, "is %s, which needs eval.group: the column of the user, or the request", name)
		}
	}
}

// label checks the label of a head.
func (v *validator) label(l *Label, path string, known []string) {
	v.positive(l.Positive, path+".positive")
	if p := &v.c.Parse; p.Format == "libfm" && p.LabelColumn(l, p.Format) == "" {
		if l.Column == l.Name || l.Column == "label" {
			return // the label that each row begins with
		}
		known = append(slices.Clone(known), "label")
	}
	v.column(l.Column, nameOrColumn(path, l.Name, l.Column), known)
}

func (v *validator) positive(text, path string) {
	if _, _, _, ok := (Label{Positive: text}).Op(); text != "" && !ok {
		v.fault(path, `is %q, not an operator and a number such as ">= 4", nor a text that is compared, as in "== yes"`, text)
	}
}

// nameOrColumn is the key that a column's name is in.
func nameOrColumn(section, name, column string) string {
	if column == name {
		return section + ".name"
	}
	return section + ".column"
}

package run

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model/loss"
	"github.com/monolith-go/monolith/model/metric"
	"github.com/monolith-go/monolith/transforms/parse"
)

// What is drawn of a head: how many points and bins at most.
const (
	rocPoints       = 400
	calibrationBins = 15
	histogramBins   = 50
)

// measuring is what an evaluation makes of the predictions of one model, or of two on the same examples.
type measuring struct {
	cfg        *spec.Config
	replicates int
	mine       *metric.Collection
	other      *metric.Collection // nil: there is none
	otherHead  []int              // of each head of cfg: that of the other model, or below 0
	work       metric.Workspace
}

// groupKey is the key of the job's groups, or below 0.
func groupKey(cfg *spec.Config) int {
	if cfg.Eval.Group == "" {
		return -1
	}
	return 0 // the first of Eval.Keys
}

// compare adds the other model. Both must have scored the same examples, with the same labels.
func (m *measuring) compare(cfg *spec.Config, other *metric.Collection) error {
	if !m.mine.SameRows(other) {
		return fault.Config("job: the models cannot be compared: of %d and %d examples of eval.source not all are the same; see what each leaves out (bad rows)", m.mine.Rows(), other.Rows())
	}
	m.other = other
	mine, others := m.cfg.AllHeads(), cfg.AllHeads()
	common := 0
	for i := range mine {
		at := slices.IndexFunc(others, func(h spec.Head) bool { return h.Name == mine[i].Name })
		if len(mine) == 1 && len(others) == 1 {
			at = 0
		}
		m.otherHead = append(m.otherHead, at)
		if at < 0 {
			continue
		}
		common++
		a, b := m.mine.Set(i, -1), other.Set(at, -1)
		if !slices.Equal(a.IDs, b.IDs) || !slices.Equal(a.Labels, b.Labels) {
			return fault.Config("job: the models cannot be compared: the labels%s are not the same", headName(" of head ", mine[i].Name))
		}
	}
	if common == 0 {
		return fault.Config("job: the models cannot be compared: they have no head in common")
	}
	return nil
}

func headName(before, name string) string {
	if name == "" {
		return ""
	}
	return before + name
}

// drawn are the replicates of metrics of one model.
type drawn [][]float64

// all measures every example.
func (m *measuring) all(ctx context.Context) (out result.Measured, replicates []drawn, err error) {
	out.Examples = int64(m.mine.Rows())
	for i, h := range m.cfg.AllHeads() {
		mine := m.mine.Set(i, groupKey(m.cfg))
		var other *metric.Set
		if at := m.otherOf(i); at >= 0 {
			set := m.other.Set(at, groupKey(m.cfg))
			other = &set
		}
		found, err := m.measure(ctx, &out, h.Score, metricsOf(m.cfg, &h), &mine, other)
		if err != nil {
			return out, nil, err
		}
		replicates = append(replicates, found)
		out.Doubts = append(out.Doubts, doubts(m.cfg, &h, &mine, heldOut)...)
		out.Doubts = append(out.Doubts, groupDoubts(m.cfg, &h, &mine)...)
	}
	return out, replicates, nil
}

func (m *measuring) otherOf(head int) int {
	if m.other == nil {
		return -1
	}
	return m.otherHead[head]
}

// measure adds the metrics of a set, and with another model's those and the differences.
func (m *measuring) measure(ctx context.Context, to *result.Measured, name func(string) string, metrics []metric.Metric, mine, other *metric.Set) (drawn, error) {
	if to.Metrics == nil {
		to.Metrics = result.Scores{}
	}
	for _, c := range metrics {
		of := name(c.Name)
		to.Metrics[of] = c.Measure(&m.work, mine)
		if n, ok := mine.Counted(&c); ok {
			if to.Groups == nil {
				to.Groups = map[string]result.GroupCount{}
			}
			to.Groups[of] = result.GroupCount{Groups: n.Groups, OfGroups: n.OfGroups, Examples: n.Rows, OfExamples: n.OfRows}
		}
	}
	var replicates, others drawn
	var err error
	if m.replicates > 0 {
		if replicates, err = mine.Bootstrap(ctx, metrics, m.replicates, m.seed(), runtime.GOMAXPROCS(0)); err != nil {
			return nil, err
		}
		if to.Intervals == nil {
			to.Intervals = map[string]result.Interval{}
		}
		for i, c := range metrics {
			if few := mine.Few(&c); few || same(replicates[i]) {
				// Replicates of a handful say nothing, nor do those that are all the same.
				forget(replicates[i])
				if few {
					to.Few = append(to.Few, name(c.Name))
				}
			}
			low, high, _ := metric.Interval(replicates[i])
			to.Intervals[name(c.Name)] = result.Interval{Low: low, High: high}
		}
	}
	if other == nil {
		return replicates, nil
	}
	if to.Other == nil {
		to.Other, to.Differences = result.Scores{}, map[string]result.Difference{}
	}
	if m.replicates > 0 {
		if others, err = other.Bootstrap(ctx, metrics, m.replicates, m.seed(), runtime.GOMAXPROCS(0)); err != nil {
			return nil, err
		}
	}
	for i, c := range metrics {
		of := name(c.Name)
		to.Other[of] = c.Measure(&m.work, other)
		to.Differences[of] = difference(to.Metrics[of], to.Other[of], at(replicates, i), at(others, i))
	}
	return replicates, nil
}

// same reports whether all replicates that are defined are the same: one in order is in order however it is drawn.
func same(replicates []float64) bool {
	known := slices.DeleteFunc(slices.Clone(replicates), math.IsNaN)
	return len(known) > 0 && slices.Min(known) == slices.Max(known)
}

// forget makes replicates unknown.
func forget(replicates []float64) {
	for r := range replicates {
		replicates[r] = math.NaN()
	}
}

// seed is that of the job, apart from what else it seeds.
func (m *measuring) seed() uint64 { return m.cfg.Seed ^ 0xb007 }

func at(replicates drawn, i int) []float64 {
	if replicates == nil {
		return nil
	}
	return replicates[i]
}

// difference is a less b, with what their replicates say of it.
func difference(a, b float64, ofA, ofB []float64) result.Difference {
	pairs := make([]float64, len(ofA))
	for r := range pairs {
		pairs[r] = ofA[r] - ofB[r]
	}
	low, high, deviation := metric.Interval(pairs)
	d := result.Difference{Value: a - b, Interval: result.Interval{Low: low, High: high}}
	if d.Errors = d.Value / deviation; d.Value == 0 && deviation == 0 {
		d.Errors = 0 // the two are the same in every replicate
	}
	return d
}

// slices measures each head for each value of the columns of eval.slices. all has the replicates of each head over all examples.
func (m *measuring) slices(ctx context.Context, whole *result.Measured, all []drawn) (out []result.SliceScores, err error) {
	if m.mine.Rows() == 0 {
		return nil, nil
	}
	keys := m.cfg.Eval.Keys()
	for i, h := range m.cfg.AllHeads() {
		metrics := slices.DeleteFunc(metricsOf(m.cfg, &h), func(c metric.Metric) bool { return c.Grouped })
		for _, of := range m.cfg.Eval.Slices {
			var at []int
			for _, column := range of.Columns() {
				at = append(at, slices.Index(keys, column))
			}
			found := m.mine.Slices(i, at, groupKey(m.cfg), of.Max)
			var others []metric.Slice
			if other := m.otherOf(i); other >= 0 {
				others = m.other.Slices(other, at, groupKey(m.cfg), of.Max)
			}
			for k := range found {
				s := result.SliceScores{Head: h.Name, Column: of.Column, Value: found[k].Values[0], With: of.With, Others: found[k].Rest}
				if of.With != "" {
					s.WithValue = found[k].Values[1]
				}
				s.Examples = int64(found[k].Set.Len())
				var other *metric.Set
				if others != nil {
					other = &others[k].Set
				}
				replicates, err := m.measure(ctx, &s.Measured, func(metric string) string { return metric }, metrics, &found[k].Set, other)
				if err != nil {
					return nil, err
				}
				if m.replicates > 0 {
					s.FromAll = map[string]result.Difference{}
					for j, c := range metrics {
						s.FromAll[c.Name] = difference(s.Metrics[c.Name], whole.Metrics[h.Score(c.Name)], replicates[j], m.named(all[i], &h, c.Name))
					}
				}
				out = append(out, s)
			}
		}
	}
	return out, nil
}

// named are the replicates of a metric of a head.
func (m *measuring) named(all drawn, h *spec.Head, name string) []float64 {
	return all[slices.IndexFunc(metricsOf(m.cfg, h), func(c metric.Metric) bool { return c.Name == name })]
}

// absent is what records have in place of a column, by what was seen of columns.
func absent(seen []parse.SeenKey, column string) spec.Absent {
	if i := slices.IndexFunc(seen, func(s parse.SeenKey) bool { return s.Name == column }); i >= 0 {
		return spec.Absent{Near: seen[i].Near, Names: seen[i].Names}
	}
	return spec.Absent{}
}

// missing finds the columns of metrics that no example has a value of. A column of eval.slices that
// nothing else in the job reads is then an error; others are logged. seen is what is known of
// blank columns. Errors: [*spec.ConfigError].
func (m *measuring) missing(seen []parse.SeenKey, notice func(string)) error {
	blank := map[string]spec.Absent{}
	var notices []string
	for i, column := range m.cfg.Eval.Keys() {
		if m.mine.Blank(i) {
			blank[column] = absent(seen, column)
			notices = append(notices, fmt.Sprintf("no example has a value of column %q, which metrics go by", column))
		}
	}
	// Where columns are known before records are, one that is not there is an error of reading.
	if format := parse.Format(wiring.EvalReading(m.cfg).Format); format == parse.TFExample || format == parse.JSONL {
		if err := m.cfg.UnknownSlices(blank); err != nil {
			return err
		}
	}
	for _, text := range notices {
		notice(text)
	}
	return nil
}

// curves are what is drawn of the heads of one model: of all, or of those that the other has too.
func (m *measuring) curves(c *metric.Collection, headOf func(int) int) (out []result.Curves) {
	for i, h := range m.cfg.AllHeads() {
		at := headOf(i)
		if at < 0 {
			continue
		}
		set := c.Set(at, -1)
		l, ok := m.cfg.FindLoss(h.Loss)
		if ok && l.Classes {
			continue // there are as many curves as classes
		}
		probabilities := ok && l.Link == loss.Sigmoid
		drawn := result.Curves{Head: h.Name}
		if probabilities {
			for _, p := range set.ROC(&m.work, rocPoints) {
				drawn.ROC = append(drawn.ROC, [2]float64{p.FalsePositives, p.TruePositives})
			}
			drawn.Bins, drawn.MassBins = binsOf(set.CalibrationBins(&m.work, calibrationBins, false)), binsOf(set.CalibrationBins(&m.work, calibrationBins, true))
		}
		histogram := set.Histogram(histogramBins, probabilities)
		drawn.Low, drawn.High, drawn.Negatives, drawn.Positives = histogram.Low, histogram.High, histogram.Negatives, histogram.Positives
		out = append(out, drawn)
	}
	return out
}

func binsOf(bins []metric.Bin) (out []result.CalibrationBin) {
	for _, b := range bins {
		out = append(out, result.CalibrationBin{Low: b.Low, High: b.High, Weight: b.Weight, Predicted: b.Predicted, Happened: b.Happened})
	}
	return out
}

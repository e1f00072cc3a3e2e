package run

import (
	"log/slog"
	"sync"

	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/transforms/parse"
)

const (
	// numbersAfter is how many rows a dense feature is judged by; at the end of a run fewer do, but no less than numbersLeast.
	numbersAfter, numbersLeast = 1000, 50
)

// numberWatch looks at the features of a run and warns once of each that a model cannot use as it is, or at all. Its methods
// may overlap.
type numberWatch struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]*parse.Seen // of the features whose size is still looked at
	same map[string]*parse.Seen // of those that have had one number, or one id, alone
}

// newNumberWatch watches features: all of them for having one number or id alone, dense ones that the model does not standardise itself for their size.
func newNumberWatch(c *spec.Config, log *slog.Logger) *numberWatch {
	w := &numberWatch{log: log, seen: map[string]*parse.Seen{}, same: map[string]*parse.Seen{}}
	for _, f := range c.Parse.Features {
		w.same[f.Name] = &parse.Seen{Name: f.Name}
		if f.Kind == "dense" && (f.Standardise == nil || f.Standardise.Running == nil) {
			w.seen[f.Name] = &parse.Seen{Name: f.Name}
		}
	}
	return w
}

// add takes what a block held.
func (w *numberWatch) add(seen []parse.Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.seen)+len(w.same) == 0 {
		return
	}
	for _, s := range seen {
		if have := w.same[s.Name]; have != nil {
			have.Add(s)
			w.judgeSame(have, doubtAfter)
		}
		if have := w.seen[s.Name]; have != nil {
			have.Add(s)
			w.judge(have, numbersAfter)
		}
	}
}

// end judges features by the rows there were.
func (w *numberWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seen {
		w.judge(s, numbersLeast)
	}
	for _, s := range w.same {
		w.judgeSame(s, numbersLeast)
	}
}

// judgeSame warns of a feature that has had so many numbers, or was in so many examples, all of them the same, and looks at it no more. Whether an id is there
// may say something too. The lock is held.
func (w *numberWatch) judgeSame(s *parse.Seen, after int64) {
	switch {
	case s.IDs > 1, s.IDs == 1 && s.Filled < s.Rows:
		delete(w.same, s.Name)
	case s.IDs == 1 && s.Rows >= after:
		delete(w.same, s.Name)
		w.log.Warn("an id feature was the same id in every example: the model learns nothing from it that its bias does not have", "feature", s.Name, "examples", s.Rows)
	case s.Numbers == 0:
	case s.Min < s.Max:
		delete(w.same, s.Name)
	case s.Numbers >= after:
		delete(w.same, s.Name)
		w.log.Warn("a dense feature is the same number in every example: the model learns nothing from it", "feature", s.Name, "number", wiring.Short(s.Min), "examples", s.Rows)
	}
}

// judge warns of a feature once it has had so many numbers, and looks at it no more. The lock is held.
func (w *numberWatch) judge(s *parse.Seen, after int64) {
	if s.Numbers < after {
		return
	}
	delete(w.seen, s.Name)
	if wiring.Unscaled(s) {
		w.log.Warn("a dense feature is far from the size of 1 and will drown the others; give it standardise: running, or log, clip or buckets",
			"feature", s.Name, "min", wiring.Short(s.Min), "max", wiring.Short(s.Max), "mean", wiring.Short(s.Mean()))
	}
}

var (
	_ parse.Observer    = (*monitor)(nil)
	_ parse.KeyObserver = (*monitor)(nil)

	_ parse.TimeObserver = (*monitor)(nil)
)

// TimesParsed implements [parse.TimeObserver]. What is evaluated while training is not looked at.
func (m *monitor) TimesParsed(times []int64) {
	m.mu.Lock()
	watch := m.times
	if m.phase.Phase != m.watched {
		watch = nil
	}
	m.mu.Unlock()
	if watch != nil {
		watch.add(times)
	}
}

// KeysParsed implements [parse.KeyObserver]. What is evaluated while training is not looked at.
func (m *monitor) KeysParsed(seen []parse.SeenKey) {
	m.mu.Lock()
	fills := m.fills
	if m.phase.Phase != m.watched {
		fills = nil
	}
	m.mu.Unlock()
	if fills != nil {
		fills.addKeys(seen)
	}
}

// FeaturesParsed implements [parse.Observer]. What is evaluated while training is not looked at.
func (m *monitor) FeaturesParsed(seen []parse.Seen) {
	m.mu.Lock()
	numbers, fills := m.numbers, m.fills
	if m.phase.Phase != m.watched {
		numbers, fills = nil, nil
	}
	m.mu.Unlock()
	if numbers != nil {
		numbers.add(seen)
	}
	if fills == nil {
		return
	}
	fills.add(seen)
	if m.features != nil {
		for i := range seen {
			m.features.FeatureParsed(seen[i].Name, seen[i].Rows, seen[i].Filled, seen[i].Cut)
		}
	}
}

// featuresParsedHook counts the values of features.
type featuresParsedHook interface {
	FeatureParsed(feature string, rows, filled, cut int64)
}

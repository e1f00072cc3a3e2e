package run

import (
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/transforms/parse"
)

// absentAfter is how many examples it takes to say that a feature is absent.
const absentAfter = 1000

// fillWatch counts which features and keys examples have, and warns once of each that none of the first has. Its methods may
// overlap.
type fillWatch struct {
	mu             sync.Mutex
	features, keys fillCounts
	// columns are counted for the end of the run; see [fillWatch.watchColumns].
	columns fillCounts
}

// fillCounts are features, or keys, in the order of the job.
type fillCounts struct {
	warn   func(attrs ...any)
	all    []fillCount
	of     map[string]int
	judged bool
}

// fillCount is what was found of one, and how a warning names it.
type fillCount struct {
	parse.SeenKey
	cut   int64
	attrs []any
}

func newFillWatch(c *spec.Config, log *slog.Logger) *fillWatch {
	w := &fillWatch{
		features: fillCounts{of: map[string]int{}, warn: func(attrs ...any) {
			log.Warn("no example has a value of this feature: the model learns nothing from it", attrs...)
		}},
		keys: fillCounts{of: map[string]int{}, warn: func(attrs ...any) { log.Warn("no example has a value of this group", attrs...) }},
	}
	for _, f := range c.Parse.Features {
		w.features.watch(f.Name, f.Column, "feature", f.Name, "column", f.Column)
	}
	return w
}

// watchGroups has the columns of groups watched too, those of losses and that of metrics.
func (w *fillWatch) watchGroups(c *spec.Config) {
	for _, h := range c.Heads {
		w.keys.watchGroup(h.Group, "a loss that compares the rows of a group takes each batch as one")
	}
	w.keys.watchGroup(c.Eval.Group, "metrics within groups take all examples as one")
}

// watchColumns has columns of the records counted. warn is called for each that the first records
// lack; nil: nothing is said.
func (w *fillWatch) watchColumns(names []string, warn func(attrs ...any)) {
	w.columns = fillCounts{of: map[string]int{}, warn: warn, judged: warn == nil}
	for _, name := range names {
		w.columns.watch(name, name, "column", name)
	}
}

// blank returns the columns of watchColumns that no record had a value of, sorted by name. Columns
// that were not counted, as those of executors in other processes, are not among them.
func (w *fillWatch) blank() (out []parse.SeenKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.columns.all {
		if k.Rows > 0 && k.Filled == 0 {
			out = append(out, k.SeenKey)
		}
	}
	slices.SortFunc(out, func(a, b parse.SeenKey) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (c *fillCounts) watchGroup(name, means string) {
	if _, known := c.of[name]; name != "" && !known {
		c.watch(name, name, "column", name, "meaning", means)
	}
}

func (c *fillCounts) watch(name, column string, attrs ...any) {
	c.of[name] = len(c.all)
	c.all = append(c.all, fillCount{SeenKey: parse.SeenKey{Name: name, Column: column}, attrs: attrs})
}

// addKeys takes what a block held of the keys.
func (w *fillWatch) addKeys(seen []parse.SeenKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range seen {
		w.keys.add(&seen[i])
		w.columns.add(&seen[i])
	}
	w.keys.judgeSoon()
	w.columns.judgeSoon()
}

// add takes what a block held of the features.
func (w *fillWatch) add(seen []parse.Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range seen {
		s := &seen[i]
		w.features.add(&parse.SeenKey{Name: s.Name, Rows: s.Rows, Filled: s.Filled, Near: s.Near})
		if at, ok := w.features.of[s.Name]; ok {
			w.features.all[at].cut += s.Cut
		}
	}
	w.features.judgeSoon()
}

func (c *fillCounts) add(s *parse.SeenKey) {
	i, ok := c.of[s.Name]
	if !ok {
		return
	}
	k := &c.all[i]
	k.Rows, k.Filled = k.Rows+s.Rows, k.Filled+s.Filled
	if s.Near != "" || len(s.Names) > 0 {
		k.Near, k.Names = s.Near, s.Names
	}
}

// judgeSoon judges once there are enough examples.
func (c *fillCounts) judgeSoon() {
	if !c.judged && slices.ContainsFunc(c.all, func(k fillCount) bool { return k.Rows >= absentAfter }) {
		c.judge()
	}
}

// judge warns of those that no example had, once.
func (c *fillCounts) judge() {
	if c.judged {
		return
	}
	c.judged = true
	for _, k := range c.all {
		if k.Rows == 0 || k.Filled > 0 {
			continue
		}
		attrs := append(k.attrs, "examples", k.Rows)
		if k.Near != "" {
			attrs = append(attrs, "did_you_mean", k.Near)
		} else if len(k.Names) > 0 {
			attrs = append(attrs, "records_have", spec.Listed(k.Names))
		}
		c.warn(attrs...)
	}
}

// end judges by the examples there were, and returns what was counted of the features.
func (w *fillWatch) end() []result.FillInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.features.judge()
	w.keys.judge()
	w.columns.judge()
	out := make([]result.FillInfo, len(w.features.all))
	for i, f := range w.features.all {
		out[i] = result.FillInfo{Feature: f.Name, Column: f.Column, Rows: f.Rows, Filled: f.Filled, Cut: f.cut}
		if f.Filled == 0 {
			out[i].Nearest = f.Near
		}
	}
	return out
}

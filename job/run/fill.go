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

// namesShown is how many names of columns a warning lists.
const namesShown = 20

// fillWatch counts which features and keys examples have, and warns once of each that none of the first has. Its methods may
// overlap.
type fillWatch struct {
	log *slog.Logger

	mu                 sync.Mutex
	fills              []result.FillInfo // in the order of the job
	of                 map[string]int
	keys               []*keyFill
	judged, judgedKeys bool
}

// keyFill is what was found of a key, and what no value of it means.
type keyFill struct {
	parse.SeenKey
	means string
}

func newFillWatch(c *spec.Config, log *slog.Logger) *fillWatch {
	w := &fillWatch{log: log, of: map[string]int{}}
	for i, f := range c.Parse.Features {
		w.of[f.Name] = i
		w.fills = append(w.fills, result.FillInfo{Feature: f.Name, Column: f.Column})
	}
	return w
}

// watchGroups has the columns of groups watched too, those of losses and that of metrics.
func (w *fillWatch) watchGroups(c *spec.Config) {
	for _, h := range c.Heads {
		if h.Group != "" && !slices.ContainsFunc(w.keys, func(k *keyFill) bool { return k.Name == h.Group }) {
			w.keys = append(w.keys, &keyFill{parse.SeenKey{Name: h.Group}, "a loss that compares the rows of a group takes each batch as one"})
		}
	}
	if g := c.Eval.Group; g != "" && !slices.ContainsFunc(w.keys, func(k *keyFill) bool { return k.Name == g }) {
		w.keys = append(w.keys, &keyFill{parse.SeenKey{Name: g}, "metrics within groups take all examples as one"})
	}
}

// addKeys takes what a block held of the keys.
func (w *fillWatch) addKeys(seen []parse.SeenKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := int64(0)
	for _, s := range seen {
		i := slices.IndexFunc(w.keys, func(k *keyFill) bool { return k.Name == s.Name })
		if i < 0 {
			continue
		}
		k := w.keys[i]
		k.Rows, k.Filled = k.Rows+s.Rows, k.Filled+s.Filled
		if s.Near != "" || len(s.Names) > 0 {
			k.Near, k.Names = s.Near, s.Names
		}
		rows = k.Rows
	}
	if rows >= absentAfter {
		w.judgeKeys()
	}
}

// judgeKeys warns of the keys that no example had. The lock is held.
func (w *fillWatch) judgeKeys() {
	if w.judgedKeys {
		return
	}
	w.judgedKeys = true
	for _, k := range w.keys {
		if k.Rows == 0 || k.Filled > 0 {
			continue
		}
		attrs := []any{"column", k.Name, "meaning", k.means, "examples", k.Rows}
		if k.Near != "" {
			attrs = append(attrs, "did_you_mean", k.Near)
		} else if len(k.Names) > 0 {
			attrs = append(attrs, "records_have", strings.Join(k.Names[:min(len(k.Names), namesShown)], ", "))
		}
		w.log.Warn("no example has a value of this group", attrs...)
	}
}

// add takes what a block held.
func (w *fillWatch) add(seen []parse.Seen) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rows := int64(0)
	for _, s := range seen {
		i, ok := w.of[s.Name]
		if !ok {
			continue
		}
		f := &w.fills[i]
		f.Rows, f.Filled = f.Rows+s.Rows, f.Filled+s.Filled
		if s.Near != "" {
			f.Nearest = s.Near
		}
		rows = f.Rows
	}
	if rows >= absentAfter {
		w.judge()
	}
}

// judge warns of the features that no example had. The lock is held.
func (w *fillWatch) judge() {
	if w.judged {
		return
	}
	w.judged = true
	for _, f := range w.fills {
		if f.Rows == 0 || f.Filled > 0 {
			continue
		}
		attrs := []any{"feature", f.Feature, "column", f.Column, "examples", f.Rows}
		if f.Nearest != "" {
			attrs = append(attrs, "did_you_mean", f.Nearest)
		}
		w.log.Warn("no example has a value of this feature: the model learns nothing from it", attrs...)
	}
}

// end judges by the examples there were, and returns what was counted.
func (w *fillWatch) end() []result.FillInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge()
	w.judgeKeys()
	out := make([]result.FillInfo, len(w.fills))
	for i, f := range w.fills {
		if f.Filled > 0 {
			f.Nearest = ""
		}
		out[i] = f
	}
	return out
}

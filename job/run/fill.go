package run

import (
	"log/slog"
	"sync"

	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/transforms/parse"
)

// absentAfter is how many examples it takes to say that a feature is absent.
const absentAfter = 1000

// fillWatch counts which features examples have, and warns once of each that none of the first has. Its methods may
// overlap.
type fillWatch struct {
	log *slog.Logger

	mu     sync.Mutex
	fills  []result.FillInfo // in the order of the job
	of     map[string]int
	judged bool
}

func newFillWatch(c *spec.Config, log *slog.Logger) *fillWatch {
	w := &fillWatch{log: log, of: map[string]int{}}
	for i, f := range c.Parse.Features {
		w.of[f.Name] = i
		w.fills = append(w.fills, result.FillInfo{Feature: f.Name, Column: f.Column})
	}
	return w
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
	out := make([]result.FillInfo, len(w.fills))
	for i, f := range w.fills {
		if f.Filled > 0 {
			f.Nearest = ""
		}
		out[i] = f
	}
	return out
}

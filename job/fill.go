package job

import (
	"log/slog"
	"sync"

	"github.com/monolith-go/monolith/transforms/parse"
)

// FillInfo says how many examples had a value of a feature.
type FillInfo struct {
	// Feature is its name, Column where it is looked for in a record.
	Feature string `json:"feature"`
	Column  string `json:"column"`
	// Rows counts the examples, Filled those with a value, which the feature's default is not.
	Rows   int64 `json:"rows"`
	Filled int64 `json:"filled"`
	// Nearest is the name that records have and that is probably meant, when no example had a value; empty when there is
	// none, or the format does not tell.
	Nearest string `json:"nearest,omitempty"`
}

// Share is the part of the examples with a value, 0 to 1; without examples it is 0.
func (f FillInfo) Share() float64 { return float64(f.Filled) / float64(max(f.Rows, 1)) }

// absentAfter is how many examples it takes to say that a feature is absent.
const absentAfter = 1000

// fillWatch counts which features examples have, and warns once of each that none of the first has. Its methods may
// overlap.
type fillWatch struct {
	log *slog.Logger

	mu     sync.Mutex
	fills  []FillInfo // in the order of the job
	of     map[string]int
	judged bool
}

func newFillWatch(c *Config, log *slog.Logger) *fillWatch {
	w := &fillWatch{log: log, of: map[string]int{}}
	for i, f := range c.Parse.Features {
		w.of[f.Name] = i
		w.fills = append(w.fills, FillInfo{Feature: f.Name, Column: f.Column})
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
func (w *fillWatch) end() []FillInfo {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge()
	out := make([]FillInfo, len(w.fills))
	for i, f := range w.fills {
		if f.Filled > 0 {
			f.Nearest = ""
		}
		out[i] = f
	}
	return out
}

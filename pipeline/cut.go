package pipeline

import (
	"fmt"
	"strings"
)

// Cut describes how a runner divides a plan into work, for people and programs to look at.
type Cut struct {
	// Runner is the runner's name, and Executors where it runs the plan's executors.
	Runner    string `json:"runner"`
	Executors string `json:"executors"`
	// Segments are in the plan's order.
	Segments []SegmentCut `json:"segments"`
	// Bundles describes what an executor does between two commits of the runner, and Checkpoints what the runner stores; both are empty
	// for a runner without.
	Bundles     string `json:"bundles,omitempty"`
	Checkpoints string `json:"checkpoints,omitempty"`
	// Positions describes where the positions of the splits are kept.
	Positions string `json:"positions"`
}

// SegmentCut is how the splits of one segment become elements, each of which has an executor.
type SegmentCut struct {
	// Sources are the segment's, shuffles among them, and Splits how many they have, partitions of shuffles among them. Unknown is why that
	// is not known, if it is not.
	Sources []string `json:"sources"`
	Splits  int      `json:"splits"`
	Unknown string   `json:"unknown,omitempty"`
	// Elements is how many there are. When there are fewer than splits, these are dealt among them.
	Elements int `json:"elements"`
	// Workers is how many an element has.
	Workers int `json:"workers"`
	// Form is what the runner sees of the segment.
	Form string `json:"form"`
}

// Text renders the cut for people, a fact a line.
func (c *Cut) Text() string {
	var b strings.Builder
	_, _ = fmt.Fprintf(&b, "on %s\n", c.Runner)
	row := func(name, text string) {
		if text != "" {
			_, _ = fmt.Fprintf(&b, "  %-12s %s\n", name, text)
		}
	}
	for i, s := range c.Segments {
		name := "elements"
		if len(c.Segments) > 1 {
			name = fmt.Sprintf("segment %d", i)
		}
		row(name, s.text())
		row("", s.Form)
	}
	row("executors", c.Executors)
	row("bundles", c.Bundles)
	row("checkpoints", c.Checkpoints)
	row("positions", c.Positions)
	return b.String()
}

func (s SegmentCut) text() string {
	workers := ""
	switch {
	case s.Workers > 1 && s.Elements == 1:
		workers = fmt.Sprintf(", for %d workers", s.Workers)
	case s.Workers > 1:
		workers = fmt.Sprintf(", %d workers in each", s.Workers)
	}
	of := strings.Join(s.Sources, ", ")
	switch {
	case s.Unknown != "":
		return fmt.Sprintf("of %s, whose splits are not known: %s", of, s.Unknown)
	case s.Elements == 1:
		splits := "splits"
		if s.Splits == 1 {
			splits = "split"
		}
		return fmt.Sprintf("1, with the %d %s of %s%s", s.Splits, splits, of, workers)
	case s.Elements < s.Splits:
		return fmt.Sprintf("%d, among which the %d splits of %s are dealt%s", s.Elements, s.Splits, of, workers)
	}
	return fmt.Sprintf("%d, one for each split of %s%s", s.Elements, of, workers)
}

package conf

import (
	"fmt"
	"strings"
)

// Layer is where a value comes from. Higher layers win.
type Layer uint8

// The layers, lowest first.
const (
	// FromDefault: nobody set it.
	FromDefault Layer = iota
	// FromFile: the file.
	FromFile
	// FromEnv: an environment variable.
	FromEnv
	// FromFlag: a --set flag.
	FromFlag
)

// String is "default", "file", "env" or "flag".
func (l Layer) String() string { return [...]string{"default", "file", "env", "flag"}[l] }

// Where is the place a value was set at.
type Where struct {
	Layer Layer
	// Name is the file's path, the variable or the flag's key path.
	Name string
	// Line and Col count from 1; 0 when there is no file.
	Line, Col int
}

// String renders job.yaml:3:5, PREFIX_TRAIN_BATCH, --set train.batch, or default.
func (w Where) String() string {
	switch w.Layer {
	case FromFile:
		if w.Line == 0 {
			return w.Name
		}
		return fmt.Sprintf("%s:%d:%d", w.Name, w.Line, w.Col)
	case FromEnv:
		return w.Name
	case FromFlag:
		return "--set " + w.Name
	}
	return "default"
}

// Fault is one thing that is wrong with a configuration.
type Fault struct {
	// Where it was found; the zero value for one made in Go.
	Where Where
	// Path is the key path: train.batch, parse.features[2].slot.
	Path string
	// Message is what is wrong, with the value.
	Message string
	// Suggestion is the name that was probably meant, or empty.
	Suggestion string
}

// String renders the fault in one line.
func (f Fault) String() string {
	var b strings.Builder
	if f.Where.Layer != FromDefault {
		b.WriteString(f.Where.String() + ": ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	b.WriteString(f.Message)
	if f.Suggestion != "" {
		fmt.Fprintf(&b, "; did you mean %q?", f.Suggestion)
	}
	return b.String()
}

// Message writes faults as the text of an error, one a line; noun is what they were found in.
func Message(noun string, faults []Fault) string {
	if len(faults) == 1 {
		return faults[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d faults in the %s:", len(faults), noun)
	for _, f := range faults {
		b.WriteString("\n  " + f.String())
	}
	return b.String()
}

// Nearest returns the candidate that name was probably meant to be, or "" when none is near: the one with the smallest
// optimal string alignment distance (insertions, deletions, substitutions and swaps of neighbours count 1 each), if that
// is at most a third of the longer name's length, rounded up. Ties go to the earlier candidate.
func Nearest(name string, candidates []string) string {
	best, bestDist := "", -1
	name = strings.ToLower(name)
	for _, c := range candidates {
		limit := (max(len(name), len(c)) + 2) / 3
		if len(c)-len(name) > limit || len(name)-len(c) > limit {
			continue
		}
		if d := distance(name, strings.ToLower(c)); d <= limit && (bestDist < 0 || d < bestDist) {
			best, bestDist = c, d
		}
	}
	return best
}

func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

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
	// Flag is the flag as it was typed, with its dashes; empty for --set itself.
	Flag string
	// Line and Col count from 1; 0 when there is no file.
	Line, Col int
}

// String renders job.yaml:3:5, PREFIX_TRAIN_BATCH, --set train.batch, --runner, or default.
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
		if w.Flag != "" {
			return w.Flag
		}
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
	if f.Path != "" && f.Where.Flag != "--"+f.Path {
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

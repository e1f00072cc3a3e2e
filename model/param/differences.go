package param

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Differences says in what a layout differs from an earlier one of which only the text is left ([Layout.String]), one
// difference a line: the parameters, the property and both values. Parameters that differ in the same way share a line.
// Equal texts have none.
//
//	embedding.vec: adagrad's lr is 0.1, was 0.05
//	deep.0.weight: shape is [24 16], was [24 8]
func (l *Layout) Differences(earlier string) []string {
	was, is := parameters(earlier), parameters(l.String())
	var lines []string
	names := map[string][]string{} // by what is said of them
	say := func(name, text string) {
		if names[text] == nil {
			lines = append(lines, text)
		}
		names[text] = append(names[text], name)
	}
	for _, p := range is {
		i := slices.IndexFunc(was, func(q parameter) bool { return q.name == p.name })
		if i < 0 {
			say(p.name, "is new")
			continue
		}
		for k, property := range p.properties {
			if before := was[i].properties[k]; before != property {
				for _, text := range changes(propertyNames[k], before, property) {
					say(p.name, text)
				}
			}
		}
	}
	for _, q := range was {
		if !slices.ContainsFunc(is, func(p parameter) bool { return p.name == q.name }) {
			say(q.name, "is gone")
		}
	}
	for i, text := range lines {
		all := names[text]
		const named = 3
		if len(all) > named+1 {
			all = append(slices.Clone(all[:named]), fmt.Sprintf("%d more", len(all)-named))
		}
		lines[i] = strings.Join(all, ", ") + ": " + text
	}
	if len(lines) == 0 && earlier != l.String() {
		lines = append(lines, "the parameters come in another order")
	}
	return lines
}

// parameter is a line of a layout's text.
type parameter struct {
	name       string
	properties [4]string
}

var propertyNames = [4]string{"shape", "init", "optimizer", "l2"}

var (
	seedLine      = regexp.MustCompile(`^seed (.*)$`)
	parameterLine = regexp.MustCompile(`^(?:table (.*) segment (.*) dim|dense (.*) shape) (.*) init (.*) optimizer (.*) l2 (.*)$`)
)

// parameters takes a layout's text apart. A line that is none is a parameter of that name.
func parameters(text string) []parameter {
	var out []parameter
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if m := seedLine.FindStringSubmatch(line); m != nil {
			out = append(out, parameter{name: "initial values", properties: [4]string{1: "of seed " + m[1]}})
			continue
		}
		m := parameterLine.FindStringSubmatch(line)
		if m == nil {
			out = append(out, parameter{name: line})
			continue
		}
		p := parameter{name: m[3], properties: [4]string(m[4:])}
		if p.name == "" {
			p.name = m[1] + "." + m[2]
		}
		out = append(out, p)
	}
	return out
}

var rule = regexp.MustCompile(`^(\w+)\((.*)\)$`)

// changes says how a property changed; settings of one rule each for themselves.
func changes(property, was, is string) []string {
	a, b := rule.FindStringSubmatch(was), rule.FindStringSubmatch(is)
	if property == "optimizer" && a != nil && b != nil && a[1] == b[1] {
		before := map[string]string{}
		for setting := range strings.SplitSeq(a[2], ",") {
			name, value, _ := strings.Cut(setting, "=")
			before[name] = value
		}
		var out []string
		for setting := range strings.SplitSeq(b[2], ",") {
			if name, value, _ := strings.Cut(setting, "="); before[name] != value {
				out = append(out, fmt.Sprintf("%s's %s is %s, was %s", a[1], name, value, before[name]))
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return []string{fmt.Sprintf("%s is %s, was %s", property, is, was)}
}

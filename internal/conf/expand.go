package conf

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// variable is ${NAME} or ${NAME:-fallback}; with a second dollar sign in front it stands for itself.
var variable = regexp.MustCompile(`\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// substitute puts environment variables into the values of a configuration, so that one file serves several machines. It happens after
// YAML is parsed: what a variable holds is text, never structure. A variable that is not set and has no fallback is a
// fault.
func (d *decoder) substitute(n *Node, path string) {
	switch n.kind {
	case scalarNode:
		var missing []string
		n.text = variable.ReplaceAllStringFunc(n.text, func(m string) string {
			if strings.HasPrefix(m, "$$") {
				return m[1:]
			}
			sub := variable.FindStringSubmatch(m)
			if v, ok := d.env[sub[1]]; ok {
				return v
			}
			if sub[2] != "" {
				return sub[2][len(":-"):]
			}
			if !slices.Contains(missing, sub[1]) {
				missing = append(missing, sub[1])
			}
			return m
		})
		for _, name := range missing {
			d.fault(n.at, path, "environment variable "+name+" is not set; set it, or write ${"+name+":-fallback}", "")
		}
		if len(missing) > 0 {
			d.unset[n.at] = true
		}
	case listNode:
		for _, item := range n.items {
			d.substitute(item, path)
		}
	case mappingNode:
		for _, e := range n.entries {
			d.substitute(e.value, Join(path, e.key))
		}
	default:
	}
}

// Variables are hidden from the YAML parser, which would take the braces of an unquoted one in a list for a mapping. Each
// becomes as many characters of Unicode's private use area, so that columns in messages stay true: one that numbers it, then
// fillers.
const (
	hiddenFirst = '\uE000'
	hiddenFill  = '\uF8FF'
)

// hideVariables replaces the variables of a text and returns them in their order. A text that uses those
// characters itself stays as it is.
func hideVariables(text string) (hidden string, variables []string) {
	if strings.ContainsFunc(text, func(r rune) bool { return r >= hiddenFirst && r <= hiddenFill }) {
		return text, nil
	}
	hidden = variable.ReplaceAllStringFunc(text, func(m string) string {
		if strings.Contains(m, "\n") || len(variables) >= hiddenFill-hiddenFirst {
			return m
		}
		variables = append(variables, m)
		return string(hiddenFirst+rune(len(variables)-1)) + strings.Repeat(string(hiddenFill), utf8.RuneCountInString(m)-1)
	})
	return hidden, variables
}

// showVariables puts the variables back into a text that was parsed.
func showVariables(text string, variables []string) string {
	if len(variables) == 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case r == hiddenFill:
		case r >= hiddenFirst && int(r-hiddenFirst) < len(variables):
			b.WriteString(variables[r-hiddenFirst])
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// show puts the variables back into a whole tree.
func (n *Node) show(variables []string) {
	if n == nil || len(variables) == 0 {
		return
	}
	n.text = showVariables(n.text, variables)
	for _, item := range n.items {
		item.show(variables)
	}
	for i := range n.entries {
		n.entries[i].key = showVariables(n.entries[i].key, variables)
		n.entries[i].value.show(variables)
	}
}

package job

import (
	"regexp"
	"strings"
)

// variable is ${NAME} or ${NAME:-fallback}; with a second dollar sign in front it stands for itself.
var variable = regexp.MustCompile(`\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}`)

// substitute puts environment variables into the values of a job, so that one file serves several machines. It happens after
// YAML is parsed: what a variable holds is text, never structure. A variable that is not set and has no fallback is a
// fault.
func (d *decoder) substitute(n *node, path string) {
	switch n.kind {
	case scalarNode:
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
			d.fault(n.at, path, "environment variable "+sub[1]+" is not set; set it, or write ${"+sub[1]+":-fallback}", "")
			return m
		})
	case listNode:
		for _, item := range n.items {
			d.substitute(item, path)
		}
	case mappingNode:
		for _, e := range n.entries {
			d.substitute(e.value, join(path, e.key))
		}
	default:
	}
}

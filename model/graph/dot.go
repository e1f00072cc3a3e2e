package graph

import (
	"fmt"
	"strings"
)

// DOT draws the graph as it was declared in the language of Graphviz: a box for each operator with the shape of its value and what it adds and multiplies for one vector of it, where a list of a sparse feature
// has so many entries, and an ellipse for each head.
func (g *Graph) DOT(entries float64) string {
	var b strings.Builder
	b.WriteString("digraph model {\n\trankdir=BT;\n\tnode [shape=box, fontname=\"monospace\"];\n")
	for _, o := range g.Operators() {
		cost := ""
		if f := g.declared[o.ID].op.flops(g, &g.declared[o.ID], entries); f > 0 {
			cost = fmt.Sprintf(", %.0f FLOPs", f)
		}
		fmt.Fprintf(&b, "\tn%d [label=%s];\n", o.ID, quoted(fmt.Sprintf("%%%d %s", o.ID, o.Text), fmt.Sprintf("[%s]%s", o.Shape, cost)))
		for _, in := range o.Inputs {
			fmt.Fprintf(&b, "\tn%d -> n%d;\n", in, o.ID)
		}
	}
	for i, o := range g.outputs {
		fmt.Fprintf(&b, "\th%d [shape=ellipse, label=%s];\n\tn%d -> h%d;\n", i, quoted(o.head.Name, o.head.Loss), o.node, i)
	}
	b.WriteString("}\n")
	return b.String()
}

// quoted is lines as a label.
func quoted(lines ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", " ")
	for i, line := range lines {
		lines[i] = escape.Replace(line)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}

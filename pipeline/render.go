package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// Text draws the plan for a terminal: for each segment a schematic line for each of its strands, the pieces between the
// places where streams meet or part, then its edges with their schemas, one a line.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph %s  hash %s\n", p.Name, p.Hash())
	for i, s := range p.Segments {
		b.WriteByte('\n')
		if len(p.Segments) > 1 {
			fmt.Fprintf(&b, "segment %d\n", i)
		}
		legend := false
		strands := s.strands()
		for k, st := range strands {
			top, below := st.schematic()
			legend = legend || below != ""
			fmt.Fprintf(&b, "%s\n", top)
			if below == "" {
				continue
			}
			b.WriteString(below)
			if k == len(strands)-1 {
				b.WriteString("     " + queueLegend)
			}
			b.WriteByte('\n')
		}
		if _, below := strands[len(strands)-1].schematic(); legend && below == "" {
			fmt.Fprintf(&b, "%s\n", queueLegend)
		}
		b.WriteByte('\n')
		width := 0
		edges := s.allEdges()
		for _, e := range edges {
			width = max(width, utf8.RuneCountInString(e.from.name+" -> "+e.to.name))
		}
		before := ""
		for _, e := range edges {
			columns := schemaText(e.from.schema)
			if e.to.kind == sideNode {
				columns = schemaText(e.to.schema)
			}
			if columns == before {
				columns = "same columns"
			} else {
				before = columns
			}
			elem := e.from.elem
			if e.to.kind == sideNode {
				elem = e.to.elem
			}
			fmt.Fprintf(&b, "  %-*s  %s: %s\n", width, e.from.name+" -> "+e.to.name, elem, columns)
		}
	}
	return b.String()
}

// entitle settles what parts are drawn as: their descriptions, with the names in front where several sources, or sinks, could not be
// distinguished by them.
func (p *Plan) entitle() {
	count := map[nodeKind]int{}
	for _, s := range p.Segments {
		for _, n := range s.nodes {
			if n.shuffle == nil {
				count[n.kind]++
			}
		}
	}
	for _, s := range p.Segments {
		for _, n := range s.nodes {
			n.title = n.desc
			if (n.kind == sourceNode || n.kind == sinkNode) && n.shuffle == nil && count[n.kind] > 1 && !strings.Contains(n.desc, n.name) {
				n.title = n.name + ": " + n.desc
			}
		}
	}
}

const queueLegend = "╫ = bounded queue, own goroutine; ┼ = in lockstep"

// strand is a run of nodes, each of which reads the one before and nothing else. It begins at a source, or at a node that
// was drawn before, and ends at a sink, or at a node where streams meet or part.
type strand []*node

// strands are those of a segment, in the order of their beginnings.
func (s *Segment) strands() []strand {
	var out []strand
	for _, n := range s.nodes {
		var begin [][]*node
		switch n.kind {
		case sourceNode:
			begin = [][]*node{{n}}
		case mergeNode:
			begin = [][]*node{{n, n.next[0]}}
		case teeNode:
			for port := range n.branches {
				begin = append(begin, []*node{n, n.next[slices.Index(n.ports, port)]})
			}
		case sideNode:
			begin = [][]*node{{n, n.next[0]}}
		default:
		}
		for _, st := range begin {
			for at := st[len(st)-1]; at.kind != sinkNode && (at == st[0] || at.kind != mergeNode && at.kind != teeNode); {
				at = at.next[0]
				st = append(st, at)
			}
			out = append(out, st)
		}
	}
	return out
}

// allEdges are the edges of a segment in the order of building.
func (s *Segment) allEdges() []edge {
	var out []edge
	for _, n := range s.nodes {
		for _, to := range n.outputs() {
			out = append(out, edge{from: n, to: to})
		}
	}
	return out
}

// edgeLabel returns the weight and priority with which a merge reads from.
func edgeLabel(from, to *node) string {
	for _, in := range to.in {
		if in.n == from && in.pref.set {
			if in.pref.priority == 0 {
				return fmt.Sprintf("weight %d", in.pref.weight)
			}
			return fmt.Sprintf("weight %d, priority %d", in.pref.weight, in.pref.priority)
		}
	}
	return ""
}

// schematic draws `kafka ratings ─> parse ─╫─> step ─> push` and, below, what each queue is.
func (s strand) schematic() (top, below string) {
	var line, under strings.Builder
	for i, n := range s {
		if n.kind == queueNode {
			mark := "─╫"
			if n.depth == 0 {
				mark = "─┼"
			}
			line.WriteString(mark)
			label := n.desc + " ╝"
			if n.depth == 0 {
				label = n.desc + " ┘"
			}
			// The label ends below the mark; where there is no room it takes some to the right.
			pad := utf8.RuneCountInString(line.String()) - utf8.RuneCountInString(under.String()) - utf8.RuneCountInString(label)
			if pad < 1 {
				extra := strings.Repeat("─", 1-pad)
				s := line.String()
				line.Reset()
				line.WriteString(strings.TrimSuffix(s, mark) + extra + mark)
				pad = 1
			}
			under.WriteString(strings.Repeat(" ", pad) + label)
			continue
		}
		if i > 0 {
			line.WriteString("─")
			if l := edgeLabel(s[i-1], n); l != "" {
				line.WriteString(" " + l + " ─")
			}
			line.WriteString("> ")
		}
		line.WriteString(n.title)
		if i < len(s)-1 {
			line.WriteByte(' ')
		}
	}
	return line.String(), under.String()
}

func schemaText(s *arrow.Schema) string {
	parts := make([]string, 0, s.NumFields())
	for _, f := range s.Fields() {
		parts = append(parts, f.Name+" "+typeText(f.Type))
	}
	return strings.Join(parts, ", ")
}

func typeText(t arrow.DataType) string {
	switch t := t.(type) {
	case *arrow.ListType:
		return "list<" + typeText(t.Elem()) + ">"
	case *arrow.FixedSizeListType:
		return fmt.Sprintf("%s[%d]", typeText(t.Elem()), t.Len())
	default:
		return t.String()
	}
}

// DOT renders the plan for Graphviz.
func (p *Plan) DOT() string {
	var b strings.Builder
	fmt.Fprintf(&b, "digraph %q {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n", p.Name)
	for i, s := range p.Segments {
		fmt.Fprintf(&b, "  subgraph cluster_%d {\n    label=\"segment %d\";\n", i, i)
		for _, n := range s.nodes {
			if n.kind == queueNode {
				continue
			}
			fmt.Fprintf(&b, "    %q [label=%q, shape=%s];\n", n.name, n.title, [...]string{"cylinder", "box", "", "house", "invtriangle", "triangle", "note"}[n.kind])
		}
		b.WriteString("  }\n")
		for _, e := range s.edges() {
			switch {
			case e.queue != nil:
				fmt.Fprintf(&b, "  %q -> %q [label=%q, style=%s];\n", e.from.name, e.to.name, e.queue.desc, map[bool]string{true: "bold", false: "dashed"}[e.queue.depth > 0])
			case e.label != "":
				fmt.Fprintf(&b, "  %q -> %q [label=%q];\n", e.from.name, e.to.name, e.label)
			default:
				fmt.Fprintf(&b, "  %q -> %q;\n", e.from.name, e.to.name)
			}
		}
	}
	for _, s := range p.Shuffles() {
		fmt.Fprintf(&b, "  %q -> %q [style=dotted];\n", s.Name+".in", s.Name)
	}
	b.WriteString("}\n")
	return b.String()
}

type edge struct {
	from, to, queue *node
	label           string
}

// edges joins the parts of a segment; a queue belongs to the edge it lies on. Queues that follow each other directly are
// drawn as the last of them.
func (s *Segment) edges() []edge {
	var out []edge
	for _, n := range s.nodes {
		if n.kind == queueNode {
			continue
		}
		for _, to := range n.outputs() {
			e := edge{from: n, label: edgeLabel(n, to)}
			for to.kind == queueNode {
				e.queue, to = to, to.next[0]
			}
			e.to = to
			out = append(out, e)
		}
	}
	return out
}

// Mermaid renders the plan as a Mermaid flow chart.
func (p *Plan) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	id := map[*node]string{}
	ends := map[string]string{} // of shuffles, by the names of their nodes
	for i, s := range p.Segments {
		for k, n := range s.nodes {
			if n.kind == queueNode {
				continue
			}
			id[n] = fmt.Sprintf("s%dn%d", i, k)
			if n.shuffle != nil {
				ends[n.name] = id[n]
			}
			left, right := "[", "]"
			switch n.kind {
			case sourceNode:
				left, right = "[(", ")]"
			case sinkNode:
				left, right = "([", "])"
			case mergeNode, teeNode:
				left, right = "{{", "}}"
			default:
			}
			fmt.Fprintf(&b, "  %s%s%q%s\n", id[n], left, n.title, right)
		}
		for _, e := range s.edges() {
			switch {
			case e.queue == nil && e.label != "":
				fmt.Fprintf(&b, "  %s -- %q --> %s\n", id[e.from], e.label, id[e.to])
			case e.queue == nil:
				fmt.Fprintf(&b, "  %s --> %s\n", id[e.from], id[e.to])
			case e.queue.depth == 0:
				fmt.Fprintf(&b, "  %s -. %q .-> %s\n", id[e.from], e.queue.desc, id[e.to])
			default:
				fmt.Fprintf(&b, "  %s == %q ==> %s\n", id[e.from], e.queue.desc, id[e.to])
			}
		}
	}
	for _, sh := range p.Shuffles() {
		fmt.Fprintf(&b, "  %s -.-> %s\n", ends[sh.Name+".in"], ends[sh.Name])
	}
	return b.String()
}

type jsonPlan struct {
	Name     string        `json:"name"`
	Hash     string        `json:"hash"`
	Segments []jsonSegment `json:"segments"`
}

type jsonSegment struct {
	Bounded bool       `json:"bounded"`
	Nodes   []jsonNode `json:"nodes"`
}

type jsonNode struct {
	Kind        string      `json:"kind"`
	Name        string      `json:"name"`
	Description string      `json:"description"`
	Inputs      []jsonInput `json:"inputs,omitempty"`
	Depth       *int        `json:"depth,omitempty"`
	Element     string      `json:"element,omitempty"`
	Schema      []jsonField `json:"schema,omitempty"`
}

type jsonInput struct {
	Node string `json:"node"`
	// Branch is that of a tee.
	Branch   *int `json:"branch,omitempty"`
	Weight   int  `json:"weight,omitempty"`
	Priority int  `json:"priority,omitempty"`
}

type jsonField struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// JSON renders the plan as one indented JSON object.
func (p *Plan) JSON() string {
	out := jsonPlan{Name: p.Name, Hash: p.Hash(), Segments: []jsonSegment{}}
	for _, s := range p.Segments {
		js := jsonSegment{Bounded: s.Bounded()}
		for _, n := range s.nodes {
			jn := jsonNode{Kind: n.kind.String(), Name: n.name, Description: n.desc, Element: n.elem}
			if n.kind == sourceNode && n.shuffle != nil {
				jn.Inputs = append(jn.Inputs, jsonInput{Node: n.shuffle.in.name})
			}
			for _, in := range n.in {
				ji := jsonInput{Node: in.n.name}
				if in.n.kind == teeNode {
					port := in.n.portOf(n)
					ji.Branch = &port
				}
				if in.pref.set {
					ji.Weight, ji.Priority = in.pref.weight, in.pref.priority
				}
				jn.Inputs = append(jn.Inputs, ji)
			}
			if n.kind == queueNode {
				jn.Depth = &n.depth
			}
			if n.schema != nil && n.kind != sinkNode {
				for _, f := range n.schema.Fields() {
					jn.Schema = append(jn.Schema, jsonField{f.Name, typeText(f.Type)})
				}
			}
			js.Nodes = append(js.Nodes, jn)
		}
		out.Segments = append(out.Segments, js)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // list<int64>
	e.SetIndent("", "  ")
	if err := e.Encode(out); err != nil {
		panic("pipeline: a plan does not marshal: " + err.Error()) // strings and numbers always do
	}
	return b.String()
}

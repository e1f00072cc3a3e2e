package pipeline

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
)

// Text draws the plan for a terminal: a schematic line for each segment, then its edges with their schemas, one a line.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "graph %s  hash %s\n", p.Name, p.Hash())
	for _, s := range p.Segments {
		top, below := s.schematic()
		fmt.Fprintf(&b, "\n%s\n", top)
		if below != "" {
			fmt.Fprintf(&b, "%s\n", below)
		}
		b.WriteByte('\n')
		width := 0
		for _, n := range s.chain[:len(s.chain)-1] {
			width = max(width, utf8.RuneCountInString(n.name+" -> "+n.next[0].name))
		}
		before := ""
		for _, n := range s.chain[:len(s.chain)-1] {
			columns := schemaText(n.schema)
			if columns == before {
				columns = "same columns"
			} else {
				before = columns
			}
			fmt.Fprintf(&b, "  %-*s  %s: %s\n", width, n.name+" -> "+n.next[0].name, n.elem, columns)
		}
	}
	return b.String()
}

// schematic draws `kafka ratings ─> parse ─╫─> step ─> push` and, below, what each queue is.
func (s *Segment) schematic() (top, below string) {
	var line, under strings.Builder
	queues := false
	for i, n := range s.chain {
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
			queues = true
			continue
		}
		if i > 0 {
			line.WriteString("─> ")
		}
		line.WriteString(n.desc)
		if i < len(s.chain)-1 {
			line.WriteByte(' ')
		}
	}
	if queues {
		under.WriteString("     ╫ = bounded queue, own goroutine; ┼ = in lockstep")
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
		for _, n := range s.chain {
			if n.kind == queueNode {
				continue
			}
			shape := map[nodeKind]string{sourceNode: "cylinder", stageNode: "box", sinkNode: "house"}[n.kind]
			fmt.Fprintf(&b, "    %q [label=%q, shape=%s];\n", n.name, n.desc, shape)
		}
		b.WriteString("  }\n")
		for _, e := range s.edges() {
			if e.queue != nil {
				fmt.Fprintf(&b, "  %q -> %q [label=%q, style=%s];\n", e.from.name, e.to.name, e.queue.desc, map[bool]string{true: "bold", false: "dashed"}[e.queue.depth > 0])
			} else {
				fmt.Fprintf(&b, "  %q -> %q;\n", e.from.name, e.to.name)
			}
		}
	}
	b.WriteString("}\n")
	return b.String()
}

type edge struct{ from, to, queue *node }

// edges joins the parts of a chain; a queue belongs to the edge it lies on. Queues that follow each other directly are
// drawn as the last of them.
func (s *Segment) edges() []edge {
	var out []edge
	from := s.chain[0]
	var queue *node
	for _, n := range s.chain[1:] {
		if n.kind == queueNode {
			queue = n
			continue
		}
		out = append(out, edge{from, n, queue})
		from, queue = n, nil
	}
	return out
}

// Mermaid renders the plan as a Mermaid flow chart.
func (p *Plan) Mermaid() string {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	for i, s := range p.Segments {
		id := map[*node]string{}
		for k, n := range s.chain {
			if n.kind == queueNode {
				continue
			}
			id[n] = fmt.Sprintf("s%dn%d", i, k)
			left, right := "[", "]"
			switch n.kind {
			case sourceNode:
				left, right = "[(", ")]"
			case sinkNode:
				left, right = "([", "])"
			default:
			}
			fmt.Fprintf(&b, "  %s%s%q%s\n", id[n], left, n.desc, right)
		}
		for _, e := range s.edges() {
			switch {
			case e.queue == nil:
				fmt.Fprintf(&b, "  %s --> %s\n", id[e.from], id[e.to])
			case e.queue.depth == 0:
				fmt.Fprintf(&b, "  %s -. %q .-> %s\n", id[e.from], e.queue.desc, id[e.to])
			default:
				fmt.Fprintf(&b, "  %s == %q ==> %s\n", id[e.from], e.queue.desc, id[e.to])
			}
		}
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
	Depth       *int        `json:"depth,omitempty"`
	Element     string      `json:"element,omitempty"`
	Schema      []jsonField `json:"schema,omitempty"`
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
		for _, n := range s.chain {
			jn := jsonNode{Kind: n.kind.String(), Name: n.name, Description: n.desc, Element: n.elem}
			if n.kind == queueNode {
				jn.Depth = &n.depth
			}
			if n.schema != nil {
				for _, f := range n.schema.Fields() {
					jn.Schema = append(jn.Schema, jsonField{f.Name, typeText(f.Type)})
				}
			}
			js.Nodes = append(js.Nodes, jn)
		}
		out.Segments = append(out.Segments, js)
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		panic("pipeline: a plan does not marshal: " + err.Error()) // strings and numbers always do
	}
	return string(b) + "\n"
}

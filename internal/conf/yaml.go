package conf

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v4"
)

// A configuration is a few hundred lines. The bounds keep what is not one from taking long: nested aliases, for one, would
// grow without bound.
const (
	maxFileBytes = 256 << 10
	maxDepth     = 64
	maxNodes     = 100_000
)

type nodeKind uint8

const (
	nullNode nodeKind = iota
	scalarNode
	listNode
	mappingNode
)

// Node is a YAML value with the place it was written at. All layers are nodes before they become a struct.
type Node struct {
	kind    nodeKind
	text    string // of a scalar
	quoted  bool   // the scalar was quoted, so it is text and not a number
	items   []*Node
	entries []entry
	at      Where
}

type entry struct {
	key   string
	at    Where
	value *Node
}

func (n *Node) get(key string) *Node {
	for i := range n.entries {
		if n.entries[i].key == key {
			return n.entries[i].value
		}
	}
	return nil
}

func (n *Node) set(key string, value *Node) {
	for i := range n.entries {
		if n.entries[i].key == key {
			n.entries[i].value, n.entries[i].at = value, value.at
			return
		}
	}
	n.entries = append(n.entries, entry{key, value.at, value})
}

// At is where the value was written.
func (n *Node) At() Where { return n.at }

// Text returns the text of a word or number; ok is false for anything else.
func (n *Node) Text() (text string, ok bool) { return n.text, n.kind == scalarNode }

// Pair is a key of a mapping and its value.
type Pair struct {
	Key   string
	At    Where // of the key
	Value *Node
}

// Pairs returns the keys of a mapping in their order; ok is false for anything else.
func (n *Node) Pairs() (pairs []Pair, ok bool) {
	for _, e := range n.entries {
		pairs = append(pairs, Pair{e.key, e.at, e.value})
	}
	return pairs, n.kind == mappingNode
}

// Describe names the value in messages.
func (n *Node) Describe() string {
	switch n.kind {
	case scalarNode:
		if len(n.text) > 40 {
			return fmt.Sprintf("%.40q...", n.text)
		}
		return fmt.Sprintf("%q", n.text)
	case listNode:
		return "a list"
	case mappingNode:
		return "a mapping"
	}
	return "nothing"
}

// parseYAML reads one document. at gives layer and name; lines and columns are filled in for files. Problems come back as
// faults, each naming its place.
func (s *Schema) parse(data []byte, at Where) (_ *Node, faults []Fault) {
	// A bug in the parser must not take the process down with a user's file (Invariant 5).
	defer func() {
		if r := recover(); r != nil {
			faults = append(faults, Fault{Where: at, Message: fmt.Sprintf("cannot be read as YAML: %v", r)})
		}
	}()
	if len(data) > maxFileBytes {
		return nil, []Fault{{Where: at, Message: fmt.Sprintf("holds %d bytes; a %s has at most %d", len(data), s.o.Noun, maxFileBytes)}}
	}
	text, variables := hideVariables(string(data))
	dec := yaml.NewDecoder(strings.NewReader(text))
	c := converter{noun: s.o.Noun, at: at, anchors: map[string]*Node{}}
	var root *Node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f := syntaxFault(text, err, at)
			f.Message = showVariables(f.Message, variables) + unquoted(string(data), f.Where.Line)
			return nil, []Fault{f}
		}
		if len(doc.Content) == 0 || root != nil && doc.Content[0].Tag == "!!null" {
			continue
		}
		if root != nil {
			c.bad(doc.Content[0], "", "a "+c.noun+" is one YAML document; this begins another")
			break
		}
		root = c.convert(doc.Content[0], "", 0)
	}
	root.show(variables)
	for i := range c.faults {
		c.faults[i].Path, c.faults[i].Message = showVariables(c.faults[i].Path, variables), showVariables(c.faults[i].Message, variables)
	}
	return root, c.faults
}

// comparison is a condition that is not in quotes. What begins with > is a block of text in YAML, and with ! a tag.
var comparison = regexp.MustCompile(`[:,{\[-]\s*((?:>=?|!=)\s*[-+]?[0-9][^\s,}\]#]*)`)

// unquoted says what to do about a condition on the line of a fault, or nothing.
func unquoted(text string, line int) string {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return ""
	}
	m := comparison.FindStringSubmatch(lines[line-1])
	if m == nil {
		return ""
	}
	return fmt.Sprintf("; write a condition in quotes: %q", m[1])
}

// tabAt reports whether a line has a tab where it is indented.
func tabAt(text string, line int) bool {
	lines := strings.Split(text, "\n")
	if line < 1 || line > len(lines) {
		return false
	}
	l := lines[line-1]
	return strings.Contains(l[:len(l)-len(strings.TrimLeft(l, " \t"))], "\t")
}

func syntaxFault(text string, err error, at Where) Fault {
	e, ok := errors.AsType[*yaml.LoadError](err)
	if !ok {
		return Fault{Where: at, Message: "not YAML: " + err.Error()}
	}
	if at.Layer == FromFile {
		at.Line, at.Col = e.Mark.Line, e.Mark.Column
	}
	message := "not YAML: " + e.Message
	if at.Layer == FromFile && tabAt(text, e.Mark.Line) {
		return Fault{Where: at, Message: "the line begins with a tab; YAML indents with spaces"}
	}
	if e.ContextMsg != "" && e.ContextMark != e.Mark {
		message += fmt.Sprintf(" %s from %d:%d on", e.ContextMsg, e.ContextMark.Line, e.ContextMark.Column)
	}
	return Fault{Where: at, Message: message}
}

// converter turns the parser's tree into nodes.
type converter struct {
	noun    string
	at      Where
	anchors map[string]*Node
	nodes   int
	faults  []Fault
}

func (c *converter) where(n *yaml.Node) Where {
	at := c.at
	if at.Layer == FromFile { // a place within a flag's text helps nobody
		at.Line, at.Col = n.Line, n.Column
	}
	return at
}

func (c *converter) bad(n *yaml.Node, path, message string) {
	c.faults = append(c.faults, Fault{Where: c.where(n), Path: path, Message: message})
}

func (c *converter) convert(n *yaml.Node, path string, depth int) *Node {
	at := c.where(n)
	if c.nodes++; c.nodes > maxNodes || depth > maxDepth {
		if c.nodes == maxNodes+1 || depth == maxDepth+1 {
			c.bad(n, path, fmt.Sprintf("nests deeper than %d levels or has more than %d values", maxDepth, maxNodes))
		}
		return &Node{at: at}
	}
	if n.Style&yaml.TaggedStyle != 0 {
		message := fmt.Sprintf("tags such as %s are not used in %ss", n.Tag, c.noun)
		if strings.HasPrefix(n.Tag, "!=") {
			message += `; write a condition in quotes: "!= 0"`
		}
		c.bad(n, path, message)
		return &Node{kind: scalarNode, quoted: true, at: at}
	}
	var out *Node
	switch n.Kind {
	case yaml.ScalarNode:
		quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
		if out = (&Node{kind: scalarNode, text: n.Value, quoted: quoted, at: at}); n.Tag == "!!null" && !quoted {
			out = &Node{at: at}
		}
	case yaml.SequenceNode:
		out = &Node{kind: listNode, at: at, items: make([]*Node, 0, len(n.Content))}
		for i, item := range n.Content {
			out.items = append(out.items, c.convert(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case yaml.MappingNode:
		out = c.mapping(n.Content, path, at, depth)
	default: // an alias
		of := c.anchors[n.Value]
		if of == nil {
			c.bad(n, path, fmt.Sprintf("the alias *%s is inside of its own anchor", n.Value))
			return &Node{at: at}
		}
		// The copy counts against maxNodes, or nested aliases would grow without bound.
		if c.nodes += of.size(); c.nodes > maxNodes {
			c.bad(n, path, fmt.Sprintf("aliases make more than %d values", maxNodes))
			return &Node{at: at}
		}
		return of.clone()
	}
	if n.Anchor != "" { // known only once it is whole, so that an alias can not reach into its own anchor
		c.anchors[n.Anchor] = out
	}
	return out
}

// mapping converts keys and values, which alternate.
func (c *converter) mapping(content []*yaml.Node, path string, at Where, depth int) *Node {
	out := &Node{kind: mappingNode, at: at}
	for i := 0; i+1 < len(content); i += 2 {
		k, key := content[i], content[i].Value
		switch {
		case k.Tag == "!!merge":
			c.bad(k, path, "merge keys (<<) are not used in "+c.noun+"s; write the keys out")
			continue
		case k.Kind != yaml.ScalarNode:
			c.bad(k, path, "keys are plain words")
			continue
		case out.get(key) != nil:
			c.bad(k, Join(path, key), fmt.Sprintf("is given twice, first at line %d", firstLine(out, key)))
			continue
		}
		value := c.convert(content[i+1], Join(path, key), depth+1)
		out.entries = append(out.entries, entry{key, c.where(k), value})
	}
	return out
}

func (n *Node) size() int {
	total := 1
	for _, i := range n.items {
		total += i.size()
	}
	for _, e := range n.entries {
		total += e.value.size()
	}
	return total
}

func (n *Node) clone() *Node {
	out := *n
	out.items, out.entries = nil, nil
	for _, i := range n.items {
		out.items = append(out.items, i.clone())
	}
	for _, e := range n.entries {
		out.entries = append(out.entries, entry{e.key, e.at, e.value.clone()})
	}
	return &out
}

// firstLine is the line of a mapping's key.
func firstLine(n *Node, key string) int {
	for _, e := range n.entries {
		if e.key == key {
			return e.at.Line
		}
	}
	return 0
}

package conf

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// The parser's time grows with the square of the nesting and of some malformed inputs, so both are bounded before it
// runs. A configuration is a few hundred lines.
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
	// Checked before the lexer runs: its time too grows with the square of the depth.
	if line := tooDeep([]byte(text)); line > 0 {
		at.Line, at.Col = line, 1
		return nil, []Fault{{Where: at, Message: fmt.Sprintf("nests deeper than %d levels", maxDepth)}}
	}
	file, err := parser.Parse(joinColons(lexer.Tokenize(text)), 0, parser.AllowDuplicateMapKey())
	if err != nil {
		f := syntaxFault(err, at)
		f.Message = showVariables(f.Message, variables) + unquoted(string(data), f.Where.Line)
		return nil, []Fault{f}
	}
	c := converter{noun: s.o.Noun, at: at, anchors: map[string]*Node{}}
	var root *Node
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if root != nil {
			c.bad(doc.Body, "", "a "+c.noun+" is one YAML document; this begins another")
			break
		}
		root = c.convert(doc.Body, "", 0)
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

// tooDeep returns the first line whose brackets or list marks nest deeper than maxDepth, or 0. It counts brackets in
// strings and comments too, which no real file has so many of.
func tooDeep(data []byte) int {
	line, flow := 1, 0
	for text := range strings.SplitSeq(string(data), "\n") {
		if block := strings.Count(text, "- ") + strings.Count(text, "? ") + strings.Count(text, "-\t"); block > maxDepth {
			return line
		}
		for _, r := range text {
			switch r {
			case '[', '{':
				if flow++; flow > maxDepth {
					return line
				}
			case ']', '}':
				flow = max(0, flow-1)
			}
		}
		line++
	}
	return 0
}

// joinColons puts plain words with a colon inside, such as localhost:9092, together again within flow collections, where
// the lexer takes a colon without a space behind it for the end of a key. YAML 1.2 section 7.3.3 says it is none.
func joinColons(tokens token.Tokens) token.Tokens {
	var out token.Tokens
	flow := 0
	for i := 0; i < len(tokens); i++ {
		t := tokens[i]
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			flow++
		case token.SequenceEndType, token.MappingEndType:
			flow--
		}
		if flow > 0 && t.Type == token.MappingValueType && len(out) > 0 && i+1 < len(tokens) {
			prev, next := out[len(out)-1], tokens[i+1]
			if plain(prev) && plain(next) && touches(prev, t) && touches(t, next) {
				value := prev.Value + ":" + next.Value
				out[len(out)-1] = token.String(value, prev.Origin+":"+next.Origin, prev.Position)
				i++
				continue
			}
		}
		out = append(out, t)
	}
	// The parser walks the list by its links too.
	for i, t := range out {
		t.Prev, t.Next = nil, nil
		if i > 0 {
			t.Prev, out[i-1].Next = out[i-1], t
		}
	}
	return out
}

func plain(t *token.Token) bool {
	switch t.Type {
	case token.StringType, token.IntegerType, token.FloatType, token.BoolType, token.NullType,
		token.OctetIntegerType, token.HexIntegerType, token.BinaryIntegerType:
		return true
	}
	return false
}

// touches tells that b begins where a ends.
func touches(a, b *token.Token) bool {
	return a.Position.Line == b.Position.Line && a.Position.Column+len([]rune(a.Value)) == b.Position.Column
}

func syntaxFault(err error, at Where) Fault {
	if e, ok := errors.AsType[yaml.Error](err); ok {
		if t := e.GetToken(); t != nil && t.Position != nil {
			at.Line, at.Col = t.Position.Line, t.Position.Column
		}
		return Fault{Where: at, Message: "not YAML: " + e.GetMessage()}
	}
	return Fault{Where: at, Message: "not YAML: " + err.Error()}
}

// converter turns the parser's tree into nodes.
type converter struct {
	noun    string
	at      Where
	anchors map[string]*Node
	nodes   int
	faults  []Fault
}

func (c *converter) where(n ast.Node) Where {
	at := c.at
	if at.Layer != FromFile {
		return at // a place within a flag's text helps nobody
	}
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		n = m.Values[0].Key // the mapping's own token is its first colon
	}
	if t := n.GetToken(); t != nil && t.Position != nil {
		at.Line, at.Col = t.Position.Line, t.Position.Column
	}
	return at
}

func (c *converter) bad(n ast.Node, path, message string) {
	c.faults = append(c.faults, Fault{Where: c.where(n), Path: path, Message: message})
}

func (c *converter) convert(n ast.Node, path string, depth int) *Node {
	at := c.where(n)
	if c.nodes++; c.nodes > maxNodes || depth > maxDepth {
		if c.nodes == maxNodes+1 || depth == maxDepth+1 {
			c.bad(n, path, fmt.Sprintf("nests deeper than %d levels or has more than %d values", maxDepth, maxNodes))
		}
		return &Node{at: at}
	}
	switch v := n.(type) {
	case *ast.NullNode:
		return &Node{at: at}
	case *ast.StringNode:
		quoted := v.Token.Type == token.SingleQuoteType || v.Token.Type == token.DoubleQuoteType
		return &Node{kind: scalarNode, text: v.Value, quoted: quoted, at: at}
	case *ast.LiteralNode:
		return &Node{kind: scalarNode, text: v.Value.Value, quoted: true, at: at}
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return &Node{kind: scalarNode, text: n.GetToken().Value, at: at}
	case *ast.SequenceNode:
		out := &Node{kind: listNode, at: at, items: make([]*Node, 0, len(v.Values))}
		for i, item := range v.Values {
			out.items = append(out.items, c.convert(item, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
		return out
	case *ast.MappingNode:
		return c.mapping(v.Values, path, at, depth)
	case *ast.MappingValueNode:
		return c.mapping([]*ast.MappingValueNode{v}, path, at, depth)
	case *ast.AnchorNode:
		// Registered only once it is whole, so that an alias can not reach into its own anchor.
		out := c.convert(v.Value, path, depth+1)
		c.anchors[v.Name.String()] = out
		return out
	case *ast.AliasNode:
		name := v.Value.String()
		out := c.anchors[name]
		if out == nil {
			c.bad(n, path, fmt.Sprintf("no anchor &%s stands before this alias", name))
			return &Node{at: at}
		}
		// The copy counts against maxNodes, or nested aliases would grow without bound.
		if c.nodes += out.size(); c.nodes > maxNodes {
			c.bad(n, path, fmt.Sprintf("aliases make more than %d values", maxNodes))
			return &Node{at: at}
		}
		return out.clone()
	case *ast.TagNode:
		message := fmt.Sprintf("tags such as %s are not used in %ss", v.GetToken().Value, c.noun)
		if strings.HasPrefix(v.GetToken().Value, "!=") {
			message += `; write a condition in quotes: "!= 0"`
		}
		c.bad(n, path, message)
		return &Node{kind: scalarNode, quoted: true, at: at}
	}
	c.bad(n, path, fmt.Sprintf("a %s is not used in %ss", strings.ToLower(n.Type().String()), c.noun))
	return &Node{at: at}
}

func (c *converter) mapping(values []*ast.MappingValueNode, path string, at Where, depth int) *Node {
	out := &Node{kind: mappingNode, at: at}
	for _, v := range values {
		keyAt := c.where(v.Key)
		key := v.Key.GetToken().Value
		switch v.Key.(type) {
		case *ast.StringNode, *ast.IntegerNode, *ast.BoolNode, *ast.FloatNode, *ast.NullNode:
		case *ast.MergeKeyNode:
			c.bad(v.Key, path, "merge keys (<<) are not used in "+c.noun+"s; write the keys out")
			continue
		default:
			c.bad(v.Key, path, "keys are plain words")
			continue
		}
		if out.get(key) != nil {
			c.bad(v.Key, Join(path, key), fmt.Sprintf("is given twice, first at line %d", firstLine(out, key)))
			continue
		}
		value := c.convert(v.Value, Join(path, key), depth+1)
		out.entries = append(out.entries, entry{key, keyAt, value})
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

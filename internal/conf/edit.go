package conf

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// KeyText is a key path of a configuration and a value as a file has it: a word, a number or YAML in
// flow style, such as {lr: 0.1}.
type KeyText struct{ Path, Value string }

// ErrEdit means that a text has a form that [Edit] cannot change in place: an alias, a block of
// text, or the short form of another key. Write the key out in the file.
var ErrEdit = errors.New("cannot be changed in place")

// Edit sets keys in the text of a configuration. Comments, order, layout and variables stay as they
// are: it changes the value of a key that is there, and adds one that is not to its section. The
// caller checks the result: Edit knows no schema. Errors: [ErrEdit] with the key.
func Edit(text []byte, set []KeyText) ([]byte, error) {
	hidden, variables := hideVariables(string(text))
	for _, kv := range set {
		var err error
		if hidden, err = edit(hidden, kv); err != nil {
			return nil, fmt.Errorf("%s: %w", kv.Path, err)
		}
	}
	return []byte(showVariables(hidden, variables)), nil
}

// edit sets one key.
func edit(text string, kv KeyText) (_ string, err error) {
	defer func() { // as in parse: a bug in the parser must not take the process down
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: %v", ErrEdit, r)
		}
	}()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return "", fmt.Errorf("%w: %w", ErrEdit, err)
	}
	if len(doc.Content) == 0 || doc.Content[0].Kind != yaml.MappingNode {
		return "", fmt.Errorf("%w: the file is no mapping", ErrEdit)
	}
	e := &editor{text: text}
	for at := 0; at <= len(text); {
		e.lines = append(e.lines, at)
		n := strings.IndexByte(text[at:], '\n')
		if n < 0 {
			break
		}
		at += n + 1
	}
	path := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(kv.Path), ".")
	n, key := doc.Content[0], (*yaml.Node)(nil)
	for i, seg := range path {
		rest, err := nested(path[i:], kv.Value)
		if err != nil && n.Kind != yaml.SequenceNode && n.Kind != yaml.MappingNode {
			return "", err
		}
		switch {
		case n.Kind == yaml.MappingNode:
			k, v := entryOf(n, seg)
			if k == nil {
				if err != nil {
					return "", err
				}
				return e.insert(n, rest)
			}
			n, key = v, k
		case n.Kind == yaml.SequenceNode:
			at, err := strconv.Atoi(seg)
			if err != nil || at < 0 || at >= len(n.Content) {
				return "", fmt.Errorf("%w: the list has no element %q", ErrEdit, seg)
			}
			n, key = n.Content[at], nil
		case n.Kind == yaml.ScalarNode && n.Tag == "!!null" && key != nil:
			return e.replace(key, n, "{"+rest+"}")
		case n.Kind == yaml.ScalarNode && n.Value == seg:
			return e.replace(key, n, "{"+rest+"}")
		default:
			return "", fmt.Errorf("%w: line %d has an alias or a short form; write it out", ErrEdit, n.Line)
		}
	}
	return e.replace(key, n, kv.Value)
}

// entryOf finds a key of a mapping; nil: there is none.
func entryOf(n *yaml.Node, name string) (key, value *yaml.Node) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], n.Content[i+1]
		}
	}
	return nil, nil
}

// nested writes key: {key: value}.
func nested(path []string, value string) (string, error) {
	out := value
	for i, name := range slices.Backward(path) {
		if _, err := strconv.Atoi(name); err == nil {
			return "", fmt.Errorf("%w: there is no such list", ErrEdit)
		}
		if out = name + ": " + out; i > 0 {
			out = "{" + out + "}"
		}
	}
	return out, nil
}

// editor changes a text at the places of its nodes.
type editor struct {
	text  string
	lines []int // where each begins
}

// begin is the offset of a node. The parser counts lines and characters from 1.
func (e *editor) begin(n *yaml.Node) int {
	at := e.lines[n.Line-1]
	for range n.Column - 1 {
		_, size := utf8.DecodeRuneInString(e.text[at:])
		at += size
	}
	return at
}

// end is the offset behind a node. A value that is not written ends where its key's colon does.
func (e *editor) end(key, n *yaml.Node) (int, error) {
	at := 0
	if n.Line > 0 {
		at = e.begin(n)
	}
	odd := fmt.Errorf("%w: line %d has a form that is not known; write it out", ErrEdit, n.Line)
	if n.Anchor != "" {
		return 0, odd
	}
	switch {
	case n.Kind == yaml.AliasNode:
		return at + 1 + len(n.Value), nil
	case n.Kind == yaml.ScalarNode && n.Value == "" && n.Tag == "!!null" && key != nil:
		end, err := e.end(nil, key)
		if err != nil || !strings.HasPrefix(e.text[end:], ":") {
			return 0, odd
		}
		return end + 1, nil
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) != 0:
		return 0, odd
	case n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		quote := e.text[at]
		for i := at + 1; i < len(e.text); i++ {
			switch {
			case e.text[i] == '\\' && quote == '"':
				i++
			case e.text[i] != quote:
			case quote == '\'' && strings.HasPrefix(e.text[i+1:], "'"):
				i++
			default:
				return i + 1, nil
			}
		}
		return 0, odd
	case n.Kind == yaml.ScalarNode:
		if !strings.HasPrefix(e.text[at:], n.Value) {
			return 0, odd
		}
		return at + len(n.Value), nil
	}
	last := at + 1 // behind the bracket
	if c := n.Content; len(c) > 0 {
		var lastKey *yaml.Node
		if n.Kind == yaml.MappingNode {
			lastKey = c[len(c)-2]
		}
		var err error
		if last, err = e.end(lastKey, c[len(c)-1]); err != nil {
			return 0, err
		}
	}
	if n.Style&yaml.FlowStyle == 0 {
		return last, nil
	}
	for i := last; i < len(e.text); i++ {
		switch e.text[i] {
		case '}', ']':
			return i + 1, nil
		case '#':
			for i < len(e.text) && e.text[i] != '\n' {
				i++
			}
		case ' ', '\t', '\r', '\n', ',':
		default:
			return 0, odd
		}
	}
	return 0, odd
}

// replace gives a key another value.
func (e *editor) replace(key, n *yaml.Node, value string) (string, error) {
	end, err := e.end(key, n)
	if err != nil {
		return "", err
	}
	var begin int
	switch block := n.Kind != yaml.ScalarNode && n.Style&yaml.FlowStyle == 0; {
	case n.Kind == yaml.AliasNode, !block && (n.Tag != "!!null" || n.Value != ""):
		begin = e.begin(n)
	case key == nil:
		return "", fmt.Errorf("%w: line %d", ErrEdit, n.Line)
	default:
		if begin, err = e.end(nil, key); err != nil || !strings.HasPrefix(e.text[begin:], ":") {
			return "", fmt.Errorf("%w: line %d", ErrEdit, key.Line)
		}
		begin++
		value = " " + value
	}
	return e.text[:begin] + value + e.text[end:], nil
}

// insert adds an entry behind the last one of a mapping.
func (e *editor) insert(n *yaml.Node, entry string) (string, error) {
	c := n.Content
	if len(c) == 0 {
		at := e.begin(n) + 1
		return e.text[:at] + entry + e.text[at:], nil
	}
	end, err := e.end(c[len(c)-2], c[len(c)-1])
	indent := strings.Repeat(" ", n.Column-1)
	switch flow := n.Style&yaml.FlowStyle != 0; {
	case flow && err != nil:
		return "", err
	case flow:
		return e.text[:end] + ", " + entry + e.text[end:], nil
	case errors.Is(err, ErrEdit): // where the last value ends is not known: in front of the first
		at := e.begin(c[0])
		return e.text[:at] + entry + "\n" + indent + e.text[at:], nil
	}
	if to := strings.IndexByte(e.text[end:], '\n'); to >= 0 {
		return e.text[:end+to] + "\n" + indent + entry + e.text[end+to:], nil
	}
	return e.text + "\n" + indent + entry + "\n", nil
}

package conf

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
)

// Layers are what lies above the file.
type Layers struct {
	// Set holds key.path=value overrides, the later ones winning; keys of sections that exclude each other are a fault. A list element is key[0] or key.0. The value is written
	// as in the file; a list of plain words may be written a,b,c.
	Set []string
	// Flags names the command-line flag behind an element of Set that was not typed as --set:
	// Flags["runner=prism"] is "--runner". Errors about the value name this flag.
	Flags map[string]string
	// Env holds NAME=value pairs, usually os.Environ(). PREFIX_TRAIN_BATCH sets train.batch. Variables are also where
	// secrets of the form {env: NAME} are looked up.
	Env []string
}

// Places describes where each value of a configuration came from. It is only read; nil is a configuration made in Go, whose values
// have no places.
type Places struct {
	file  string
	where map[string]Where
	notes []string
	raw   Raw
}

// Raw is what a configuration was made of, for another process to make it again. It has those variables only that set keys:
// others, which may hold secrets, stay where they are.
type Raw struct {
	Text []byte   `json:"text"`
	Name string   `json:"name"`
	Set  []string `json:"set,omitempty"`
	Env  []string `json:"env,omitempty"`
}

// File is the path of the file, empty for a configuration made in Go.
func (p *Places) File() string {
	if p == nil {
		return ""
	}
	return p.file
}

// Raw returns what the configuration was made of.
func (p *Places) Raw() Raw {
	if p == nil {
		return Raw{}
	}
	return p.raw
}

// Notes lists environment variables that look like settings but are none.
func (p *Places) Notes() []string {
	if p == nil {
		return nil
	}
	return p.notes
}

// Set reports whether a layer above the defaults has set a key.
func (p *Places) Set(path string) bool { return p != nil && p.where[path].Layer != FromDefault }

// At finds where a key was set, or the innermost section around it that was.
func (p *Places) At(path string) Where {
	if p == nil {
		return Where{}
	}
	for q := path; q != ""; {
		if w, ok := p.where[q]; ok && w.Layer != FromDefault {
			return w
		}
		i := strings.LastIndexAny(q, ".[")
		if i < 0 {
			break
		}
		q = q[:i]
	}
	if p.file != "" {
		return Where{Layer: FromFile, Name: p.file}
	}
	return Where{}
}

// Decode fills a struct of the schema, given by pointer, from the text of a file and the layers above it; name stands for
// the file in messages. Without a document there are faults and no places.
func (s *Schema) Decode(data []byte, name string, l Layers, into any) (*Places, []Fault) {
	root, faults := s.parse(data, Where{Layer: FromFile, Name: name})
	if root == nil || root.kind == nullNode {
		if len(faults) == 0 {
			faults = []Fault{{Where: Where{Layer: FromFile, Name: name}, Message: "is empty" + s.o.Empty}}
		}
		return nil, faults
	}
	d := &decoder{schema: s, env: environ(l.Env), where: map[string]Where{}, unset: map[Where]bool{}, faults: faults}
	d.substitute(root, "")
	notes := d.overlayEnv(root, l.Env)
	d.overlayFlags(root, l)
	d.section(root, reflect.ValueOf(into).Elem(), "")
	return &Places{file: name, where: d.where, notes: notes, raw: Raw{Text: data, Name: name, Set: l.Set, Env: s.settings(l.Env)}}, d.faults
}

// Assign fills a struct of the schema, given by pointer, from the defaults, keys and their values, which count as defaults
// too, and key=value overrides.
func (s *Schema) Assign(keys [][2]string, l Layers, into any) (*Places, []Fault) {
	root := &Node{kind: mappingNode}
	d := &decoder{schema: s, env: environ(l.Env), where: map[string]Where{}}
	for _, k := range keys {
		d.assign(root, k[0], k[1], Where{})
	}
	d.overlayFlags(root, l)
	d.section(root, reflect.ValueOf(into).Elem(), "")
	return &Places{where: d.where}, d.faults
}

// Default fills a struct of the schema, given by pointer, with every default and nothing else.
func (s *Schema) Default(into any) *Places {
	d := &decoder{schema: s, where: map[string]Where{}}
	d.section(nil, reflect.ValueOf(into).Elem(), "")
	return &Places{where: d.where}
}

// settings are the variables that set keys.
func (s *Schema) settings(env []string) (out []string) {
	known := map[string]bool{}
	for _, k := range s.keys {
		known[k.Env] = k.Env != ""
	}
	for _, kv := range env {
		if name, _, _ := strings.Cut(kv, "="); known[name] {
			out = append(out, kv)
		}
	}
	return out
}

// Merge puts what checks found after what reading found, without what fails only because of that: a value that could not
// be read, or a key that is «missing» because its name is misspelt.
func Merge(read, checked []Fault) []Fault {
	out := slices.Clone(read)
	for _, f := range checked {
		if !explained(f, read) {
			out = append(out, f)
		}
	}
	return out
}

// explained reports whether a check fails only because of something already reported.
func explained(f Fault, reported []Fault) bool {
	for _, r := range reported {
		if r.Path == "" && r.Message != "" {
			return true // the file could not be read to its end
		}
		if r.Path == f.Path || strings.HasPrefix(f.Path, r.Path+".") || strings.HasPrefix(r.Path, f.Path+".") || strings.HasPrefix(r.Path, f.Path+"[") {
			return true
		}
		if r.Suggestion != "" {
			parent := r.Path[:max(0, strings.LastIndexByte(r.Path, '.'))]
			if meant := Join(parent, r.Suggestion); meant == f.Path || strings.HasPrefix(f.Path, meant+".") {
				return true
			}
		}
	}
	return false
}

func environ(env []string) map[string]string {
	out := make(map[string]string, len(env))
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok {
			out[k] = v
		}
	}
	return out
}

// overlayEnv sets every key whose variable is there, the outer ones first, and returns notes on variables that look like
// settings. Those are no faults: Kubernetes, for one, adds MONOLITH_SERVICE_HOST for a service named monolith.
func (d *decoder) overlayEnv(root *Node, env []string) (notes []string) {
	known := map[string]bool{}
	var names []string
	for _, k := range d.schema.keys {
		if k.Env == "" {
			continue
		}
		known[k.Env] = true
		names = append(names, k.Env)
		text, ok := d.env[k.Env]
		if !ok || slices.Contains(d.schema.o.Fixed, k.Path) {
			continue
		}
		at := Where{Layer: FromEnv, Name: k.Env}
		if k.Type == "secret" {
			// The variable holds the secret itself, so it becomes the place the secret is kept.
			text = "{env: " + k.Env + "}"
		}
		d.assign(root, k.Path, text, at)
	}
	for _, kv := range env {
		name, _, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, d.schema.o.EnvPrefix) || known[name] || slices.Contains(d.schema.o.Reserved, name) {
			continue
		}
		note := fmt.Sprintf("environment variable %s sets nothing", name)
		if near := nearest.Name(name, names); near != "" {
			note += fmt.Sprintf("; did you mean %s?", near)
		}
		notes = append(notes, note)
	}
	slices.Sort(notes)
	return notes
}

func (d *decoder) overlayFlags(root *Node, l Layers) {
	for _, s := range l.Set {
		path, text, ok := strings.Cut(s, "=")
		if path = strings.TrimSpace(path); !ok || path == "" {
			d.fault(Where{Layer: FromFlag, Name: s}, "", "wants key.path=value", "")
			continue
		}
		d.assign(root, path, text, Where{Layer: FromFlag, Name: path, Flag: l.Flags[s]})
	}
}

// assign sets one key path of the tree to the value written in text, making the sections on the way. In a section whose
// keys exclude each other it replaces the choice of a lower layer.
func (d *decoder) assign(root *Node, path, text string, at Where) {
	segments := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
	n, t, done := root, d.schema.root, ""
	for _, seg := range segments {
		t = deref(t)
		if t.Kind() == reflect.Slice {
			i, err := strconv.Atoi(seg)
			if err != nil || n.kind != listNode || i < 0 || i >= len(n.items) {
				d.fault(at, done, fmt.Sprintf("has no element %q; it has %d", seg, len(n.items)), "")
				return
			}
			n, t, done = n.items[i], t.Elem(), fmt.Sprintf("%s[%d]", done, i)
			continue
		}
		if !isSection(t) {
			if n.kind != mappingNode { // a secret's env and file, an offset's partition
				*n = Node{kind: mappingNode, at: at}
			}
			n, t, done = ensure(n, seg, at), reflect.TypeFor[string](), Join(done, seg)
			continue
		}
		fields := d.schema.fields(t)
		f, ok := findField(fields, seg)
		if !ok {
			d.unknown(entry{key: seg, at: at}, done, fieldNames(fields))
			return
		}
		if n.kind == scalarNode {
			if n = d.expand(n, t, fields, done); n == nil {
				return
			}
		}
		if n.kind != mappingNode {
			*n = Node{kind: mappingNode, at: at}
		}
		if isChoice(t) && (f.create != nil || !isPick(t)) {
			beside := func(e entry) bool { return isPick(t) && !isAlternative(fields, e.key) }
			for _, e := range n.entries {
				if beside(e) || e.key == f.name || e.key == f.alias || at.Layer == FromDefault {
					continue
				}
				if other, ok := e.value.setBy(at.Layer); ok {
					d.fault(at, Join(done, f.name), fmt.Sprintf("contradicts %s: %s is either %s or %s; leave out one of them", other, done, e.key, f.name), "")
					return
				}
			}
			n.entries = slices.DeleteFunc(n.entries, func(e entry) bool { return e.key != f.name && !beside(e) })
		}
		key := f.name
		if f.alias != "" && n.get(f.alias) != nil {
			key = f.alias
		}
		n, t, done = ensure(n, key, at), f.typ, Join(done, f.name)
	}
	value, faults := d.schema.textNode(text, t, at)
	for _, f := range faults {
		f.Path = done
		d.faults = append(d.faults, f)
	}
	if value != nil {
		*n = *value
	}
}

// expand writes a short form out in place, so that a key beside it can be set.
func (d *decoder) expand(n *Node, t reflect.Type, fields []field, path string) *Node {
	long := d.shortForm(n, t, fields, path)
	if long == nil || long == n {
		return long
	}
	if e := long.entries[0].value; e == n {
		clone := *n
		long.entries[0].value = &clone
	}
	*n = *long
	return n
}

// setBy finds what a layer has set of a node.
func (n *Node) setBy(layer Layer) (Where, bool) {
	if n.at.Layer == layer {
		return n.at, true
	}
	for _, e := range n.entries {
		if at, ok := e.value.setBy(layer); ok {
			return at, true
		}
	}
	for _, item := range n.items {
		if at, ok := item.setBy(layer); ok {
			return at, true
		}
	}
	return Where{}, false
}

func ensure(n *Node, key string, at Where) *Node {
	if child := n.get(key); child != nil {
		return child
	}
	child := &Node{at: at}
	n.set(key, child)
	return child
}

// textNode reads a value as a flag, a variable or a default writes it: words and numbers are taken as they are, lists and
// sections are YAML, and a list of words may also be written a,b,c.
func (s *Schema) textNode(text string, t reflect.Type, at Where) (*Node, []Fault) {
	t = deref(t)
	trimmed := strings.TrimSpace(text)
	composite := t.Kind() == reflect.Slice || isSection(t) || isCustom(t)
	switch {
	case !composite, composite && t.Kind() != reflect.Slice && !strings.HasPrefix(trimmed, "{"):
		return &Node{kind: scalarNode, text: text, at: at}, nil
	case t.Kind() == reflect.Slice && !isSection(t.Elem()) && !strings.HasPrefix(trimmed, "["):
		list := &Node{kind: listNode, at: at}
		for item := range strings.SplitSeq(trimmed, ",") {
			if item = strings.TrimSpace(item); item != "" {
				list.items = append(list.items, &Node{kind: scalarNode, text: item, at: at})
			}
		}
		return list, nil
	}
	return s.parse([]byte(text), at)
}

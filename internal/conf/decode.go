package conf

import (
	"cmp"
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
)

// decoder fills a struct from nodes, noting where each value came from and every fault.
type decoder struct {
	schema *Schema
	env    map[string]string
	where  map[string]Where
	faults []Fault
	// unset are the places of values with an environment variable that is not set. That they are not what their keys want
	// either follows from it.
	unset map[Where]bool
}

func (d *decoder) fault(at Where, path, message, suggestion string) {
	if d.unset[at] {
		return
	}
	d.faults = append(d.faults, Fault{Where: at, Path: path, Message: message, Suggestion: suggestion})
}

// unknown reports a key that is none of names.
func (d *decoder) unknown(e entry, path string, names []string) {
	message := "unknown key"
	near := nearest.Name(e.key, names)
	elsewhere := d.keysNamed(e.key)
	switch {
	case len(elsewhere) == 1 && path == "":
		near = elsewhere[0]
	case near == "" && len(elsewhere) > 5:
		message += fmt.Sprintf(" here; there is %s and %d others", strings.Join(elsewhere[:3], ", "), len(elsewhere)-3)
	case near == "" && len(elsewhere) > 0:
		message += " here; there is " + strings.Join(elsewhere, ", ")
	case near == "":
		message += "; known here: " + strings.Join(names, ", ")
	}
	d.fault(e.at, Join(path, e.key), message, near)
}

// unknownChoice reports a choice, of a model for example, that is none of names.
func (d *decoder) unknownChoice(at Where, path, choice string, names []string) {
	message := fmt.Sprintf("%q is none of %s", choice, strings.Join(names, ", "))
	d.fault(at, path, message, nearest.Name(choice, names))
}

// keysNamed lists the paths of keys outside of lists that have a name, that of the outermost section first.
func (d *decoder) keysNamed(name string) (out []string) {
	for _, k := range d.schema.keys {
		if k.Env != "" && strings.HasSuffix("."+k.Path, "."+name) {
			out = append(out, k.Path)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int {
		return cmp.Compare(min(strings.Count(a, "."), 1), min(strings.Count(b, "."), 1))
	})
	return out
}

// section fills a struct from a mapping; n may be nil or null for defaults alone.
func (d *decoder) section(n *Node, v reflect.Value, path string) {
	fields := d.schema.fields(v.Type())
	if n != nil && n.kind != nullNode {
		if n.kind == scalarNode {
			n = d.shortForm(n, v.Type(), fields, path)
		}
		if n == nil {
			return
		}
		if n.kind != mappingNode {
			d.fault(n.at, path, "wants keys and values, not "+n.Describe(), "")
			return
		}
		if path != "" {
			d.where[path] = n.at
		}
		for _, e := range n.entries {
			switch _, ok := findField(fields, e.key); {
			case ok:
			case isPick(v.Type()) && len(alternatives(fields)) < len(fields) && chosenBy(n, fields): // a misspelt key beside the choice
				d.unknown(e, path, fieldNames(fields))
			case isPick(v.Type()):
				d.unknownChoice(e.at, path, e.key, fieldNames(alternatives(fields)))
			case isChoice(v.Type()):
				d.unknownChoice(e.at, path, e.key, fieldNames(fields))
			default:
				d.unknown(e, path, fieldNames(fields))
			}
		}
	}
	if isChoice(v.Type()) && n != nil {
		var names []string
		var second Where
		for _, e := range n.entries {
			if isPick(v.Type()) && !isAlternative(fields, e.key) {
				continue
			}
			if names = append(names, e.key); len(names) == 2 {
				second = e.at
			}
		}
		if len(names) > 1 {
			d.fault(second, path, "takes one of its keys, not "+strings.Join(names, " and "), "")
		}
	}
	if p, ok := reflect.TypeAssert[picker](v.Addr()); ok {
		for _, f := range alternatives(fields) {
			if child := d.child(n, f, path); child != nil {
				x := reflect.ValueOf(f.create())
				d.value(child, x.Elem(), Join(path, f.name))
				p.pick(f.name, x.Interface())
				break
			}
		}
	}
	for _, f := range fields {
		if f.create != nil {
			continue
		}
		child, childPath := d.child(n, f, path), Join(path, f.name)
		if child == nil && f.hasDefault {
			var faults []Fault
			child, faults = d.schema.textNode(f.def, f.typ, Where{})
			d.faults = append(d.faults, faults...) // a default that cannot be read fails the tests of this package
		}
		if child != nil || isSection(f.typ) {
			d.value(child, v.FieldByIndex(f.index), childPath)
		}
	}
}

// isAlternative reports whether the key is an alternative of a [Pick].
func isAlternative(fields []field, key string) bool {
	f, ok := findField(fields, key)
	return ok && f.create != nil
}

// chosenBy reports whether a mapping has one of the alternatives.
func chosenBy(n *Node, fields []field) bool {
	return slices.ContainsFunc(n.entries, func(e entry) bool { return isAlternative(fields, e.key) })
}

// child finds a key under its name or alias; both at once is a fault.
func (d *decoder) child(n *Node, f field, path string) *Node {
	if n == nil {
		return nil
	}
	child := n.get(f.name)
	if f.alias != "" {
		if other := n.get(f.alias); other != nil {
			if child != nil {
				d.fault(other.at, Join(path, f.alias), fmt.Sprintf("is another name for %s, which is given too", f.name), "")
			}
			child = other
		}
	}
	return child
}

// shortForm turns a plain word into the mapping it stands for: the chosen alternative of a [Choice], or the key marked short.
func (d *decoder) shortForm(n *Node, t reflect.Type, fields []field, path string) *Node {
	if isChoice(t) {
		if isPick(t) {
			fields = alternatives(fields)
		}
		if _, ok := findField(fields, n.text); ok {
			return &Node{kind: mappingNode, at: n.at, entries: []entry{{n.text, n.at, &Node{at: n.at}}}}
		}
		d.unknownChoice(n.at, path, n.text, fieldNames(fields))
		return nil
	}
	for _, f := range fields {
		if f.short {
			return &Node{kind: mappingNode, at: n.at, entries: []entry{{f.name, n.at, n}}}
		}
	}
	return n
}

// value fills any value; n may be nil for sections only.
func (d *decoder) value(n *Node, v reflect.Value, path string) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	if isSection(v.Type()) {
		d.section(n, v, path)
		return
	}
	d.where[path] = n.at
	if n.kind == nullNode {
		d.fault(n.at, path, "has no value", "")
		return
	}
	switch t := v.Addr().Interface().(type) {
	case *Secret:
		t.decode(d, n, path)
		return
	case Custom:
		t.DecodeNode(n, func(at Where, below, message string) {
			if below != "" {
				below = "." + below
			}
			d.fault(at, path+below, message, "")
		})
		return
	case encoding.TextUnmarshaler:
		if !d.scalar(n, path, v.Type()) {
			return
		}
		if err := t.UnmarshalText([]byte(n.text)); err != nil {
			d.fault(n.at, path, err.Error(), "")
		}
		return
	}
	if v.Kind() == reflect.Slice {
		d.list(n, v, path)
		return
	}
	if !d.scalar(n, path, v.Type()) {
		return
	}
	if v.Kind() == reflect.String {
		v.SetString(n.text)
		return
	}
	if err := setNumber(v, n.text); err != nil || n.quoted {
		d.fault(n.at, path, fmt.Sprintf("wants %s, not %s", wanted(v.Type()), n.Describe()), "")
	}
}

func (d *decoder) scalar(n *Node, path string, t reflect.Type) bool {
	if n.kind != scalarNode {
		d.fault(n.at, path, fmt.Sprintf("wants %s, not %s", wanted(t), n.Describe()), "")
		return false
	}
	return true
}

func (d *decoder) list(n *Node, v reflect.Value, path string) {
	if n.kind != listNode {
		d.fault(n.at, path, fmt.Sprintf("wants %s, not %s", wanted(v.Type()), n.Describe()), "")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.items), len(n.items)))
	for i, item := range n.items {
		itemPath := fmt.Sprintf("%s[%d]", path, i)
		if item.kind == nullNode {
			d.fault(item.at, itemPath, "has no value", "")
			continue
		}
		d.value(item, v.Index(i), itemPath)
	}
}

func setNumber(v reflect.Value, text string) error {
	switch v.Kind() {
	case reflect.Bool:
		// YAML 1.2 knows these two only; yes, on and 1 are a string, a string and a number.
		if text != "true" && text != "false" {
			return strconv.ErrSyntax
		}
		v.SetBool(text == "true")
	case reflect.Int, reflect.Int64:
		i, err := strconv.ParseInt(text, 0, 64)
		if err != nil {
			return err
		}
		v.SetInt(i)
	case reflect.Uint64:
		u, err := strconv.ParseUint(text, 0, 64)
		if err != nil {
			return err
		}
		v.SetUint(u)
	case reflect.Float64:
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || x != x || x-x != 0 { // NaN and infinities are no settings
			return strconv.ErrSyntax
		}
		v.SetFloat(x)
	default:
		return fmt.Errorf("conf: no way to read a %s", v.Type())
	}
	return nil
}

// wanted names a type in messages.
func wanted(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[Duration]():
		return "a duration such as 5m"
	case t == reflect.TypeFor[Size]():
		return "a size such as 4MiB"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Uint64:
		return "a whole number from 0 up"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	}
	return "a word"
}

package conf

import (
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Schema is what a configuration may hold: a struct type with tags. It is only read once it is made, also from several
// goroutines.
//
//	yaml      the key, or ",inline" for an embedded struct
//	alias     a second key for the same value
//	default   the value when no layer sets it, written as in a --set flag; keys without the tag have that of [Defaulted]
//	enum      the words allowed, separated by |; or @name, a list of [Options].Words
//	min, max  bounds, inclusive; above: a lower bound, exclusive
//	required  "true": must not be left out or empty
//	short     "true": a plain word in place of the section sets this key
//	blank     "true": words of the list may be empty
//
// Decoding, checking, environment names, listing what is in force and the reference page all go by it.
type Schema struct {
	root reflect.Type
	o    Options
	keys []Key
	// known are the fields of each type of section that there is a key of.
	known map[reflect.Type][]field
}

// Options are the name of a configuration and its surroundings.
type Options struct {
	// Noun is what messages call the configuration: "job".
	Noun string
	// Empty is what a message about an empty file adds.
	Empty string
	// EnvPrefix begins the names of the environment variables that set keys: "MONOLITH_".
	EnvPrefix string
	// Reserved are variables with that prefix that are no settings.
	Reserved []string
	// Alternatives are the sections that may be in each type that embeds a [Pick].
	Alternatives map[reflect.Type][]Alternative
	// Words are lists of words that a tag may name: enum:"@formats".
	Words map[string][]string
	// Fixed are keys that only the file sets.
	Fixed []string
}

// New makes the schema of a struct type.
func New[T any](o Options) *Schema {
	s := &Schema{root: reflect.TypeFor[T](), o: o, known: map[reflect.Type][]field{}}
	s.walk(s.root, "", true)
	return s
}

// Choice marks a section whose keys exclude each other. Its fields are pointers; the one that is not nil is chosen.
type Choice interface{ OneOf() }

// Custom is a value that reads itself from what is written. report says what is wrong with it: where, the key path below the
// value's own, and what.
type Custom interface {
	DecodeNode(n *Node, report func(at Where, below, message string))
}

// Word is a value of its own kind that may be a word, which the tag enum bounds.
type Word interface{ Word() string }

// Defaulted is a section whose defaults are those of the code that it configures, so that they are written down once, there.
// It is asked of the zero value; the text is what the tag default would have, by key. Keys of a struct that it embeds may be among them: its
// defaults come first.
type Defaulted interface{ Defaults() map[string]string }

// Described is a value of its own kind that says how it is written, for the reference page.
type Described interface{ Written() string }

func isChoice(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && (reflect.PointerTo(t).Implements(reflect.TypeFor[Choice]()) || isPick(t))
}

func isCustom(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[Custom]()) || t == reflect.TypeFor[Secret]()
}

// field is one key of a section.
type field struct {
	name, alias     string
	goName          string
	owner           reflect.Type // the struct whose source holds the doc comment
	index           []int
	typ             reflect.Type
	def             string
	hasDefault      bool
	enum            []string
	min, max, above *float64
	required, short bool
	blank           bool
	doc             string     // of an alternative
	create          func() any // an alternative
}

// fieldsOf lists the keys of a section type, inlined ones in their place.
func fieldsOf(t reflect.Type) []field {
	var out []field
	var defaults map[string]string
	if reflect.PointerTo(t).Implements(reflect.TypeFor[Defaulted]()) {
		d, _ := reflect.TypeAssert[Defaulted](reflect.New(t))
		defaults = d.Defaults()
	}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, inline := strings.CutSuffix(sf.Tag.Get("yaml"), ",inline")
		if inline {
			for _, f := range fieldsOf(sf.Type) {
				f.index = append([]int{i}, f.index...)
				if def := defaults[f.name]; def != "" {
					f.def, f.hasDefault = def, true
				}
				out = append(out, f)
			}
			continue
		}
		if name == "" {
			continue
		}
		f := field{
			name: name, alias: sf.Tag.Get("alias"), goName: sf.Name, owner: t, index: []int{i}, typ: sf.Type,
			required: sf.Tag.Get("required") == "true", short: sf.Tag.Get("short") == "true", blank: sf.Tag.Get("blank") == "true",
			min: bound(sf.Tag, "min"), max: bound(sf.Tag, "max"), above: bound(sf.Tag, "above"),
		}
		if f.def, f.hasDefault = sf.Tag.Lookup("default"); !f.hasDefault {
			f.def, f.hasDefault = defaults[name], defaults[name] != ""
		}
		if e := sf.Tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, "|")
		}
		out = append(out, f)
	}
	return out
}

func bound(tag reflect.StructTag, key string) *float64 {
	text, ok := tag.Lookup(key)
	if !ok {
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil
	}
	return &v
}

func findField(fields []field, key string) (field, bool) {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == key || f.alias == key })
	if i < 0 {
		return field{}, false
	}
	return fields[i], true
}

func fieldNames(fields []field) []string {
	names := make([]string, 0, len(fields))
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

// isSection reports whether values of the type have keys of the schema.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) && !isCustom(t)
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// Key is one key, for reference pages and completion.
type Key struct {
	// Path is the key path; [] stands for an element of a list.
	Path string
	// Env is the environment variable that sets it, empty inside lists.
	Env string
	// Type is how a value is written: "int", "duration", "list of strings", "section", "one of".
	Type string
	// Default is the default as it is written, empty when there is none.
	Default string
	// Enum lists the words allowed.
	Enum []string
	// Min, Max and Above bound a number; Above itself is not allowed.
	Min, Max, Above *float64
	// Required keys must be set.
	Required bool
	// Doc describes the key where a list does; otherwise Package, Owner and Field name the Go struct and field whose doc
	// comment does.
	Doc                   string
	Package, Owner, Field string
}

// Keys lists every key in the order of the file.
func (s *Schema) Keys() []Key { return slices.Clone(s.keys) }

func (s *Schema) walk(t reflect.Type, prefix string, env bool) {
	if s.known[t] == nil {
		s.known[t] = s.read(t)
	}
	for _, f := range s.fields(t) {
		path := Join(prefix, f.name)
		k := Key{
			Path: path, Type: typeName(f.typ), Default: f.def, Enum: f.enum, Min: f.min, Max: f.max, Above: f.above,
			Required: f.required, Doc: f.doc, Package: f.owner.PkgPath(), Owner: f.owner.Name(), Field: f.goName,
		}
		if env {
			k.Env = s.envName(path)
		}
		s.keys = append(s.keys, k)
		switch ft := deref(f.typ); {
		case isSection(ft):
			s.walk(ft, path, env)
		case ft.Kind() == reflect.Slice && isSection(ft.Elem()):
			s.walk(ft.Elem(), path+"[]", false)
		}
	}
}

// Join puts a key after the path of its section.
func Join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// envName is the variable of a key path: upper case, dots become underscores, the prefix in front.
func (s *Schema) envName(path string) string {
	return s.o.EnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func typeName(t reflect.Type) string {
	t = deref(t)
	if d, ok := reflect.TypeAssert[Described](reflect.New(t)); ok {
		return d.Written()
	}
	switch {
	case t == reflect.TypeFor[Duration]():
		return "duration"
	case t == reflect.TypeFor[Size]():
		return "size"
	case t == reflect.TypeFor[Secret]():
		return "secret"
	case isChoice(t):
		return "one of"
	case t.Kind() == reflect.Struct:
		return "section"
	case t.Kind() == reflect.Slice && isSection(t.Elem()):
		return "list of sections"
	case t.Kind() == reflect.Slice:
		return "list of " + typeName(t.Elem()) + "s"
	case t.Kind() == reflect.Float64:
		return "number"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "string"
	}
	return "int"
}

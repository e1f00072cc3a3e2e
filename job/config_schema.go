package job

import (
	"encoding"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// The schema of a job is the Config type with its struct tags:
//
//	yaml      the key, or ",inline" for an embedded struct
//	alias     a second key for the same value
//	default   what stands when no layer sets it, written as in a --set flag
//	enum      the words allowed, separated by |
//	min, max  bounds, inclusive; above: a lower bound, exclusive
//	required  "true": must not be left out or empty
//	short     "true": a plain word in place of the section sets this key
//
// Decoding, checking, environment names, print-config and the reference page all go by it.

// alternatives marks a section whose keys exclude each other. Its fields are pointers; the one that is not nil is chosen.
type alternatives interface{ oneOf() }

var (
	oneOfType    = reflect.TypeFor[alternatives]()
	unmarshaler  = reflect.TypeFor[encoding.TextUnmarshaler]()
	nodeDecoder  = reflect.TypeFor[interface{ decodeNode(*decoder, *node, string) }]()
	configSchema = reflect.TypeFor[Config]()
)

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
}

// fieldsOf lists the keys of a section type, inlined ones in their place.
func fieldsOf(t reflect.Type) []field {
	var out []field
	for i := range t.NumField() {
		sf := t.Field(i)
		name, inline := strings.CutSuffix(sf.Tag.Get("yaml"), ",inline")
		if inline {
			for _, f := range fieldsOf(sf.Type) {
				f.index = append([]int{i}, f.index...)
				out = append(out, f)
			}
			continue
		}
		if name == "" {
			continue
		}
		f := field{
			name: name, alias: sf.Tag.Get("alias"), goName: sf.Name, owner: t, index: []int{i}, typ: sf.Type,
			required: sf.Tag.Get("required") == "true", short: sf.Tag.Get("short") == "true",
			min: bound(sf.Tag, "min"), max: bound(sf.Tag, "max"), above: bound(sf.Tag, "above"),
		}
		f.def, f.hasDefault = sf.Tag.Lookup("default")
		if e := sf.Tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, "|")
		}
		out = append(out, f)
	}
	return out
}

func bound(tag reflect.StructTag, key string) *float64 {
	if v, err := strconv.ParseFloat(tag.Get(key), 64); err == nil {
		return &v
	}
	return nil
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

func isOneOf(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(oneOfType)
}

// isSection tells that values of the type have keys of the schema.
func isSection(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(unmarshaler) && !reflect.PointerTo(t).Implements(nodeDecoder)
}

func deref(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// chosen returns the name of the alternative that is set in a oneOf struct given by pointer; the first if there are more.
func chosen(section alternatives) string {
	v := reflect.ValueOf(section).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if !v.FieldByIndex(f.index).IsNil() {
			return f.name
		}
	}
	return ""
}

// Key is one key of a job file, for reference pages and completion.
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
	// Owner and Field name the Go struct and field whose doc comment describes the key.
	Owner, Field string
}

// Keys lists every key of a job file in the order of the file.
func Keys() []Key {
	var out []Key
	walkKeys(configSchema, "", true, &out)
	return out
}

func walkKeys(t reflect.Type, prefix string, env bool, out *[]Key) {
	for _, f := range fieldsOf(t) {
		path := join(prefix, f.name)
		k := Key{
			Path: path, Type: typeName(f.typ), Default: f.def, Enum: f.enum, Min: f.min, Max: f.max, Above: f.above,
			Required: f.required, Owner: f.owner.Name(), Field: f.goName,
		}
		if env {
			k.Env = envName(path)
		}
		*out = append(*out, k)
		switch ft := deref(f.typ); {
		case isSection(ft):
			walkKeys(ft, path, env, out)
		case ft.Kind() == reflect.Slice && isSection(ft.Elem()):
			walkKeys(ft.Elem(), path+"[]", false, out)
		}
	}
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// envName is the variable of a key path: upper case, dots become underscores, MONOLITH_ in front.
func envName(path string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

func typeName(t reflect.Type) string {
	t = deref(t)
	switch {
	case t == reflect.TypeFor[Duration]():
		return "duration"
	case t == reflect.TypeFor[Size]():
		return "size"
	case t == reflect.TypeFor[Secret]():
		return "secret"
	case t == reflect.TypeFor[KafkaOffsets]():
		return "word or {partition: offset}"
	case isOneOf(t):
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

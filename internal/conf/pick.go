package conf

import (
	"fmt"
	"reflect"
	"strings"
)

// Alternative is one of the sections that a [Pick] may hold.
type Alternative struct {
	// Name is its key.
	Name string
	// Doc describes it on the reference page.
	Doc string
	// New returns a pointer to a new section, which the schema fills.
	New func() any
}

// Pick is embedded by a section with exactly one key from a list, [Options].Alternatives. T is the interface of their
// sections. A section may have keys of its own beside the chosen one: the fields with a yaml tag. Those must not share a
// name with an alternative. The zero value has chosen nothing.
type Pick[T any] struct {
	name  string
	value T
}

// Picked is a Pick made in Go. The value is a pointer to a section.
func Picked[T any](name string, value T) Pick[T] { return Pick[T]{name, value} }

// Name is the key of what was chosen, empty when nothing was.
func (p *Pick[T]) Name() string { return p.name }

// Value is what was chosen; T's zero value when nothing was.
func (p *Pick[T]) Value() T { return p.value }

func (p *Pick[T]) picked() (name string, value any) { return p.name, p.value }

func (p *Pick[T]) pick(name string, value any) {
	v, ok := value.(T)
	if !ok {
		panic(fmt.Sprintf("conf: the alternative %s is a %T, which is no %s", name, value, reflect.TypeFor[T]()))
	}
	p.name, p.value = name, v
}

// picker is a pointer to a section that embeds a [Pick].
type picker interface {
	picked() (name string, value any)
	pick(name string, value any)
}

func isPick(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(reflect.TypeFor[picker]())
}

// chosenOf returns the chosen section of a struct that embeds a [Pick]; ok is false when nothing is chosen.
func chosenOf(s reflect.Value) (name string, section reflect.Value, ok bool) {
	name, value := s.Addr().Interface().(picker).picked()
	if name == "" {
		return "", reflect.Value{}, false
	}
	return name, reflect.ValueOf(value).Elem(), true
}

// alternatives returns the fields that are alternatives of a [Pick].
func alternatives(fields []field) (out []field) {
	for _, f := range fields {
		if f.create != nil {
			out = append(out, f)
		}
	}
	return out
}

// fields lists the keys of a section type: the alternatives of a [Pick], and those of its struct.
func (s *Schema) fields(t reflect.Type) []field {
	if known, ok := s.known[t]; ok {
		return known
	}
	return s.read(t)
}

// read makes the list that fields returns.
func (s *Schema) read(t reflect.Type) []field {
	var out []field
	if isPick(t) {
		for _, a := range s.o.Alternatives[t] {
			out = append(out, field{name: a.Name, owner: t, goName: a.Name, typ: reflect.TypeOf(a.New()), doc: a.Doc, create: a.New})
		}
	}
	for _, f := range fieldsOf(t) {
		if _, taken := findField(out, f.name); taken && isPick(t) {
			panic(fmt.Sprintf("conf: the alternative %s has the name of a key of %v: rename it", f.name, t))
		}
		out = append(out, f)
	}
	for i := range out {
		if e := out[i].enum; len(e) == 1 && strings.HasPrefix(e[0], "@") {
			out[i].enum = s.o.Words[e[0][1:]]
		}
	}
	return out
}

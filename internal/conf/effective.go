package conf

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Setting is one value and where it came from.
type Setting struct {
	// Path is the key path.
	Path string `json:"path"`
	// Value is written as in the file; secrets show where they are kept, never what they are.
	Value string `json:"value"`
	// From is "default", "file", "env" or "flag".
	From string `json:"from"`
	// Where is the file:line:col, the variable or the flag; empty for defaults.
	Where string `json:"where,omitempty"`
}

// Effective lists every value in force of a struct given by pointer and where it came from, in the order of the file.
// Alternatives and optional sections that were not chosen are left out.
func (p *Places) Effective(config any) []Setting {
	if p == nil {
		p = &Places{}
	}
	var out []Setting
	p.effective(reflect.ValueOf(config).Elem(), "", &out)
	return out
}

func (p *Places) effective(s reflect.Value, prefix string, out *[]Setting) {
	if isPick(s.Type()) {
		if name, v, ok := chosenOf(s); ok {
			path, before := Join(prefix, name), len(*out)
			if p.effective(v, path, out); len(*out) == before {
				p.setting(path, "{}", out) // a choice without keys of its own
			}
		}
	}
	for _, f := range fieldsOf(s.Type()) {
		v, path := s.FieldByIndex(f.index), Join(prefix, f.name)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				continue
			}
			v = v.Elem()
		}
		switch {
		case isSection(v.Type()):
			before := len(*out)
			p.effective(v, path, out)
			if len(*out) == before && isChoice(s.Type()) {
				p.setting(path, "{}", out) // a choice without keys of its own
			}
		case v.Kind() == reflect.Slice && isSection(v.Type().Elem()):
			for i := range v.Len() {
				p.effective(v.Index(i), fmt.Sprintf("%s[%d]", path, i), out)
			}
		default:
			p.setting(path, Render(v), out)
		}
	}
}

func (p *Places) setting(path, value string, out *[]Setting) {
	w := p.where[path]
	s := Setting{Path: path, Value: value, From: w.Layer.String()}
	if w.Layer != FromDefault {
		s.Where = w.String()
	}
	*out = append(*out, s)
}

// Sections lists the sections of type T that are set in a struct given by pointer, those within others included, in the order of the file. Alternatives and optional sections that were not chosen
// are left out.
func Sections[T any](config any) (out []*T) {
	sections(reflect.ValueOf(config).Elem(), func(section any) {
		if t, ok := section.(*T); ok {
			out = append(out, t)
		}
	})
	return out
}

// sections calls f with a pointer to each section of one, beginning with itself.
func sections(s reflect.Value, f func(section any)) {
	f(s.Addr().Interface())
	if isPick(s.Type()) {
		if _, v, ok := chosenOf(s); ok {
			sections(v, f)
		}
	}
	for _, of := range fieldsOf(s.Type()) {
		v := s.FieldByIndex(of.index)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				continue
			}
			v = v.Elem()
		}
		switch {
		case isSection(v.Type()):
			sections(v, f)
		case v.Kind() == reflect.Slice && isSection(v.Type().Elem()):
			for i := range v.Len() {
				sections(v.Index(i), f)
			}
		}
	}
}

// Render writes a value as it is written in a file.
func Render(v reflect.Value) string {
	switch t := v.Interface().(type) {
	case string:
		if t == "" || strings.ContainsAny(t, ":#{}[],&*!|>'\"%@`\t\n ") {
			return strconv.Quote(t)
		}
		return t
	case fmt.Stringer:
		if s := t.String(); s != "" {
			return s
		}
		return `""`
	}
	if v.Kind() == reflect.Slice {
		items := make([]string, 0, v.Len())
		for i := range v.Len() {
			items = append(items, Render(v.Index(i)))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

// KeyValue is a key of a section and what it is set to.
type KeyValue struct {
	Key string
	// Value is a section, a Go value, or the text of a value that writes itself.
	Value any
	// Section reports whether Value is a section, or a pointer to one.
	Section bool
}

// NotDefault lists the keys of a section that are not at their defaults, in order, and those of always whatever they are.
func NotDefault(section any, always ...string) (out []KeyValue) {
	v := reflect.ValueOf(section)
	for _, f := range fieldsOf(v.Type()) {
		x := v.FieldByIndex(f.index)
		if x.Kind() == reflect.Pointer {
			if x.IsNil() {
				continue
			}
			x = x.Elem()
		} else if !slices.Contains(always, f.name) && (x.IsZero() || x.Kind() == reflect.Slice && x.Len() == 0 || f.hasDefault && !isSection(x.Type()) && Render(x) == f.def) {
			continue
		}
		if t, ok := reflect.TypeAssert[fmt.Stringer](x); ok {
			out = append(out, KeyValue{Key: f.name, Value: t.String()})
		} else {
			out = append(out, KeyValue{Key: f.name, Value: x.Interface(), Section: isSection(x.Type())})
		}
	}
	return out
}

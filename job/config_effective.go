package job

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Setting is one value of a job and where it came from.
type Setting struct {
	// Path is the key path.
	Path string `json:"path"`
	// Value is written as in a job file; secrets show where they are kept, never what they are.
	Value string `json:"value"`
	// From is "default", "file", "env" or "flag".
	From string `json:"from"`
	// Where is the file:line:col, the variable or the flag; empty for defaults.
	Where string `json:"where,omitempty"`
}

// Effective lists every value in force and where it came from, in the order of the file. Alternatives and optional
// sections that were not chosen are left out.
func (c *Config) Effective() []Setting {
	var out []Setting
	c.effective(reflect.ValueOf(c).Elem(), "", &out)
	return out
}

func (c *Config) effective(s reflect.Value, prefix string, out *[]Setting) {
	for _, f := range fieldsOf(s.Type()) {
		v, path := s.FieldByIndex(f.index), join(prefix, f.name)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				continue
			}
			v = v.Elem()
		}
		switch {
		case isSection(v.Type()):
			before := len(*out)
			c.effective(v, path, out)
			if len(*out) == before && isOneOf(s.Type()) {
				c.setting(path, "{}", out) // a choice without keys of its own
			}
		case v.Kind() == reflect.Slice && isSection(v.Type().Elem()):
			for i := range v.Len() {
				c.effective(v.Index(i), fmt.Sprintf("%s[%d]", path, i), out)
			}
		default:
			c.setting(path, render(v), out)
		}
	}
}

func (c *Config) setting(path, value string, out *[]Setting) {
	w := c.where[path]
	s := Setting{Path: path, Value: value, From: w.Layer.String()}
	if w.Layer != FromDefault {
		s.Where = w.String()
	}
	*out = append(*out, s)
}

func render(v reflect.Value) string {
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
			items = append(items, render(v.Index(i)))
		}
		return "[" + strings.Join(items, ", ") + "]"
	}
	return fmt.Sprint(v.Interface())
}

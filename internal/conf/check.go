package conf

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
)

// Check checks a struct of the schema, given by pointer, against its tags. Places may be nil.
func (s *Schema) Check(config any, places *Places) []Fault {
	v := &checker{schema: s, places: places}
	v.section(reflect.ValueOf(config).Elem(), "")
	return v.faults
}

type checker struct {
	schema *Schema
	places *Places
	faults []Fault
}

func (v *checker) fault(path, format string, args ...any) {
	v.faults = append(v.faults, Fault{Where: v.places.At(path), Path: path, Message: fmt.Sprintf(format, args...)})
}

// section checks a struct against the tags of its fields.
func (v *checker) section(s reflect.Value, path string) {
	if isPick(s.Type()) {
		name, section, ok := chosenOf(s)
		if !ok {
			v.fault(path, "is missing; choose one of %s", strings.Join(fieldNames(alternatives(v.schema.fields(s.Type()))), ", "))
			return
		}
		v.section(section, Join(path, name))
	} else if isChoice(s.Type()) {
		v.alternatives(s, path)
	}
	for _, f := range v.schema.fields(s.Type()) {
		if f.create != nil {
			continue
		}
		v.value(s.FieldByIndex(f.index), f, Join(path, f.name))
	}
}

func (v *checker) alternatives(s reflect.Value, path string) {
	var names, set []string
	for _, f := range fieldsOf(s.Type()) {
		names = append(names, f.name)
		if !s.FieldByIndex(f.index).IsNil() {
			set = append(set, f.name)
		}
	}
	switch {
	case len(set) == 0:
		v.fault(path, "is missing; choose one of %s", strings.Join(names, ", "))
	case len(set) > 1:
		v.fault(path, "takes one of its keys, not %s", strings.Join(set, " and "))
	}
}

func (v *checker) value(x reflect.Value, f field, path string) {
	if x.Kind() == reflect.Pointer {
		if x.IsNil() {
			return
		}
		x = x.Elem()
	}
	if f.required && !isSection(x.Type()) && (x.IsZero() || x.Kind() == reflect.Slice && x.Len() == 0) {
		v.fault(path, "is missing")
		return
	}
	switch {
	case isSection(x.Type()):
		v.section(x, path)
	case x.Kind() == reflect.Slice:
		for i := range x.Len() {
			itemPath := fmt.Sprintf("%s[%d]", path, i)
			if item := x.Index(i); isSection(item.Type()) {
				v.section(item, itemPath)
			} else {
				v.scalar(item, f, itemPath)
				if item.Kind() == reflect.String && item.Len() == 0 && !f.blank {
					v.fault(itemPath, "is empty")
				}
			}
		}
	default:
		v.scalar(x, f, path)
	}
}

// otherwise is what a value of its own kind may be beside a word, for an error that lists the words.
func otherwise(x reflect.Value) string {
	if d, ok := reflect.TypeAssert[Described](x); ok {
		return " (" + d.Written() + ")"
	}
	return ""
}

func (v *checker) scalar(x reflect.Value, f field, path string) {
	word, isWord := "", false
	switch t := x.Interface().(type) {
	case string:
		word, isWord = t, true
	case Word:
		word, isWord = t.Word(), true
	}
	if isWord {
		if len(f.enum) > 0 && word != "" && !slices.Contains(f.enum, word) {
			v.faults = append(v.faults, Fault{
				Where: v.places.At(path), Path: path, Suggestion: nearest.Name(word, f.enum),
				Message: fmt.Sprintf("is %q, not one of %s%s", word, strings.Join(f.enum, ", "), otherwise(x)),
			})
		}
		return
	}
	var number float64
	switch x.Kind() {
	case reflect.Int, reflect.Int64:
		number = float64(x.Int())
	case reflect.Float64:
		number = x.Float()
		if math.IsNaN(number) || math.IsInf(number, 0) {
			v.fault(path, "is not a finite number")
			return
		}
	default:
		return
	}
	switch {
	case f.above != nil && number <= *f.above:
		v.fault(path, "is %v, must be above %v", x.Interface(), limit(x, *f.above))
	case f.min != nil && number < *f.min:
		v.fault(path, "is %v, must be at least %v", x.Interface(), limit(x, *f.min))
	case f.max != nil && number > *f.max:
		v.fault(path, "is %v, must be at most %v", x.Interface(), limit(x, *f.max))
	}
}

// limit renders a bound in the unit of the value it bounds.
func limit(x reflect.Value, bound float64) any {
	if x.Kind() == reflect.Float64 {
		return bound
	}
	return reflect.ValueOf(int64(bound)).Convert(x.Type()).Interface()
}

package pipeline

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// Fingerprint renders the settings of a part, for its Fingerprint method: `kind{A: 1, B: "x", C: {D: true}}` with every
// exported field of options, a struct, in the order of its declaration. So a setting that is added later is in it without
// anybody thinking of it. without names those that do not matter to what the part gives (how large a block is, how long a
// broker is waited for), or that are nobody's business (passwords); that of a nested one is "TLS.CA".
//
// Values are numbers, booleans, text, times, schemas and structs, pointers, slices and maps of these; anything else is
// rendered by its type alone, which says nothing, and pipelinetest.TestFingerprint finds it.
func Fingerprint(kind string, options any, without ...string) string {
	var b strings.Builder
	b.WriteString(kind)
	fingerprint(&b, reflect.ValueOf(options), "", without)
	return b.String()
}

func fingerprint(b *strings.Builder, v reflect.Value, path string, without []string) {
	if v.IsValid() && v.CanInterface() {
		switch x := v.Interface().(type) {
		case *arrow.Schema:
			if x != nil {
				fmt.Fprintf(b, "%q", x.String())
				return
			}
		case arrow.DataType:
			fmt.Fprintf(b, "%q", x.String())
			return
		case interface{ UnixNano() int64 }: // a time
			fmt.Fprintf(b, "%d", x.UnixNano())
			return
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		b.WriteByte('{')
		for i := range v.NumField() {
			f := v.Type().Field(i)
			at := strings.TrimPrefix(path+"."+f.Name, ".")
			if !f.IsExported() || slices.Contains(without, at) {
				continue
			}
			b.WriteString(f.Name + ": ")
			fingerprint(b, v.Field(i), at, without)
			b.WriteString(", ")
		}
		b.WriteByte('}')
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil")
			return
		}
		fingerprint(b, v.Elem(), path, without)
	case reflect.Slice, reflect.Array:
		b.WriteByte('[')
		for i := range v.Len() {
			fingerprint(b, v.Index(i), path, without)
			b.WriteString(", ")
		}
		b.WriteByte(']')
	case reflect.Map:
		items := make([]string, 0, v.Len())
		for _, k := range v.MapKeys() {
			var item strings.Builder
			fingerprint(&item, k, path, without)
			item.WriteString(": ")
			fingerprint(&item, v.MapIndex(k), path, without)
			items = append(items, item.String())
		}
		slices.Sort(items)
		b.WriteString("map[" + strings.Join(items, ", ") + "]")
	case reflect.String:
		fmt.Fprintf(b, "%q", v.String())
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		fmt.Fprintf(b, "%v", plain(v))
	case reflect.Invalid:
		b.WriteString("nil")
	default:
		b.WriteString(v.Type().String())
	}
}

// plain is a number or a truth value without the methods of its type, which may hide a part of it.
func plain(v reflect.Value) any {
	switch {
	case v.CanInt():
		return v.Int()
	case v.CanUint():
		return v.Uint()
	case v.CanFloat():
		return v.Float()
	}
	return v.Bool()
}

package pipelinetest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// FingerprintHarness is what [TestFingerprint] needs to know of a source, stage or sink that is made from options.
type FingerprintHarness[O any] struct {
	// Options are valid, and full: what is behind nil pointers and in empty lists of structs cannot be changed.
	Options O
	// New makes the part.
	New func(t *testing.T, o O) interface{ Fingerprint() string }
	// Other has a second valid value for each option that is not any number, text or truth value: by path, such as
	// "Features.Kind".
	Other map[string]any
	// Free are the options that do not matter to what the part gives, with the reason. A path stands for all below it.
	Free map[string]string
}

// TestFingerprint changes each option of a part, one after the other, and looks at the part's fingerprint: it must change
// with every option but those that the harness lists with a reason, and with none of these.
func TestFingerprint[O any](t *testing.T, h FingerprintHarness[O]) {
	t.Helper()
	for _, fault := range h.faults(func(o O) string { return h.New(t, o).Fingerprint() }) {
		t.Error(fault)
	}
}

// faults is TestFingerprint without a test.
func (h FingerprintHarness[O]) faults(of func(O) string) (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	base := of(h.Options)
	if base == "" {
		fault("the fingerprint is empty")
	}
	if again := of(h.Options); again != base {
		fault("equal options have two fingerprints:\n%s\n%s", base, again)
	}
	c := changer{other: h.Other, free: func(path string) bool { _, free := h.free(path); return free }, seen: map[string]bool{}, fault: fault}
	c.changes(reflect.ValueOf(&h.Options).Elem(), "", func(path string) {
		reason, free := h.free(path)
		switch moved := of(h.Options) != base; {
		case moved && free:
			fault("option %s changes the fingerprint, but is listed as not mattering (%s): leave it out, or take it from the list", path, reason)
		case !moved && !free:
			fault("option %s does not change the fingerprint: put it in, or list it in Free with the reason why it does not matter", path)
		}
	})
	for list, paths := range map[string][]string{"Free": slices.Sorted(maps.Keys(h.Free)), "Other": slices.Sorted(maps.Keys(h.Other))} {
		for _, path := range paths {
			if !c.seen[path] {
				fault("%s lists %s, which is no option", list, path)
			}
		}
	}
	return faults
}

// free finds the reason why an option does not matter.
func (h FingerprintHarness[O]) free(path string) (reason string, free bool) {
	for p, reason := range h.Free {
		if path == p || strings.HasPrefix(path, p+".") {
			return reason, true
		}
	}
	return "", false
}

// changer changes one option after the other.
type changer struct {
	other map[string]any
	free  func(path string) bool
	seen  map[string]bool
	fault func(format string, args ...any)
}

// changes gives v, and everything below it, another value in turn, calls changed and puts the value back.
func (c *changer) changes(v reflect.Value, path string, changed func(path string)) {
	c.seen[path] = true
	with := func(x reflect.Value) {
		was := reflect.New(v.Type()).Elem()
		was.Set(v)
		v.Set(x)
		changed(path)
		v.Set(was)
	}
	if o, ok := c.other[path]; ok {
		with(reflect.ValueOf(o).Convert(v.Type()))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				c.changes(v.Field(i), strings.TrimPrefix(path+"."+f.Name, "."), changed)
			}
		}
	case reflect.Pointer:
		if v.IsNil() {
			if !c.free(path) {
				c.fault("option %s is nil: give it a value in Options", path)
			}
			return
		}
		deep := reflect.New(v.Type().Elem())
		deep.Elem().Set(v.Elem())
		was := v.Interface()
		with(reflect.Zero(v.Type()))
		v.Set(deep)
		c.changes(v.Elem(), path, changed)
		v.Set(reflect.ValueOf(was))
	case reflect.Slice:
		if v.Len() == 0 {
			if !c.free(path) {
				c.fault("option %s is empty: give it an element in Options", path)
			}
			return
		}
		with(v.Slice(0, v.Len()-1))
		was := v.Interface()
		v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
		c.changes(v.Index(v.Len()-1), path, changed)
		v.Set(reflect.ValueOf(was))
	case reflect.Map:
		with(reflect.Zero(v.Type()))
		for _, k := range v.MapKeys() {
			m := reflect.MakeMap(v.Type())
			x := reflect.New(v.Type().Elem()).Elem()
			x.Set(v.MapIndex(k))
			c.changes(x, path, func(path string) {
				m.SetMapIndex(k, x)
				was := v.Interface()
				v.Set(m)
				changed(path)
				v.Set(reflect.ValueOf(was))
			})
		}
	case reflect.Bool:
		with(reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	case reflect.String:
		with(reflect.ValueOf(v.String() + "x").Convert(v.Type()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		with(reflect.ValueOf(v.Int() + 1).Convert(v.Type()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		with(reflect.ValueOf(v.Uint() + 1).Convert(v.Type()))
	case reflect.Float32, reflect.Float64:
		with(reflect.ValueOf(v.Float() + 0.25).Convert(v.Type()))
	default:
		if !c.free(path) {
			c.fault("option %s is a %s: give another value in Other", path, v.Type())
		}
	}
}

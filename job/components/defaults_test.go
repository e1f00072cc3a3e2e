package components_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model/layer"
	"github.com/monolith-go/monolith/model/optim"
)

// TestDefaultsAreOfKeys: each default that a section takes from code is of a key it has, which has none of its own.
func TestDefaultsAreOfKeys(t *testing.T) {
	t.Parallel()
	set, seen := components.All(), 0
	var sections []any
	for _, c := range set.Sources {
		sections = append(sections, c.New())
	}
	for _, c := range set.Models {
		sections = append(sections, c.New())
	}
	for _, c := range set.Optimizers {
		sections = append(sections, c.New())
	}
	for _, c := range set.DeadLetters {
		sections = append(sections, c.New())
	}
	for _, c := range set.Sinks {
		sections = append(sections, c.New())
	}
	for _, section := range sections {
		typ := reflect.TypeOf(section).Elem()
		tags := map[string]reflect.StructTag{}
		parts := []any{section}
		for _, f := range reflect.VisibleFields(typ) {
			if key, inline := strings.CutSuffix(f.Tag.Get("yaml"), ",inline"); inline {
				parts = append(parts, reflect.New(f.Type).Interface())
			} else {
				tags[key] = f.Tag
			}
		}
		for _, part := range parts {
			d, ok := part.(conf.Defaulted)
			if !ok {
				continue
			}
			for key, text := range d.Defaults() {
				seen++
				tag, ok := tags[key]
				if _, own := tag.Lookup("default"); !ok || own || text == "" {
					t.Errorf("%s: default %q of key %q: the key is there: %t, with a default of its own: %t", typ, text, key, ok, own)
				}
			}
		}
	}
	if seen == 0 {
		t.Error("no section takes defaults from code")
	}
}

// TestOptimizerSections: a section without keys is the rule without settings.
func TestOptimizerSections(t *testing.T) {
	t.Parallel()
	for _, o := range components.All().Optimizers {
		if o.New().Rule() == nil { // auto: the model's
			continue
		}
		rule := optim.RuleOf(o.New().Rule())
		defaults := o.New().(conf.Defaulted).Defaults()
		if len(rule.Settings) != len(defaults) || rule.Name != o.Name {
			t.Errorf("%s: rule %s has the settings %s, the section %v", o.Name, rule.Name, rule.Settings, defaults)
		}
		for key, text := range defaults {
			if string(rule.Settings[key]) != text {
				t.Errorf("%s: %s is %s in the rule, %s in the section", o.Name, key, rule.Settings[key], text)
			}
		}
	}
}

// TestActivationsAreAll: a job can name each activation there is.
func TestActivationsAreAll(t *testing.T) {
	t.Parallel()
	f, _ := reflect.TypeFor[components.MLP]().FieldByName("Activation")
	if got, want := f.Tag.Get("enum"), strings.Join(append([]string{"auto"}, layer.Activations()...), "|"); got != want {
		t.Errorf("the key takes %s, want %s", got, want)
	}
}

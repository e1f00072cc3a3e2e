package conf_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/conf"
)

// kitchen is a configuration that has nothing to do with training.
type kitchen struct {
	Stove    stove         `yaml:"stove" required:"true"`
	Timeout  conf.Duration `yaml:"timeout" default:"5m" above:"0"`
	Language string        `yaml:"language" enum:"@languages" default:"en"`
}

type stove struct{ conf.Pick[heater] }

type heater interface{ Heat() int }

type gas struct {
	Flames int `yaml:"flames" default:"4" min:"1" max:"8"`
}

func (g *gas) Heat() int { return g.Flames }

type wood struct{}

func (*wood) Heat() int { return 1 }

func schema() *conf.Schema {
	return conf.New[kitchen](conf.Options{
		Noun: "kitchen", EnvPrefix: "KITCHEN_", Words: map[string][]string{"languages": {"en", "de"}},
		Alternatives: map[reflect.Type][]conf.Alternative{reflect.TypeFor[stove](): {
			{Name: "gas", Doc: "burns gas.", New: func() any { return &gas{} }},
			{Name: "wood", Doc: "burns wood.", New: func() any { return &wood{} }},
		}},
	})
}

// TestEngine: any struct with tags is a configuration, with alternatives and words that come from lists.
func TestEngine(t *testing.T) {
	t.Parallel()
	var k kitchen
	places, faults := schema().Decode([]byte("stove: {gas: {flames: 3}}\n"), "k.yaml", conf.Layers{Set: []string{"timeout=1m", "stove.gas.flames=2"}, Flags: map[string]string{"stove.gas.flames=2": "--fire"}, Env: []string{"KITCHEN_LANGUAGE=de"}}, &k)
	if len(faults) > 0 || len(schema().Check(&k, places)) > 0 || k.Stove.Value().Heat() != 2 {
		t.Fatalf("%+v, %v", k, faults)
	}
	want := []conf.Setting{
		{Path: "stove.gas.flames", Value: "2", From: "flag", Where: "--fire"},
		{Path: "timeout", Value: "1m0s", From: "flag", Where: "--set timeout"},
		{Path: "language", Value: "de", From: "env", Where: "KITCHEN_LANGUAGE"},
	}
	if diff := cmp.Diff(want, places.Effective(&k)); diff != "" {
		t.Error(diff)
	}
	// A later layer chooses another alternative, which has no keys.
	places, faults = schema().Decode([]byte("stove: {gas: {flames: 2}}\n"), "k.yaml", conf.Layers{Set: []string{"stove.wood={}"}}, &k)
	if s := places.Effective(&k)[0]; len(faults) > 0 || k.Stove.Name() != "wood" || s.Path != "stove.wood" || s.Value != "{}" {
		t.Errorf("%+v, %v, %+v", k, faults, s)
	}
}

// ring is a stove with a key of its own beside the choice.
type ring struct {
	conf.Pick[heater]
	// Pots are what it carries.
	Pots []string `yaml:"pots" default:"[pan, kettle]" enum:"pan|kettle|wok"`
}

// TestKeysBesideAChoice: a section that chooses an alternative may have other keys, which every layer sets beside it.
func TestKeysBesideAChoice(t *testing.T) {
	t.Parallel()
	type hob struct {
		Rings []ring `yaml:"rings"`
	}
	s := conf.New[hob](conf.Options{Noun: "hob", Alternatives: map[reflect.Type][]conf.Alternative{reflect.TypeFor[ring](): {
		{Name: "gas", New: func() any { return &gas{} }},
		{Name: "wood", New: func() any { return &wood{} }},
	}}})
	for _, tc := range []struct {
		name, text string
		set        []string
		want       string
	}{
		{"short", "rings: [gas]", nil, "rings[0].gas.flames=4 rings[0].pots=[pan, kettle]"},
		{"beside", "rings: [{pots: [wok], gas: {flames: 2}}]", nil, "rings[0].gas.flames=2 rings[0].pots=[wok]"},
		{"no keys", "rings:\n- wood: {}\n  pots: [pan]", nil, "rings[0].wood={} rings[0].pots=[pan]"},
		{"set beside", "rings: [{gas: {flames: 2}}]", []string{"rings[0].pots=[wok]"}, "rings[0].gas.flames=2 rings[0].pots=[wok]"},
		{"set beside short", "rings: [wood]", []string{"rings[0].pots=[wok]"}, "rings[0].wood={} rings[0].pots=[wok]"},
		{"set another", "rings: [{gas: {}, pots: [wok]}]", []string{"rings[0].wood={}"}, "rings[0].wood={} rings[0].pots=[wok]"},
		{"misspelt", "rings: [{gas: {}, pot: [wok]}]", nil, `k.yaml:1:19: rings[0].pot: unknown key; did you mean "pots"?`},
		{"word", "rings: [{gas: {}, pots: [wo]}]", nil, `k.yaml:1:26: rings[0].pots[0]: is "wo", not one of pan, kettle, wok; did you mean "wok"?`},
		{"none", "rings: [{pots: [wok]}]", nil, "k.yaml:1:9: rings[0]: is missing; choose one of gas, wood"},
		{"two", "rings: [{gas: {}, pots: [wok], wood: {}}]", nil, "k.yaml:1:32: rings[0]: takes one of its keys, not gas and wood"},
		{"no stove", "rings: [pots]", nil, `k.yaml:1:9: rings[0]: "pots" is none of gas, wood`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var h hob
			places, faults := s.Decode([]byte(tc.text), "k.yaml", conf.Layers{Set: tc.set}, &h)
			if len(faults) == 0 {
				faults = s.Check(&h, places)
			}
			var got []string
			for _, f := range faults {
				got = append(got, f.String())
			}
			if len(faults) == 0 {
				for _, x := range places.Effective(&h) {
					got = append(got, x.Path+"="+x.Value)
				}
			}
			if g := strings.Join(got, " "); g != tc.want {
				t.Errorf("%s\nwant %s", g, tc.want)
			}
		})
	}
}

func TestFaultsOfAlternatives(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"stove: gass":                `k.yaml:1:8: stove: "gass" is none of gas, wood; did you mean "gas"?`,
		"stove: {gas: {}, wood: {}}": "k.yaml:1:18: stove: takes one of its keys, not gas and wood",
		"stove: {gas: {flames: 9}}":  "k.yaml:1:23: stove.gas.flames: is 9, must be at most 8",
		"stove: {gas: {flame: 2}}":   `k.yaml:1:15: stove.gas.flame: unknown key; did you mean "flames"?`,
		"timeout: 1m":                "k.yaml: stove: is missing; choose one of gas, wood",
		"{stove: gas, language: dd}": `k.yaml:1:24: language: is "dd", not one of en, de; did you mean "de"?`,
		"stove: gas\nstove: wood":    "k.yaml:2:1: stove: is given twice, first at line 1",
		"<<: {stove: gas}":           "k.yaml:1:1: merge keys (<<) are not used in kitchens; write the keys out",
		"stove: gas\ntimeout: [":     "k.yaml:3:1: not YAML: did not find expected node content",
		strings.Repeat("[", 65536):   "exceeded max depth",
		"stove: " + strings.Repeat("[", 80) + strings.Repeat("]", 80): "nests deeper than 64 levels",
	} {
		var k kitchen
		places, faults := schema().Decode([]byte(text), "k.yaml", conf.Layers{}, &k)
		if places != nil {
			faults = conf.Merge(faults, schema().Check(&k, places))
		}
		if len(faults) == 0 || !strings.Contains(faults[0].String(), want) {
			t.Errorf("%.40q: %v, want %s", text, faults, want)
		}
	}
}

// TestVariablesThatAreNotSet: each is one fault of its value, whatever the key wants and however often the value has it.
func TestVariablesThatAreNotSet(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"stove: ${A}\n":                             {"stove: environment variable A is not set; set it, or write ${A:-fallback}"},
		"stove: {gas: {flames: ${A}}}\n":            {"stove.gas.flames: environment variable A is not set; set it, or write ${A:-fallback}"},
		"stove: wood\ntimeout: \"${A}${B}${A}s\"\n": {"timeout: environment variable A is not set; set it, or write ${A:-fallback}", "timeout: environment variable B is not set; set it, or write ${B:-fallback}"},
	} {
		var k kitchen
		places, faults := schema().Decode([]byte(text), "k.yaml", conf.Layers{}, &k)
		var got []string
		for _, f := range conf.Merge(faults, schema().Check(&k, places)) {
			got = append(got, f.Path+": "+f.Message)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestSecretOfAFile: a file is read again each time. While it is empty, as one is that is being written again, there is no secret.
func TestSecretOfAFile(t *testing.T) {
	t.Parallel()
	s := conf.Secret{File: filepath.Join(t.TempDir(), "secret")}
	for _, c := range []struct{ text, want, fault string }{
		{"first\n", "first", ""}, {"", "", "is empty"}, {"\r\n", "", "is empty"}, {"second\r\n", "second", ""},
	} {
		if err := os.WriteFile(s.File, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := s.Resolve()
		if got != c.want || (err == nil) != (c.fault == "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%q: %q, %v; want %q", c.text, got, err, c.want)
		}
	}
}

// TestSections: those that are set, wherever they are.
func TestSections(t *testing.T) {
	t.Parallel()
	type door struct {
		Key string `yaml:"key"`
	}
	type room struct {
		Door *door `yaml:"door"`
	}
	type house struct {
		Front door   `yaml:"front"`
		Back  *door  `yaml:"back"`
		Rooms []room `yaml:"rooms"`
		Stove stove  `yaml:"stove"`
	}
	h := &house{Front: door{"a"}, Rooms: []room{{}, {&door{"b"}}, {&door{"c"}}}, Stove: stove{conf.Picked[heater]("gas", &gas{Flames: 3})}}
	got := conf.Sections[door](h)
	if want := []*door{&h.Front, h.Rooms[1].Door, h.Rooms[2].Door}; !slices.Equal(got, want) {
		t.Errorf("%v, want the doors themselves, %v", got, want)
	}
	if got := conf.Sections[gas](h); len(got) != 1 || got[0].Flames != 3 {
		t.Errorf("chosen: %v", got)
	}
	if got := conf.Sections[gas](&house{}); len(got) > 0 {
		t.Errorf("nothing is chosen: %v", got)
	}
}

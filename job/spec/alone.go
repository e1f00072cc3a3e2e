package spec

import (
	"encoding/json"
	"fmt"
	"strings"
)

// ForRecipe makes a job of what a snapshot or an export says of its examples ([Recipe]), without a job file: to predict a target as of [ForTarget], which is its
// source. It has no model. What a recipe does not say are side tables: a feature of one is then a column that the records lack.
// Options put keys over it as they do with [Load]. Errors: as of [ForTarget]; a [*ConfigError] for a recipe that does not say what the features are.
func ForRecipe(stored json.RawMessage, name, dir, target string, opts LoadOptions) (*Config, error) {
	r, err := DecodeRecipe(stored)
	if err != nil {
		return nil, &ConfigError{Faults: []Fault{{Message: fmt.Sprintf("the model cannot be used without its job file: %v", err)}}}
	}
	t, err := probe(target, opts.Components.Sources)
	if err != nil {
		return nil, err
	}
	written := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic("job: a setting does not marshal: " + err.Error()) // settings only
		}
		return string(b)
	}
	keys := append(t.sourceKeys(), [2]string{"parse.features", written(r.Features)})
	if r.Format == "libfm" && len(r.Features) > 0 {
		var fields []string
		for _, f := range r.Features {
			column := f.name()
			_ = json.Unmarshal(f.values[location], &column) // without one it is the name
			fields = append(fields, column)
		}
		if len(fields) > 1 || fields[0] != "features" {
			keys = append(keys, [2]string{"parse.fields", written(fields)})
		}
	}
	if len(r.Label.keys) > 0 {
		keys = append(keys, [2]string{"parse.label", written(r.Label)})
	}
	if len(r.Weight.keys) > 0 {
		keys = append(keys, [2]string{"parse.weight", written(r.Weight)})
	}
	var heads []string
	for _, h := range r.Heads {
		heads = append(heads, h.head())
	}
	if len(heads) > 0 {
		keys = append(keys, [2]string{"heads", "[" + strings.Join(heads, ", ") + "]"})
	}
	c := &Config{Version: 1, Name: name, Dir: dir, set: opts.Components, untrained: true}
	places, faults := schema(opts.Components).Assign(keys, opts.layers(), c)
	if c.places = places; len(faults) == 0 {
		c.Parse.asStored()
		c.Parse.WholeIDs = r.WholeIDs
		c.derive()
		v := &validator{c: c}
		v.source(&c.Source, "source", c.Parse.Format)
		v.parse(&c.Parse)
		v.predict(c)
		v.places(c)
		faults = v.faults
	}
	if len(faults) > 0 {
		return nil, &ConfigError{Faults: faults}
	}
	return c, nil
}

// head is a head of a recipe as a job has it.
func (s keyed) head() string {
	var own, label []string
	for _, k := range s.keys {
		entry := fmt.Sprintf("%q: %s", k, s.values[k])
		if k == "positive" || k == location {
			label = append(label, entry)
		} else {
			own = append(own, entry)
		}
	}
	if label != nil {
		own = append(own, fmt.Sprintf("\"label\": {%s}", strings.Join(append(label, fmt.Sprintf("\"name\": %q", s.name())), ", ")))
	}
	return "{" + strings.Join(own, ", ") + "}"
}

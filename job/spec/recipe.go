package spec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/job/component"
)

// Recipe describes what examples are made of: every setting of each feature, in order, and the rules of label and
// weight. It is stored with each snapshot as JSON, because rows and weights mean nothing without it, and compared when a
// snapshot is continued from or evaluated and when processes of a cluster meet:
//
//	{"format": "csv",
//	 "features": [{"name": "user", "kind": "sparse", "slot": 1, "type": "auto", "hash": "none", "column": "user_id"}, ...],
//	 "label": {"name": "rating", "positive": ">= 4"},
//	 "weight": {"name": "w"}}
//
// Settings at their defaults are left out, but for the first few. The format, and the column where a feature, the label or
// the weight is in a record, say where values are, not what: they are stored for readers of a snapshot, and may change.
type Recipe struct {
	Format   string  `json:"format,omitzero"`
	Features []keyed `json:"features"`
	Label    keyed   `json:"label,omitzero"`
	Heads    []keyed `json:"heads,omitempty"`
	Weight   keyed   `json:"weight,omitzero"`
	// Holdout says which of the source's examples it was not trained on. Where no column decides, it also has, under "rows", what records they are
	// drawn by ("place in text csv"). Older recipes have none: those examples were drawn by their bytes.
	Holdout keyed `json:"holdout,omitzero"`
	// WholeIDs is [Parse].WholeIDs. Recipes without it are older: their models hashed such text. It may change.
	WholeIDs bool `json:"whole_ids,omitzero"`
}

// drawnRows is the setting of a holdout that says what its rows are drawn from.
const drawnRows = "rows"

// location is the setting that may change.
const location = "column"

// keyed are the values of a section by key, in its order.
type keyed struct {
	keys   []string
	values map[string]json.RawMessage
}

// MarshalJSON writes an object with the keys in their order.
func (s keyed) MarshalJSON() ([]byte, error) {
	var b strings.Builder
	for i, k := range s.keys {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:%s", k, s.values[k])
	}
	return []byte("{" + b.String() + "}"), nil
}

// UnmarshalJSON reads an object; the order of the keys is lost.
func (s *keyed) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &s.values); err != nil {
		return err
	}
	s.keys = slices.Sorted(maps.Keys(s.values))
	return nil
}

func (s *keyed) set(key string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		panic("job: a setting does not marshal: " + err.Error()) // words and numbers only
	}
	if s.values == nil {
		s.values = map[string]json.RawMessage{}
	}
	s.keys, s.values[key] = append(s.keys, key), b
}

// name is the value of the key name.
func (s keyed) name() string {
	var name string
	_ = json.Unmarshal(s.values["name"], &name) // a name that is no text is none
	return name
}

// settingsOf reads a section of the job. always are the keys that are written even at their defaults. A key that is added
// to the section later is in it, and old recipes continue to fit as long as it has its default.
func settingsOf(section any, always ...string) keyed {
	var s keyed
	for _, x := range conf.NotDefault(section, always...) {
		if x.Section {
			s.set(x.Key, settingsOf(x.Value))
		} else {
			s.set(x.Key, x.Value)
		}
	}
	return s
}

// Recipe is the job's parse recipe.
func (c *Config) Recipe() Recipe {
	p := &c.Parse
	r := Recipe{Format: p.Format, WholeIDs: p.WholeIDs}
	for _, f := range p.Features {
		always := []string{"name", "kind", "type"}
		if f.Column == f.Name {
			f.Column = ""
		}
		if !f.KeepsLast() { // what a recipe does not say is first
			f.Keep = ""
		}
		if f.Kind == "sparse" {
			always = append(always, "hash", "combiner")
		}
		r.Features = append(r.Features, settingsOf(f, always...))
	}
	r.Label = settingsOf(canonical(p.Label))
	for _, h := range c.Heads {
		k := keyed{}
		k.set("name", h.Name)
		k.set("loss", h.Loss)
		if h.Classes > 0 {
			k.set("classes", h.Classes)
		}
		label := canonical(h.Label)
		if label.Positive != "" {
			k.set("positive", label.Positive)
		}
		if h.Label.Column != h.Name {
			k.set(location, h.Label.Column)
		}
		if h.Mask != nil {
			k.set("mask", settingsOf(*h.Mask))
		}
		if h.Group != "" {
			k.set("group", h.Group)
		}
		r.Heads = append(r.Heads, k)
	}
	if p.Weight != nil {
		weight := *p.Weight
		if weight.Column == weight.Name {
			weight.Column = ""
		}
		r.Weight = settingsOf(weight)
	}
	if c.Eval.Holdout != nil {
		r.Holdout = settingsOf(*c.Eval.Holdout)
		if of := c.drawnOf(); of != "" {
			r.Holdout.set(drawnRows, of)
		}
	}
	return r
}

// canonical writes a label's settings in one way.
func canonical(l Label) Label {
	if op, x, text, ok := l.Op(); ok && text != "" {
		l.Positive = op + " " + text
	} else if ok {
		l.Positive = op + " " + strconv.FormatFloat(x, 'g', -1, 64)
	}
	if l.Column == l.Name {
		l.Column = ""
	}
	return l
}

// JSON is how the recipe is stored.
func (r Recipe) JSON() json.RawMessage {
	b, err := json.Marshal(r)
	if err != nil {
		panic("job: the parse recipe does not marshal: " + err.Error()) // settings only
	}
	return b
}

// Hash names what may not change.
func (r Recipe) Hash() string {
	r.Format, r.WholeIDs = "", false
	fixed := func(s keyed) keyed {
		s.keys = slices.DeleteFunc(slices.Clone(s.keys), func(k string) bool { return k == location })
		return s
	}
	features := make([]keyed, len(r.Features))
	for i, f := range r.Features {
		features[i] = fixed(f)
	}
	heads := make([]keyed, len(r.Heads))
	for i, h := range r.Heads {
		heads[i] = fixed(h)
	}
	r.Features, r.Heads, r.Label, r.Weight = features, heads, fixed(r.Label), fixed(r.Weight)
	h := sha256.Sum256(r.JSON())
	return hex.EncodeToString(h[:8])
}

// Differences lists what is not the same in another recipe, feature by feature: what must not change, and what may but
// should be known. was and is are the words for the two: "was" and "is".
func (r Recipe) Differences(other Recipe, was, is string) (faults, moved []string) {
	settingOf := func(s keyed, key string) string {
		if v, ok := s.values[key]; ok {
			return plainJSON(v)
		}
		if key == "keep" {
			return plainJSON([]byte(`"` + keepFirst + `"`))
		}
		return "not set"
	}
	section := func(what string, a, b keyed) {
		keys := slices.Sorted(maps.Keys(a.values))
		for k := range b.values {
			if _, ok := a.values[k]; !ok {
				keys = append(keys, k)
			}
		}
		slices.Sort(keys)
		for _, k := range keys {
			x, y := settingOf(a, k), settingOf(b, k)
			switch {
			case x == y:
			case k == location:
				at := func(s keyed) string {
					if _, ok := s.values[k]; ok {
						return settingOf(s, k)
					}
					return settingOf(s, "name")
				}
				moved = append(moved, fmt.Sprintf("%s: column %s %s, %s %s", what, was, at(a), is, at(b)))
			default:
				faults = append(faults, fmt.Sprintf("%s: %s %s %s, %s %s", what, k, was, x, is, y))
			}
		}
	}
	named := func(what string, was, is string, before, after []keyed) {
		byName := func(list []keyed) (names []string, of map[string]keyed) {
			of = map[string]keyed{}
			for _, f := range list {
				names = append(names, f.name())
				of[f.name()] = f
			}
			return names, of
		}
		first, old := byName(before)
		second, now := byName(after)
		for _, name := range first {
			if f, ok := now[name]; ok {
				section(what+" "+name, old[name], f)
			} else {
				faults = append(faults, fmt.Sprintf("%s %s: %s there, %s not", what, name, was, is))
			}
		}
		for _, name := range second {
			if _, ok := old[name]; !ok {
				faults = append(faults, fmt.Sprintf("%s %s: %s not there, %s now", what, name, was, is))
			}
		}
		if slices.Equal(slices.Sorted(slices.Values(first)), slices.Sorted(slices.Values(second))) && !slices.Equal(first, second) {
			faults = append(faults, fmt.Sprintf("the order of the %ss %s %s, %s %s", what, was, strings.Join(first, ", "), is, strings.Join(second, ", ")))
		}
	}
	named("feature", was, is, r.Features, other.Features)
	named("head", was, is, r.Heads, other.Heads)
	a, b := r.Label, other.Label
	if a.name() == "" || b.name() == "" { // libfm's label has no name
		unnamed := func(s keyed) keyed {
			s.values = maps.Clone(s.values)
			delete(s.values, "name")
			delete(s.values, location)
			return s
		}
		a, b = unnamed(a), unnamed(b)
	}
	if !r.WholeIDs && other.WholeIDs && slices.ContainsFunc(r.Features, keyed.readsText) {
		moved = append(moved, fmt.Sprintf("ids: text such as 667.0 and nan %s hashed, %s the id 667 and missing; set parse.whole_ids: false if your data has such text", was, is))
	}
	section("label", a, b)
	section("weight", r.Weight, other.Weight)
	if text := drawnOtherwise(r.Holdout, other.Holdout, was, is); text != "" {
		faults = append(faults, "eval.holdout: "+text)
	}
	section("eval.holdout", r.Holdout.without(drawnRows), other.Holdout.without(drawnRows))
	return faults, moved
}

// drawnOtherwise says why two holdouts that draw rows hold out others; empty: they do not, or one of them goes by a column.
func drawnOtherwise(a, b keyed, was, is string) string {
	first, second := a.holdout(), b.holdout()
	if first.Share == 0 || second.Share == 0 || first.By != "" || second.By != "" || first.rows == second.rows {
		return ""
	}
	const bytes = "bytes alone, as older versions did"
	text := fmt.Sprintf("examples drawn by: %s %s, %s %s: ", was, cmp.Or(first.rows, bytes), is, cmp.Or(second.rows, bytes))
	if first.rows == "" || second.rows == "" {
		return text + "what was trained on would be held out; evaluate it on eval.source in place of eval.holdout, and to train it further give the job another dir too, and this one in restore.from"
	}
	return text + "what is in both could be trained on in the one and held out in the other; hold out by a column in both (eval.holdout.by), or evaluate on eval.source"
}

// without are the settings without one.
func (s keyed) without(key string) keyed {
	s.keys = slices.DeleteFunc(slices.Clone(s.keys), func(k string) bool { return k == key })
	s.values = maps.Clone(s.values)
	delete(s.values, key)
	return s
}

// tableKey is the setting that names a feature's table.
const tableKey = "table"

// tableOf is the table of a sparse feature; usual is that of features which name none.
func (s keyed) tableOf(usual string) string {
	var name string
	_ = json.Unmarshal(s.values[tableKey], &name) // a name that is no text is none
	return cmp.Or(name, usual)
}

// sparse reports whether a feature has a table.
func (s keyed) sparse() bool { return plainJSON(s.values["kind"]) == `"sparse"` }

// Renamed is the recipe with other names of tables, of which usual is the one of features that name none.
func (r Recipe) Renamed(names map[string]string, usual string) Recipe {
	r.Features = slices.Clone(r.Features)
	for i, f := range r.Features {
		to, ok := names[f.tableOf(usual)]
		if !ok || !f.sparse() {
			continue
		}
		now := keyed{keys: slices.DeleteFunc(slices.Clone(f.keys), func(k string) bool { return k == tableKey }), values: maps.Clone(f.values)}
		delete(now.values, tableKey)
		if to != usual {
			now.set(tableKey, to)
		}
		r.Features[i] = now
	}
	return r
}

// TableNames are the names that tables have in another recipe, where that is all that differs between them: each table has all its features in one table there.
func (r Recipe) TableNames(other Recipe, usual string) map[string]string {
	names, taken := map[string]string{}, map[string]string{}
	for _, f := range r.Features {
		i := slices.IndexFunc(other.Features, func(g keyed) bool { return g.name() == f.name() })
		if i < 0 || !f.sparse() || !other.Features[i].sparse() {
			continue
		}
		was, is := f.tableOf(usual), other.Features[i].tableOf(usual)
		if to, ok := names[was]; ok && to != is {
			return nil
		}
		if from, ok := taken[is]; ok && from != was {
			return nil
		}
		names[was], taken[is] = is, was
	}
	maps.DeleteFunc(names, func(was, is string) bool { return was == is })
	return names
}

// Common returns both recipes with the features alone that both have, and the names of those that only one has.
func (r Recipe) Common(other Recipe) (mine, theirs Recipe, features, heads Changed) {
	only := func(a, b []keyed) (common []keyed, rest []string) {
		for _, f := range a {
			if slices.ContainsFunc(b, func(g keyed) bool { return g.name() == f.name() }) {
				common = append(common, f)
			} else {
				rest = append(rest, f.name())
			}
		}
		return common, rest
	}
	mine, theirs = r, other
	mine.Features, features.Gone = only(r.Features, other.Features)
	theirs.Features, features.Added = only(other.Features, r.Features)
	mine.Heads, heads.Gone = only(r.Heads, other.Heads)
	theirs.Heads, heads.Added = only(other.Heads, r.Heads)
	return mine, theirs, features, heads
}

// Changed are the names that only one of two recipes has.
type Changed struct{ Gone, Added []string }

// plainJSON is a value as people write it: <= and not \u003c=.
func plainJSON(b []byte) string {
	var out bytes.Buffer
	var v any
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if json.Unmarshal(b, &v) != nil || enc.Encode(v) != nil {
		return string(b)
	}
	return strings.TrimSpace(out.String())
}

// DecodeRecipe reads a stored recipe.
func DecodeRecipe(b []byte) (Recipe, error) {
	var r Recipe
	if len(b) == 0 {
		return r, errors.New("it does not say what its features are")
	}
	err := json.Unmarshal(b, &r)
	return r, err
}

// ForFeatures makes a job that has the features of a stored recipe and nothing else. Errors: a [*ConfigError] for a recipe that does not say what the features are.
func ForFeatures(stored json.RawMessage, set component.Set) (*Config, error) {
	r, err := DecodeRecipe(stored)
	if err != nil {
		return nil, &ConfigError{Faults: []Fault{{Message: fmt.Sprintf("values cannot be made features: %v", err)}}}
	}
	features, err := json.Marshal(r.Features)
	if err != nil {
		panic("job: a setting does not marshal: " + err.Error()) // settings only
	}
	c := &Config{Version: 1, set: set}
	places, faults := schema(set).Assign([][2]string{{"parse.features", string(features)}}, conf.Layers{}, c)
	if c.places = places; len(faults) > 0 {
		return nil, &ConfigError{Faults: faults}
	}
	c.Parse.asStored()
	c.Parse.WholeIDs = r.WholeIDs
	c.derive()
	return c, nil
}

// readsText reports whether a feature makes integers of some text, and hashes the rest.
func (s keyed) readsText() bool {
	word := func(key string) string {
		var w string
		_ = json.Unmarshal(s.values[key], &w) // none is ""
		return w
	}
	return word("kind") != "dense" && word("type") != "string" && word("type") != "float" && s.values["buckets"] == nil
}

// asStored sets what the features of a stored recipe mean where it does not say, and a job's would mean something else.
func (p *Parse) asStored() {
	for i := range p.Features {
		if f := &p.Features[i]; f.Max > 0 && f.Keep == "" {
			f.Keep = keepFirst
		}
	}
}

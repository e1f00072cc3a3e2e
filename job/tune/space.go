package tune

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/result"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/model/zoo"
)

// candidate is a job with other settings.
type candidate struct{ changes []result.TunedChange }

// set is what [spec.Config.With] takes.
func (c *candidate) set() (out []string) {
	for _, ch := range c.changes {
		out = append(out, ch.Key+"="+ch.Value)
	}
	return out
}

// String lists the settings.
func (c *candidate) String() string {
	if len(c.changes) == 0 {
		return "the job as it is"
	}
	return strings.Join(c.set(), " ")
}

// rule is an update rule of one kind of parameters.
type rule struct {
	name     string
	settings map[string]string // as in a job file
}

func (r *rule) number(key string) (float64, bool) {
	v, err := strconv.ParseFloat(r.settings[key], 64)
	return v, err == nil
}

// draft is a candidate that is being drawn.
type draft struct {
	keys  map[string]string
	rules map[string]rule // by key: optimizer.sparse
}

func (d *draft) clone() *draft {
	out := &draft{keys: maps.Clone(d.keys), rules: map[string]rule{}}
	for k, r := range d.rules {
		out.rules[k] = rule{r.name, maps.Clone(r.settings)}
	}
	return out
}

// lever is one thing to change.
type lever struct {
	// ways each change a draft, or report that they cannot.
	ways []func(d *draft) bool
	// often is in how many of 12 combinations it is changed.
	often int
}

// Rates matter most, so combinations change them more often than all else.
const oftenRates, oftenOthers = 8, 3

// space is what can be changed of a job with one model.
type space struct {
	cfg    *spec.Config
	model  string // set: another model than the job's
	values map[string]spec.Setting
	// keys are those of every job, by path.
	keys   map[string]spec.Key
	rules  map[string]rule
	levers []lever

	drawn   int
	singles []*draft
}

// draw makes the candidates: the job as it is, then each change alone, the most promising ones first,
// then changes together, which the seed draws.
func (s *search) draw() error {
	known := s.cfg.Components().Models
	var names []string
	for _, m := range known {
		names = append(names, m.Name)
	}
	spaces := []*space{}
	for i, name := range append([]string{s.cfg.Model.Name()}, s.o.Models...) {
		if i > 0 && name == s.cfg.Model.Name() {
			continue
		}
		if !slices.Contains(names, name) {
			hint := ""
			if n := nearest.Name(name, names); n != "" {
				hint = fmt.Sprintf("; did you mean %q?", n)
			}
			return fault.Config("job: --models %s: there is no such model%s; `monolith model list` has them", name, hint)
		}
		sp, err := s.space(name, i > 0)
		if err != nil {
			if i == 0 {
				return err
			}
			return fmt.Errorf("--models %s: %w", name, err)
		}
		spaces = append(spaces, sp)
	}
	rng := rand.New(rand.NewPCG(s.o.Seed, 0x7e57))
	seen := map[string]bool{}
	noted := map[string]bool{}
	for i, sp := range spaces {
		want := s.o.Trials / len(spaces)
		if i < s.o.Trials%len(spaces) {
			want++
		}
		for want > 0 {
			d := sp.next(rng, s.o.Trials/len(spaces)/2)
			if d == nil {
				break
			}
			c := sp.candidate(d)
			if seen[c.String()] {
				continue
			}
			seen[c.String()] = true
			if err := s.usable(&c); err != nil {
				if i == 0 && len(c.changes) == 0 {
					return err
				}
				if key := c.changes[0].Key; errors.Is(err, conf.ErrEdit) && !noted[key] {
					noted[key] = true
					s.notes = append(s.notes, fmt.Sprintf("%s was not tried: %v", key, err))
				}
				continue
			}
			s.candidates = append(s.candidates, c)
			want--
		}
	}
	if len(s.candidates) < 2 {
		return fault.Config("job: there is nothing to try: no key of the job's model, optimizers and batch can be changed%s", strings.Join(append([]string{""}, s.notes...), "; "))
	}
	return nil
}

// usable reports whether a candidate is a job that can be built, and written.
func (s *search) usable(c *candidate) error {
	_, cfg, err := s.cfg.Edited(s.o.Env, c.set())
	if err == nil {
		_, err = wiring.Model(cfg)
	}
	return err
}

// space finds what can be changed of the job with a model.
func (s *search) space(model string, other bool) (*space, error) {
	sp := &space{cfg: s.cfg, values: map[string]spec.Setting{}, keys: map[string]spec.Key{}, rules: map[string]rule{}}
	if other {
		sp.model = model
		var err error
		if sp.cfg, err = s.cfg.With(s.o.Env, []string{"model=" + model}); err != nil {
			return nil, err
		}
	}
	for _, v := range sp.cfg.Effective() {
		sp.values[v.Path] = v
	}
	for _, k := range spec.Keys(s.cfg.Components()) {
		sp.keys[k.Path] = k
	}
	m, err := wiring.Model(sp.cfg)
	if err != nil {
		return nil, err
	}
	if own, ok := sp.cfg.Model.Value().(component.OwnRules); !ok || !own.OwnRules() {
		layout := m.Layout()
		for _, role := range []string{"sparse", "bias", "dense"} {
			if err := s.rates(sp, role, layout); err != nil {
				return nil, err
			}
		}
		sp.numbers(model)
	}
	sp.batches(cmp.Or(s.o.Rows, DefaultRows))
	sp.alone()
	return sp, nil
}

// maxDraws bounds how often another combination is looked for.
const maxDraws = 4000

// next is the draft of another candidate: the first ones change one thing, as many as alone says, the
// others several. nil: there are no more.
func (sp *space) next(rng *rand.Rand, alone int) *draft {
	n := sp.drawn
	sp.drawn++
	switch {
	case n <= alone && n < len(sp.singles):
		return sp.singles[n]
	case n > maxDraws:
		return nil
	case len(sp.levers) < 2: // there is nothing to combine
		if n < len(sp.singles) {
			return sp.singles[n]
		}
		return nil
	}
	d := sp.base()
	for _, l := range sp.levers {
		if rng.IntN(12) < l.often {
			l.ways[rng.IntN(len(l.ways))](d)
		}
	}
	return d
}

// base is the draft without changes.
func (sp *space) base() *draft {
	d := &draft{keys: map[string]string{}, rules: sp.rules}
	return d.clone()
}

// alone lists the drafts with one change at most: the first way of each lever, then the second ones.
func (sp *space) alone() {
	sp.singles = []*draft{sp.base()}
	for i, more := 0, true; more; i++ {
		more = false
		for _, l := range sp.levers {
			if i >= len(l.ways) {
				continue
			}
			more = true
			if d := sp.base(); l.ways[i](d) {
				sp.singles = append(sp.singles, d)
			}
		}
	}
}

// roles are the sections of optimizers in their order.
var roles = []string{"optimizer.sparse", "optimizer.bias", "optimizer.dense"}

// candidate says what a draft changes of the job.
func (sp *space) candidate(d *draft) candidate {
	var c candidate
	add := func(key, value string) {
		c.changes = append(c.changes, result.TunedChange{Key: key, Value: value, Was: sp.values[key].Value})
	}
	prefix := "model." + cmp.Or(sp.model, sp.cfg.Model.Name()) + "."
	var own []string
	for _, key := range slices.Sorted(maps.Keys(d.keys)) {
		name, ok := strings.CutPrefix(key, prefix)
		switch {
		case !ok:
		case sp.model != "":
			own = append(own, name+": "+d.keys[key])
		default:
			add(key, d.keys[key])
		}
	}
	if sp.model != "" {
		value := sp.model
		if len(own) > 0 {
			value = "{" + sp.model + ": {" + strings.Join(own, ", ") + "}}"
		}
		c.changes = append(c.changes, result.TunedChange{Key: "model", Value: value})
	}
	for _, role := range roles {
		was, now := sp.rules[role], d.rules[role]
		if was.name == now.name && maps.Equal(was.settings, now.settings) {
			continue
		}
		var whole []string
		for _, key := range slices.Sorted(maps.Keys(now.settings)) {
			path := role + "." + now.name + "." + key
			if sp.chosen(role, now.name) {
				if !same(sp.values[path].Value, now.settings[key]) {
					add(path, now.settings[key])
				}
				continue
			}
			if key == "lr" || !same(sp.keys[path].Default, now.settings[key]) {
				whole = append(whole, key+": "+now.settings[key])
			}
		}
		if whole != nil {
			c.changes = append(c.changes, result.TunedChange{Key: role, Value: "{" + now.name + ": {" + strings.Join(whole, ", ") + "}}"})
		}
	}
	if v, ok := d.keys["train.batch"]; ok {
		add("train.batch", v)
	}
	return c
}

// chosen reports whether the job has a rule of that name in a section.
func (sp *space) chosen(role, name string) bool {
	_, ok := sp.values[role+"."+name+".lr"]
	return ok
}

// same reports whether two values as written are one number, or one text.
func same(a, b string) bool {
	x, xerr := strconv.ParseFloat(a, 64)
	y, yerr := strconv.ParseFloat(b, 64)
	if xerr == nil && yerr == nil {
		return float32(x) == float32(y)
	}
	return a == b
}

// free reports whether a key may be changed: one that the environment sets would win over the file.
func (sp *space) free(prefix string) bool {
	for path, v := range sp.values {
		if (path == prefix || strings.HasPrefix(path, prefix+".")) && v.From == conf.FromEnv.String() {
			return false
		}
	}
	return true
}

// written renders a number with the three digits that count.
func written(v float64) string {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// rates adds the levers of an update rule: its rate, and its initial accumulator.
func (s *search) rates(sp *space, role string, layout *param.Layout) error {
	section := "optimizer." + role
	now, ok := ruleOf(sp.cfg, role, layout)
	if !ok || !sp.free(section) || !sp.writable(section, now) {
		return nil
	}
	sp.rules[section] = now
	// What the rule is by default for this model: where the job sets another, that is worth a try.
	usual := now
	if def := sp.keys[section].Default; def != "" {
		set := []string{section + "=" + def}
		if sp.model != "" {
			set = append(set, "model="+sp.model)
		}
		cfg, err := s.cfg.With(s.o.Env, set)
		if err != nil {
			return err
		}
		m, err := wiring.Model(cfg)
		if err != nil {
			return err
		}
		if r, ok := ruleOf(cfg, role, m.Layout()); ok && sp.writable(section, r) {
			usual = r
		}
	}
	rate := lever{often: oftenRates}
	times := func(of rule, factor float64) {
		lr, ok := of.number("lr")
		if !ok {
			return
		}
		rate.ways = append(rate.ways, func(d *draft) bool {
			d.rules[section] = rule{of.name, maps.Clone(of.settings)}
			d.rules[section].settings["lr"] = written(lr * factor)
			return true
		})
	}
	nowRate, _ := now.number("lr")
	if usualRate, ok := usual.number("lr"); ok && (usual.name != now.name || usualRate != nowRate) {
		times(usual, 1)
	}
	for _, factor := range []float64{4, 0.25, 2, 0.5} {
		times(now, factor)
		if usualRate, ok := usual.number("lr"); ok && (usual.name != now.name || usualRate != nowRate) {
			times(usual, factor)
		}
	}
	if len(rate.ways) > 0 {
		sp.levers = append(sp.levers, rate)
	}
	const accumulator = "initial_accumulator"
	if _, ok := now.number(accumulator); ok && role == "sparse" {
		l := lever{often: oftenOthers}
		for _, factor := range []float64{0.01, 100} {
			l.ways = append(l.ways, func(d *draft) bool {
				r := d.rules[section]
				v, ok := r.number(accumulator)
				if ok {
					r.settings[accumulator] = written(v * factor)
				}
				return ok
			})
		}
		sp.levers = append(sp.levers, l)
	}
	return nil
}

// writable reports whether a job file has a rule, with a rate.
func (sp *space) writable(section string, r rule) bool {
	for key := range r.settings {
		if _, ok := sp.keys[section+"."+r.name+"."+key]; !ok {
			return false
		}
	}
	_, ok := r.number("lr")
	return ok
}

// ruleOf is the rule that a section of optimizers stands for in a model, with all settings in force.
// ok is false where nothing of the model goes by it.
func ruleOf(cfg *spec.Config, role string, layout *param.Layout) (rule, bool) {
	var found optim.Optimizer
	switch role {
	case "dense":
		numbers := 0
		for _, t := range layout.Dense {
			switch t.Optimizer.(type) {
			case optim.EMA, optim.Intercept: // which go by no optimizer of the job
				continue
			}
			n := 1
			for _, d := range t.Shape {
				n *= d
			}
			numbers += n
			if found == nil {
				found = t.Optimizer
			}
		}
		if numbers < 2 { // an intercept
			found = nil
		}
	default:
		for _, t := range layout.Tables {
			at := slices.IndexFunc(cfg.Tables, func(own spec.Table) bool { return own.Name == t.Name })
			if at >= 0 && (role == "sparse" && cfg.Tables[at].Sparse != nil || role == "bias" && cfg.Tables[at].Bias != nil) {
				continue
			}
			for _, seg := range t.Segments {
				wanted := seg.Name == zoo.VecSegment
				if role == "bias" {
					wanted = seg.Name == zoo.BiasSegment
				}
				if wanted && found == nil {
					found = seg.Optimizer
				}
			}
		}
	}
	if found == nil {
		return rule{}, false
	}
	if rounded, ok := found.(optim.Rounded); ok {
		found = rounded.Rule
	}
	r := optim.RuleOf(found)
	out := rule{name: r.Name, settings: map[string]string{}}
	for key, raw := range r.Settings {
		var v any
		if json.Unmarshal(raw, &v) != nil {
			return rule{}, false
		}
		out.settings[key] = string(raw)
	}
	return out, true
}

// The numbers of models' sections that are worth changing, and how. Those that a model lacks are passed over.
var numbers = []struct {
	key    string
	values func(now float64) []float64
}{
	{"dim", func(now float64) []float64 { return []float64{now * 2, float64(int(now) / 2), now * 4} }},
	{"embedding_l2", func(float64) []float64 { return []float64{1e-5, 1e-4, 1e-6, 0} }},
	{"dropout", func(float64) []float64 { return []float64{0.2, 0.5, 0} }},
	{"bias_l2", func(float64) []float64 { return []float64{1e-5, 1e-4, 0} }},
	{"dense_l2", func(float64) []float64 { return []float64{1e-5, 1e-4, 0} }},
}

// The bounds of widths that are tried.
const leastDim, mostDim = 2, 256

// numbers adds the levers of the model's section.
func (sp *space) numbers(model string) {
	for _, n := range numbers {
		path := "model." + model + "." + n.key
		v, ok := sp.values[path]
		now, err := strconv.ParseFloat(v.Value, 64)
		if _, layers := sp.rules["optimizer.dense"]; !ok || err != nil || !sp.free(path) || n.key == "dense_l2" && !layers {
			continue
		}
		l := lever{often: oftenOthers}
		for _, value := range n.values(now) {
			if value == now || n.key == "dim" && (value < leastDim || value > mostDim) {
				continue
			}
			l.ways = append(l.ways, func(d *draft) bool {
				d.keys[path] = written(value)
				return true
			})
		}
		if len(l.ways) > 0 {
			sp.levers = append(sp.levers, l)
		}
	}
}

// The bounds of batches that are tried: rows, and batches in the first rung.
const leastBatch, leastSteps = 16, 20

// batches adds the lever of train.batch.
func (sp *space) batches(rows int64) {
	now := sp.cfg.Train.Batch
	if !sp.free("train.batch") {
		return
	}
	l := lever{often: oftenOthers}
	for _, value := range []int{now / 4, now * 4, now / 2, now * 2} {
		if value < leastBatch || int64(value)*leastSteps > rows {
			continue
		}
		l.ways = append(l.ways, func(d *draft) bool {
			d.keys["train.batch"] = strconv.Itoa(value)
			return true
		})
	}
	if len(l.ways) > 0 {
		sp.levers = append(sp.levers, l)
	}
}

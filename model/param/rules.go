package param

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/model/optim"
)

// Rules are what of a layout may change while its parameters are trained on: how they are updated, and how those that come
// into being begin. It is JSON in a snapshot's manifest.
type Rules struct {
	// Seed is [Layout].Seed.
	Seed uint64 `json:"seed,string"`
	// Parameters are the rules of each segment, under table.segment, and of each dense tensor, in the layout's order.
	Parameters []Rule `json:"parameters"`
	// Retention says which fids have rows, and for how long; nil: all, for ever.
	Retention *Retention `json:"retention,omitempty"`
}

// Rule is what one parameter is initialised and updated by.
type Rule struct {
	Name      string     `json:"name"`
	Init      InitRule   `json:"init"`
	Optimizer optim.Rule `json:"optimizer"`
	L2        float32    `json:"l2,omitzero"`
	L1        float32    `json:"l1,omitzero"`
	// Delay, Clip and Schedule are a segment's, Delay and Schedule also a tensor's.
	Delay    float32        `json:"delay,omitzero"`
	Clip     float32        `json:"clip,omitzero"`
	Schedule optim.Schedule `json:"schedule,omitzero"`
	// Compressor is a segment's.
	Compressor Compressor `json:"compressor,omitzero"`
}

// InitRule is an [Init] as data.
type InitRule struct {
	// Kind is zeros, constant, uniform, normal, truncated_normal or glorot.
	Kind string  `json:"kind"`
	A    float32 `json:"a,omitzero"`
	B    float32 `json:"b,omitzero"`
}

var initKinds = [...]string{InitZeros: "zeros", InitConstant: "constant", InitUniform: "uniform", InitNormal: "normal", InitTruncatedNormal: "truncated_normal", InitGlorot: "glorot"}

// Rule describes an initializer.
func (i Init) Rule() InitRule {
	rule := InitRule{Kind: fmt.Sprint("init ", i.Kind), A: i.A, B: i.B}
	if int(i.Kind) < len(initKinds) {
		rule.Kind = initKinds[i.Kind]
	}
	return rule
}

// Init makes what r describes. Errors: for a kind that is not known.
func (r InitRule) Init() (Init, error) {
	k := slices.Index(initKinds[:], r.Kind)
	if k < 0 {
		return Init{}, fmt.Errorf("param: no initializer is called %q", r.Kind)
	}
	return Init{Kind: InitKind(k), A: r.A, B: r.B}, nil
}

func (r InitRule) String() string {
	if i, err := r.Init(); err == nil {
		return i.String()
	}
	return r.Kind
}

// SegmentName is the name of a table's segment among parameters.
func SegmentName(table, segment string) string { return table + "." + segment }

// Rules returns what of the layout may change.
func (l *Layout) Rules() Rules {
	r := Rules{Seed: l.Seed}
	for _, t := range l.Tables {
		for _, s := range t.Segments {
			r.Parameters = append(r.Parameters, Rule{
				Name: SegmentName(t.Name, s.Name), Init: s.Init.Rule(), Optimizer: optim.RuleOf(s.Optimizer), L2: s.L2, L1: s.L1, Delay: s.Delay, Clip: s.Clip, Schedule: s.Schedule, Compressor: s.Compressor,
			})
		}
	}
	for _, t := range l.Dense {
		r.Parameters = append(r.Parameters, Rule{Name: t.Name, Init: t.Init.Rule(), Optimizer: optim.RuleOf(t.Optimizer), L2: t.L2, L1: t.L1, Delay: t.Delay, Schedule: t.Schedule})
	}
	if l.Retention.Active() {
		retention := l.Retention
		r.Retention = &retention
	}
	return r
}

// Changes says in what rules differ from earlier ones, one change a line: the parameters, the property and both values.
// Parameters that changed in the same way share a line; those that only one of the two has are left out. rename gives
// earlier names their present ones, and may be nil.
//
//	embedding.vec: adagrad's lr is 0.1, was 0.05
//	initial values: the seed is 2, was 1
func (r Rules) Changes(earlier Rules, rename map[string]string) []string {
	was := map[string]Rule{}
	for _, p := range earlier.Parameters {
		was[renamed(rename, p.Name)] = p
	}
	var texts []string
	names := map[string][]string{} // by their description
	say := func(name, format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		if names[text] == nil {
			texts = append(texts, text)
		}
		names[text] = append(names[text], name)
	}
	if r.Seed != earlier.Seed {
		say("initial values", "the seed is %d, was %d", r.Seed, earlier.Seed)
	}
	if is, was := r.Retention.text(), earlier.Retention.text(); is != was {
		say("retention", "%s, was %s", is, was)
	}
	for _, p := range r.Parameters {
		q, ok := was[p.Name]
		if !ok {
			continue
		}
		if p.Init != q.Init {
			say(p.Name, "init is %s, was %s", p.Init, q.Init)
		}
		if p.L2 != q.L2 {
			say(p.Name, "l2 is %g, was %g", p.L2, q.L2)
		}
		if p.L1 != q.L1 {
			say(p.Name, "l1 is %g, was %g", p.L1, q.L1)
		}
		if p.Delay != q.Delay {
			say(p.Name, "delay compensation is %g, was %g", p.Delay, q.Delay)
		}
		if p.Clip != q.Clip {
			say(p.Name, "clip is %g, was %g", p.Clip, q.Clip)
		}
		if p.Schedule != q.Schedule {
			say(p.Name, "schedule is %s, was %s", p.Schedule, q.Schedule)
		}
		if p.Compressor != q.Compressor {
			say(p.Name, "compressor is %s, was %s", cmp.Or(p.Compressor.String(), "none"), cmp.Or(q.Compressor.String(), "none"))
		}
		if p.Optimizer.Name != q.Optimizer.Name {
			say(p.Name, "optimizer is %s, was %s", p.Optimizer.Name, q.Optimizer.Name)
			continue
		}
		keys := maps.Clone(p.Optimizer.Settings)
		if keys == nil {
			keys = map[string]json.RawMessage{}
		}
		maps.Copy(keys, q.Optimizer.Settings)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if a, b := setting(p.Optimizer, key), setting(q.Optimizer, key); a != b {
				say(p.Name, "%s's %s is %s, was %s", p.Optimizer.Name, key, a, b)
			}
		}
	}
	for i, text := range texts {
		texts[i] = list(names[text]) + ": " + text
	}
	return texts
}

func setting(r optim.Rule, key string) string {
	if v, ok := r.Settings[key]; ok {
		return string(v)
	}
	return "not set"
}

// list names a few and counts the rest.
func list(names []string) string {
	const named = 3
	if len(names) > named+1 {
		names = append(slices.Clone(names[:named]), fmt.Sprintf("%d more", len(names)-named))
	}
	return strings.Join(names, ", ")
}

// Hash names the shape: who only reads the weights of a layout needs one of the same hash. Optimizers do not count.
func (s Shape) Hash() string {
	h := sha256.New()
	for _, t := range s.Tables {
		for _, g := range t.Segments {
			_, _ = fmt.Fprintf(h, "table %q segment %q dim %d\n", t.Name, g.Name, g.Dim)
		}
	}
	for _, t := range s.Dense {
		_, _ = fmt.Fprintf(h, "dense %q shape %v\n", t.Name, t.Shape)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// renamed gives a parameter its present name: it, or the table it is a segment of, may have been renamed.
func renamed(rename map[string]string, name string) string {
	if to, ok := rename[name]; ok {
		return to
	}
	if table, segment, ok := strings.Cut(name, "."); ok {
		if to, ok := rename[table]; ok {
			return SegmentName(to, segment)
		}
	}
	return name
}

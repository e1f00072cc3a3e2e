package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/conf"
)

// Restore describes how a run begins, and what becomes of parameters that do not fit the job's model. A model that has got a
// feature, a layer or a head continues from its snapshots, or from those of another run, without losing what it has learned:
//
//	restore: {from: runs/old, features: {genre: init}, tensors: {deep.0.weight: grow}}
//
// The policies are: fail, the default, says what does not fit and what to set; init gives what is new or has another shape
// its initial values, and an optimizer that is another its initial state; grow keeps the elements that lie in both shapes,
// from the first of each dimension, where something was added after what there was; drop discards what is stored. Rules
// (learning rates, L2, initializers, the seed) are always the job's; training says which have changed.
type Restore struct {
	// From is a job's dir, a folder of snapshots or one snapshot, whose parameters a run begins with that has no snapshot in
	// its own dir yet. Positions, learning-rate schedules and epochs are not taken over: the source is read from its start. What
	// eval.holdout holds out must have been held out there too: its from may be later, its share smaller.
	From string `yaml:"from" default:""`
	// Rename gives what the snapshot has another name: {old: new}. It names a table, a table.segment, a dense tensor, or the
	// first part of the names of dense tensors up to a dot.
	Rename Names `yaml:"rename" default:"{}"`
	// Features say which features may be new (init) and which may be gone (drop), by name, or "*" for all others. Their other
	// settings must stay as they are.
	Features Presence `yaml:"features" default:"{}"`
	// Heads say which heads may be new (init) and which may be gone (drop), as features do. Their parameters are tables' and
	// tensors': those of a new head need a policy too.
	Heads Presence `yaml:"heads" default:"{}"`
	// Tables are policies by table, or table.segment, or "*" for all others: init gives what is new or of another shape its
	// initial values, and an optimizer that is another its initial state; grow keeps the weights that were there where there
	// are more or fewer now; drop discards what is stored; fail, the default, says what does not fit.
	Tables Policies `yaml:"tables" default:"{}"`
	// Tensors are policies by dense tensor, or "*" for all others, as for tables; grow keeps the elements that lie in both
	// shapes, from the first of each dimension, which is right where something was added after what there was.
	Tensors Policies `yaml:"tensors" default:"{}"`
}

// Names gives things other names: {old: new}.
type Names map[string]string

// String renders {old: new}.
func (n Names) String() string { return pairs(n) }

// Written implements [conf.Described].
func (Names) Written() string { return "{old: new}" }

// DecodeNode implements [conf.Custom].
func (n *Names) DecodeNode(node *conf.Node, report func(at Where, below, message string)) {
	*n = words(node, "{old: new}", report)
}

// Policies are words by name: fail, init, grow or drop.
type Policies map[string]string

// The policies of [Restore].
const (
	PolicyFail = "fail"
	PolicyInit = "init"
	PolicyGrow = "grow"
	PolicyDrop = "drop"
)

// String renders {name: policy}.
func (p Policies) String() string { return pairs(p) }

// Written implements [conf.Described].
func (Policies) Written() string { return "{name: fail|init|grow|drop}" }

// DecodeNode implements [conf.Custom].
func (p *Policies) DecodeNode(node *conf.Node, report func(at Where, below, message string)) {
	*p = policies(node, report, PolicyFail, PolicyInit, PolicyGrow, PolicyDrop)
}

// policies reads a mapping of words that are known.
func policies(node *conf.Node, report func(at Where, below, message string), known ...string) map[string]string {
	p := words(node, "{name: policy}", report)
	for _, name := range slices.Sorted(maps.Keys(p)) {
		if word := p[name]; !slices.Contains(known, word) {
			report(node.At(), name, fmt.Sprintf("is %q, not one of %s", word, strings.Join(known, ", ")))
		}
	}
	return p
}

// Of is the policy of a name.
func (p Policies) Of(name string) string {
	for _, key := range []string{name, "*"} {
		if word, ok := p[key]; ok {
			return word
		}
	}
	return PolicyFail
}

// Presence are policies of what is there or is not: fail, init or drop. Nothing of it can grow.
type Presence map[string]string

// String renders {name: policy}.
func (p Presence) String() string { return pairs(p) }

// Written implements [conf.Described].
func (Presence) Written() string { return "{name: fail|init|drop}" }

// DecodeNode implements [conf.Custom].
func (p *Presence) DecodeNode(node *conf.Node, report func(at Where, below, message string)) {
	*p = policies(node, report, PolicyFail, PolicyInit, PolicyDrop)
}

// Of is the policy of a name.
func (p Presence) Of(name string) string { return Policies(p).Of(name) }

func pairs(m map[string]string) string {
	out := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+": "+m[k])
	}
	return "{" + strings.Join(out, ", ") + "}"
}

// words reads a mapping of words; nil when it is empty.
func words(node *conf.Node, wants string, report func(at Where, below, message string)) map[string]string {
	entries, ok := node.Pairs()
	if !ok {
		report(node.At(), "", fmt.Sprintf("wants %s, not %s", wants, node.Describe()))
		return nil
	}
	var out map[string]string
	for _, e := range entries {
		word, ok := e.Value.Text()
		if !ok || word == "" || e.Key == "" {
			report(e.Value.At(), e.Key, fmt.Sprintf("wants a word, not %s", e.Value.Describe()))
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[e.Key] = word
	}
	return out
}

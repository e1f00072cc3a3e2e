package param

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/model/optim"
)

// Policy describes what becomes of a parameter that does not fit: one that is new, has another shape or another optimizer, or
// is not in the model any more.
type Policy string

// The policies.
const (
	// PolicyFail refuses; it is the default.
	PolicyFail Policy = "fail"
	// PolicyInit gives the parameter what it is missing from the beginning: initial values when it is new or its shape is
	// another; when only the optimizer is another, the weights stay and the optimizer's state starts over. Rows of a table
	// stay, with their times and counts.
	PolicyInit Policy = "init"
	// PolicyGrow keeps the elements that lie in both shapes, from the first of each dimension, with the optimizer's state of
	// each, and gives the others initial values. It is right where something was added after what there was. Where the
	// shapes have another number of dimensions, or the optimizer is another, it does what PolicyInit does.
	PolicyGrow Policy = "grow"
	// PolicyDrop discards what is stored: a table begins without rows, a tensor with initial values, and what the model has
	// not is left out.
	PolicyDrop Policy = "drop"
)

// Policies say what to do where a snapshot does not fit a layout. The zero value refuses whatever does not.
type Policies struct {
	// Rename gives what the snapshot has another name: a table, a table.segment, a dense tensor, or the first part of the
	// names of dense tensors up to a dot.
	Rename map[string]string
	// Tables are policies by table, or by table.segment, which comes first, and Tensors by dense tensor; "*" stands for all
	// that are not named. Names are those of the layout, and of the snapshot, renamed, for what the layout has not.
	Tables, Tensors map[string]Policy
}

// Fit is how the parameters of a snapshot become those of a layout.
type Fit struct {
	// Tables and Dense have an entry for each table and tensor of the layout, in its order.
	Tables []TableFit
	Dense  []TensorFit
	// Exact says that everything is taken over as it is.
	Exact bool
	// Notes say what is not, one a line.
	Notes []string
}

// TableFit describes where a table's rows come from.
type TableFit struct {
	// From is the number of the table in the snapshot, -1 for none.
	From     int
	Segments []SegmentFit
}

// SegmentFit describes where a segment comes from.
type SegmentFit struct {
	// From is the number of the segment in the snapshot's table, -1 for none.
	From int
	// Dim is how many weights are taken over, the first ones.
	Dim int
	// State says that the optimizer's state is.
	State bool
}

// TensorFit describes where a dense tensor comes from.
type TensorFit struct {
	// From is the number of the tensor in the snapshot, -1 for none.
	From int
	// State says that the optimizer's state is taken over.
	State bool
}

// FitError lists everything that does not fit. It says what to set.
type FitError struct {
	// Faults have a line each.
	Faults []string
	// Tables and Tensors are the policies that would let everything pass, those that keep least.
	Tables, Tensors map[string]Policy
	// Shapes says that some have the same name and another shape, which [PolicyGrow] is for.
	Shapes bool
}

// Error renders one fault a line, and what would let them pass on a line that is no fault.
func (e *FitError) Error() string {
	s := strings.Join(e.Faults, "\n  ")
	if len(e.Tables)+len(e.Tensors) > 0 {
		s += "\nto continue without what does not fit, set " + e.Setting()
	}
	if e.Shapes {
		s += GrowHint
	}
	return s
}

// GrowHint follows Setting where [FitError].Shapes.
const GrowHint = " (grow instead of init keeps what lies in both shapes)"

// Setting is what to set in the job.
func (e *FitError) Setting() string { return "restore: {" + strings.Join(e.Sections(), ", ") + "}" }

// Sections are the parts of Setting, a key with its policies each.
func (e *FitError) Sections() (parts []string) {
	for _, m := range []struct {
		key string
		of  map[string]Policy
	}{{"tables", e.Tables}, {"tensors", e.Tensors}} {
		var entries []string
		for _, name := range slices.Sorted(maps.Keys(m.of)) {
			entries = append(entries, name+": "+string(m.of[name]))
		}
		if len(entries) > 0 {
			parts = append(parts, m.key+": {"+strings.Join(entries, ", ")+"}")
		}
	}
	return parts
}

// Validate reports policies that are none, all at once.
func (p Policies) Validate() error {
	var faults []error
	for _, m := range []struct {
		what string
		of   map[string]Policy
	}{{"tables", p.Tables}, {"tensors", p.Tensors}} {
		for _, name := range slices.Sorted(maps.Keys(m.of)) {
			switch m.of[name] {
			case PolicyFail, PolicyInit, PolicyGrow, PolicyDrop:
			default:
				faults = append(faults, fmt.Errorf("param: %s: policy of %s is %q, not fail, init, grow or drop", m.what, name, m.of[name]))
			}
		}
	}
	return errors.Join(faults...)
}

func (p Policies) table(name, segment string) Policy {
	for _, key := range []string{SegmentName(name, segment), name, "*"} {
		if q, ok := p.Tables[key]; ok {
			return q
		}
	}
	return PolicyFail
}

func (p Policies) tensor(name string) Policy {
	for _, key := range []string{name, "*"} {
		if q, ok := p.Tensors[key]; ok {
			return q
		}
	}
	return PolicyFail
}

// Fit describes how what a snapshot has becomes the parameters of l. Under [optim.Frozen] no state is wanted, and none is
// missed. Errors: [*FitError].
func (l *Layout) Fit(have Shape, p Policies) (*Fit, error) {
	f := &fitting{p: p, fit: &Fit{}, fault: FitError{Tables: map[string]Policy{}, Tensors: map[string]Policy{}}}
	f.tables(have.Tables, l)
	f.tensors(have.Dense, l)
	f.renames(have, l)
	if len(f.fault.Faults) > 0 {
		f.strangers(have, l)
		return nil, &f.fault
	}
	f.fit.Exact = len(f.fit.Notes) == 0
	return f.fit, nil
}

type fitting struct {
	p     Policies
	fit   *Fit
	fault FitError
}

func (f *fitting) bad(of map[string]Policy, name string, needs Policy, format string, args ...any) {
	of[name] = needs
	f.fault.Faults = append(f.fault.Faults, fmt.Sprintf(format, args...))
}

func (f *fitting) note(format string, args ...any) {
	f.fit.Notes = append(f.fit.Notes, fmt.Sprintf(format, args...))
}

// stored describes an optimizer and its state.
func stored(name string, stateDim int) string { return fmt.Sprintf("%s (%d of state)", name, stateDim) }

func (f *fitting) tables(have []TableShape, l *Layout) {
	taken := map[int]bool{}
	for _, t := range l.Tables {
		from := slices.IndexFunc(have, func(h TableShape) bool { return renamed(f.p.Rename, h.Name) == t.Name })
		tf := TableFit{From: from}
		dropped := from < 0
		var segments []SegmentShape
		if from >= 0 {
			taken[from], segments = true, have[from].Segments
		}
		used := map[int]bool{}
		for _, s := range t.Segments {
			name := SegmentName(t.Name, s.Name)
			at := -1
			if from >= 0 {
				at = slices.IndexFunc(segments, func(h SegmentShape) bool {
					return renamed(f.p.Rename, SegmentName(have[from].Name, h.Name)) == name
				})
			}
			sf := SegmentFit{From: at}
			if at >= 0 {
				used[at] = true
			}
			var old *SegmentShape
			if at >= 0 {
				old = &segments[at]
			}
			if f.segment(t.Name, s, old, &sf, from < 0) {
				dropped = true
			}
			tf.Segments = append(tf.Segments, sf)
		}
		for i, h := range segments {
			if used[i] {
				continue
			}
			name := SegmentName(t.Name, h.Name)
			if f.p.table(t.Name, h.Name) != PolicyDrop {
				f.bad(f.fault.Tables, name, PolicyDrop, "table %s: the snapshot has segment %s of dim %d, the model none of that name", t.Name, h.Name, h.Dim)
				continue
			}
			f.note("%s is dropped: the model has no such segment", name)
		}
		if dropped {
			tf.From = -1
		}
		for i, sf := range tf.Segments {
			if sf.From >= 0 && sf.From != i {
				f.note("table %s: its segments come in another order", t.Name)
				break
			}
		}
		f.fit.Tables = append(f.fit.Tables, tf)
	}
	for i, h := range have {
		name := renamed(f.p.Rename, h.Name)
		switch {
		case taken[i]:
		case f.p.table(name, "*") == PolicyDrop:
			f.note("table %s is dropped: the model has no such table", name)
		default:
			f.bad(f.fault.Tables, name, PolicyDrop, "table %s: the snapshot has it, the model has no such table", name)
		}
	}
}

// segment fits one segment to old, nil for none, and reports whether the whole table is discarded.
func (f *fitting) segment(table string, s Segment, old *SegmentShape, sf *SegmentFit, fresh bool) (drop bool) {
	name, policy := SegmentName(table, s.Name), f.p.table(table, s.Name)
	state, rule := s.Optimizer.StateDim(s.Dim), s.Optimizer.Name()
	allowed := policy != PolicyFail
	switch {
	case old == nil && (policy == PolicyFail || policy == PolicyDrop && !fresh):
		f.bad(f.fault.Tables, name, PolicyInit, "table %s segment %s: the snapshot has none, the model dim %d", table, s.Name, s.Dim)
	case old == nil:
		f.note("%s begins with initial values: it is new", name)
	case old.Dim != s.Dim && !allowed:
		f.fault.Shapes = true
		f.bad(f.fault.Tables, name, PolicyInit, "table %s segment %s: the snapshot has dim %d, the model dim %d", table, s.Name, old.Dim, s.Dim)
	case old.Dim != s.Dim && policy == PolicyDrop:
		f.note("the rows of table %s are dropped: %s has dim %d, was %d", table, name, s.Dim, old.Dim)
		return true
	case old.Dim != s.Dim && policy == PolicyGrow:
		sf.Dim, sf.State = min(old.Dim, s.Dim), keepsState(s.Optimizer, old.Optimizer)
		f.note("%s keeps its first %d of %d weights: it has dim %d now", name, sf.Dim, old.Dim, s.Dim)
	case old.Dim != s.Dim:
		f.note("%s begins with initial values: it has dim %d, was %d", name, s.Dim, old.Dim)
	case rule == frozen:
		sf.Dim = s.Dim
	case old.Optimizer == rule && old.StateDim == state, old.StateDim == 0 && state == 0:
		sf.Dim, sf.State = s.Dim, true
	case !allowed:
		f.bad(f.fault.Tables, name, PolicyInit, "table %s segment %s: the snapshot has the state of %s, the model's optimizer is %s", table, s.Name,
			stored(old.Optimizer, old.StateDim), stored(rule, state))
	case policy == PolicyDrop:
		f.note("the rows of table %s are dropped: the optimizer of %s is %s, was %s", table, name, rule, old.Optimizer)
		return true
	default:
		sf.Dim = s.Dim
		f.note("%s keeps its weights; the optimizer's state starts over: it is %s, was %s", name, rule, old.Optimizer)
	}
	return false
}

const frozen = "frozen"

// keepsState reports whether the state of one element can go with it. Rules keep k vectors of the weights' length, and behind
// them scalars; those that go by the shape of a tensor keep more.
func keepsState(o optim.Optimizer, was string) bool {
	return o.Name() == was && o.Name() != frozen && !optim.IsShaped(o)
}

func (f *fitting) tensors(have []TensorShape, l *Layout) {
	taken := map[int]bool{}
	for _, t := range l.Dense {
		from := slices.IndexFunc(have, func(h TensorShape) bool { return renamed(f.p.Rename, h.Name) == t.Name })
		tf := TensorFit{From: from}
		if from >= 0 {
			taken[from] = true
		}
		f.tensor(t, have, &tf)
		f.fit.Dense = append(f.fit.Dense, tf)
	}
	for i, h := range have {
		name := renamed(f.p.Rename, h.Name)
		switch {
		case taken[i]:
		case f.p.tensor(name) == PolicyDrop:
			f.note("tensor %s is dropped: the model has no such tensor", name)
		default:
			f.bad(f.fault.Tensors, name, PolicyDrop, "tensor %s: the snapshot has it with shape %v, the model has no such tensor", name, h.Shape)
		}
	}
}

// intercept is the name of [optim.Intercept].
const intercept = "intercept"

func (f *fitting) tensor(t Tensor, have []TensorShape, tf *TensorFit) {
	policy := f.p.tensor(t.Name)
	state, rule := t.Optimizer.StateDim(t.Len()), t.Optimizer.Name()
	if tf.From < 0 {
		if policy != PolicyInit && policy != PolicyGrow {
			f.bad(f.fault.Tensors, t.Name, PolicyInit, "tensor %s: the snapshot has none, the model one of shape %v", t.Name, t.Shape)
			return
		}
		f.note("tensor %s begins with initial values: it is new", t.Name)
		return
	}
	old := have[tf.From]
	switch {
	case !slices.Equal(old.Shape, t.Shape) && policy == PolicyFail:
		f.fault.Shapes = f.fault.Shapes || len(old.Shape) == len(t.Shape)
		f.bad(f.fault.Tensors, t.Name, PolicyInit, "tensor %s: the snapshot has shape %v, the model %v", t.Name, old.Shape, t.Shape)
	case !slices.Equal(old.Shape, t.Shape) && policy == PolicyGrow && len(old.Shape) == len(t.Shape):
		tf.State = keepsState(t.Optimizer, old.Optimizer)
		f.note("tensor %s keeps what lies in both shapes: it is %v, was %v", t.Name, t.Shape, old.Shape)
	case !slices.Equal(old.Shape, t.Shape):
		tf.From = -1
		f.note("tensor %s begins with initial values: it has shape %v, was %v", t.Name, t.Shape, old.Shape)
	case rule == frozen:
	case old.Optimizer == rule && old.StateDim == state, old.StateDim == 0 && state == 0:
		tf.State = true
	case policy == PolicyFail && rule != intercept: // an intercept's state is a count, which begins where that matters little
		f.bad(f.fault.Tensors, t.Name, PolicyInit, "tensor %s: the snapshot has the state of %s, the model's optimizer is %s", t.Name,
			stored(old.Optimizer, old.StateDim), stored(rule, state))
	case policy == PolicyDrop:
		tf.From = -1
		f.note("tensor %s begins with initial values: the optimizer is %s, was %s", t.Name, rule, old.Optimizer)
	default:
		f.note("tensor %s keeps its weights; the optimizer's state starts over: it is %s, was %s", t.Name, rule, old.Optimizer)
	}
}

// names are those of tables, segments and tensors; with parts also the first parts of the names of tensors.
func names(s Shape, parts bool) map[string]bool {
	out := map[string]bool{}
	for _, t := range s.Tables {
		out[t.Name] = true
		for _, g := range t.Segments {
			out[SegmentName(t.Name, g.Name)] = true
		}
	}
	for _, t := range s.Dense {
		out[t.Name] = true
		if first, _, ok := strings.Cut(t.Name, "."); ok && parts {
			out[first] = true
		}
	}
	return out
}

// strangers adds the policies that name neither what the snapshot has nor what the model has. They are mistakes only where
// something does not fit: what was dropped once is nowhere later on.
func (f *fitting) strangers(have Shape, l *Layout) {
	known := names(l.Shape(), false)
	for name := range names(have, false) {
		known[renamed(f.p.Rename, name)] = true
	}
	for _, m := range []struct {
		key string
		of  map[string]Policy
	}{{"tables", f.p.Tables}, {"tensors", f.p.Tensors}} {
		for _, name := range slices.Sorted(maps.Keys(m.of)) {
			if name != "*" && !known[name] {
				f.fault.Faults = append(f.fault.Faults, fmt.Sprintf("%s: a policy is set for %s, which neither the snapshot nor the model has%s",
					m.key, name, nearest.Suggest(name, slices.Sorted(maps.Keys(known)))))
			}
		}
	}
}

// renames notes what has another name, and refuses to rename what neither the snapshot has under the old name nor anybody under the new one.
func (f *fitting) renames(have Shape, l *Layout) {
	there, wanted := names(have, true), names(l.Shape(), true)
	for _, from := range slices.Sorted(maps.Keys(f.p.Rename)) {
		to := f.p.Rename[from]
		switch {
		case !wanted[to]:
			f.fault.Faults = append(f.fault.Faults, fmt.Sprintf("rename %s to %s: the model has nothing of that name%s", from, to, nearest.Suggest(to, slices.Sorted(maps.Keys(wanted)))))
		case there[from] && from != to: // the files of the snapshot have the old name
			f.note("%s is called %s now", from, to)
		case !there[from] && !there[to]:
			f.fault.Faults = append(f.fault.Faults, fmt.Sprintf("rename %s to %s: the snapshot has nothing called %s%s", from, to, from, nearest.Suggest(from, slices.Sorted(maps.Keys(there)))))
		}
	}
}

// Take makes the weights and state of a vector or tensor of shape is, from what a snapshot has of shape was: fit says how
// much, and o is the optimizer of both. dst and state hold initial values on entry, so that what is not taken over keeps
// them.
func Take(o optim.Optimizer, dst, state, weights, from []float32, is, was []int, keepState bool) {
	if slices.Equal(is, was) {
		copy(dst, weights)
		if keepState {
			copy(state, from)
		}
		return
	}
	n, m := len(dst), len(weights)
	corner(dst, weights, is, was)
	scalars := o.StateDim(0)
	vectors := o.StateDim(1) - scalars
	if !keepState || len(state) != vectors*n+scalars || len(from) != vectors*m+scalars {
		return
	}
	for i := range vectors {
		corner(state[i*n:][:n], from[i*m:][:m], is, was)
	}
	copy(state[vectors*n:], from[vectors*m:])
}

// corner copies the elements that lie in both of two row-major shapes with as many dimensions.
func corner(dst, src []float32, is, was []int) {
	if len(is) == 1 {
		copy(dst[:min(is[0], was[0])], src)
		return
	}
	a, b := len(dst)/is[0], len(src)/was[0]
	for i := range min(is[0], was[0]) {
		corner(dst[i*a:][:a], src[i*b:][:b], is[1:], was[1:])
	}
}

package migrate

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/monolith-go/monolith/internal/nearest"
	"github.com/monolith-go/monolith/job/internal/fault"
	"github.com/monolith-go/monolith/job/spec"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/param"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// router says where each row goes.
type router struct {
	tables []param.Table
	v1     bool
	slots  map[int]int // other slots; -1: left out
	bySlot map[int][]int
	// rules are the mappings of tables with what they come to for each of the job's tables.
	rules []rule
	usual []*layout
	found map[string]*rule // by name in the checkpoint
}

type rule struct {
	*TableMapping
	to      int // -1: by slot
	skip    bool
	layouts []*layout // by table
}

// newRouter checks a mapping against a job. Errors: [pipeline.ErrConfig], all faults at once.
func newRouter(c *spec.Config, m model.Model, by *Mapping) (*router, error) {
	if by == nil {
		by = &Mapping{}
	}
	r := &router{tables: m.Layout().Tables, v1: by.FIDs == "v1", slots: map[int]int{}, bySlot: map[int][]int{}, found: map[string]*rule{}}
	var faults []error
	bad := func(text string, args ...any) { faults = append(faults, fault.Config("mapping: "+text, args...)) }
	named := map[string]int{} // slots by feature
	for _, f := range c.Parse.Features {
		if f.Kind != "dense" && f.Slot != nil {
			named[f.Name] = *f.Slot
		}
	}
	for _, f := range m.Features() {
		if slot, ok := named[f.Name]; ok && f.Kind == model.Sparse && !slices.Contains(r.bySlot[slot], f.Table) {
			r.bySlot[slot] = append(r.bySlot[slot], f.Table)
		}
	}
	for i, s := range by.Slots {
		to, ok := named[s.To]
		if n, err := strconv.Atoi(s.To); err == nil && !ok {
			to, ok = n, n >= 0 && n < fid.NumSlots
		}
		if s.To == skip {
			to, ok = -1, true
		}
		if !ok {
			names := make([]string, 0, len(named))
			for name := range named {
				names = append(names, name)
			}
			slices.Sort(names)
			bad("slots[%d].to is %q, neither a sparse feature of the job, which has %q, nor a slot, nor skip%s", i, s.To, names, nearest.Suggest(s.To, names))
			continue
		}
		r.slots[s.From] = to
	}
	for _, t := range r.tables {
		l, err := layoutOf(t, nil)
		if err != nil {
			return nil, err
		}
		r.usual = append(r.usual, l)
	}
	for i := range by.Tables {
		t := &by.Tables[i]
		u := rule{TableMapping: t, to: -1, skip: t.To == skip}
		if _, err := filepath.Match(t.Name, ""); err != nil {
			bad("tables[%d].name is the pattern %q: %w", i, t.Name, err)
		}
		if t.To != "" && !u.skip {
			if u.to = slices.IndexFunc(r.tables, func(x param.Table) bool { return x.Name == t.To }); u.to < 0 {
				names := r.names()
				bad("tables[%d].to is %q, no table of the job, which has %q%s", i, t.To, names, nearest.Suggest(t.To, names))
				continue
			}
		}
		for k, x := range r.tables {
			l, err := layoutOf(x, t.Segments)
			if err != nil && (u.to == k || u.to < 0 && !u.skip) {
				bad("tables[%d]: %w", i, err)
			}
			u.layouts = append(u.layouts, l)
		}
		r.rules = append(r.rules, u)
	}
	return r, errors.Join(faults...)
}

func (r *router) names() []string {
	var names []string
	for _, t := range r.tables {
		names = append(names, t.Name)
	}
	return names
}

// rule is what the mapping says of a table, which may be one of many in a file; nil: nothing.
func (r *router) rule(file, table string) *rule {
	key := file + "\x00" + table
	if u, ok := r.found[key]; ok {
		return u
	}
	var u *rule
	for i := range r.rules {
		if r.rules[i].matches(file, table) {
			u = &r.rules[i]
			break
		}
	}
	r.found[key] = u
	return u
}

// route returns where a row goes: the table's number, how its numbers become that table's, and its id there. why says why it goes
// nowhere.
func (r *router) route(u *rule, id int64) (to int, l *layout, key int64, why string) {
	if u != nil && u.skip {
		return 0, nil, 0, "the mapping skips the table"
	}
	fixed := u != nil && u.to >= 0
	slot, sig := int(uint64(id)>>fid.SignatureBits), uint64(id)&fid.MaxSignature
	if r.v1 {
		slot = int(uint64(id) >> 54)
		key = int64(uint64(slot)<<fid.SignatureBits | sig)
	} else {
		key = id
	}
	if !r.v1 && id < 0 {
		if !fixed {
			return 0, nil, 0, "the id has the highest bit set, so no slot (are the ids v1?)"
		}
	} else if other, ok := r.slots[slot]; ok {
		if other < 0 {
			return 0, nil, 0, fmt.Sprintf("the mapping skips slot %d", slot)
		}
		slot = other
		key = int64(uint64(slot)<<fid.SignatureBits | sig)
	}
	if fixed {
		return u.to, u.layouts[u.to], key, ""
	}
	switch at := r.bySlot[slot]; {
	case len(at) == 0:
		return 0, nil, 0, fmt.Sprintf("slot %d is of no sparse feature of the job", slot)
	case len(at) > 1:
		return 0, nil, 0, fmt.Sprintf("slot %d is in %d tables of the job: say with tables which is meant", slot, len(at))
	default:
		to = at[0]
	}
	if u != nil {
		return to, u.layouts[to], key, ""
	}
	return to, r.usual[to], key, ""
}

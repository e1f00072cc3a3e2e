package spec

import (
	"encoding/json"

	"github.com/monolith-go/monolith/internal/decimal"
)

// Narrowed is the recipe with the holdout of another, where that holds out nothing that this one does not: what was trained by this one has seen nothing
// of what the other holds out. Otherwise it is the recipe as it is.
func (r Recipe) Narrowed(other Recipe) Recipe {
	was, is := r.Holdout.holdout(), other.Holdout.holdout()
	if is == (heldOut{}) || within(is, was) {
		r.Holdout = other.Holdout
	}
	return r
}

// heldOut is a stored holdout, with what its rows are drawn from.
type heldOut struct {
	Holdout
	rows string
}

// within reports whether all that a holdout holds out is held out by another. Rows must be drawn from records of one kind.
func within(h, wider heldOut) bool {
	if h.By != wider.By || h.rows != wider.rows || h.By == "" && h.rows == "" || (h.From == "") != (wider.From == "") {
		return false
	}
	if h.From == "" {
		return h.Share <= wider.Share
	}
	number := func(from string) (v float64, is bool) {
		v, err := decimal.Parse(from, 64)
		return v, err == nil && v-v == 0
	}
	a, ofNumbers := number(h.From)
	b, too := number(wider.From)
	if ofNumbers && too {
		return a >= b
	}
	return !ofNumbers && !too && h.From >= wider.From
}

// holdout is a stored holdout; what was not set is as it is by default.
func (s keyed) holdout() (h heldOut) {
	for key, into := range map[string]any{"by": &h.By, "share": &h.Share, "from": &h.From, drawnRows: &h.rows} {
		if v, ok := s.values[key]; ok && json.Unmarshal(v, into) != nil {
			return heldOut{} // of a later version, say: it holds out nothing, so that nothing lies within
		}
	}
	return h
}

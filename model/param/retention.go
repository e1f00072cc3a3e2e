package param

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/monolith-go/monolith/model/optim"
	"github.com/monolith-go/monolith/pipeline/fid"
)

// Retention says which fids have rows, and for how long. It is a rule, not a part of the shape: it may change while a model is trained on.
// The zero value gives a row to every fid that is pushed, for ever. docs/decisions has the contract in full.
type Retention struct {
	// Default is the rule of the slots that Slots has none for. A fid's slot is that of package fid, whatever its table.
	Default SlotRetention         `json:"default,omitzero"`
	Slots   map[int]SlotRetention `json:"slots,omitempty"`
	// MaxJump is by how much the time of one update may be ahead of the clock, in microseconds, and be believed at once; 0: by anything.
	MaxJump int64 `json:"max_jump,omitempty"`
	// MaxStep bounds how far one update moves the clock, in microseconds; 0: no bound. A row that
	// was just updated then lasts for Expire/MaxStep updates at least, whatever times they have.
	MaxStep int64 `json:"max_step,omitempty"`
	// Admission is how fids without a row wait for one.
	Admission Admission `json:"admission,omitempty"`
	// FilterCapacity is, of a hash filter, for how many fids each table's has room, on all shards together, and FilterSplits, of a sliding one, into how
	// many parts it is cut, which it forgets one after the other.
	FilterCapacity int64 `json:"filter_capacity,omitempty"`
	FilterSplits   int   `json:"filter_splits,omitempty"`
	// MaxBytes is how much memory the rows of each table may take on all shards together; 0: there is no limit.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// Full is what happens at the limit.
	Full Full `json:"full,omitempty"`
}

// SlotRetention is the rule of one slot.
type SlotRetention struct {
	// Expire is after how much event time without an update a row is gone, in microseconds; 0: never.
	Expire int64 `json:"expire,omitempty"`
	// Occurrences is how often a fid must have occurred before the update that creates its row; 0: it is created at once.
	Occurrences uint32 `json:"occurrences,omitempty"`
}

// Admission is a way to decide which fids get a row.
type Admission string

// The ways of admission. With T = SlotRetention.Occurrences, and c how often a fid without a row occurs in an update:
const (
	// AdmitExact counts every fid: it is admitted once it had occurred T times before the update. Waiting fids take some 40 bytes each.
	AdmitExact Admission = "exact"
	// AdmitProbable admits with probability 1 - .05^(c/T): T occurrences admit 95 of 100, in however many updates they come.
	AdmitProbable Admission = "probabilistic"
	// AdmitLinear admits with probability min(1, c/T).
	AdmitLinear Admission = "linear"
	// AdmitHash counts like exact, up to 15, in cells of 16 bits that are never given back: fids that share one are counted together, and what finds no
	// cell is admitted. T is at most 15.
	AdmitHash Admission = "hash_filter"
	// AdmitSliding is AdmitHash in several parts, of which the oldest is emptied when the newest is full: it forgets fids that were not seen while
	// about FilterCapacity occurrences of others were counted.
	AdmitSliding Admission = "sliding_hash_filter"
)

// Filters reports whether fids without a row are counted by a hash filter.
func (a Admission) Filters() bool { return a == AdmitHash || a == AdmitSliding }

// MaxFilterCount is the largest number that a cell of a hash filter counts to.
const MaxFilterCount = 15

// The bounds of FilterSplits.
const (
	LeastFilterSplits = 5
	MostFilterSplits  = 64
)

// Filter is the shape of a table's hash filter. Hashes are cut into [LeastRows] equal ranges, none of which lies on two shards, and each range has cells of its own, so that
// what a fid meets does not depend on the number of shards.
type Filter struct {
	// Splits is how many filters a range has one after the other, 1 for [AdmitHash]; Cells of 2 bytes has each of them, of which so many as IDs are used before the
	// next one's turn. Steps is how many cells are looked at for a fid.
	Splits, Cells, IDs, Steps int
}

// Filter is the shape of the filters of a retention that has them; the zero value otherwise. Loads are those of bytedance/monolith: 1.5 cells for
// each fid and 64 steps, or 1.2 and 16 where filters slide, whose one split is kept empty.
func (r *Retention) Filter() Filter {
	ids := int(max(r.FilterCapacity/LeastRows, 1))
	switch {
	case !r.Waits():
	case r.Admission == AdmitHash:
		return Filter{Splits: 1, Cells: ids + ids/2 + 1, IDs: ids, Steps: 64}
	case r.Admission == AdmitSliding:
		ids = max(ids/(r.FilterSplits-1), 1)
		return Filter{Splits: r.FilterSplits, Cells: ids + ids/5 + 1, IDs: ids, Steps: 16}
	}
	return Filter{}
}

// FilterBytes is what the filter of each table takes on all shards together; 0: there are none.
func (r *Retention) FilterBytes() int64 { return LeastRows * r.Filter().Bytes() }

// Bytes is what the cells of one range of hashes take.
func (f Filter) Bytes() int64 { return 2 * int64((f.Splits*f.Cells+7)/8*8) }

// Full is a policy of a table at its limit.
type Full string

// The policies.
const (
	// FullRefuse gives no new rows.
	FullRefuse Full = "refuse"
	// FullOldest removes the rows that were not updated for longest.
	FullOldest Full = "evict_oldest"
	// FullRarest removes the rows with the fewest occurrences.
	FullRarest Full = "evict_rarest"
)

// SlotOf is the slot of a fid.
func SlotOf(key int64) int { return fid.ID(key).Slot() }

// Of is the rule of a slot.
func (r *Retention) Of(slot int) SlotRetention {
	if s, ok := r.Slots[slot]; ok {
		return s
	}
	return r.Default
}

// Active reports whether there is any rule.
func (r *Retention) Active() bool {
	return r.MaxBytes > 0 || r.any(func(s SlotRetention) bool { return s != SlotRetention{} })
}

// Expires reports whether any row does.
func (r *Retention) Expires() bool { return r.any(func(s SlotRetention) bool { return s.Expire > 0 }) }

// ExpireRange returns the shortest and the longest time after which rows expire, in microseconds; 0 and 0:
// none do.
func (r *Retention) ExpireRange() (shortest, longest int64) {
	r.any(func(s SlotRetention) bool {
		if s.Expire > 0 && (shortest == 0 || s.Expire < shortest) {
			shortest = s.Expire
		}
		longest = max(longest, s.Expire)
		return false
	})
	return shortest, longest
}

// Waits reports whether any fid waits for its row.
func (r *Retention) Waits() bool {
	return r.any(func(s SlotRetention) bool { return s.Occurrences > 0 })
}

func (r *Retention) any(f func(SlotRetention) bool) bool {
	if f(r.Default) {
		return true
	}
	for _, s := range r.Slots {
		if f(s) {
			return true
		}
	}
	return false
}

// rowOverhead is what a row takes beside its numbers: time, count and its share of the index.
const rowOverhead = 16 + 32

// RowBytes is what a row takes in memory, about.
func (t Table) RowBytes() int64 {
	words := t.StateDim()
	for _, s := range t.Segments {
		words += optim.ValuesOf(s.Optimizer).Words(s.Dim)
	}
	return int64(4*words + rowOverhead)
}

// RowBytes is [Table.RowBytes] of the table that has this shape, also where its optimizers are of another program.
func (t TableShape) RowBytes() int64 {
	words := t.StateDim()
	for _, s := range t.Segments {
		words += optim.Rule{Name: s.Optimizer}.Values().Words(s.Dim)
	}
	return int64(4*words + rowOverhead)
}

// LeastRows is the smallest limit of a table, in rows: one for each range of hashes that a shard may own. Limits mean something from some times as
// many on.
const LeastRows = 1 << 12

// MaxRows is the limit of a table on all shards, in rows; 0: there is none.
func (r *Retention) MaxRows(t Table) int64 {
	if r.MaxBytes == 0 {
		return 0
	}
	return max(r.MaxBytes/t.RowBytes(), LeastRows)
}

// Validate reports numbers out of range and names that are not known.
func (r *Retention) Validate() error {
	check := func(what string, s SlotRetention) error {
		if s.Expire < 0 || s.Occurrences > math.MaxInt32 {
			return fmt.Errorf("param: retention of %s: expire after %d µs, %d occurrences: out of range", what, s.Expire, s.Occurrences)
		}
		return nil
	}
	if err := check("all slots", r.Default); err != nil {
		return err
	}
	for slot, s := range r.Slots {
		if slot < 0 || slot >= fid.NumSlots {
			return fmt.Errorf("param: retention of slot %d: slots are from 0 to %d", slot, fid.NumSlots-1)
		}
		if err := check(fmt.Sprint("slot ", slot), s); err != nil {
			return err
		}
	}
	switch {
	case r.MaxJump < 0 || r.MaxStep < 0 || r.MaxBytes < 0:
		return fmt.Errorf("param: retention: max_jump %d, max_step %d and max_bytes %d: one is below 0", r.MaxJump, r.MaxStep, r.MaxBytes)
	case r.Waits() && !r.Admission.Filters() && !slices.Contains([]Admission{AdmitExact, AdmitProbable, AdmitLinear}, r.Admission):
		return fmt.Errorf("param: retention: fids wait, and admission %q is not known", r.Admission)
	case r.Waits() && r.Admission.Filters() && (r.FilterCapacity < 1 || r.FilterCapacity > 1<<40):
		return fmt.Errorf("param: retention: a hash filter for %d fids: between 1 and %d are possible", r.FilterCapacity, int64(1)<<40)
	case r.Waits() && r.Admission.Filters() && r.any(func(s SlotRetention) bool { return s.Occurrences > MaxFilterCount }):
		return fmt.Errorf("param: retention: a hash filter counts to %d, and fids of a slot wait for more occurrences", MaxFilterCount)
	case r.Waits() && r.Admission == AdmitSliding && (r.FilterSplits < LeastFilterSplits || r.FilterSplits > MostFilterSplits):
		return fmt.Errorf("param: retention: a sliding hash filter of %d splits: between %d and %d are possible", r.FilterSplits, LeastFilterSplits, MostFilterSplits)
	case r.MaxBytes > 0 && !slices.Contains([]Full{FullRefuse, FullOldest, FullRarest}, r.Full):
		return fmt.Errorf("param: retention: there is a limit, and what happens there, %q, is not known", r.Full)
	}
	return nil
}

// text is String for people; r may be nil.
func (r *Retention) text() string {
	if r == nil || !r.Active() {
		return "every id has a row for ever"
	}
	return r.String()
}

// String is one canonical form; "" for no rule.
func (r *Retention) String() string {
	if !r.Active() {
		return ""
	}
	var b strings.Builder
	rule := func(s SlotRetention) {
		if s.Expire > 0 {
			fmt.Fprintf(&b, " expire after %s", time.Duration(s.Expire)*time.Microsecond)
		}
		if s.Occurrences > 0 {
			fmt.Fprintf(&b, " admit after %d", s.Occurrences)
		}
		if s == (SlotRetention{}) {
			b.WriteString(" keep")
		}
	}
	b.WriteString("rows:")
	rule(r.Default)
	for _, slot := range slices.Sorted(maps.Keys(r.Slots)) {
		fmt.Fprintf(&b, "; slot %d:", slot)
		rule(r.Slots[slot])
	}
	if r.Expires() {
		fmt.Fprintf(&b, "; max jump %s", time.Duration(r.MaxJump)*time.Microsecond)
		if r.MaxStep > 0 {
			fmt.Fprintf(&b, "; max step %s", time.Duration(r.MaxStep)*time.Microsecond)
		}
	}
	if r.Waits() {
		fmt.Fprintf(&b, "; admission %s", r.Admission)
		if r.Admission.Filters() {
			fmt.Fprintf(&b, " for %d ids", r.FilterCapacity)
		}
		if r.Admission == AdmitSliding {
			fmt.Fprintf(&b, " in %d splits", r.FilterSplits)
		}
	}
	if r.MaxBytes > 0 {
		fmt.Fprintf(&b, "; %d bytes a table, then %s", r.MaxBytes, r.Full)
	}
	return b.String()
}

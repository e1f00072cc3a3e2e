package parse

import (
	"maps"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/internal/nearest"
)

// Seen describes what a stage found of one feature in some records; bad rows are not counted.
type Seen struct {
	// Name is the feature's.
	Name string
	// Rows counts examples, Filled those in which the feature had a value, and not its default.
	Rows, Filled int64
	// Cut counts examples in which a sparse feature had more values than its maximum.
	Cut int64
	// Near is the name in the records that is nearest to the feature's column, when these records had no value of it and do
	// not have that name; empty when none is near, and for formats whose columns are known before.
	Near string
	// Numbers counts the numbers of a dense feature; Min, Max, Sum and Squares (the sum of squares) are of them as the model
	// gets them, which may have running moments to scale them by still.
	Numbers                int64
	Min, Max, Sum, Squares float64
	// IDs is how many ids a sparse feature had: 0, 1, or 2 for more. Of one that had a single one, ID is its fid.
	IDs int
	ID  int64
}

// Add adds what was found of the same feature in other records.
func (s *Seen) Add(o Seen) {
	s.Rows, s.Filled, s.Cut = s.Rows+o.Rows, s.Filled+o.Filled, s.Cut+o.Cut
	if s.Near == "" {
		s.Near = o.Near
	}
	switch {
	case s.IDs == 0:
		s.IDs, s.ID = o.IDs, o.ID
	case o.IDs > 1 || o.IDs == 1 && o.ID != s.ID:
		s.IDs, s.ID = 2, 0
	}
	if o.Numbers == 0 {
		return
	}
	if s.Numbers == 0 {
		s.Min, s.Max = o.Min, o.Max
	}
	s.Min, s.Max = min(s.Min, o.Min), max(s.Max, o.Max)
	s.Numbers, s.Sum, s.Squares = s.Numbers+o.Numbers, s.Sum+o.Sum, s.Squares+o.Squares
}

// number counts one number of a dense feature.
func (s *Seen) number(x float64) {
	if s.Numbers == 0 {
		s.Min, s.Max = x, x
	}
	s.Numbers++
	s.Min, s.Max, s.Sum, s.Squares = min(s.Min, x), max(s.Max, x), s.Sum+x, s.Squares+x*x
}

// ids looks whether all fids of a sparse feature are one, up to the first that is not.
func (s *Seen) ids(all []int64) {
	if len(all) == 0 {
		return
	}
	s.IDs, s.ID = 1, all[0]
	for _, id := range all {
		if id != s.ID {
			s.IDs, s.ID = 2, 0
			return
		}
	}
}

// Mean is that of the numbers, or NaN when there are none.
func (s *Seen) Mean() float64 { return s.Sum / float64(s.Numbers) }

// RMS is the root of the mean square of the numbers: their size, or NaN when there are none.
func (s *Seen) RMS() float64 { return math.Sqrt(s.Squares / float64(s.Numbers)) }

// SeenKey describes in how many of some records a key ([Options.Keys]) had a value; bad rows are not counted.
type SeenKey struct {
	// Name is the key's, Column what it is read from.
	Name, Column string
	Rows, Filled int64
	// Near is as of [Seen]; Names are what the first of these records have, sorted, where they do not have the key's column and nothing is near to it.
	Near  string
	Names []string
}

// KeyObserver is notified of what stages find of their keys. A hook of a run ([pipeline.NewHooks]) may be one. Its method is called for each block, from many goroutines, and must not keep the slice.
type KeyObserver interface {
	KeysParsed(seen []SeenKey)
}

// TimeObserver is notified of the event times of good records, in microseconds since 1970, 0 where a
// record has none; sources without event times give none. A hook of a run ([pipeline.NewHooks]) may be
// one. Its method is called for each block, from many goroutines, and must not keep the slice.
type TimeObserver interface {
	TimesParsed(times []int64)
}

// JoinObserver is notified of examples that had no line in a side table, which is named by the last part of its file's path. A hook
// of a run ([pipeline.NewHooks]) may be one. Its method is called once for a block at most, for each table.
type JoinObserver interface {
	JoinMissed(table string, examples int64)
}

// Observer is notified of what stages find of their features. A hook of a run ([pipeline.NewHooks]) may be one. Its method is called for
// each block, from many goroutines, and must not keep the slice.
type Observer interface {
	FeaturesParsed(seen []Seen)
}

// namesFrom is how many records of a block are looked at for the names in them.
const namesFrom = 100

// absent looks for the name that was meant, for features and keys of which a block had no value: once for each processor and
// feature or key, because it takes records apart a second time.
func (w *worker) absent(payload *array.Binary, keys []SeenKey) {
	x := w.extract
	if payload == nil || x.p.Format != TFExample && x.p.Format != JSONL {
		return
	}
	var names []string
	// near returns the nearest name, and whether the records lack the column's own.
	near := func(column string, looked *bool) (string, bool) {
		*looked = true
		if names == nil {
			names = namesIn(x.p.Format, payload)
		}
		if slices.Contains(names, column) {
			return "", false
		}
		return nearest.Name(column, names), true
	}
	for i := range x.seen {
		f, s := &x.p.features[i], &x.seen[i]
		if s.Filled == 0 && s.Rows > 0 && f.join < 0 && !w.looked[i] {
			s.Near, _ = near(x.p.columns[f.col], &w.looked[i])
		}
	}
	for i := range keys {
		s, looked := &keys[i], &w.lookedKeys[i]
		if s.Filled > 0 || s.Rows == 0 || *looked {
			continue
		}
		var absent bool
		if s.Near, absent = near(s.Column, looked); absent && s.Near == "" {
			s.Names = names
		}
	}
}

// namesIn returns the names in the first records of a block, sorted; records that cannot be read have none.
func namesIn(format Format, payload *array.Binary) []string {
	found := map[string]bool{}
	for i := range min(payload.Len(), namesFrom) {
		b := payload.Value(i)
		if format == TFExample {
			all, err := example.All(b)
			if err != nil {
				continue
			}
			for name := range all {
				found[name] = true
			}
			continue
		}
		_, _ = members(b, skipBlanks(b, 0), 0, func(name []byte, _, _ int) error { // a bad record was reported already
			s, err := unescape(name)
			found[string(s)] = true
			return err
		})
	}
	return slices.Sorted(maps.Keys(found))
}

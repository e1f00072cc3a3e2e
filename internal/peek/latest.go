package peek

import (
	"slices"
	"strconv"
	"strings"
)

// stamps are the values of a column as long as all of them may be times of the records.
type stamps struct {
	named   bool // as times are
	none    bool // a value was none
	numbers []int64
	texts   []string // dates whose year is first, which text compares in their order
}

// maxStamps is how many are kept: a border need be no more exact.
const maxStamps = 1 << 16

// add takes a value. text is trimmed, dated that it begins with a date; whole that it is the number.
func (s *stamps) add(text string, dated, whole bool, number int64) {
	const (
		longAgo = 1e12   // of numbers that nothing calls a time: September 2001 in milliseconds
		since   = 10_000 // of others: May 1997 in days; less are days of a month and the like
	)
	switch {
	case s.none:
		return
	case dated && len(s.numbers) == 0 && strings.IndexAny(text, "-/.") == len("2006"):
		if len(s.texts) < maxStamps {
			s.texts = append(s.texts, strings.Clone(text))
		}
	case whole && len(s.texts) == 0 && (s.named && number >= since || number >= longAgo):
		if len(s.numbers) < maxStamps {
			s.numbers = append(s.numbers, number)
		}
	default:
		*s = stamps{none: true}
	}
}

// latest is the value that about a tenth is not below, as text; "": the column is of no times, or they are too few.
func (c *Column) latest(records int64) string {
	s := &c.stamps
	if s.none || c.Type == "time" || c.Values != c.Rows || c.Rows < records || c.Distinct < 5 || records < manyRecords {
		return ""
	}
	if n := len(s.texts); n > 0 {
		slices.Sort(s.texts)
		if at := s.texts[n-n/10]; at > s.texts[0] {
			return at
		}
		return ""
	}
	slices.Sort(s.numbers)
	n := len(s.numbers)
	if n == 0 || !s.named && !c.isTime() {
		return ""
	}
	if at := s.numbers[n-n/10]; at > s.numbers[0] {
		return strconv.FormatInt(at, 10)
	}
	return ""
}

// latest is the column that says when a record happened, one that is called so before others, and the value that about a tenth of the records are not below; "": there is none.
func (c *Columns) latest(label *Column) (name, from string) {
	for _, named := range []bool{true, false} {
		for _, col := range c.List {
			if col == label || col.stamps.named != named || !named && idName.MatchString(strings.TrimSpace(col.Name)) {
				continue
			}
			if from = col.latest(c.Records); from != "" {
				return col.Name, from
			}
		}
	}
	return "", ""
}

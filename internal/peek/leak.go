package peek

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/decimal"
)

const (
	// leakAUC is the AUC from which on one column alone is too good to be an input. How a taxi was paid, which is one, tells
	// with .988 whether a tip was recorded.
	leakAUC = 0.99
	// fewLabels is how many records of each label are too few to find a leak.
	fewLabels = 20
	// leakBins is how many ranges of numbers have a rate each.
	leakBins = 64
)

// condition is the function that makes 0 and 1 of a label's cells, for a text that [positive] wrote. The second result
// is false for a missing label.
func condition(text string) func(cell) (one, ok bool) {
	op, arg, _ := strings.Cut(text, " ")
	than, err := decimal.Parse(arg, 64)
	is := textCell(arg)
	if err == nil {
		is = numberCell(than)
	}
	return func(v cell) (bool, bool) {
		if v == missing {
			return false, false
		}
		x, num := v.number()
		switch op {
		case "":
			return x > .5, num
		case ">":
			return x > than, num
		case ">=":
			return x >= than, num
		case "!=":
			return v != is, true
		}
		return v == is, true
	}
}

// labels are the records whose label is known, in two halves that no order of the records makes unlike.
type labels struct {
	records []int
	one     []bool
	fold    []bool
}

// labels reads the label of each record; nil where either is too rare to say anything.
func (c *Columns) labels(label *Column, positive string) *labels {
	if label == nil {
		return nil
	}
	is, ones := condition(positive), 0
	l := &labels{}
	for i := range label.cells {
		one, ok := is(label.cells[i])
		if !ok {
			continue
		}
		if one {
			ones++
		}
		l.records, l.one = append(l.records, i), append(l.one, one)
		// A multiplicative hash: neither blocks nor periods of the file fall into one half.
		l.fold = append(l.fold, (uint64(i)+1)*0x9e3779b97f4a7c15>>40&1 == 1)
	}
	if ones < fewLabels || len(l.records)-ones < fewLabels {
		return nil
	}
	return l
}

// auc is how well the column alone tells the label: rates by value, or by range of numbers, learnt on one half of the
// records and measured on the other, and the other way round. Values that come once tell nothing, and a missing one is a
// value too.
func (l *labels) auc(c *Column) float64 {
	values := make([]cell, len(l.records))
	numbers := 0
	for i, r := range l.records {
		values[i] = c.cell(r)
		if _, ok := values[i].number(); ok {
			numbers++
		}
	}
	best := l.aucOf(values)
	if numbers > 0 {
		best = max(best, l.aucOf(ranges(values)))
	}
	return best
}

// ranges puts numbers into equally filled ranges.
func ranges(values []cell) []cell {
	var xs []float64
	for _, v := range values {
		if x, ok := v.number(); ok {
			xs = append(xs, x)
		}
	}
	if len(xs) == 0 {
		return values
	}
	slices.Sort(xs)
	var borders []float64
	for i := 1; i < leakBins; i++ {
		borders = append(borders, xs[i*len(xs)/leakBins])
	}
	borders = slices.Compact(borders)
	out := slices.Clone(values)
	for i, v := range values {
		if x, ok := v.number(); ok {
			at, found := slices.BinarySearch(borders, x)
			if found {
				at++
			}
			out[i] = numberCell(float64(at))
		}
	}
	return out
}

// aucOf is the mean of both halves' AUC.
func (l *labels) aucOf(values []cell) float64 {
	type rate struct{ n, ones float64 }
	var rates [2]map[cell]rate
	var all [2]rate
	for k := range rates {
		rates[k] = map[cell]rate{}
	}
	of := func(i int) int {
		if l.fold[i] {
			return 1
		}
		return 0
	}
	for i, v := range values {
		k := of(i)
		r := rates[k][v]
		r.n++
		all[k].n++
		if l.one[i] {
			r.ones++
			all[k].ones++
		}
		rates[k][v] = r
	}
	sum := 0.
	for k := range rates { // learnt on half k
		type scored struct {
			score float64
			one   bool
		}
		base := all[k].ones / all[k].n
		var list []scored
		for i, v := range values {
			if of(i) != k {
				r := rates[k][v]
				list = append(list, scored{(r.ones + base) / (r.n + 1), l.one[i]})
			}
		}
		slices.SortFunc(list, func(a, b scored) int {
			switch {
			case a.score < b.score:
				return -1
			case a.score > b.score:
				return 1
			}
			return 0
		})
		below, pairs, ones, zeros := 0., 0., 0., 0.
		for from := 0; from < len(list); {
			to, p := from, 0.
			for to < len(list) && list[to].score == list[from].score {
				if list[to].one {
					p++
				}
				to++
			}
			z := float64(to-from) - p
			pairs += p * (below + z/2)
			below, ones, zeros, from = below+z, ones+p, zeros+z, to
		}
		if ones == 0 || zeros == 0 {
			return 0
		}
		sum += pairs / (ones * zeros)
	}
	return sum / 2
}

// leak is how well a column tells the label, and with which other one; nil: alone.
type leak struct {
	auc  float64
	with *Column
	how  string // "" or the sign between the two
}

// text is the leak as a comment.
func (k *leak) text(label *Column, records int64) string {
	alone := "alone it tells"
	if k.with != nil {
		alone = fmt.Sprintf("with %s (%s) it tells", quote(k.with.Name), k.how)
	}
	return fmt.Sprintf("LEAK? %s %s with an AUC of %s (learnt on half of %d records, measured on the others)", alone, label.Name, rounded(k.auc), records)
}

// leaks are the columns that tell the label as an input hardly can: alone, or as a number divided by another or less
// another, as a tip tells a label that was made of its share of the fare.
func (c *Columns) leaks(label *Column) map[*Column]*leak {
	const (
		some   = .7 // the AUC that half of such a pair has alone
		pairs  = 4  // how many columns pairs are tried of,
		others = 32 // and with how many
	)
	if label == nil {
		return nil
	}
	l := c.labels(label, positive(label, false))
	if l == nil {
		return nil
	}
	out := map[*Column]*leak{}
	alone := map[*Column]float64{}
	var numbers []*Column
	for _, col := range c.List {
		if col == label || col.Rows == 0 || col.Distinct == 1 && col.Rows == c.Records {
			continue
		}
		alone[col] = l.auc(col)
		switch {
		case alone[col] >= leakAUC:
			out[col] = &leak{auc: alone[col]}
		case col.mostly(col.Numbers) && col.MaxValues == 1 && col.Distinct > 2 && !col.isTime() && !timeName.MatchString(strings.TrimSpace(col.Name)):
			numbers = append(numbers, col)
		}
	}
	slices.SortStableFunc(numbers, func(a, b *Column) int { return cmp.Compare(alone[b], alone[a]) })
	for i, a := range numbers[:min(len(numbers), pairs)] {
		if alone[a] < some {
			break
		}
		for k, b := range numbers[:min(len(numbers), others)] {
			if k <= i && out[b] != nil || a == b {
				continue
			}
			for _, how := range []string{"/", "-"} {
				if auc := l.aucOf(ranges(l.pair(a, b, how))); auc >= leakAUC && (out[a] == nil || auc > out[a].auc) {
					out[a] = &leak{auc: auc, with: b, how: fmt.Sprintf("%s %s %s", quote(a.Name), how, quote(b.Name))}
				}
			}
		}
	}
	return out
}

// pair is a number divided by another, or less another.
func (l *labels) pair(a, b *Column, how string) []cell {
	out := make([]cell, len(l.records))
	for i, r := range l.records {
		x, ok := a.cell(r).number()
		y, also := b.cell(r).number()
		if how == "/" {
			x /= y
		} else {
			x -= y
		}
		if out[i] = missing; ok && also && x-x == 0 {
			out[i] = numberCell(x)
		}
	}
	return out
}

// rounded writes an AUC that is 1 only when it is exactly that.
func rounded(auc float64) string {
	if auc < 1 {
		auc = math.Min(auc, .9999)
	}
	return strconv.FormatFloat(math.Floor(auc*1e4)/1e4, 'g', 4, 64)
}

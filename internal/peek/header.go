package peek

import (
	"slices"
	"strconv"
	"strings"

	"github.com/monolith-go/monolith/internal/decimal"
)

// Header reports whether the first line of csv or tsv text names the columns, judged by the lines after it.
//
// A word above numbers is a name, and a number above numbers is data. Years and running numbers (0, 1, 2) may be names
// where another column has one, and so may empty fields. Among words only, names are different words that do not come
// again below.
func Header(format string, first []byte, rest [][]byte) bool {
	names, err := split(format, first)
	if err != nil || len(names) == 0 {
		return false
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
	}
	columns := make([][]string, len(names)) // below each name, without empty fields
	for _, r := range rest {
		values, err := split(format, r)
		if err != nil || len(values) != len(names) || slices.Equal(values, names) {
			continue
		}
		for i, v := range values {
			if v = strings.TrimSpace(v); v != "" {
				columns[i] = append(columns[i], v)
			}
		}
	}
	seen := map[string]bool{}
	above, again, twice, blank, numbers := 0, 0, false, 0, 0
	for i, n := range names {
		below := columns[i]
		switch {
		case n == "":
			if i > 0 || len(names) == 1 { // what pandas writes in front has no name
				blank++
			}
			continue
		case isNumber(n):
			numbers++
			if !isYearAbove(n, below) && !runs(names, i) {
				return false
			}
		case isNoValue(n):
			return false
		case 2*len(slices.DeleteFunc(slices.Clone(below), func(v string) bool { return !isNumber(v) })) > len(below):
			above++
		case slices.Contains(below, n):
			again++
		}
		twice = twice || seen[n]
		seen[n] = true
	}
	switch {
	case above > 0:
		return above > again
	case blank > 0 || numbers > 0 || twice || again > 0:
		return false
	}
	return len(seen) > 0
}

func isNumber(s string) bool {
	_, err := decimal.Parse(strings.TrimSpace(s), 64)
	return err == nil
}

// isNoValue reports whether a field is what programs write where there is no value.
func isNoValue(s string) bool {
	return slices.Contains([]string{"na", "n/a", "null", "none", `\n`, "?", "-"}, strings.ToLower(s))
}

// isYearAbove reports whether a number is a year, and the values below it are mostly none.
func isYearAbove(name string, below []string) bool {
	isYear := func(s string) bool {
		x, err := strconv.Atoi(s)
		return err == nil && len(s) == 4 && x >= 1900 && x <= 2100
	}
	n := 0
	for _, v := range below {
		if isYear(v) {
			n++
		}
	}
	return isYear(name) && 2*n <= len(below)
}

// runs reports whether name i is one of at least three numbers that count up by one from 0 or 1.
func runs(names []string, i int) bool {
	from, to := i, i+1
	for from > 0 && isNumber(names[from-1]) {
		from--
	}
	for to < len(names) && isNumber(names[to]) {
		to++
	}
	if to-from < 3 || names[from] != "0" && names[from] != "1" {
		return false
	}
	first, _ := strconv.Atoi(names[from])
	for k := from; k < to; k++ {
		if names[k] != strconv.Itoa(first+k-from) {
			return false
		}
	}
	return true
}

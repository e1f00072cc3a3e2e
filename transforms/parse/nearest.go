package parse

import (
	"fmt"
	"strings"
)

// suggest returns `, did you mean "..."` for the name among have that is nearest to want, or how many there are when
// none is near.
func suggest(want string, have []string) string {
	best := nearest(want, have)
	if best == "" {
		return fmt.Sprintf(" (there are %q)", have)
	}
	return fmt.Sprintf(", did you mean %q?", best)
}

// nearest returns the name among have that is nearest to want, the first of equals, or nothing when none is near.
func nearest(want string, have []string) string {
	best, least := "", 1+len(want)/2
	for _, h := range have {
		if d := distance(strings.ToLower(want), strings.ToLower(h)); h != "" && d < least {
			best, least = h, d
		}
	}
	return best
}

// distance is Levenshtein's: the fewest insertions, deletions and replacements of bytes that make a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			d := diagonal
			if a[i] != b[j] {
				d = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], d
		}
	}
	return row[len(b)]
}

package filesplit

import "strings"

// Nearest returns the candidate that takes the fewest single-character edits to become name (Levenshtein distance, case
// ignored), the first among equals, or "" when there are no candidates.
func Nearest(name string, candidates []string) string {
	best, least := "", -1
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); least < 0 || d < least {
			best, least = c, d
		}
	}
	return best
}

func distance(a, b string) int {
	row := make([]int, len(b)+1) // row[j]: edits from the part of a seen so far to b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Package nearest finds the name that was probably meant.
package nearest

import (
	"fmt"
	"strconv"
	"strings"
)

// Name returns the candidate that name was probably meant to be, or "" when none is near: the one with the smallest
// optimal string alignment distance (insertions, deletions, substitutions and swaps of neighbouring bytes count 1 each;
// case is ignored), if that is at most a third of the longer name's length, rounded up. Ties go to the earlier candidate.
// It takes O(len(name)) for each byte of the candidates of about the same length.
func Name(name string, candidates []string) string {
	best, least := "", -1
	name = strings.ToLower(name)
	for _, c := range candidates {
		limit := (max(len(name), len(c)) + 2) / 3
		if len(c)-len(name) > limit || len(name)-len(c) > limit {
			continue
		}
		if d := distance(name, strings.ToLower(c)); d <= limit && (least < 0 || d < least) {
			best, least = c, d
		}
	}
	return best
}

// Suggest continues a sentence that says that name is not known: `, did you mean "..."?` where a candidate is near, and
// otherwise what there is.
func Suggest(name string, candidates []string) string {
	if near := Name(name, candidates); near != "" {
		return fmt.Sprintf(", did you mean %q?", near)
	}
	if len(candidates) == 0 {
		return " (there are none)"
	}
	more := ""
	if n := len(candidates) - maxListed; n > 0 {
		candidates, more = candidates[:maxListed], fmt.Sprintf(" and %d more", n)
	}
	shown := make([]string, len(candidates))
	for i, c := range candidates {
		if shown[i] = strconv.Quote(c); len(c) > maxShown {
			shown[i] = strconv.Quote(c[:maxShown]) + "..."
		}
	}
	return " (there are [" + strings.Join(shown, " ") + "]" + more + ")"
}

// What is listed is bounded: a file of another format can pass for a header of any size.
const (
	maxListed = 20
	maxShown  = 40
)

func distance(a, b string) int {
	prev2, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

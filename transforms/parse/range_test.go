package parse_test

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/transforms/parse"
)

// Labels and numbers that no model can learn from are bad rows where they are, and not an error of the step downstream.
func TestOutOfRange(t *testing.T) {
	t.Parallel()
	opts := parse.Options{
		Format: parse.CSV, Columns: []string{"y", "x"},
		Features: []parse.Feature{{Name: "x", Kind: parse.Dense}}, Labels: []parse.Label{{Column: "y"}},
	}
	records := lines("1,2\n7,2\n-1,2\n0.5,1e9\n0,1e30\n0,-3e38\n0,1.1e9")
	check(t, parseRecords(t, opts, "", records...),
		[]string{"x=2 __label__=1 __position__=10", "x=1e+09 __label__=0.5 __position__=40"},
		[]string{
			`src/part-0 position 10: bad label: column "y" is 7, not in 0 to 1; say what a positive example is (label.positive) "7,2"`,
			`src/part-0 position 20: bad label: column "y" is -1, not in 0 to 1; say what a positive example is (label.positive) "-1,2"`,
			`src/part-0 position 40: value out of range: feature "x" is 1e+30, a dense value is 1e+09 at most; clip it, or take its log "0,1e30"`,
			`src/part-0 position 50: value out of range: feature "x" is -3e+38, a dense value is 1e+09 at most; clip it, or take its log "0,-3e38"`,
			`src/part-0 position 60: value out of range: feature "x" is 1.1e+09, a dense value is 1e+09 at most; clip it, or take its log "0,1.1e9"`,
		})

	libfm := parse.Options{Format: parse.LibFM, Features: []parse.Feature{{Name: "x", Column: "features", Slot: 1, Values: "v"}}}
	check(t, parseRecords(t, libfm, "", lines("1 3:2\n1 3:1e30")...),
		[]string{"x=[1:3] v=[2] __label__=1 __position__=10"},
		[]string{fmt.Sprintf(`src/part-0 position 10: value out of range: feature "x", index 3 has the value 1e+30, 1e+09 is the most %q`, "1 3:1e30")})
}

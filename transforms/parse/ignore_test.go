package parse_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/transforms/parse"
)

// A padded list gives what the list without its padding gives, in every format. Padding comes before max and default.
func TestPaddingIsIgnored(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		feature parse.Feature
		csv     string
		json    string
		ints    []int64
		libfm   string
		want    string
	}{
		{"behind", parse.Feature{}, "3|5|0|0", "[3,5,0,0]", []int64{3, 5, 0, 0}, "3:1 5:1 0:1 0:1", "[1:3 1:5]"},
		{"before, and of two kinds", parse.Feature{}, "-1|0|3|5", "[-1,0,3,5]", []int64{-1, 0, 3, 5}, "", "[1:3 1:5]"},
		{"the maximum counts what is left", parse.Feature{Max: 2}, "0|0|3|5|7", "[0,0,3,5,7]", []int64{0, 0, 3, 5, 7}, "0:1 0:1 3:1 5:1 7:1", "[1:3 1:5]"},
		{"nothing is left", parse.Feature{}, "0|0", "[0,0]", []int64{0, 0}, "0:1 0:1", "[]"},
		{"a default for what is left empty", parse.Feature{Default: "9"}, "0|0", "[0,0]", []int64{0, 0}, "0:1", "[1:9]"},
		{"none", parse.Feature{}, "3|5", "[3,5]", []int64{3, 5}, "3:1 5:1", "[1:3 1:5]"},
		{"hashed ids", parse.Feature{Hash: parse.HashInt}, "0|-1", "[0,-1]", []int64{0, -1}, "0:1", "[]"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			f := tc.feature
			f.Name, f.Slot, f.Ignore = "hist", 1, []string{"0", "-1", ""}
			want := fmt.Sprintf("hist=%s __position__=10", tc.want)
			expect := func(format string, r result) {
				t.Helper()
				if !slices.Equal(r.rows, []string{want}) || len(r.bad) > 0 {
					t.Errorf("%s: %q, want %q; bad rows %q", format, r.rows, want, r.bad)
				}
			}
			cut := f
			cut.Split = "|"
			expect("csv", parseRecords(t, parse.Options{Format: parse.CSV, Columns: []string{"hist"}, Features: []parse.Feature{cut}}, "", []byte(tc.csv)))
			expect("text in jsonl", parseRecords(t, parse.Options{Format: parse.JSONL, Features: []parse.Feature{cut}}, "", fmt.Appendf(nil, `{"hist":%q}`, tc.csv)))
			expect("jsonl", parseRecords(t, parse.Options{Format: parse.JSONL, Features: []parse.Feature{f}}, "", fmt.Appendf(nil, `{"hist":%s}`, tc.json)))
			var e example.Encoder
			e.Int64s("hist", tc.ints...)
			expect("tf_example", parseRecords(t, parse.Options{Format: parse.TFExample, Features: []parse.Feature{f}}, "", e.Append(nil)))
			f.Column = "user"
			expect("columns", parseColumn(t, parse.Options{Features: []parse.Feature{f}}, arrow.ListOf(arrow.PrimitiveTypes.Int64), tc.json))
			if tc.libfm != "" {
				f.Column = "features"
				r := parseRecords(t, parse.Options{Format: parse.LibFM, Features: []parse.Feature{f}}, "", []byte("1 "+tc.libfm))
				want = fmt.Sprintf("hist=%s __label__=1 __position__=10", tc.want)
				expect("libfm", r)
			}
		})
	}
}

// Words, numbers of dense features, and numbers that become buckets are ignored too.
func TestIgnoredWordsAndNumbers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		feature parse.Feature
		csv     string
		want    string
		bad     int
	}{
		{"a word", parse.Feature{Slot: 1, Split: "|", Ignore: []string{"PAD"}}, "a|PAD", "[1:" + sig("a") + "]", 0},
		{"a number as text with type string", parse.Feature{Slot: 1, Type: parse.String, Split: "|", Ignore: []string{"0"}}, "0|00", "[1:" + sig("00") + "]", 0},
		{"true is 1", parse.Feature{Slot: 1, Split: "|", Ignore: []string{"1"}}, "true|2", "[1:2]", 0},
		{"dense", parse.Feature{Kind: parse.Dense, Default: "7", Ignore: []string{"-1"}}, "-1.0", "7", 0},
		{"a word for a dense feature", parse.Feature{Kind: parse.Dense, Ignore: []string{"NA"}}, "NA", "0", 0},
		{"not a number", parse.Feature{Kind: parse.Dense, Ignore: []string{"nan"}}, "NaN", "0", 0},
		{"buckets", parse.Feature{Slot: 1, Buckets: []float64{0, 10}, MissingBucket: true, Ignore: []string{"-1"}}, "-1", "[1:3]", 0},
		{"another value", parse.Feature{Kind: parse.Dense, Ignore: []string{"-1"}}, "-2", "-2", 0},
		{"a dense row with a part ignored is too short", parse.Feature{Kind: parse.Dense, Dim: 2, Split: "|", Ignore: []string{"-1"}}, "-1|2", "", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			tc.feature.Name = "x"
			r := parseRecords(t, parse.Options{Format: parse.CSV, Columns: []string{"x"}, Features: []parse.Feature{tc.feature}}, "", []byte(tc.csv))
			var want []string
			if tc.bad == 0 {
				want = []string{"x=" + tc.want + " __position__=10"}
			}
			if !slices.Equal(r.rows, want) || len(r.bad) != tc.bad {
				t.Errorf("got %q, want %q; bad rows %q", r.rows, want, r.bad)
			}
		})
	}
}

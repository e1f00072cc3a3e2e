package pipelinetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
)

type options struct {
	Name   string
	Rows   int
	Deep   *deep
	List   []deep
	ByName map[string]int
	Watch  func()
}

type deep struct{ Slot int }

// The suite finds an option that was forgotten, wherever it stands, one that is listed and moves all the same, and what
// cannot be tried.
func TestFingerprintFindsWhatIsForgotten(t *testing.T) {
	t.Parallel()
	full := options{Name: "a", Rows: 1, Deep: &deep{1}, List: []deep{{1}}, ByName: map[string]int{"x": 1}}
	free := map[string]string{"Watch": "it changes nothing"}
	for _, tc := range []struct {
		name string
		h    FingerprintHarness[options]
		of   func(o options) string
		want string // of the one fault; empty: none
	}{
		{"whole", FingerprintHarness[options]{Options: full, Free: free}, func(o options) string { return pipeline.Fingerprint("x", o) }, ""},
		{"left out", FingerprintHarness[options]{Options: full, Free: free}, func(o options) string { return pipeline.Fingerprint("x", o, "Rows") }, "option Rows does not change"},
		{
			"left out below",
			FingerprintHarness[options]{Options: full, Free: free},
			func(o options) string { return pipeline.Fingerprint("x", o, "Deep.Slot") }, "option Deep.Slot does not change",
		},
		{
			"left out of a list",
			FingerprintHarness[options]{Options: full, Free: free},
			func(o options) string { return pipeline.Fingerprint("x", o, "List.Slot") }, "option List.Slot does not change",
		},
		{
			"written by hand",
			FingerprintHarness[options]{Options: full, Free: free},
			func(o options) string {
				return fmt.Sprintf("%s %d %v %v %d", o.Name, o.Rows, o.Deep, o.List, len(o.ByName))
			}, "option ByName does not change",
		},
		{
			"listed and moves",
			FingerprintHarness[options]{Options: full, Free: map[string]string{"Watch": "", "Rows": "only blocks"}},
			func(o options) string { return pipeline.Fingerprint("x", o) }, "option Rows changes the fingerprint, but is listed as not mattering (only blocks)",
		},
		{"a function", FingerprintHarness[options]{Options: full}, func(o options) string { return pipeline.Fingerprint("x", o) }, "option Watch is a func()"},
		{
			"not full",
			FingerprintHarness[options]{Options: options{List: full.List, ByName: full.ByName}, Free: free},
			func(o options) string { return pipeline.Fingerprint("x", o) }, "option Deep is nil",
		},
		{
			"no such option",
			FingerprintHarness[options]{Options: full, Free: map[string]string{"Watch": "", "Row": ""}},
			func(o options) string { return pipeline.Fingerprint("x", o) }, "Free lists Row, which is no option",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			faults := tc.h.faults(tc.of)
			if got := strings.Join(faults, "\n"); tc.want == "" && got != "" || !strings.Contains(got, tc.want) || tc.want != "" && len(faults) != 1 {
				t.Errorf("%d faults:\n%s\nwant %q", len(faults), got, tc.want)
			}
		})
	}
}

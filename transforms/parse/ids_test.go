package parse_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/pipeline/fid"
	"github.com/monolith-go/monolith/transforms/parse"
)

// TestIDs makes ids of single texts, as records of the feature do.
func TestIDs(t *testing.T) {
	t.Parallel()
	o := parse.Options{Format: parse.LibFM, Joins: []parse.Join{{}}, Features: []parse.Feature{
		{Name: "user", Slot: 1},
		{Name: "title", Slot: 2, Type: parse.String},
		{Name: "hashed", Slot: 3, Hash: parse.HashInt},
		{Name: "genres", Slot: 4, Split: "|", Values: "weights"},
		{Name: "age", Kind: parse.Dense},
	}}
	hash := func(slot int64, s string) int64 { return slot<<48 | int64(fid.HashString(s)) }
	for _, c := range []struct {
		feature, text string
		want          []int64
		fails         string
	}{
		{feature: "user", text: "17", want: []int64{1<<48 | 17}},
		{feature: "user", text: "17.0", want: []int64{1<<48 | 17}},
		{feature: "user", text: "ann", want: []int64{hash(1, "ann")}},
		{feature: "title", text: "17", want: []int64{hash(2, "17")}},
		{feature: "hashed", text: "-17", want: []int64{3<<48 | int64(fid.HashInt(-17))}},
		{feature: "genres", text: "war|drama", want: []int64{hash(4, "war"), hash(4, "drama")}},
		{feature: "title", text: ""},
		{feature: "user", text: "-1", fails: "ids are 0 to"},
		{feature: "age", text: "3", fails: "dense"},
		{feature: "titel", text: "3", fails: `did you mean "title"?`},
	} {
		got, err := o.IDs(c.feature, c.text)
		if c.fails != "" {
			if !errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%s %q: %v, want %q", c.feature, c.text, err, c.fails)
			}
		} else if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %v, %v, want %v", c.feature, c.text, got, err, c.want)
		}
	}
}

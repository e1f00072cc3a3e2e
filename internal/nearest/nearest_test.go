package nearest_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/nearest"
)

func TestName(t *testing.T) {
	t.Parallel()
	commands := []string{"train", "eval", "plan", "check", "inspect"}
	columns := []string{"user_id", "item_id", "rating", "timestamp"}
	for _, tc := range []struct {
		name string
		from []string
		want string
	}{
		{"trian", commands, "train"},
		{"Train", commands, "train"},
		{"evl", commands, "eval"},
		{"chek", commands, "check"},
		{"inspct", commands, "inspect"},
		{"xyzzy", commands, ""},
		{"", commands, ""},
		{"userid", columns, "user_id"},
		{"item", columns, "item_id"},
		{"Raiting", columns, "rating"},
		{"time_stamp", columns, "timestamp"},
		{"b", []string{"a", "c"}, "a"},
		{"x", nil, ""},
	} {
		if got := nearest.Name(tc.name, tc.from); got != tc.want {
			t.Errorf("%q is %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestSuggest(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"lables": `, did you mean "label"?`, "x": ` (there are ["label" "weight"])`} {
		if got := nearest.Suggest(name, []string{"label", "weight"}); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

// TestEdits: a name with one edit for each three bytes is found among others that are far.
// A file that is no csv can have a header of any size.
func TestSuggestIsBounded(t *testing.T) {
	t.Parallel()
	many := make([]string, 1000)
	for i := range many {
		many[i] = strings.Repeat("\x00", 1000)
	}
	got := nearest.Suggest("user_id", many)
	if len(got) > 20*200 || !strings.HasSuffix(got, "] and 980 more)") {
		t.Errorf("%d bytes, ends with %q", len(got), got[max(0, len(got)-40):])
	}
	if got := nearest.Suggest("user_id", nil); got != " (there are none)" {
		t.Errorf("of nothing: %q", got)
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	letter := func() byte { return byte('a' + rng.IntN(13)) }
	for range 2000 {
		name := make([]byte, 3+rng.IntN(12))
		for i := range name {
			name[i] = letter()
		}
		edited := append([]byte(nil), name...)
		for range len(name) / 3 {
			switch at := rng.IntN(len(edited)); rng.IntN(3) {
			case 0:
				edited[at] = letter()
			case 1:
				edited = append(edited[:at], edited[at+1:]...)
			default:
				edited = append(edited[:at], append([]byte{letter()}, edited[at:]...)...)
			}
			if len(edited) == 0 {
				edited = []byte{letter()}
			}
		}
		if got := nearest.Name(string(edited), []string{"zzzzzzzzzzzzzzzzzzzzzzzz", string(name)}); got != string(name) {
			t.Fatalf("%q is %q, want %q", edited, got, name)
		}
	}
}

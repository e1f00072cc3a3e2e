package wiring_test

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/wiring"
	"github.com/monolith-go/monolith/transforms/parse"
)

// A recipe that was stored before there was a key keep means the first values, whatever the default of jobs is now.
func TestStoredRecipesKeepTheirMeaning(t *testing.T) {
	t.Parallel()
	for recipe, want := range map[string]parse.Keep{
		`{"features":[{"name":"item","slot":1},{"name":"hist","slot":2,"max":10,"attends":"item"}]}`:               parse.KeepFirst,
		`{"features":[{"name":"item","slot":1},{"name":"hist","slot":2,"max":10,"keep":"last","attends":"item"}]}`: parse.KeepLast,
		`{"features":[{"name":"item","slot":1},{"name":"hist","slot":2,"max":10}]}`:                                parse.KeepFirst,
		`{"features":[{"name":"item","slot":1},{"name":"hist","slot":2,"attends":"item"}]}`:                        "",
	} {
		o, err := wiring.RecipeOptions([]byte(recipe), components.All())
		if err != nil {
			t.Fatal(err)
		}
		if got := o.Features[1].Keep; got != want {
			t.Errorf("%s keeps %q, want %q", recipe, got, want)
		}
		if !o.Features[1].Literal {
			t.Errorf("%s: text such as 667.0 is not hashed, as it was", recipe)
		}
		now, err := wiring.RecipeOptions([]byte(strings.TrimSuffix(recipe, "}")+`,"whole_ids":true}`), components.All())
		if err != nil || now.Features[1].Literal {
			t.Errorf("%s, and whole: text such as 667.0 is hashed: %v", recipe, err)
		}
		if err := o.Validate(); err != nil {
			t.Error(err)
		}
	}
}

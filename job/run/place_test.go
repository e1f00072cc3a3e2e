package run

import (
	"testing"

	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/job/spec"
)

// TestPlacesAreNamedAsTheJobDoes: a folder that was named from where the user is stays so in what is reported, also where it is
// compared with others by its path from the root.
func TestPlacesAreNamedAsTheJobDoes(t *testing.T) {
	t.Parallel()
	for dir, want := range map[string]string{"scores/../scores": "scores/../scores", "scores": "scores", "/scores": "/scores"} {
		cfg, err := spec.Decode([]byte(`
version: 1
source: {synthetic: {}}
parse: {features: [{name: user}], label: click}
model: lr
predict: {to: {tsv: {dir: `+dir+`}}}
`), "x.yaml", spec.LoadOptions{Components: components.All()})
		if err != nil {
			t.Fatal(err)
		}
		to := cfg.Predict.To.Value()
		key, place := to.Place()
		if got := named(to, key, place); got != want || place == "scores" {
			t.Errorf("%s: %s (%s), want %s", dir, got, place, want)
		}
	}
}

package parse_test

import (
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// seenHooks adds up what stages report.
type seenHooks struct {
	all map[string]*parse.Seen
}

func (h *seenHooks) FeaturesParsed(seen []parse.Seen) {
	for _, s := range seen {
		if h.all[s.Name] == nil {
			h.all[s.Name] = &parse.Seen{Name: s.Name}
		}
		h.all[s.Name].Add(s)
	}
}

// Values are counted as the model gets them, defaults and bad rows are not.
func TestSeen(t *testing.T) {
	t.Parallel()
	stage := parse.New(parse.Options{
		Format: parse.CSV, Columns: []string{"user", "x", "xs"},
		Features: []parse.Feature{
			{Name: "user", Slot: 1, Default: "7"},
			{Name: "x", Kind: parse.Dense, Clip: []float64{0, 10}, Default: "5"},
			{Name: "xs", Kind: parse.Dense, Dim: 2, Split: ";"},
			{Name: "age", Kind: parse.Dense},
			{Name: "gone", Column: "age", Slot: 3},
		},
		Joins: []parse.Join{{File: writeFile(t, "ages.tsv", "a\t30\nb\t\n"), Columns: []string{"user", "age"}, Key: "user"}},
	})
	hooks := &seenHooks{all: map[string]*parse.Seen{}}
	p, err := stage.Open(t.Context(), &pipeline.Env{Hooks: pipeline.NewHooks(hooks), BadRows: &pipeline.SkipBadRows{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a,3,1;2\nb,,\nc,bad,", ",99,-3;4"} {
		if err := p.Process(t.Context(), blockOf(t, memory.DefaultAllocator, 0, "", lines(text)...), func(b *pipeline.Batch) error { b.Release(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]*parse.Seen{
		"user": {Name: "user", Rows: 3, Filled: 2, IDs: 2},
		"x":    {Name: "x", Rows: 3, Filled: 2, Numbers: 2, Min: 3, Max: 10, Sum: 13, Squares: 109},
		"xs":   {Name: "xs", Rows: 3, Filled: 2, Numbers: 4, Min: -3, Max: 4, Sum: 4, Squares: 30},
		"age":  {Name: "age", Rows: 3, Filled: 1, Numbers: 1, Min: 30, Max: 30, Sum: 30, Squares: 900},
		"gone": {Name: "gone", Rows: 3, Filled: 1, IDs: 1, ID: 3<<48 + 30},
	}
	if diff := cmp.Diff(want, hooks.all); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	x := hooks.all["x"]
	if x.Mean() != 6.5 || x.RMS() != math.Sqrt(54.5) {
		t.Errorf("mean %v, rms %v", x.Mean(), x.RMS())
	}
}

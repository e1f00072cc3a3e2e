package parse_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/pipeline"
	"github.com/monolith-go/monolith/transforms/parse"
)

// A list above the maximum keeps the end that the feature names, in every format; the values of libfm's entries stay with theirs.
func TestKeep(t *testing.T) {
	t.Parallel()
	for keep, want := range map[parse.Keep]struct{ ids, values string }{
		"":              {"[1:1 1:2 1:3]", "[0.1 0.2 0.3]"},
		parse.KeepFirst: {"[1:1 1:2 1:3]", "[0.1 0.2 0.3]"},
		parse.KeepLast:  {"[1:3 1:4 1:5]", "[0.3 0.4 0.5]"},
	} {
		t.Run(string(keep), func(t *testing.T) {
			t.Parallel()
			f := parse.Feature{Name: "hist", Slot: 1, Max: 3, Keep: keep, Ignore: []string{"0"}}
			cut := f
			cut.Split = "|"
			expect := func(format string, r result, behind string) {
				t.Helper()
				if diff := cmp.Diff([]string{"hist=" + want.ids + behind + " __position__=10"}, r.rows); diff != "" || len(r.bad) > 0 {
					t.Errorf("%s: %s %q", format, diff, r.bad)
				}
			}
			expect("csv", parseRecords(t, parse.Options{Format: parse.CSV, Columns: []string{"hist"}, Features: []parse.Feature{cut}}, "", []byte("1|2|3|4|5|0|0")), "")
			expect("jsonl", parseRecords(t, parse.Options{Format: parse.JSONL, Features: []parse.Feature{f}}, "", []byte(`{"hist":[0,1,2,3,4,5,0]}`)), "")
			var e example.Encoder
			e.Int64s("hist", 1, 2, 3, 4, 5)
			expect("tf_example", parseRecords(t, parse.Options{Format: parse.TFExample, Features: []parse.Feature{f}}, "", e.Append(nil)), "")
			of := f
			of.Column = "user"
			expect("columns", parseColumn(t, parse.Options{Features: []parse.Feature{of}}, arrow.ListOf(arrow.PrimitiveTypes.Int64), "[1,2,3,4,5]"), "")
			of.Column, of.Values = "features", "v"
			expect("libfm", parseRecords(t, parse.Options{Format: parse.LibFM, Features: []parse.Feature{of}}, "", []byte("1 1:.1 2:.2 0:9 3:.3 4:.4 5:.5")), " v="+want.values+" __label__=1")
			of = cut
			of.Column = "list"
			expect("a side table", parseRecords(t, parse.Options{
				Format: parse.CSV, Columns: []string{"user"}, Features: []parse.Feature{of},
				Joins: []parse.Join{{File: writeFile(t, "lists.tsv", "a\t1|2|3|4|5\n"), Columns: []string{"user", "list"}, Key: "user"}},
			}, "", []byte("a")), "")
		})
	}
}

// Rows that were cut are counted, whether columns are taken row by row or whole, and from side tables too.
func TestCutRowsAreCounted(t *testing.T) {
	t.Parallel()
	hooks := &seenHooks{all: map[string]*parse.Seen{}}
	env := &pipeline.Env{Hooks: pipeline.NewHooks(hooks), BadRows: &pipeline.SkipBadRows{}}
	stage := parse.New(parse.Options{
		Format: parse.CSV, Columns: []string{"user", "hist", "x"},
		Features: []parse.Feature{
			{Name: "hist", Slot: 1, Split: "|", Max: 2, Keep: parse.KeepLast},
			{Name: "list", Slot: 2, Split: "|", Max: 1},
			{Name: "all", Column: "hist", Slot: 3, Split: "|"},
			{Name: "x", Kind: parse.Dense},
		},
		Joins: []parse.Join{{File: writeFile(t, "lists.tsv", "a\t1|2\nb\t1\n"), Columns: []string{"user", "list"}, Key: "user"}},
	})
	p, err := stage.Open(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	block := blockOf(t, memory.DefaultAllocator, 0, "", lines("a,1|2|3,1\na,1|2,1\nb,1|2|3,bad\nb,1|2|3,1\nc,,1")...)
	if err := p.Process(t.Context(), block, func(b *pipeline.Batch) error { b.Release(); return nil }); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int64{"hist": 2, "list": 2, "all": 0, "x": 0} {
		if got := hooks.all[name].Cut; got != want {
			t.Errorf("%s: %d rows were cut, want %d", name, got, want)
		}
	}
}

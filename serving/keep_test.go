package serving_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/internal/example"
	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/serving"
)

// A server cuts a list as training does, at the end that the feature keeps, and ignores its padding, whatever form the request has.
func TestListsAreCutAsInTraining(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		features string
		last     bool
	}{
		"attends":       {"{name: hist, slot: 1, attends: item, table: item, max: 10, ignore: [0]}", true},
		"keep first":    {"{name: hist, slot: 1, attends: item, table: item, max: 10, keep: first, ignore: [0]}", false},
		"first entries": {"{name: hist, slot: 1, combiner: first, table: item, max: 10, keep: last, ignore: [0]}", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var text strings.Builder
			for i := range 2000 {
				fmt.Fprintf(&text, `{"item":%d,"hist":[%d,%d,%d],"click":%d}`+"\n", 1+i%20, 1+i%7, 1+i%11, 1+i%13, i%3%2)
			}
			if err := os.WriteFile(filepath.Join(dir, "a.jsonl"), []byte(text.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: hist
dir: %q
source: {text: {files: [%q]}}
parse: {format: jsonl, features: [{name: item, slot: 1, table: item}, %s], label: click}
model: {din: {dim: 4, hidden: [8]}}
train: {batch: 50}
`, filepath.Join(dir, "run"), filepath.Join(dir, "a.jsonl"), tc.features), "hist.yaml", job.LoadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := job.ExportModel(t.Context(), job.ExportModelOptions{Snapshot: cfg.Dir, Format: "native", Dir: filepath.Join(dir, "exports"), Workers: 1}); err != nil {
				t.Fatal(err)
			}
			m := models(t, serving.ModelConfig{Name: "hist", Dir: filepath.Join(dir, "exports")})
			h := serving.NewServer(serving.Options{Models: m}).Handler(nil)
			predict := func(list []int64) float32 {
				t.Helper()
				b, err := json.Marshal(map[string]any{"instances": []any{map[string]any{"item": 3, "hist": list}}})
				if err != nil {
					t.Fatal(err)
				}
				code, body := ask(t, h, "/v1/models/hist:predict", string(b))
				if code != http.StatusOK {
					t.Fatalf("%d: %s", code, body)
				}
				return predictions(t, body)[""][0]
			}
			events := make([]int64, 250)
			for i := range events {
				events[i] = int64(1 + i%13)
			}
			kept, other := events[240:], events[:10]
			if !tc.last {
				kept, other = other, kept
			}
			want := predict(kept)
			if predict(other) == want {
				t.Fatal("the ends do not differ")
			}
			padded := append(slices.Clone(events), make([]int64, 50)...)
			for what, list := range map[string][]int64{"250 events": events, "padding": padded} {
				if got := predict(list); got != want {
					t.Errorf("%s: JSON %v, want %v", what, got, want)
				}
				var e example.Encoder
				e.Int64s("item", 3)
				e.Int64s("hist", list...)
				v, _, done, err := m.Use("hist", serving.Which{})
				if err != nil {
					t.Fatal(err)
				}
				defer done()
				for form, in := range map[string]*serving.Input{
					"tf.Example": {Form: serving.FormExample, Records: [][]byte{e.Append(nil)}},
					"columns": {Form: serving.FormColumns, Rows: 1, Columns: map[string]*serving.Column{
						"item": {Ints: []int64{3}, Offsets: []int32{0, 1}}, "hist": {Ints: list, Offsets: []int32{0, int32(len(list))}},
					}},
				} {
					got, err := v.Predict(t.Context(), in, nil)
					if err != nil {
						t.Fatal(err)
					}
					if got[0][0] != want {
						t.Errorf("%s: %s %v, want %v", what, form, got[0][0], want)
					}
				}
			}
		})
	}
}

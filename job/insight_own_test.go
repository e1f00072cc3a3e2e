package job_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
)

// TestInsightOfOwnParts: a program's own model, with an operator, a loss, a metric, a stage and a source of its own, is looked into as any other.
func TestInsightOfOwnParts(t *testing.T) {
	t.Parallel()
	rows, seen := &counter{}, &memory{}
	parts := components.All()
	parts.Sources = append(parts.Sources, component.Source{Name: "clicks", Doc: "makes clicks in memory.", New: func() component.SourceConfig { return &ownClicks{} }})
	parts.Stages = append(parts.Stages, component.Stage{Name: "count", Doc: "counts rows.", New: func() component.StageConfig { return &counting{rows} }})
	parts.Models = append(parts.Models, component.Model{Name: "attention", Doc: "a model of the program's own.", New: func() component.ModelConfig { return &attention{} }})
	parts.Losses, parts.Metrics = append(parts.Losses, upper()), append(parts.Metrics, covered())
	parts.Sinks = append(parts.Sinks, component.Sink{Name: "memory", Doc: "keeps rows in memory.", New: func() component.SinkConfig { return &remembering{seen} }})
	cfg, err := job.Decode([]byte(ownJob), "own.yaml", job.LoadOptions{Components: parts, Set: []string{"dir=" + t.TempDir(), "eval.source.clicks.examples=300"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
		t.Fatal(err)
	}
	want, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := job.Insight(t.Context(), cfg, job.InsightOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Examples != want.Examples || len(got.Metrics) < 3 {
		t.Errorf("%d examples, want %d; metrics %v", got.Examples, want.Examples, got.Metrics)
	}
	for name, v := range got.Metrics {
		if v != want.Metrics[name] {
			t.Errorf("%s is %v, of the evaluation %v", name, v, want.Metrics[name])
		}
	}
	tables := map[string]string{}
	for _, f := range got.Features {
		if tables[f.Name] = f.Table; f.Gradient == nil || *f.Gradient == 0 || f.Length == 0 {
			t.Errorf("%+v", f)
		}
	}
	if diff := cmp.Diff(map[string]string{"user": "users", "item": "items", "history": "items"}, tables); diff != "" {
		t.Error(diff)
	}
	moved := 0
	for _, l := range got.Layers {
		if l.Gradient != nil && *l.Gradient > 0 {
			moved++
		}
	}
	if moved == 0 || len(got.Layers) < 6 {
		t.Errorf("layers %+v", got.Layers)
	}
}

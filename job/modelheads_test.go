package job_test

import (
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/loss"
)

// askedHeads is a model that notes the heads that it is asked for.
type askedHeads struct {
	Linear `yaml:",inline"`
	got    *component.ModelInputs
}

func (a *askedHeads) Build(in component.ModelInputs) (model.Model, error) {
	*a.got = in
	return a.Linear.Build(in)
}

// TestModelInputsHaveAHead: a program's model always has a head to build, also for a job with a label alone.
func TestModelInputsHaveAHead(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"parse: {features: [{name: user}], label: click}":                        "",
		"parse: {features: [{name: user}]}\nheads: [{name: like, label: click}]": "like",
	} {
		var got component.ModelInputs
		parts := components.All()
		parts.Models = append(parts.Models, component.Model{Name: "asked", Doc: "a sum of weights.", New: func() component.ModelConfig { return &askedHeads{got: &got} }})
		cfg, err := job.Decode([]byte("version: 1\nsource: {synthetic: {examples: 10}}\nmodel: asked\n"+text+"\n"), "job.yaml", job.LoadOptions{Components: parts})
		if err != nil {
			t.Fatal(err)
		}
		_, _ = job.BuildPlan(cfg) // this model has a head of its own, whatever the job's
		if len(got.Heads) != 1 || got.Heads[0].Loss != loss.CrossEntropy || got.Heads[0].Width != 1 && want == "" || got.Unnamed != (want == "") || want != "" && got.Heads[0].Name != want {
			t.Errorf("%s: heads %+v, unnamed %v", text, got.Heads, got.Unnamed)
		}
	}
}

package job_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/model"
	"github.com/monolith-go/monolith/model/zoo"
	"github.com/monolith-go/monolith/pipeline"
)

// TestPrecisionOfProducts: train.precision changes what is trained and the plan; a
// job without the key is in float32.
func TestPrecisionOfProducts(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 500 {
		lines = append(lines, fmt.Sprintf("%d,%d.37", i%2, i%7+i%3))
	}
	const parse = `parse: {format: csv, columns: [y, x], features: [{name: x, kind: dense}], label: y}`
	cfg := csvJob(t, lines, parse)
	if cfg.Train.Precision != "float32" {
		t.Errorf("the default is %q", cfg.Train.Precision)
	}
	losses, plans := map[string]float64{}, map[string]string{}
	for _, precision := range []string{"float32", "bf16"} {
		cfg.Train.Precision, cfg.Dir = precision, filepath.Join(t.TempDir(), "run")
		plan, err := job.BuildPlan(cfg)
		if err != nil {
			t.Fatal(err)
		}
		r, err := job.Run(t.Context(), cfg, job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		losses[precision], plans[precision] = r.Metrics["progressive_log_loss"], plan.Hash()
	}
	if losses["bf16"] == losses["float32"] || plans["bf16"] == plans["float32"] {
		t.Errorf("bf16 changes nothing: losses %v, plans %v", losses, plans)
	}
	if d := losses["bf16"] - losses["float32"]; d > .01 || d < -.01 {
		t.Errorf("bf16 is far from float32: losses %v", losses)
	}
}

// opaque is a model that is no graph of this project's.
type opaque struct{}

func (*opaque) Build(in component.ModelInputs) (model.Model, error) {
	m, err := zoo.New(zoo.Config{Name: zoo.DeepFM, Features: in.Features, Heads: in.Heads})
	return struct{ model.Model }{m}, err
}

// TestPrecisionOfOtherModels: a model whose products the program cannot see into is refused by the key.
func TestPrecisionOfOtherModels(t *testing.T) {
	t.Parallel()
	parts := components.All()
	parts.Models = append(parts.Models, component.Model{Name: "opaque", Doc: "a model of the program's own.", New: func() component.ModelConfig { return &opaque{} }})
	for _, precision := range []string{"float32", "bf16"} {
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: opaque
dir: %q
source: {text: {files: [none.csv]}}
parse: {format: csv, columns: [y, x], features: [{name: x, kind: dense}], label: y}
model: {opaque: {}}
train: {precision: %s}
`, t.TempDir(), precision), "opaque.yaml", job.LoadOptions{Components: parts})
		if err != nil {
			t.Fatal(err)
		}
		_, err = job.BuildPlan(cfg)
		if precision == "float32" && err != nil {
			t.Error(err)
		}
		if precision == "bf16" && (!errors.Is(err, pipeline.ErrConfig) || !strings.Contains(err.Error(), "train.precision: bf16: the products of model.opaque are in float32 alone")) {
			t.Errorf("bf16: %v", err)
		}
	}
}

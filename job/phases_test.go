package job_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/monolith-go/monolith/job"
	"github.com/monolith-go/monolith/job/component"
	"github.com/monolith-go/monolith/job/components"
	"github.com/monolith-go/monolith/pipeline"
)

// thin is a stage that keeps every n-th row.
type thin struct {
	counter
	Every int `yaml:"every" default:"2" min:"1"`
}

func (s *thin) Stage() (pipeline.Stage[*pipeline.Batch, *pipeline.Batch], error) { return s, nil }
func (s *thin) Open(_ context.Context, env *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return &thinner{Every: s.Every, env: env}, nil
}

type thinner struct {
	counter
	Every int
	env   *pipeline.Env
}

func (s *thinner) Process(_ context.Context, in *pipeline.Batch, emit func(*pipeline.Batch) error) error {
	keep := make([]bool, in.NumRows())
	for i := range keep {
		keep[i] = s.n%s.Every == 0
		s.n++
	}
	out, err := pipeline.Filter(in, keep, s.env.Mem())
	if err != nil {
		return err
	}
	return emit(out)
}

// TestPhasesOfStages: a stage runs in the phases that it names, and in no other.
func TestPhasesOfStages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "clicks.csv")
	if err := os.WriteFile(path, []byte(csvOf(1200, 0)), 0o644); err != nil {
		t.Fatal(err)
	}
	parts := components.All()
	parts.Stages = []component.Stage{{Name: "thin", Doc: "keeps some rows.", New: func() component.StageConfig { return &thin{} }}}
	decode := func(t *testing.T, stages, dir string, set ...string) *job.Config {
		t.Helper()
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
name: clicks
dir: %q
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: user}, {name: item}], label: click}
stages: %s
model: lr
train: {batch: 50}
eval: {holdout: {by: item, share: 0.3}}
predict: {to: {tsv: {dir: %q}}}
`, dir, path, stages, filepath.Join(dir, "predicted")), "phases.yaml", job.LoadOptions{Components: parts, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	counts := func(t *testing.T, stages string) (trained, heldOut, other, insight, predicted int64) {
		t.Helper()
		dir := t.TempDir()
		run, err := job.Run(t.Context(), decode(t, stages, dir), job.RunOptions{})
		if err != nil {
			t.Fatal(err)
		}
		held, err := job.Evaluate(t.Context(), decode(t, stages, dir), job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		looked, err := job.Insight(t.Context(), decode(t, stages, dir), job.InsightOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := job.Predict(t.Context(), decode(t, stages, dir), job.PredictOptions{})
		if err != nil {
			t.Fatal(err)
		}
		withSource := fmt.Sprintf("eval={source: {text: {files: [%q]}}}", path)
		apart := t.TempDir()
		if _, err := job.Run(t.Context(), decode(t, stages, apart, withSource), job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		all, err := job.Evaluate(t.Context(), decode(t, stages, apart, withSource), job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return run.Examples, held.Examples, all.Examples, looked.Examples, p.Rows
	}
	trained, heldOut, other, insight, predicted := counts(t, "[]")
	if trained+heldOut != 1200 || other != 1200 || insight != heldOut || predicted != 1200 {
		t.Fatalf("without a stage: %d trained, %d held out, %d of eval.source, %d looked into, %d predicted", trained, heldOut, other, insight, predicted)
	}
	half := func(n int64, thinned bool) int64 {
		if thinned {
			return (n + 1) / 2
		}
		return n
	}
	for _, tc := range []struct {
		stages               string
		train, eval, predict bool
	}{
		{"[thin]", true, true, true},
		{"[{thin: {}, phases: [train]}]", true, false, false},
		{"[{thin: {every: 2}, phases: [eval]}]", false, true, false},
		{"[{phases: [predict], thin: {}}]", false, false, true},
		{"[{thin: {}, phases: [train]}, {thin: {}, phases: [predict, eval]}]", true, true, true},
	} {
		t.Run(tc.stages, func(t *testing.T) {
			t.Parallel()
			got := fmt.Sprint(counts(t, tc.stages))
			want := fmt.Sprint(half(trained, tc.train), half(heldOut, tc.eval), half(1200, tc.eval), half(heldOut, tc.eval), half(1200, tc.predict))
			if got != want {
				t.Errorf("trained, held out, of eval.source, looked into, predicted: %s, want %s", got, want)
			}
		})
	}
}

// TestHoldoutOfStages: with sample_rate, held-out rows are measured as sampled data, unless a stage that runs in training
// alone does the sampling.
func TestHoldoutOfStages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "clicks.csv")
	if err := os.WriteFile(path, []byte(csvOf(1200, 0)), 0o644); err != nil {
		t.Fatal(err)
	}
	parts := components.All()
	parts.Stages = []component.Stage{{Name: "pass", Doc: "hands rows on.", New: func() component.StageConfig { return &passes{} }}}
	calibration := func(stages string) float64 {
		t.Helper()
		cfg, err := job.Decode(fmt.Appendf(nil, `
version: 1
dir: %q
source: {text: {files: [%q]}}
parse: {format: csv, header: true, features: [{name: item}]}
heads: [{name: click, sample_rate: 0.1, metrics: [calibration]}]
stages: %s
model: lr
epochs: 2
train: {batch: 50}
eval: {holdout: 0.3}
`, t.TempDir(), path, stages), "held.yaml", job.LoadOptions{Components: parts})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := job.Run(t.Context(), cfg, job.RunOptions{}); err != nil {
			t.Fatal(err)
		}
		r, err := job.Evaluate(t.Context(), cfg, job.EvalOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Metrics["click.calibration"]
	}
	// The stage drops nothing, so held-out rows have the same share of clicks as training rows.
	// Predictions of sampled data are higher: p/(p+0.1·(1-p)).
	both, alone := calibration("[pass]"), calibration("[{pass: {}, phases: [train]}]")
	if math.IsNaN(both) || both < 1.5*alone {
		t.Errorf("calibration of %v where the stage runs in both, %v where it runs in training alone", both, alone)
	}
}

// TestFaultsOfPhases: messages name the stage.
func TestFaultsOfPhases(t *testing.T) {
	t.Parallel()
	parts := components.All()
	parts.Stages = []component.Stage{{Name: "pass", Doc: "hands rows on.", New: func() component.StageConfig { return &passes{} }}}
	for stages, want := range map[string]string{
		"[{pass: {}, phases: []}]":             "p.yaml:4:29: stages[0].phases: is empty, and the stage would never run: name train, eval or predict, or leave out the stage",
		"[{pass: {}, phases: [training]}]":     `p.yaml:4:30: stages[0].phases[0]: is "training", not one of train, eval, predict; did you mean "train"?`,
		"[pass, {pass: {}, phase: [predict]}]": `p.yaml:4:27: stages[1].phase: unknown key; did you mean "phases"?`,
		"[{phases: [predict]}]":                "p.yaml:4:10: stages[0]: is missing; choose one of pass",
	} {
		_, err := job.Decode([]byte("version: 1\nsource: synthetic\nmodel: lr\nstages: "+stages+"\n"), "p.yaml", job.LoadOptions{Components: parts})
		if faults, ok := errors.AsType[*job.ConfigError](err); !ok || len(faults.Faults) != 1 || faults.Faults[0].String() != want {
			t.Errorf("%s: %v\nwant %s", stages, err, want)
		}
	}
}

// passes is the section of a stage that hands rows on.
type passes struct{}

func (*passes) Stage() (pipeline.Stage[*pipeline.Batch, *pipeline.Batch], error) {
	return handsOn{}, nil
}

// handsOn is a stage that hands rows on.
type handsOn struct{ *counter }

func (handsOn) Open(context.Context, *pipeline.Env) (pipeline.Processor[*pipeline.Batch, *pipeline.Batch], error) {
	return &counter{}, nil
}

package job_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/job"
)

const clicksJob = `
version: 1
name: clicks
source: {synthetic: {examples: 20000}}
parse:
  features: [{name: user, slot: 1}, {name: item, slot: 2}, {name: price, kind: dense}]
  label: click
model: {fm: {dim: 4}}
train: {batch: 256}
eval: {source: {synthetic: {examples: 2000, seed: 2}}}
`

// A job is read, with what is wrong with it all at once.
func ExampleDecode() {
	_, err := job.Decode([]byte(clicksJob), "clicks.yaml", job.LoadOptions{Set: []string{"train.batch=0", "model.fm.dims=8"}})
	fmt.Println(err)
	cfg, err := job.Decode([]byte(clicksJob), "clicks.yaml", job.LoadOptions{Env: []string{"MONOLITH_TRAIN_BATCH=512"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range cfg.Effective() {
		if s.Path == "train.batch" || s.Path == "model.fm.dim" {
			fmt.Println(s.Path, s.Value, s.From, s.Where)
		}
	}
	// Output:
	// 2 faults in the job:
	//   --set model.fm.dims: model.fm.dims: unknown key; did you mean "dim"?
	//   --set train.batch: train.batch: is 0, must be at least 1
	// model.fm.dim 4 file clicks.yaml:8:19
	// train.batch 512 env MONOLITH_TRAIN_BATCH
}

// A job file is loaded, checked, trained and evaluated.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an example's leftovers
	path := filepath.Join(dir, "clicks.yaml")
	if err := os.WriteFile(path, []byte(clicksJob), 0o644); err != nil {
		fmt.Println(err)
		return
	}
	cfg, err := job.Load(path, job.LoadOptions{Env: os.Environ(), Set: []string{"dir=" + filepath.Join(dir, "run")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	findings, err := job.Check(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(findings), "findings")
	trained, err := job.Run(ctx, cfg, job.RunOptions{Notice: func(text string) { fmt.Fprintln(os.Stderr, text) }})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(trained.Examples, "examples in", trained.Steps, "steps")
	scored, err := job.Evaluate(ctx, cfg, job.EvalOptions{Snapshot: trained.Snapshot})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(scored.Examples, "examples, AUC above .5:", scored.Metrics["auc"] > 0.5)
	// Output:
	// 0 findings
	// 20000 examples in 79 steps
	// 2000 examples, AUC above .5: true
}
